"""The viewer of the help: the keys of a screen with all its words, and the pages of the manual."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, zip_longest
from typing import ClassVar

from rich.cells import chop_cells
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.events import Click
from textual.widgets import Input

from gputop.manual import TOPICS, laid_out, page
from gputop.model.machine.text import printable
from gputop.tui.keys import following
from gputop.tui.pages.base import PageScreen
from gputop.tui.pages.screen_help import KeyEntry, ScreenKeys, sections
from gputop.tui.panes.choices import ChoicePage
from gputop.tui.panes.columns import crop_or_pad
from gputop.tui.panes.editor import Editor
from gputop.tui.panes.heading import PageKeys, described_key
from gputop.tui.panes.lines import StyledLine
from gputop.tui.panes.paper import Paper, title
from gputop.tui.snapshot import Snapshot

_TWO, _TWO_OF_WORDS = 76, 150
"""From so many cells on there is room for two columns of keys, and of words."""
_KEY, _WORD = 10, 20
"""Cells of the keys of a binding, and of a word of the screen."""
_MOST = 60
"""Characters of a word to search for."""
_KEYS, _CONTENTS = "", "contents"
"""What is shown besides the pages of the manual."""
_LINK = re.compile(r"gputop help ([a-z]+)")
_CODE = re.compile(r"(`[^`]+`)")
_key = partial(described_key, "Manual", area="manual")


class _Leaf(ChoicePage[str]):
    """A page on which a click opens the page that a line names."""

    def on_click(self, event: Click) -> None:
        event.stop()
        event.prevent_default()
        number = self.number_at(event.y)
        text = "".join(text for line in self.lines[number : number + 1] for text, _ in line)
        links = [topic for topic in _LINK.findall(text) if topic in TOPICS]
        for topic in [*(each for each, line in self._begins.items() if line == number), *links][:1]:
            self._chosen(topic)


class HelpScreen(PageScreen[None]):
    """Pages to leaf through and to search, as less does."""

    BINDINGS: ClassVar[list[BindingType]] = [
        _key("escape", "back", "Close", "Back to where you were; close", "Esc", name="leave"),
        _key("space,f", "page(1)", "Next page", "A screenful down", "Space", name="on"),
        _key("slash", "search", "Search", "Find a word in all pages", "/"),
        _key("n", "repeat(1)", "Next", "The next place that has the word", "n"),
        _key("N", "repeat(-1)", "Before", "The place before", "N", name="repeat-back"),
        _key("c", "contents", "Contents", "All pages: Enter opens one", "c"),
        _key("enter", "enter", "Open", "Open a page of the contents; else a line down",
             name="down"),
        _key("b", "page(-1)", "Up", "A screenful up", name="back"),
        _key("g,less_than_sign", "end(0)", "Top", "To the beginning", name="top"),
        _key("G,greater_than_sign", "end(1)", "End", "To the end"),
        _key("right", "turn(1)", "Next topic", "The next page of the manual", name="next"),
        _key("left,p", "turn(-1)", "Topic before", "The page before", name="previous"),
        _key("question_mark,f1,h", "leave", "Close", "Close the help", name="close"),
    ]  # fmt: skip
    MORE_KEYS = ()

    def __init__(self, keys: ScreenKeys | None = None, topic: str = _KEYS) -> None:
        """`keys`: those of a screen, which are a page before all others; `topic`: the page to begin
        with, one of the manual where there are no keys."""
        super().__init__()
        self._keys, self._topic = keys, topic
        self._topics = [*([_KEYS] if keys else []), *TOPICS]
        self._behind: list[tuple[str, int]] = []
        """The pages that Esc goes back to, each with its first line in sight."""
        self._word = self._note = ""

    def compose(self) -> ComposeResult:
        yield from super().compose()
        editor = Editor("", max_length=_MOST, id="word")
        editor.placeholder = "a word"
        yield editor

    def body(self) -> _Leaf:
        return _Leaf(self._open)

    @property
    def _page(self) -> _Leaf:
        return self.query_one(_Leaf)

    def key_words(self) -> list[tuple[str, str]]:
        (escape, close), *others = super().key_words()
        note = [(f"/{self._word}", self._note)] if self._note else []
        return [*note, (escape, "back" if self._behind else close), *others]

    def draw(self) -> None:
        if self.is_mounted:
            lines, begins = self._lines(self._topic), {}
            if self._topic == _CONTENTS:
                begins = {topic: n for n, topic in enumerate(self._topics, 2)}
            self._page.show_choices(lines, begins)
            self.query_one(PageKeys).show(self.key_words())

    def show_frame(self, shown: Snapshot) -> None:
        """Keep the frame without drawing it: nothing here depends on it."""
        self.shown = shown

    def action_back(self) -> None:
        if self.query_one(Editor).has_class("-asks"):
            self._end_search()
        elif self._behind:
            self._topic, top = self._behind.pop()
            self._note = ""
            self.draw()
            self._page.go_to(top)
        else:
            self.action_leave()

    def action_enter(self) -> None:
        if self._topic == _CONTENTS:
            self._page.choose()
        else:
            self._page.action_move(1)

    def action_page(self, step: int) -> None:
        self._page.action_page(step)

    def action_end(self, last: int) -> None:
        self._page.action_end(last)

    def action_turn(self, step: int) -> None:
        self._open(following(self._topic, self._topics, step))

    def action_contents(self) -> None:
        self._open(_CONTENTS)

    def action_search(self) -> None:
        line = self.query_one(Editor)
        line.add_class("-asks")
        line.value = ""
        line.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._end_search()
        self._word = printable(event.value.strip(), _MOST) or self._word
        if self._word:
            self.action_repeat(1)

    def _end_search(self) -> None:
        self.query_one(Editor).remove_class("-asks")
        self._page.focus()

    def action_repeat(self, step: int) -> None:
        """Go to the next place that has the word, here or on the pages after, or to the one before;
        from the last they go on with the first."""
        if not self._word:
            self.action_search()
            return
        topics, here = self._topics, self._page.marked
        at = topics.index(self._topic) if self._topic in topics else 0
        here = self._page.top - (step > 0) if here is None else here
        for count in range(len(topics) + 1):
            topic = topics[(at + step * count) % len(topics)]
            places = _places(self._lines(topic), self._word)
            if count == 0:
                places = [line for line in places if (line - here) * step > 0]
            if places:
                self._open(topic, places[0 if step > 0 else -1])
                return
        self._note = "is on no page"
        self.draw()

    def _open(self, topic: str, marked: int | None = None) -> None:
        """Show a page from its top, or at a line that is marked."""
        if topic != self._topic:
            self._behind.append((self._topic, self._page.top))
        self._topic, self._note = topic, ""
        self.draw()
        if topic == _CONTENTS:
            self._page.action_move(0)  # the cursor comes into sight
        else:
            self._page.marked = marked
            self._page.go_to(max(0, (marked or 0) - 2))

    def _lines(self, topic: str) -> list[StyledLine]:
        paper = self._page.paper
        if topic == _KEYS and self._keys:
            return [*_keys(paper, self._keys), *_words(paper)]
        lines: list[StyledLine] = [[(f" gputop help {topic}", "heading")], []]
        if topic == _CONTENTS:
            about = {_KEYS: "the keys of this screen", **TOPICS}
            return lines + [[(f"   {each or '?':<12}", "key"), (about[each], "text")]
                            for each in self._topics]  # fmt: skip
        width = max(20, paper.width - 2)
        return lines + [
            _styled(kind, part)
            for kind, line in laid_out(page(topic), width)
            for part in chop_cells(line, width) or [""]  # code may be wider
        ]


def _places(lines: Sequence[StyledLine], word: str) -> list[int]:
    """Return the lines on which a word begins, whatever its case; words may go on in the next."""
    texts = [" ".join("".join(text for text, _ in line).casefold().split()) for line in lines]
    sought = " ".join(word.casefold().split())
    beside = zip_longest(texts, texts[1:], fillvalue="")
    return [n for n, (text, after) in enumerate(beside)
            if -1 < f"{text} {after}".find(sought) < max(1, len(text))]  # fmt: skip


def _styled(kind: str, line: str) -> StyledLine:
    if role := {"heading": "heading", "code": "key"}.get(kind):
        return [(f" {line}", role)]
    pieces = [(part, "key" if n % 2 else "text") for n, part in enumerate(_CODE.split(line))]
    return [(" ", "text"), *pieces]


def _keys(paper: Paper, keys: ScreenKeys) -> Iterator[StyledLine]:
    yield [(f" Keys {keys.where}; below them every word of the screen", "heading")]
    count = 2 if paper.width >= _TWO else 1
    part = paper._replace(width=paper.width // count)
    groups = [list(_group(part, *group)) for group in keys.groups(paper.glyphs, _KEY - 1)]
    splits = [(groups[:n], groups[n:]) for n in range(1, len(groups) + 1)]
    left, right = min(splits, key=lambda split: max(sum(map(len, side)) for side in split))
    if count == 1:
        left, right = groups, []
    yield from _beside(chain(*left), chain(*right), part)


def _group(paper: Paper, name: str, entries: Iterable[KeyEntry]) -> Iterator[StyledLine]:
    yield [(f" {name}", "heading")]
    whole = paper._replace(width=paper.width + 1)  # the next column begins with a blank
    for keys, text in entries:
        yield from whole.led((f" {keys:<{_KEY}}", "key"), text)


def _words(paper: Paper) -> Iterator[StyledLine]:
    """Yield every word of the screen with its meaning, each section in two columns if they fit."""
    count = 2 if paper.width >= _TWO_OF_WORDS else 1
    part = paper._replace(width=paper.width // count)
    for heading, definitions in sections(paper.glyphs):
        yield from title(heading)
        words = list(definitions)
        half = -(-len(words) // count)
        left, right = (
            (line for word, text in some for line in part.led((f"  {word:<{_WORD}} ", "key"), text))
            for some in (words[:half], words[half:])
        )
        yield from _beside(left, right, part)


def _beside(
    left: Iterable[StyledLine], right: Iterable[StyledLine], half: Paper
) -> Iterator[StyledLine]:
    nothing: StyledLine = []
    for here, there in zip_longest(left, right, fillvalue=nothing):
        yield [*crop_or_pad(here, half.width, "", left=True), *there]
