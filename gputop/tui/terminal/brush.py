"""The output that writes cells: their order, and the shortest moves between them."""

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from gputop.tui.terminal.sgr import LINK_END, PLAIN, STRING_END, change

# Erasing (and the move after it) takes about eight bytes.
_MIN_ERASE = 9
# Up to this many backspaces are no longer than a move.
_MAX_BACKSPACES = 4
# This many cells usually come to a terminal at once, in 4 KiB.
_FEW = 1000
# From here on, terminals may differ in how wide a character is.
EMOJI = "\U0001f000"


class _Stretch(NamedTuple):
    """Cells to write; stretches compare in the order in which a few of them are written."""

    rank: int
    column: int
    row: int
    cells: Sequence[str]
    sgr: str


class Brush:
    """Collects output, and knows the terminal's cursor and sgr after it."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._output: list[str] = []
        self._stretches: list[_Stretch] = []
        self._ranks: dict[str, int] = {}
        """The rank of each sgr: its place in the order of first use."""
        self._sgr = PLAIN
        self._row: int | None = None
        self._column: int | None = None
        """None if terminals may not agree on it."""

    def reset(self) -> None:
        """Begin with a plain sgr: a shell or another program may have drawn last."""
        self._output.append(PLAIN)

    def scroll(self, row: int, start: int, end: int, count: int) -> None:
        """Move the cells of a row between two columns `count` columns to the left. The first of
        them vanish; the last ones become blank, for `write` to fill."""
        self._move(row, start)
        self._output.append(f"\x1b[{count}P")
        self._move(row, end - count)
        self._output.append(f"\x1b[{count}@")

    def write(self, row: int, column: int, cells: Sequence[str], sgr: str) -> None:
        """Write cells; only the last one may have a disputed width."""
        rank = self._ranks.setdefault(sgr, len(self._ranks))
        self._stretches.append(_Stretch(rank, column, row, cells, sgr))

    def finish(self) -> str:
        """Return the output. A few changes go sgr by sgr and column by column, since most of them
        are digits below each other. Many changes go line by line, since a terminal may show what
        has come so far."""
        is_few = sum(len(stretch.cells) for stretch in self._stretches) <= _FEW
        for stretch in sorted(self._stretches, key=None if is_few else attrgetter("row", "column")):
            self._move(stretch.row, stretch.column)
            self._pick(stretch.sgr)
            self._put(stretch.cells)
        if self._output:
            self._pick(PLAIN)
        return "".join(self._output)

    def _move(self, row: int, column: int) -> None:
        if (row, column) != (self._row, self._column):
            moves = [f"\x1b[{row + 1};{column + 1}H"]
            if self._row is not None and self._column is not None:
                moves.append(_vertical(row - self._row) + _horizontal(column - self._column))
            elif row == self._row:
                moves.append(f"\x1b[{column + 1}G")
            self._output.append(min(moves, key=len))
            self._row, self._column = row, column

    def _pick(self, sgr: str) -> None:
        if sgr != self._sgr:
            if self._sgr.endswith(STRING_END):
                self._output.append(LINK_END)
            self._output.append(change(self._sgr, sgr))
            self._sgr = sgr

    def _put(self, cells: Sequence[str]) -> None:
        """Write cells, but erase many blanks at the end. Only plain ones are erased: not every
        terminal erases to the current background."""
        text = "".join(cells)
        column = (self._column or 0) + len(cells)
        inked = text.rstrip(" ") if self._sgr == PLAIN else text
        blanks = len(text) - len(inked)
        if blanks >= _MIN_ERASE:
            self._output.append(f"{inked}\x1b[{blanks}X")
            column -= blanks
        else:
            self._output.append(text)
        disputed = not text.isascii() and is_disputed(character(cells, len(cells) - 1))
        self._column = None if disputed else column
        if column >= self._width:
            # At the edge the cursor waits, stays or goes on, depending on the terminal.
            self._row = self._column = None


def _vertical(rows: int) -> str:
    return _times(rows, "B", "A") if rows else ""


def _horizontal(columns: int) -> str:
    return "\b" * -columns if -_MAX_BACKSPACES <= columns <= 0 else _times(columns, "C", "D")


def _times(steps: int, forth: str, back: str) -> str:
    count = abs(steps)
    return f"\x1b[{count if count > 1 else ''}{forth if steps > 0 else back}"


def character(cells: Sequence[str], column: int) -> str:
    """Return the character in a column, even if the column is its second half."""
    while column and not cells[column]:
        column -= 1
    return cells[column]


def is_disputed(cell: str) -> bool:
    """Return whether terminals may advance differently, as their tables differ in age. The next
    cell is then addressed by its column, so that a disagreement does not spread."""
    return len(cell) > 1 or cell >= EMOJI
