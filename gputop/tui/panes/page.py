"""A text to scroll, made of pieces, which may change with every tick."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from textwrap import wrap

from rich.cells import cell_len, chop_cells

from gputop.tui.panes.columns import sized
from gputop.tui.panes.lines import Piece, StyledLine
from gputop.tui.panes.table import Table

LABEL = 13
"""The width of a label and the space after it, in cells."""


def title(text: str) -> Iterator[StyledLine]:
    """Return the lines that begin a section: a blank one and its heading."""
    yield []
    yield [(f" {text}", "heading")]


class Page(Table[StyledLine]):
    """Lines without a cursor: the keys of a table scroll the page."""

    head_lines = 0
    selects = False

    def show_lines(self, lines: Sequence[StyledLine]) -> None:
        """Show another text. It stays where it was scrolled to, even if the text above grows: the
        heading before the first line in sight keeps its place."""
        above = [n for n, line in enumerate(self._rows[: self.cursor.top + 1]) if _is_heading(line)]
        if above and self._rows[above[-1]] in lines:
            self.cursor.top += lines.index(self._rows[above[-1]]) - above[-1]
        self.show(lines, list(range(len(lines))))

    def row_pieces(self, row: StyledLine, selected: bool) -> Iterable[Piece]:
        pieces = [(self.glyphs.text(text), role) for text, role in row]
        return sized(pieces, self.size.width, self.glyphs.ellipsis, left=True)

    def go_to(self, line: int) -> None:
        """Scroll a line to the top, as far as the text goes."""
        self._move(self.cursor.scroll, line)
        self.sync()

    def go_to_section(self, text: str) -> None:
        """Scroll to the heading of a section, if there is one."""
        _, heading = title(text)
        if heading in self._rows:
            self.go_to(self._rows.index(heading))

    def action_move(self, step: int) -> None:
        self.go_to(self.cursor.top + step)

    def action_page(self, step: int) -> None:
        self.action_move(step * max(1, self.room - 1))

    def action_end(self, last: int) -> None:
        self.action_move(len(self._rows) * (1 if last else -1))

    def wrapped(self, text: str, indent: int = 2, role: str = "text") -> Iterator[StyledLine]:
        """Break a text that is harmless to print into as many lines as it needs."""
        room = max(20, self.size.width - indent - 1)
        for line in _wrapped(self.glyphs.text(text), room):
            yield [(" " * indent, "text"), (line, role)]

    def facts(self, facts: Iterable[str], role: str = "text") -> Iterator[StyledLine]:
        """Put facts beside each other; one that does not fit begins the next line."""
        separator = f" {self.glyphs.separator} " if self.glyphs.name != "ascii" else ", "
        line = ""
        for fact in facts:
            joined = f"{line}{separator}{fact}" if line else fact
            if line and cell_len(self.glyphs.text(joined)) > self.size.width - 4:
                yield from self.wrapped(f"{line}{separator}".rstrip(), 1, role)
                joined = fact
            line = joined
        yield from self.wrapped(line, 1, role)

    def quiet(self, text: str) -> Iterator[StyledLine]:
        """Break a quiet text into lines."""
        return self.wrapped(text, 2, "quiet")

    def marked(self, text: str, role: str) -> Iterator[StyledLine]:
        """Break a text beside a warning sign."""
        mark = f"  {self.glyphs.warning} "
        for line in self.wrapped(text, 4):
            yield [(mark, role), *line[1:]]
            mark = "    "

    def labelled(self, label: str, text: str) -> Iterator[StyledLine]:
        """Break a text beside a label."""
        head: Piece = (f"  {label:<{LABEL}}", "quiet")
        for line in self.wrapped(text, 2 + LABEL):
            yield [head, *line[1:]]
            head = (" " * (2 + LABEL), "quiet")


def _is_heading(line: StyledLine) -> bool:
    return len(line) == 1 and line[0][1] == "heading"


@lru_cache(maxsize=1024)
def _wrapped(text: str, room: int) -> tuple[str, ...]:
    """Break a text into lines; cached, since most of a page is the same in every tick."""
    lines = wrap(text, room, break_on_hyphens=False) or [""]
    return tuple(part for line in lines for part in chop_cells(line, room) or [""])
