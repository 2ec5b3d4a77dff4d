"""Help: the keys, and how to read what is shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from gputop.model import activity
from gputop.model.gpu_metrics import GPU
from gputop.model.process_metrics import COLUMNS
from gputop.model.sections import THROTTLE_REASONS
from gputop.tui.glyphs import Glyphs

_MOVING = (
    ("up down j k", "select a row; the cursor stays on its process"),
    ("PgUp PgDn ^B ^F", "by screenfuls"),
    ("Home End", "to the first row, to the last"),
    ("Tab", "to the next pane"),
    ("Enter", "leave the filter or the value, and keep what was typed"),
    ("^P", "every action by name"),
)


class HelpScreen(ModalScreen[None]):
    """A page to scroll; made of the bindings themselves, so that it is true."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1", "leave", "Close", id="help.leave", show=False),
        Binding("j", "down", "Down", id="help.down", show=False),
        Binding("k", "up", "Up", id="help.up", show=False),
    ]

    def __init__(
        self, bindings: Iterable[Binding], of_problem: Iterable[Binding], glyphs: Glyphs
    ) -> None:
        super().__init__()
        self._described = list(bindings)
        self._of_problem = list(of_problem)
        self._glyphs = glyphs

    def compose(self) -> ComposeResult:
        """One text."""
        with VerticalScroll():
            yield Static(Content.assemble(*self._parts()))

    def action_leave(self) -> None:
        """Back."""
        self.dismiss(None)

    def action_down(self) -> None:
        """As the arrow key."""
        self.query_one(VerticalScroll).scroll_down(animate=False)

    def action_up(self) -> None:
        """As the arrow key."""
        self.query_one(VerticalScroll).scroll_up(animate=False)

    def _parts(self) -> Iterator[tuple[str, str] | str]:
        yield ("Keys\n", "bold")
        for keys, text in _MOVING:
            yield from _line(keys, text)
        for binding in self._described:
            yield from _line(_names(binding), binding.tooltip or binding.description)
        yield ("\nWithout a driver\n", "bold")
        for binding in self._of_problem:
            yield from _line(_names(binding), binding.tooltip or binding.description)
        yield ("\nSigns\n", "bold")
        yield from self._signs()
        yield (
            f"\nWhat a GPU is doing, over {activity.WINDOW:.0f} s: the first that fits\n",
            "bold",
        )
        for word, text in activity.WORDS:
            yield from _line(word, text)
        yield ("\nTHR, what holds the clocks back\n", "bold")
        for letter, text in THROTTLE_REASONS.values():
            yield from _line(letter, text)
        for title, metrics in (("GPUs", GPU.values()), ("Processes", COLUMNS.values())):
            yield (f"\n{title}\n", "bold")
            for metric in metrics:
                yield from _line(metric.label, metric.help)

    def _signs(self) -> Iterator[tuple[str, str] | str]:
        glyphs = self._glyphs
        yield from _line("0", "nothing, measured")
        yield from _line(glyphs.not_available, "not available, or no sample in this interval")
        yield from _line(f"{glyphs.stale} stale 12s", "the GPU does not answer; its values are old")
        yield from _line("short history", "a cell a sample, the newest at the right; gaps are gaps")
        yield from _line("graph", "the greatest value in each dot's time; peak: of all in sight")
        yield from _line("free", "no compute process, under 1 GiB in use")
        yield from _line(
            f"{glyphs.warning} XID 79", "the worst that is found of the GPU; H says more"
        )
        yield from _line("not in /proc", "a process of another PID namespace, or one that ended")


def _line(key: str, text: str) -> Iterator[tuple[str, str] | str]:
    yield (f"  {key:<20}", "$gp-key")
    yield f" {text}\n"


def _names(binding: Binding) -> str:
    """As a person would name the keys."""
    names = {"slash": "/", "question_mark": "?", "plus": "+", "minus": "-", "equals_sign": "="}
    return " ".join(names.get(key, key) for key in binding.key.split(","))
