"""A text to scroll, made of pieces: what it says may change every tick."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from textwrap import wrap

from rich.cells import chop_cells

from gputop.tui.widgets.columns import sized
from gputop.tui.widgets.lines import Piece
from gputop.tui.widgets.table import Table

Line = list[Piece]

LABEL = 13
"""Cells of a label and the space after it."""


class Page(Table[Line]):
    """Lines without a cursor: the keys of a table move the page."""

    head_lines = 0

    def show_lines(self, lines: Sequence[Line]) -> None:
        """Another text; it stays where it was scrolled to, also when what is above grows: the
        heading before the first line in sight keeps its place."""
        above = [n for n, line in enumerate(self._rows[: self._top + 1]) if _is_heading(line)]
        if above and self._rows[above[-1]] in lines:
            self._top += lines.index(self._rows[above[-1]]) - above[-1]
        self.show(lines, list(range(len(lines))))

    def row_pieces(self, row: Line, selected: bool) -> Iterable[Piece]:
        """A line, cut to the width, in signs that the terminal has."""
        pieces = [(self.glyphs.text(text), role) for text, role in row]
        return sized(pieces, self.size.width, self.glyphs.ellipsis, left=True)

    def go_to(self, line: int) -> None:
        """Have that line at the top, as far as the text goes."""
        self._go_to(line)
        self.sync()

    def action_move(self, step: int) -> None:
        """A line up or down."""
        self.go_to(self._top + step)

    def action_page(self, step: int) -> None:
        """A screenful up or down."""
        self.action_move(step * max(1, self.room - 1))

    def action_end(self, last: int) -> None:
        """To the begin or the end."""
        self.action_move(len(self._rows) * (1 if last else -1))

    def wrapped(self, text: str, indent: int = 2, role: str = "text") -> Iterator[Line]:
        """A text that is harmless to print, in as many lines as it needs."""
        room = max(20, self.size.width - indent - 1)
        for line in _wrapped(self.glyphs.text(text), room):
            yield [(" " * indent, "text"), (line, role)]

    def labelled(self, label: str, text: str) -> Iterator[Line]:
        """A text beside a label."""
        head: Piece = (f"  {label:<{LABEL}}", "quiet")
        for line in self.wrapped(text, 2 + LABEL):
            yield [head, *line[1:]]
            head = (" " * (2 + LABEL), "quiet")


def _is_heading(line: Line) -> bool:
    return len(line) == 1 and line[0][1] == "heading"


@lru_cache(maxsize=1024)
def _wrapped(text: str, room: int) -> tuple[str, ...]:
    """Most of a page is the same in every tick."""
    words = wrap(text, room, break_on_hyphens=False) or [""]
    return tuple(line for one in words for line in chop_cells(one, room) or [""])
