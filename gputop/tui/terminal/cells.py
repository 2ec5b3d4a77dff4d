"""What a terminal shows, cell by cell, and the shortest output that turns it into a new picture.

In a line of cells, a character of two cells is followed by an empty string. `sgr.py` explains sgr
and span.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import compress, count
from operator import and_, ne, or_
from typing import NamedTuple

from rich.cells import cell_len, get_character_cell_size

from gputop.tui.terminal.brush import EMOJI, Brush, character, is_disputed
from gputop.tui.terminal.sgr import PLAIN, Span

# A run goes on over up to this many unchanged cells: the move over them would be as long.
_MAX_GAP = 4
# Scrolling a part of a line takes about twenty bytes, and a block three.
_MIN_SCROLLED = 6
_MAX_SCROLL = 4
# Equal to no cell.
_GAP = "\0"


class CellLine(NamedTuple):
    """One line of the terminal, in the form that is compared and the form that is drawn."""

    spans: list[Span]
    ends: list[int]
    """The column after each span; empty if a span reaches into another or over the edge."""
    cells: list[str]
    sgrs: list[str]


class Painted:
    """The cells that one terminal shows, as far as they are known."""

    def __init__(self) -> None:
        self._lines: dict[int, CellLine] = {}
        self._size = (0, 0)

    def reset(self) -> None:
        """Know nothing any more: the next picture is sent in full."""
        self._lines.clear()

    def knows(self, size: tuple[int, int]) -> bool:
        """Whether a terminal of this size (columns, lines) shows what is remembered here."""
        return self._size == size and bool(self._lines)

    def draw(self, lines: Iterable[tuple[int, list[Span]]], size: tuple[int, int]) -> str:
        """Return the output that makes the terminal show these lines; assume that it is sent."""
        brush = Brush(size[0])
        if not self.knows(size):
            self.reset()
            self._size = size
            brush.reset()
        for row, spans in lines:
            old = self._lines.get(row)
            if old is None or old.spans != spans:
                new = self._lines[row] = _next_line(old, spans, size[0])
                _paint(brush, row, old, new)
        return brush.finish()


def _paint(brush: Brush, row: int, old: CellLine | None, new: CellLine) -> None:
    changed: Sequence[int] = range(len(new.cells)) if old is None else _changed(old, new)
    if old and len(changed) >= _MIN_SCROLLED and (scroll := _scroll(old, new, changed)):
        brush.scroll(row, *scroll)
        changed = _changed(_scrolled(old, *scroll), new)
    for start, end in _runs(changed, new):
        column = start
        for stop in _stops(new, start, end):
            brush.write(row, column, new.cells[column:stop], new.sgrs[column])
            column = stop


def _next_line(old: CellLine | None, spans: list[Span], width: int) -> CellLine:
    """Return the line of spans. Most spans are those of the old line, and most others are as long
    as before: then only their cells are made anew."""
    if old is None or len(old.ends) != len(spans):
        return _line(spans, width)
    cells, sgrs = old.cells.copy(), old.sgrs
    start = 0
    for before, span_, end in zip(old.spans, spans, old.ends, strict=True):
        if span_ != before:
            text, sgr = span_
            mark, inside = _clusters(text)
            if mark or len(inside) != end - start:
                return _line(spans, width)
            cells[start:end] = inside
            if sgr != before[1]:
                sgrs = sgrs.copy() if sgrs is old.sgrs else sgrs
                sgrs[start:end] = [sgr] * (end - start)
        start = end
    return CellLine(spans, old.ends, cells, sgrs)


def _line(spans: list[Span], width: int) -> CellLine:
    """Return the line of spans, cut or filled up to `width`."""
    cells: list[str] = []
    sgrs: list[str] = []
    ends: list[int] = []
    apart = True
    for text, sgr in spans:
        mark, inside = _clusters(text)
        if mark:
            _attach(mark, cells)
            apart = False
        cells.extend(inside)
        sgrs.extend([sgr] * (len(cells) - len(sgrs)))
        ends.append(len(cells))
    if len(cells) > width and cells[width] == "":
        cells[width - 1] = " "  # a character of two cells does not fit into the last one
    if not apart or len(cells) > width:
        ends = []
    missing = [" "] * (width - len(cells))
    return CellLine(spans, ends, cells[:width] + missing, sgrs[:width] + [PLAIN] * len(missing))


def _clusters(text: str) -> tuple[str, Sequence[str]]:
    """Return the combining marks that belong to what precedes a text, and the text's cells."""
    return ("", text) if text.isascii() and text.isprintable() else _cells(text)


def _attach(mark: str, cells: list[str]) -> None:
    for column in range(len(cells) - 1, -1, -1):
        if cells[column]:
            cells[column] += mark
            return


@lru_cache(maxsize=512)
def _cells(text: str) -> tuple[str, tuple[str, ...]]:
    """Return marks and cells of a text of any characters. Control characters have no cell, and a
    terminal must not see them in text."""
    clusters = [""]
    for char in text:
        if ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0:
            continue
        joined = len(clusters) > 1 and clusters[-1].endswith("\u200d")
        if joined or get_character_cell_size(char) == 0:
            clusters[-1] += char
        else:
            clusters.append(char)
    cells: list[str] = []
    for cluster in clusters[1:]:
        cells += [cluster, *[""] * (cell_len(cluster) - 1)]
    return clusters[0], tuple(cells)


def _changed(old: CellLine, new: CellLine) -> list[int]:
    differs: Iterator[bool] = map(ne, old.cells, new.cells)
    if old.sgrs is not new.sgrs and old.sgrs != new.sgrs:
        differs = map(or_, differs, map(ne, old.sgrs, new.sgrs))
    return list(compress(count(), differs))


def _scroll(old: CellLine, new: CellLine, changed: Sequence[int]) -> tuple[int, int, int] | None:
    """Return between which columns cells have moved to the left, as those of a graph do, and by how
    many columns; None if writing them is as short."""
    if "" in new.cells or "" in old.cells:
        return None  # half of a character cannot move alone
    end = changed[-1] + 1
    for count_ in range(1, _MAX_SCROLL + 1):
        last = end - count_
        start = last
        while start and _is_moved(old, new, start - 1, count_):
            start -= 1
        if bisect_left(changed, last) - bisect_left(changed, start) >= _MIN_SCROLLED:
            return start, end, count_
    return None


def _is_moved(old: CellLine, new: CellLine, column: int, count_: int) -> bool:
    source = column + count_
    return new.cells[column] == old.cells[source] and new.sgrs[column] == old.sgrs[source]


def _scrolled(line: CellLine, start: int, end: int, count_: int) -> CellLine:
    """Return a line as the terminal shows it after a scroll; the cells of the gap equal no cell."""
    cells, sgrs = (
        [*column[:start], *column[start + count_ : end], *[_GAP] * count_, *column[end:]]
        for column in (line.cells, line.sgrs)
    )
    return line._replace(cells=cells, sgrs=sgrs)


def _runs(changed: Iterable[int], new: CellLine) -> Iterator[tuple[int, int]]:
    """Yield the ranges to draw. None begins inside a character: its cells change together."""
    start = end = -1
    for column in changed:
        if column < end:
            continue
        if end < 0 or (column > end and not _bridges(new.sgrs, end, column)):
            if end >= 0:
                yield start, end
            start = column
        end = column + 1
        while end < len(new.cells) and new.cells[end] == "":
            end += 1
    if end >= 0:
        yield start, end


def _bridges(sgrs: list[str], end: int, column: int) -> bool:
    """Return whether to draw the unchanged cells between two changed ones instead of a move."""
    gap = column - end
    return gap <= _MAX_GAP and sgrs[end - 1 : column] == sgrs[end : column + 1]


def _stops(line: CellLine, start: int, end: int) -> Iterator[int]:
    """Yield where drawing must pause: at a new style, and after a character of disputed width."""
    sgrs, cells = line.sgrs[start:end], line.cells[start:end]
    plain = "".join(cells).isascii()
    if plain and sgrs.count(sgrs[0]) == len(sgrs):
        yield end
        return
    new_sgr = map(ne, sgrs, sgrs[1:])
    if not plain and (max(cells) >= EMOJI or max(map(len, cells)) > 1):
        disputed = (is_disputed(character(cells, x)) for x in range(len(cells) - 1))
        new_sgr = map(or_, new_sgr, map(and_, disputed, map(bool, cells[1:])))
    yield from compress(count(start + 1), new_sgr)
    yield end
