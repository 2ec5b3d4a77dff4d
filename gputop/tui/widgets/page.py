"""A text to scroll, made of pieces: what it says may change every tick."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from gputop.tui.widgets.columns import sized
from gputop.tui.widgets.lines import Piece
from gputop.tui.widgets.table import Table

Line = list[Piece]


class Page(Table[Line]):
    """Lines without a cursor: the keys of a table move the page."""

    head_lines = 0

    def show_lines(self, lines: Sequence[Line]) -> None:
        """Another text; it stays where it was scrolled to."""
        self.show(lines, list(range(len(lines))))

    def row_pieces(self, row: Line, selected: bool) -> Iterable[Piece]:
        """A line, cut to the width."""
        return sized(row, self.size.width, self.glyphs.ellipsis, left=True)

    def action_move(self, step: int) -> None:
        """A line up or down."""
        self._go_to(self._top + step)
        self.sync()

    def action_page(self, step: int) -> None:
        """A screenful up or down."""
        self.action_move(step * max(1, self.room - 1))

    def action_end(self, last: int) -> None:
        """To the begin or the end."""
        self.action_move(len(self._rows) * (1 if last else -1))

    def wrapped(self, text: str, indent: int = 2, role: str = "text") -> Iterator[Line]:
        """A text that is harmless to print, in as many lines as it needs."""
        room = max(20, self.size.width - indent - 1)
        for line in wrap(self.glyphs.text(text), room) or [""]:
            yield [(" " * indent, "text"), (line, role)]
