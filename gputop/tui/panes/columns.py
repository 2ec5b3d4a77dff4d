"""Which columns fit a width, and how wide each becomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

from rich.cells import cell_len, set_cell_size

from gputop.tui.panes.lines import Piece, merged, width_of

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """A column of a table of R."""

    id: str
    label: str
    least: int
    """The least width in cells; a column without room for it is left out."""
    most: int
    """The greatest width in cells."""
    rank: int
    """Columns of a higher rank are left out first; those of a lower rank grow first."""
    draw: Callable[[R, int], Sequence[Piece]]
    """Returns the pieces of a row for this many cells; they are cut or padded to fit afterwards."""
    left: bool = False


Fitted = list[tuple[Column[R], int]]


def fit(columns: Sequence[Column[R]], width: int, gap: int) -> Fitted[R]:
    """Return the columns that fit into `width` cells, in their order, with their widths.

    Cells that remain when all columns have grown go to the last one if it is text. The result is
    never empty: the column of the lowest rank stays, however narrow.
    """
    chosen = list(columns)
    while len(chosen) > 1 and _needed(chosen, gap) > width:
        chosen.remove(max(chosen, key=lambda column: column.rank))
    widths = [column.least for column in chosen]
    spare = max(0, width - _needed(chosen, gap))
    # Each cell that a column may get, in the order in which they are given: by rank, then in turn.
    cells = sorted((column.rank, cell, at) for at, column in enumerate(chosen)
                   for cell in range(column.most - column.least))  # fmt: skip
    for _, _, at in cells[:spare]:
        widths[at] += 1
    if chosen[-1].left:
        widths[-1] += max(0, spare - len(cells))
    if _needed(chosen, gap) > width:
        widths[0] = width
    return list(zip(chosen, widths, strict=True))


def _needed(columns: Sequence[Column[R]], gap: int) -> int:
    return sum(column.least for column in columns) + gap * (len(columns) - 1)


def row(fitted: Fitted[R], subject: R, gap: int, ellipsis: str) -> list[Piece]:
    """Return the pieces of a row."""
    pieces: list[Piece] = []
    for column, width in fitted:
        drawn = tuple(column.draw(subject, width))
        pieces += _cell(drawn, width, ellipsis, column.left, gap if pieces else 0)
    return pieces


@lru_cache(maxsize=1024)
def _cell(
    pieces: tuple[Piece, ...], width: int, ellipsis: str, left: bool, gap: int
) -> tuple[Piece, ...]:
    """Return a cell and the gap before it. Most equal those of a second ago, or of another row."""
    return tuple(merged([(" " * gap, "text"), *crop_or_pad(pieces, width, ellipsis, left)]))


def heading(fitted: Fitted[R], gap: int, marked: str | None = None, mark: str = "") -> list[Piece]:
    """Return a blank for the sign before a row, then the labels of the columns. The label of the
    column that rows are sorted by has a mark beside it, in the gap if need be: no label moves."""
    line, begin, end, left = " ", 0, 0, False
    for column, width in fitted:
        label, at = column.label[:width], len(line)
        line += (label.ljust(width) if column.left else label.rjust(width)) + " " * gap
        if column.id == marked:
            left = column.left
            begin = at if left else at + width - len(label)
            end = begin + len(label)
    if mark and end:
        # Between two labels that are one cell apart, it would seem to be that of the other.
        before = not left and line[max(0, begin - 2) : begin].isspace()
        sign = begin - 1 if before else end
        line = line[:sign] + mark + line[sign + 1 :]
        begin, end = min(begin, sign), max(end, sign + 1)
    rest = line[end : max(end, len(line) - gap)]
    parts = (line[:begin], "quiet"), (line[begin:end], "heading"), (rest, "quiet")
    return [part for part in parts if part[0]]


def column_at(fitted: Fitted[R], x: int, gap: int) -> str | None:
    """Return the id of the column at a cell of the row; the gap after a column belongs to it."""
    for column, width in fitted:
        x -= width + gap
        if x < 0:
            return column.id
    return None


def cut(text: str, width: int, ellipsis: str) -> str:
    """Cut a text to `width` cells; a cut text ends in an ellipsis."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - cell_len(ellipsis))) + ellipsis


def crop_or_pad(
    pieces: Sequence[Piece], width: int, ellipsis: str, left: bool = True
) -> list[Piece]:
    """Cut or pad pieces to `width` cells; cut ones end in an ellipsis."""
    length = width_of(pieces)
    if length <= width:
        padding = (" " * (width - length), "text")
        return [*pieces, padding] if left else [padding, *pieces]
    kept: list[Piece] = []
    room = width - cell_len(ellipsis)
    for text, role in pieces:
        cells = cell_len(text)
        if cells >= room:
            return [*kept, (set_cell_size(text, max(0, room)) + ellipsis, role)]
        kept.append((text, role))
        room -= cells
    return kept
