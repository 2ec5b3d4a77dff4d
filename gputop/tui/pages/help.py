"""Help: the keys by task on one screen, then every word of the screen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import ClassVar

from textual.binding import Binding, BindingType

from gputop.tui.glyphs import GlyphSet
from gputop.tui.pages import glossary
from gputop.tui.pages.base import PageScreen, ShownFrame
from gputop.tui.panes.columns import sized
from gputop.tui.panes.lines import Lines, StyledLine
from gputop.tui.panes.page import Page, title

_TWO = 76
"""From this many cells on there is room for two columns."""
_KEY, _WORD = 10, 20
"""Cells of the keys of a binding, and of a word of the glossary."""
_NAMES = {
    "slash": "/", "question_mark": "?", "plus": "+", "minus": "-", "equals_sign": "=",
    "backslash": "\\", "less_than_sign": "<", "greater_than_sign": ">", "comma": ",",
    "full_stop": ".", "circumflex_accent": "^", "dollar_sign": "$", "escape": "Esc",
    "space": "Space", "enter": "Enter", "backspace": "BS", "pageup": "PgUp", "pagedown": "PgDn",
}  # fmt: skip
_ARROWS = {"left": "←", "right": "→", "up": "↑", "down": "↓"}
_DIGITS = "0123456789"
Entry = tuple[str, str]
"""Keys, and what they do."""
Group = tuple[str, list[Entry]]
"""A task, and its keys."""
_TASKS = ("Cluster", "Hosts", "Look", "Mapping", "Move", "Processes", "Screen", "Time")


class HelpScreen(PageScreen[None]):
    """The keys, taken from the bindings themselves, and how to read the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,f1,h", "leave", "Back", id="help.leave", key_display="Esc"),
        Binding("space,f", "page(1)", "Page down", id="help.page-down", show=False),
        Binding("b", "page(-1)", "Page up", id="help.page-up", show=False),
        Binding("g,less_than_sign", "end(0)", "Start", id="help.first", show=False),
        Binding("G,greater_than_sign", "end(1)", "End", id="help.last", show=False),
    ]
    MORE_KEYS = (("Space", "on"), ("b", "back"), ("g G", "start, end"))

    def __init__(
        self, bindings: Sequence[Binding], elsewhere: Mapping[str, Sequence[Binding]]
    ) -> None:
        """`bindings`: those of the main screens; `elsewhere`: other bindings, by heading."""
        super().__init__()
        self._of_main, self._elsewhere = bindings, elsewhere
        self._glyphs = Lines.glyphs

    def draw(self) -> None:
        if self.is_mounted:
            page = self.query_one(Page)
            page.show_lines(list(self._lines(page)))

    def show_frame(self, shown: ShownFrame) -> None:
        """Keep the frame without drawing it: nothing here depends on it."""
        self.shown = shown

    def action_page(self, step: int) -> None:
        self.query_one(Page).action_page(step)

    def action_end(self, last: int) -> None:
        self.query_one(Page).action_end(last)

    def _lines(self, page: Page) -> Iterator[StyledLine]:
        yield [(" Keys", "heading"), ("; below them every word of the screen", "quiet")]
        width = page.size.width
        groups = self._groups()
        if width < _TWO:
            yield from (line for group in groups for line in self._group(group, width))
        else:
            yield from self._beside(groups, width // 2)
        elsewhere = ((heading, _entries(bindings, self._glyphs))
                     for heading, bindings in self._elsewhere.items())  # fmt: skip
        for heading, words in (*elsewhere, *glossary.sections(self._glyphs)):
            yield from title(heading)
            for word, text in words:
                yield from _explained(page, word, text)

    def _groups(self) -> list[Group]:
        groups: dict[str, list[Entry]] = {}
        for name in _TASKS:
            here = (b for b in self._of_main if b.group and b.group.description == name)
            if entries := _entries(here, self._glyphs):
                groups[name] = entries
            if name == "Move":
                groups[name] = _moving(self._glyphs)
        return list(groups.items())

    def _group(self, group: Group, width: int) -> Iterator[StyledLine]:
        name, entries = group
        yield [(f" {name}", "heading")]
        for keys, text in entries:
            pieces = [(f" {keys:<{_KEY}}", "key"), (text, "text")]
            yield sized(pieces, width, self._glyphs.ellipsis, left=True)

    def _beside(self, groups: Sequence[Group], width: int) -> Iterator[StyledLine]:
        columns: list[list[StyledLine]] = [
            [line for group in part for line in self._group(group, width)]
            for part in min(_splits(groups), key=_height)
        ]
        for here, there in zip_longest(*columns, fillvalue=[]):
            yield [*sized(here, width, "", left=True), *there]


def _splits(groups: Sequence[Group]) -> list[list[list[Group]]]:
    return [[list(groups[:n]), list(groups[n:])] for n in range(1, len(groups) + 1)]


def _height(columns: Sequence[Sequence[Group]]) -> int:
    return max(sum(1 + len(entries) for _, entries in column) for column in columns)


def _moving(glyphs: GlyphSet) -> list[Entry]:
    arrows = "j k" if glyphs.name == "ascii" else "j k ↓ ↑"
    return [
        (arrows, "Select a row"),
        ("PgDn ^F", "Page down; PgUp, ^B: page up"),
        ("Home End", "First row, last row"),
        ("Tab", "Switch between the panes"),
        ("^P", "Find any action by name"),
    ]


def _entries(bindings: Iterable[Binding], glyphs: GlyphSet) -> list[Entry]:
    """Return an entry for all keys that do the same; keys that have no room are left out."""
    keys: dict[str, list[str]] = {}
    for binding in bindings:
        text = binding.tooltip or binding.description
        keys.setdefault(text, []).extend(binding.key.split(","))
    return [(names_of(names, glyphs, _KEY - 1), text) for text, names in keys.items()]


def names_of(keys: Sequence[str], glyphs: GlyphSet, room: int) -> str:
    """Return the usual names of keys, as many as fit into `room` cells, but at least one."""
    if set(_DIGITS) <= set(keys):
        keys = ["0-9", *(key for key in keys if key not in _DIGITS)]
    arrows = {} if glyphs.name == "ascii" else _ARROWS
    named = [_name(key, arrows) for key in keys]
    while len(named) > 1 and len(" ".join(named)) > room:
        named.pop()
    return " ".join(named)


def _name(key: str, arrows: dict[str, str]) -> str:
    modifier, _, plain = key.rpartition("+")
    name = arrows.get(plain) or _NAMES.get(plain, plain)
    if name[:1] == "f" and name[1:].isdecimal():
        name = name.upper()
    return f"^{name.upper()}" if modifier == "ctrl" else f"{modifier} {name}".strip()


def _explained(page: Page, word: str, text: str) -> Iterator[StyledLine]:
    lead = f"  {word:<{_WORD}} "
    for line in page.wrapped(text, len(lead)):
        yield [(lead, "key"), *line[1:]]
        lead = " " * len(lead)
