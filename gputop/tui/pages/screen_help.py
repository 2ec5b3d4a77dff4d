"""What the help says of a screen: its keys by task, and every word on it with its meaning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from textual.binding import Binding

from gputop.manual import table_below
from gputop.model.fleet.host_summary import LAMPS
from gputop.model.health import activity, free
from gputop.model.health.throttle import THROTTLE_REASONS
from gputop.model.metrics.gpu import GPU
from gputop.model.metrics.process import COLUMNS
from gputop.tui.glyphs import GlyphSet
from gputop.tui.key_names import names_of
from gputop.tui.panes.fleet import lamp_sign

Definitions = Iterable[tuple[str, str]]
_TASKS = ("View", "Mapping", "Move", "Processes", "Screen", "Time")
"""The order of tasks after the first."""
KeyEntry = tuple[str, str]
"""Keys, and what they do."""
_MOVES = {
    "table": (("j k ↓ ↑", "Select a row"), ("PgDn ^F", "Page down; PgUp, ^B: page up"),
              ("Home End", "First row, last row"), ("Tab", "Switch between the panes"),
              ("^P", "Find any action by name")),
    "text": (("j k ↓ ↑", "A line down, up"), ("PgDn ^F", "Page down; PgUp, ^B: page up"),
             ("Home End", "The beginning, the end"), ("^P", "Find any action by name")),
}  # fmt: skip
"""The keys that all tables have, and all texts, which are no bindings of a screen."""


class ScreenKeys(NamedTuple):
    """The keys that do something on a screen."""

    where: str
    """As `of the main screen`."""
    bindings: Sequence[Binding]
    """Its own, then those of the app."""
    moves: Literal["table", "text", ""] = ""
    """What it has to move in."""

    def groups(self, glyphs: GlyphSet, room: int) -> list[tuple[str, list[KeyEntry]]]:
        """Return the tasks, each with its keys in `room` cells, and what they do; that of the first
        binding comes first."""
        tasks: dict[str, list[Binding]] = {}
        for binding in self.bindings:
            task = binding.group.description if binding.group else "Keys"
            tasks.setdefault(task, []).append(binding)
        groups = {task: _entries(some, glyphs, room) for task, some in tasks.items()}
        if self.moves:
            signs = str.isascii if glyphs.name == "ascii" else bool  # `?` is another key
            groups["Move"] = [(" ".join(filter(signs, keys.split())), text)
                              for keys, text in _MOVES[self.moves]]  # fmt: skip
        first = next(iter(groups))
        ranks = {first: -2, **{task: rank for rank, task in enumerate(_TASKS) if task != first}}
        return sorted(groups.items(), key=lambda group: ranks.get(group[0], -1))


def _entries(bindings: Iterable[Binding], glyphs: GlyphSet, room: int) -> list[KeyEntry]:
    """Return an entry for all keys that do the same; keys that have no room are left out."""
    keys: dict[str, list[str]] = {}
    for binding in bindings:
        text = binding.tooltip or binding.description
        keys.setdefault(text, []).extend(binding.key.split(","))
    return [(names_of(names, glyphs, room), text) for text, names in keys.items()]


def sections(glyphs: GlyphSet) -> Iterable[tuple[str, Definitions]]:
    """Yield the title and the definitions of each section of words; the manual has most of them."""
    yield "Signs", _signs(glyphs)
    yield "GPUs", table_below("screen", "GPUs")
    yield "Hosts, where several are watched", [*_lamps(glyphs), *table_below("fleet", "Its words")]
    yield "Why a GPU is not free", free.WORDS
    after = f"after {glyphs.warning} on a GPU; H says more"
    yield f"Findings, {after}", table_below("screen", "Findings")
    window = f"{activity.WINDOW:.0f} s"
    yield f"What a GPU is doing, over {window}: the first that fits", activity.WORDS
    reasons = [(reason.word, reason.meaning) for reason in THROTTLE_REASONS.values()]
    yield "What holds the clocks back", reasons
    yield "Processes", table_below("screen", "Processes")
    yield "Mapping", table_below("screen", "The mapping")
    yield "Columns of processes", [(metric.label, metric.help) for metric in COLUMNS.values()]
    yield "Values of GPUs", [(metric.label, metric.help) for metric in GPU.values()]


def _signs(glyphs: GlyphSet) -> Definitions:
    yield "0", "measured, and nothing"
    yield glyphs.not_available, "not available, or no sample in this interval"
    yield glyphs.pending, "no sample yet"
    yield f"{glyphs.stale} 3s, stale", "the GPU does not answer; its values are this old"
    yield (
        f"{glyphs.stale} no answer, hung",
        "it has not answered for this long; no value is current",
    )
    yield f"{glyphs.warning} HOT", "the worst finding on the GPU"
    yield glyphs.cursor, "the selected row of the pane that has the focus"
    yield glyphs.separator, "the selected row of the other pane"
    yield glyphs.tag, "a tagged process"
    yield glyphs.mark, "marked with W: you are notified when it is free, or has ended"


def _lamps(glyphs: GlyphSet) -> Definitions:
    for kind, meaning in LAMPS.items():
        yield lamp_sign(kind, glyphs), f"a GPU: {meaning}"
