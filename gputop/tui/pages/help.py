"""Help: the keys by task on one screen, then every word of the screen; and the user's manual."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import ClassVar

from rich.cells import chop_cells
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.widgets import Input

from gputop.manual import TOPICS, contents, found, laid_out, page
from gputop.tui.glyphs import GlyphSet
from gputop.tui.key_names import names_of
from gputop.tui.pages import glossary
from gputop.tui.pages.base import PageScreen, ShownFrame
from gputop.tui.panes.columns import crop_or_pad
from gputop.tui.panes.heading import described_key
from gputop.tui.panes.lines import Lines, StyledLine
from gputop.tui.panes.page import Page
from gputop.tui.panes.paper import Paper, title

_TWO = 76
"""From this many cells on there is room for two columns."""
_KEY, _WORD = 10, 20
"""Cells of the keys of a binding, and of a word of the glossary."""
Entry = tuple[str, str]
"""Keys, and what they do."""
Group = tuple[str, list[Entry]]
"""A task, and its keys."""
_TASKS = ("Hosts", "View", "Mapping", "Move", "Processes", "Screen", "Time")


_key = partial(described_key, "Manual", area="manual")
_KEYS = ""
"""The topic of the keys, which are no page of the manual."""
_ManualText = Callable[[int], Iterable[tuple[str, str]]]
"""Gives the lines of a text for a width, each with its kind."""
_LINK = re.compile(r"gputop help ([a-z]+)")
_CODE = re.compile(r"(`[^`]+`)")


class _Leaf(Page):
    """A page whose lines may name other pages."""

    def __init__(self, follow: Callable[[str], None]) -> None:
        """`follow` is called with the text of a line that was clicked."""
        super().__init__(id="page")
        self._follow = follow

    def on_click(self, event: Click) -> None:
        event.stop()
        line = self.text.line_at(event.y)
        if line is not None:
            self._follow("".join(text for text, _ in line))


class HelpScreen(PageScreen[None]):
    """The keys of a screen, taken from the bindings themselves, with how to read it, and the pages
    of the manual."""

    BINDINGS: ClassVar[list[BindingType]] = [
        _key("escape,question_mark,f1,h", "leave", "Back", "Leave the search, or the help", "Esc"),
        _key("enter", "line(1)", "Down", "A line down", name="down"),
        _key("space,f", "page(1)", "On", "A screenful down", "Space", name="on"),
        _key("b", "page(-1)", "Up", "A screenful up", "b", name="back"),
        _key("g,less_than_sign", "end(0)", "Top", "To the beginning", name="top"),
        _key("G,greater_than_sign", "end(1)", "End", "To the end"),
        _key("n,right", "turn(1)", "Next page", "The next page of the manual", "n", name="next"),
        _key("p,left", "turn(-1)", "Page before", "The page before", "p", name="previous"),
        _key("c", "contents", "Contents", "All pages", "c"),
        _key("slash", "search", "Search", "Find a word in all pages", "/"),
    ]
    MORE_KEYS = ()

    def __init__(
        self,
        bindings: Sequence[Binding] = (),
        elsewhere: Mapping[str, Sequence[Binding]] | None = None,
        topic: str = _KEYS,
    ) -> None:
        """`bindings`: those of the main screens; `elsewhere`: other bindings, by heading; `topic`:
        the page to begin with, one of the manual where there are no bindings."""
        super().__init__()
        self._of_main, self._elsewhere = bindings, elsewhere or {}
        self._glyphs = Lines.glyphs
        self._topics = [_KEYS, *TOPICS] if bindings else [*TOPICS]
        self._topic = self._title = topic
        self._text: _ManualText | None = None if topic == _KEYS else partial(laid_out, page(topic))

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield Input(placeholder="a word", compact=True)

    def body(self) -> Page:
        return _Leaf(self._follow)

    def draw(self) -> None:
        if self.is_mounted:
            page = self.query_one(Page)
            paper = page.paper
            page.show_lines(list(self._of_manual(paper) or self._lines(paper)))

    def show_frame(self, shown: ShownFrame) -> None:
        """Keep the frame without drawing it: nothing here depends on it."""
        self.shown = shown

    def action_leave(self) -> None:
        if self.query_one(Input).has_class("-asks"):
            self._end_search()
        else:
            super().action_leave()

    def action_line(self, step: int) -> None:
        self.query_one(Page).action_move(step)

    def action_page(self, step: int) -> None:
        self.query_one(Page).action_page(step)

    def action_end(self, last: int) -> None:
        self.query_one(Page).action_end(last)

    def action_turn(self, pages: int) -> None:
        topics = self._topics
        self._open(topics[(topics.index(self._topic) + pages) % len(topics)])

    def action_contents(self) -> None:
        self._show("contents", partial(laid_out, contents()))

    def action_search(self) -> None:
        line = self.query_one(Input)
        line.add_class("-asks")
        line.value = ""
        line.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._end_search()
        if word := event.value.strip():
            self._show(f"/{word}", partial(_found, word))

    def _end_search(self) -> None:
        self.query_one(Input).remove_class("-asks")
        self.query_one(Page).focus()

    def _follow(self, line: str) -> None:
        """Open the page that a line names."""
        if (link := _LINK.search(line)) and link[1] in TOPICS:
            self._open(link[1])

    def _open(self, topic: str) -> None:
        self._topic = topic
        self._show(topic, None if topic == _KEYS else partial(laid_out, page(topic)))

    def _show(self, title: str, text: _ManualText | None) -> None:
        self._title, self._text = title, text
        self.draw()
        self.query_one(Page).go_to(0)

    def _of_manual(self, paper: Paper) -> list[StyledLine]:
        """Return the lines of a page of the manual; none for the keys."""
        if self._text is None:
            return []
        width = max(20, paper.width - 2)
        lines = [
            _styled(kind, part)
            for kind, line in self._text(width)
            for part in chop_cells(line, width) or [""]  # code may be wider
        ]
        return [[(f" gputop help {self._title}", "heading")], [], *lines]

    def _lines(self, paper: Paper) -> Iterator[StyledLine]:
        yield [(" Keys", "heading"), ("; below them every word of the screen", "quiet")]
        width = paper.width
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
                yield from _explained(paper, word, text)

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
            yield crop_or_pad(pieces, width, self._glyphs.ellipsis, left=True)

    def _beside(self, groups: Sequence[Group], width: int) -> Iterator[StyledLine]:
        columns: list[list[StyledLine]] = [
            [line for group in part for line in self._group(group, width)]
            for part in min(_splits(groups), key=_height)
        ]
        for here, there in zip_longest(*columns, fillvalue=[]):
            yield [*crop_or_pad(here, width, "", left=True), *there]


def _styled(kind: str, line: str) -> StyledLine:
    if role := {"heading": "heading", "code": "key"}.get(kind):
        return [(f" {line}", role)]
    pieces = [(part, "key" if n % 2 else "text") for n, part in enumerate(_CODE.split(line))]
    return [(" ", "text"), *pieces]


def _found(word: str, width: int) -> list[tuple[str, str]]:
    return list(found(word, width)) or [("paragraph", f"The manual has no `{word}`.")]


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


def _explained(paper: Paper, word: str, text: str) -> Iterator[StyledLine]:
    lead = f"  {word:<{_WORD}} "
    for line in paper.wrapped(text, len(lead)):
        yield [(lead, "key"), *line[1:]]
        lead = " " * len(lead)
