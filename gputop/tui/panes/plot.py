"""Curves as text: two by four dots in each braille cell, or one sign in each cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from math import inf

from gputop.tui.glyphs import GlyphSet
from gputop.tui.panes.lines import Piece

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

    def draw(
        self, values: Sequence[float], top: float, role: str, mark: str, filled: bool = False
    ) -> None:
        """Draw a curve: `dots_across` values a cell, from 0 to `top`; minus infinity is a gap.
        `mark` is its sign in ASCII if it is not filled."""
        if self._glyphs.name != "ascii":
            self._braille(values, top, role, filled)
        elif filled:
            self._columns(values, top, role)
        else:
            self._marks(values, top, role, mark)

    def rows(self, cursor: int | None = None) -> list[list[Piece]]:
        """Return the lines from top to bottom; `cursor` is a column to mark."""
        base = 0 if self._glyphs.name == "ascii" else _BRAILLE
        lines: list[list[Piece]] = []
        for codes, roles in zip(reversed(self._codes), reversed(self._roles), strict=True):
            signs = [chr(base + code) if code else " " for code in codes]
            if cursor is not None and 0 <= cursor < len(roles):
                roles = [*roles]
                roles[cursor] = "cursor" if codes[cursor] else "key"
                signs[cursor] = signs[cursor] if codes[cursor] else self._glyphs.caret
            text = "".join(signs)
            row, at = [], 0
            for role, run in groupby(roles):
                end = at + len(list(run))
                row.append((text[at:end], role))
                at = end
            lines.append(row)
        return lines

    def level(self, value: float, top: float) -> int:
        """Return the line of a value, counted from below."""
        return max(0, min(int(value / top * self._height), self._height - 1))

    def _braille(self, values: Sequence[float], top: float, role: str, filled: bool) -> None:
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
                begin = 0 if filled else y if before < 0 else min(y, before + 1)
                end = max(y, before - 1) if not filled and before >= 0 else y
                columns |= ((2 << end) - (1 << begin)) << (side * (most + 1))
                low, high, before = min(low, begin), max(high, end), y
            for line in range(low // 4, high // 4 + 1) if high >= 0 else ():
                left = columns >> (line * 4) & 15
                right = columns >> (line * 4 + most + 1) & 15
                codes[line][x // 2] |= _LEFTS[left] | _RIGHTS[right]
                roles[line][x // 2] = role

    def _columns(self, values: Sequence[float], top: float, role: str) -> None:
        levels = self._glyphs.levels
        steps = len(levels)
        for x, value in enumerate(values):
            if value == -inf:
                continue
            filled = round(min(max(value / top, 0.0), 1.0) * self._height * steps)
            full, part = divmod(filled, steps)
            for line in range(full):
                self._put(line, x, levels[-1], role)
            if part or not full:
                self._put(full, x, levels[max(part - 1, 0)], role)

    def _marks(self, values: Sequence[float], top: float, role: str, mark: str) -> None:
        for x, value in enumerate(values):
            if value > -inf:
                self._put(self.level(value, top), x, mark, role)

    def _put(self, line: int, x: int, sign: str, role: str) -> None:
        self._codes[line][x] = ord(sign)
        self._roles[line][x] = role


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
