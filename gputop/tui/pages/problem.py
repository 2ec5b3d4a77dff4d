"""What is shown if there are no GPUs to see: the problem, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from gputop.model.machine.frame import Problem
from gputop.tui.keys import APP_BINDINGS
from gputop.tui.panes.heading import PageKeys, key_words, works
from gputop.tui.terminal.key_queue import keyed


class ProblemScreen(Screen[None]):
    """A driver that cannot be read, or an agent that ended."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "app.retry", "Try again", tooltip="Start over", id="problem.retry"),
        Binding("d", "app.demo", "Demo", tooltip="Show an invented machine", id="problem.demo"),
        Binding("L", "app.login", "Log in", tooltip="Log in by hand", id="problem.login"),
        Binding("escape", "app.leave_host", "Hosts", tooltip="Back to all hosts",
                id="problem.leave", key_display="Esc"),
    ]  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._content = Content()

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self._content, id="problem")
        own = (b for b in keyed(self.app, self.BINDINGS) if works(self, b))
        of_app = (b for b in keyed(self.app, APP_BINDINGS) if b.id in ("app.help", "app.quit"))
        yield PageKeys(key_words([*own, *of_app]), with_notes=True)

    def show_problem(self, host: str, problem: Problem, tries: bool) -> None:
        """Show a problem; a screen that is not made yet shows it later. `tries`: whether gputop
        tries again by itself."""
        content = Content.assemble(*_parts(host, problem, tries))
        if content != self._content:
            self._content = content
            for text in self.query("#problem").results(Static):
                text.update(content)


def _parts(host: str, problem: Problem, tries: bool) -> Iterator[tuple[str, str] | str]:
    yield ("gputop", "bold")
    yield f"  {host}\n\n"
    yield (problem.text[:1].upper() + problem.text[1:].rstrip(".") + ".", "bold $gp-alarm")
    yield f"\n\n{problem.advice[:1].upper() + problem.advice[1:]}.\n"
    if problem.cards:
        yield "\nNVIDIA cards on the PCI bus:\n"
        for card in problem.cards:
            yield f"  {card}\n"
    if tries and problem.code != "agent_ended":
        yield "\ngputop tries again every few seconds."
