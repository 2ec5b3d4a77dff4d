"""Curves and areas as text: two by four dots in each braille cell, or one sign in each cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import groupby
from math import inf

from gputop.tui.glyphs import GlyphSet
from gputop.tui.panes.lines import Piece, merged

_LEFT = (0x40, 0x04, 0x02, 0x01)
"""The dots of a braille cell's left column, the lowest first (Unicode, block U+2800)."""
_RIGHT = (0x80, 0x20, 0x10, 0x08)
_BRAILLE = 0x2800


def _patterns(column: Sequence[int]) -> list[int]:
    return [sum(dot for n, dot in enumerate(column) if bits >> n & 1) for bits in range(16)]


_LEFTS, _RIGHTS = _patterns(_LEFT), _patterns(_RIGHT)


def dots_across(glyphs: GlyphSet) -> int:
    """Return how many values fit into a cell."""
    return 1 if glyphs.name == "ascii" else 2


class Canvas:
    """Cells on which curves are drawn; where curves meet, a cell has the colour of the later."""

    def __init__(self, width: int, height: int, glyphs: GlyphSet) -> None:
        self._height, self._glyphs = height, glyphs
        self._codes = [[0] * width for _ in range(height)]
        """Unicode code points minus that of an empty cell, the lowest line first."""
        self._roles = [["text"] * width for _ in range(height)]

    def draw(self, values: Sequence[float], top: float, role: str, mark: str) -> None:
        """Draw a curve: `dots_across` values a cell, from 0 to `top`; minus infinity is a gap.
        `mark` is its sign in ASCII."""
        if self._glyphs.name != "ascii":
            self._braille(values, top, role)
        else:
            self._marks(values, top, role, mark)

    def rows(self, cursor: int | None = None) -> list[list[Piece]]:
        """Return the lines from top to bottom; `cursor` is a column to mark."""
        base = 0 if self._glyphs.name == "ascii" else _BRAILLE
        lines: list[list[Piece]] = []
        for codes, roles in zip(reversed(self._codes), reversed(self._roles), strict=True):
            signs = [chr(base + code) if code else " " for code in codes]
            cells = list(zip(signs, roles, strict=True))
            if cursor is not None and 0 <= cursor < len(cells):
                cells[cursor] = _under_cursor(signs[cursor], self._glyphs)
            lines.append(merged(cells))
        return lines

    def level(self, value: float, top: float) -> int:
        """Return the line of a value, counted from below."""
        return max(0, min(int(value / top * self._height), self._height - 1))

    def _braille(self, values: Sequence[float], top: float, role: str) -> None:
        codes, roles, most = self._codes, self._roles, self._height * 4 - 1
        before = -1
        for x in range(0, len(values) - 1, 2):
            low, columns = most, 0
            high = -1
            for side, value in enumerate(values[x : x + 2]):
                if value == -inf:
                    before = -1
                    continue
                y = max(0, min(int(value / top * most + 0.5), most))
                # Begin or end beside the dot before, so that the curve is one line.
                begin = y if before < 0 else min(y, before + 1)
                end = max(y, before - 1)
                columns |= ((2 << end) - (1 << begin)) << (side * (most + 1))
                low, high, before = min(low, begin), max(high, end), y
            for line in range(low // 4, high // 4 + 1) if high >= 0 else ():
                left = columns >> (line * 4) & 15
                right = columns >> (line * 4 + most + 1) & 15
                codes[line][x // 2] |= _LEFTS[left] | _RIGHTS[right]
                roles[line][x // 2] = role

    def _marks(self, values: Sequence[float], top: float, role: str, mark: str) -> None:
        for x, value in enumerate(values):
            if value > -inf:
                line = self.level(value, top)
                self._codes[line][x], self._roles[line][x] = ord(mark), role


def area(values: Sequence[float], top: float, height: int, glyphs: GlyphSet) -> list[str]:
    """Return what is under a curve, in lines from top to bottom: `dots_across` values a cell, from
    0, of which something is seen, to `top`; minus infinity is a gap."""
    is_ascii = glyphs.name == "ascii"
    most = height * len(glyphs.levels) if is_ascii else height * 4 - 1  # in braille 0 is a dot
    heights = [
        -1 if value == -inf else max(0, min(int(value / top * most + 0.5), most))
        for value in values
    ]
    if is_ascii:
        columns = [_signs(steps, height, glyphs.levels) for steps in heights]
    else:
        columns = list(map(_dots, heights[::2], heights[1::2], [height] * len(heights)))
    return list(map("".join, zip(*columns, strict=True))) or [""] * height


@lru_cache(maxsize=1024)
def _dots(left: int, right: int, height: int) -> str:
    """Return a column of cells from top to bottom; left and right the highest dot, or -1."""
    left, right = (1 << left + 1) - 1, (1 << right + 1) - 1
    codes = [
        _LEFTS[left >> dot & 15] | _RIGHTS[right >> dot & 15] for dot in range(0, height * 4, 4)
    ]
    return "".join(chr(_BRAILLE + code) if code else " " for code in reversed(codes))


@lru_cache(maxsize=1024)
def _signs(steps: int, height: int, levels: str) -> str:
    """Return a column of cells from top to bottom; `steps` of the levels high, or -1."""
    full, part = divmod(max(steps, 0), len(levels))
    end = levels[max(part - 1, 0)] if part or not full else ""
    return (levels[-1] * full + end if steps >= 0 else "").ljust(height)[::-1]


def with_cursor(line: str, role: str, cursor: int | None, glyphs: GlyphSet) -> list[Piece]:
    """Return a line of an area; `cursor` is a column to mark."""
    if cursor is None or not 0 <= cursor < len(line):
        return [(line, role)]
    marked = _under_cursor(line[cursor], glyphs)
    return [(line[:cursor], role), marked, (line[cursor + 1 :], role)]


def _under_cursor(sign: str, glyphs: GlyphSet) -> Piece:
    return (glyphs.caret, "key") if sign == " " else (sign, "cursor")


def sparkline(
    values: Sequence[float], top: float, role: Callable[[float], str], glyphs: GlyphSet
) -> list[Piece]:
    """Return values from 0 to `top` as heights in one line, a cell each; minus infinity is a gap.
    `role` tells the role of a share of the top."""
    signs, most = glyphs.levels, len(glyphs.levels) - 1

    def sign(share: float) -> str:
        return glyphs.no_sample if share == -inf else signs[round(min(max(share, 0.0), 1.0) * most)]

    runs = groupby((value / top for value in values), role)
    return [("".join(map(sign, run)), name) for name, run in runs]


def peak(values: Sequence[float]) -> float | None:
    """Return the greatest value; None if there is none."""
    greatest = max(values, default=-inf)
    return None if greatest == -inf else greatest
