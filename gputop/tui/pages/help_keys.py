"""The keys of a screen by task, as its help shows them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from textual.binding import Binding

from gputop.tui.glyphs import GlyphSet
from gputop.tui.key_names import names_of

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
