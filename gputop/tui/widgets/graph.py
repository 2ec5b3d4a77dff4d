"""Curves over time: several GPUs in one plot, or a strip each."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gputop.model import graph
from gputop.model.frame import Frame
from gputop.model.gpu_metrics import GPU
from gputop.model.history import History
from gputop.tui.plot import Canvas, dots_across, peak
from gputop.tui.themes import USER_COLOURS
from gputop.tui.widgets.columns import sized
from gputop.tui.widgets.lines import Lines, Piece, spread, width_of

_MARGIN = 11
"""Cells of the scale at the left of a plot."""
_MARKS = 9
"""Cells at its right, which tell whose the curves are."""
_STRIP = 24
"""Cells at the left of a strip."""
_LEGEND = 29
"""Cells of a curve's words under a plot."""


@dataclass(frozen=True)
class Curve:
    """A metric of a GPU."""

    gpu: str
    """Its key."""
    id: str
    label: str
    mark: str
    """One sign, in ASCII."""
    role: str


def curve(index: int, gpu: str, id_: str, label: str) -> Curve:
    """The curve of a GPU, its marks by its index."""
    return Curve(gpu, id_, label, "0123456789abcdef"[index % 16], f"user{index % USER_COLOURS}")


@dataclass(frozen=True)
class _Drawn:
    """A curve and what is in sight of it."""

    curve: Curve
    values: list[float]
    now: float | None
    """Under the cursor, or newest."""
    top: float


class Graph(Lines):
    """A heading, the curves, their time axis and what they are."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.heading: list[Piece] = []
        self.stacked = False
        self.front: int | None = None
        """The place of the curve that the others stand behind."""
        self._wanted: float | None = None
        """Seconds; None: as long as the past is."""
        self._span = graph.SPANS[0]
        self._cursor: float | None = None
        """The time under it, which moves with the curves."""
        self._curves: Sequence[Curve] = ()
        self._frame: Frame | None = None
        self._history = History()
        self._times: Sequence[float] = ()
        self._lines: list[list[Piece]] = []
        self._begin = 0.0

    def show_curves(self, curves: Sequence[Curve], frame: Frame, history: History) -> None:
        """Other curves, or more of them."""
        self._curves, self._frame, self._history = curves, frame, history
        self.draw()

    def on_resize(self) -> None:
        """Another size."""
        super().on_resize()
        self.draw()

    def zoom(self, step: int) -> None:
        """A longer or a shorter time."""
        at = graph.SPANS.index(self._span) + step
        self._wanted = graph.SPANS[min(max(0, at), len(graph.SPANS) - 1)]
        self.draw()

    def move(self, step: int) -> None:
        """The cursor, by cells; the first key puts it on the newest."""
        if not self._times:
            return
        self._wanted = self._span  # what is looked at stays where it is
        cell = self._span / self._width
        at = self._times[-1] if self._cursor is None else self._cursor + step * cell
        self._cursor = min(max(at, self._begin), self._times[-1])
        self.draw()

    def put_away(self) -> bool:
        """Take the cursor and the front away; whether one was there."""
        there = self._cursor is not None or self.front is not None
        self._cursor = self.front = None
        self.draw()
        return there

    def bring_forward(self, step: int) -> None:
        """The next curve."""
        if self._curves:
            at = (-1 if step > 0 else 0) if self.front is None else self.front
            self.front = (at + step) % len(self._curves)
            self.draw()

    def pieces(self, y: int) -> Iterable[Piece]:
        """A line of the picture."""
        return self._lines[y] if y < len(self._lines) else ()

    def draw(self) -> None:
        """All lines of now, of which those that changed are painted."""
        if self._frame is None or not self.size.width:
            return
        self._times = self._history.times
        self._span = self._wanted or graph.fitting(self._times)
        drawn = self._drawn() if self._times else []
        if not drawn:
            none = [[(" There are no values of it yet, or this card does not tell.", "quiet")]]
            self._lines = [self.heading, [], *none]
        else:
            body = self._strips(drawn) if self.stacked else self._plot(drawn)
            self._lines = [self._title(), *body]
        self.sync()

    @property
    def _width(self) -> int:
        """Cells of the curves."""
        taken = _STRIP if self.stacked else _MARGIN + _MARKS
        return max(4, self.size.width - taken - 1)

    @property
    def _column(self) -> int | None:
        """The cursor's."""
        if self._cursor is None:
            return None
        return int((self._cursor - self._begin) / self._span * self._width)

    def _drawn(self) -> list[_Drawn]:
        across = dots_across(self.glyphs)
        count, span = self._width * across, self._span
        self._begin = graph.begin_of(self._times[-1], span, self._width)
        if self._cursor is not None:
            self._cursor = max(self._cursor, self._begin)
        slots = graph.dots(self._times, self._begin, span / count, count)
        column, total = self._column, len(self._times)
        found = []
        for one in self._curves:
            values = self._history.values(one.gpu, one.id)
            if values:
                line = graph.line(values, slots, total)
                if column is None:
                    here: Sequence[float] = values[-1:]
                else:
                    here = line[column * across : (column + 1) * across]
                found.append(_Drawn(one, line, peak(here), 0.0))
        return self._scaled(found)

    def _scaled(self, drawn: list[_Drawn]) -> list[_Drawn]:
        """Curves of one metric have one scale."""
        gpus = self._frame.gpus if self._frame else ()
        there = {one.curve.gpu for one in drawn}
        tops = {
            id_: graph.ceiling(
                [gpu for gpu in gpus if gpu.key in there],
                id_,
                max(peak(one.values) or 0.0 for one in drawn if one.curve.id == id_),
            )
            for id_ in {one.curve.id for one in drawn}
        }
        return [replace(one, top=tops[one.curve.id] or 1.0) for one in drawn]

    def _title(self) -> list[Piece]:
        span = f"{self._span / 60:.0f} min "
        if self._cursor is not None:
            span = f"at {_clock(self._cursor)}  {span}"
        return spread(self.heading, [(span, "text")], self.size.width)

    def _plot(self, drawn: list[_Drawn]) -> Iterable[list[Piece]]:
        """All curves in one plot, its scale at the left, and what they are under it."""
        legend = list(self._legend(drawn))
        height = max(2, self.size.height - 2 - len(legend))
        canvas = Canvas(self._width, height, self.glyphs)
        front = self._in_front(drawn)
        marks: list[list[Piece]] = [[] for _ in range(height)]
        for one in [one for one in drawn if one is not front] + ([front] if front else []):
            role = one.curve.role if front in (None, one) else "quiet"
            canvas.draw(one.values, one.top, role, one.curve.mark)
            if (last := peak(one.values[-1:])) is not None:
                marks[canvas.level(last, one.top)].append((one.curve.mark, role))
        first = drawn[0]
        for n, row in enumerate(canvas.rows(self._column)):
            words = self._scale(first, n, height)
            ends = sized([(" ", "text"), *marks[height - 1 - n]], _MARKS + 1,
                         self.glyphs.ellipsis, left=True)  # fmt: skip
            yield [(f"{words:>{_MARGIN - 1}} ", "quiet"), *row, *ends]
        yield self._axis(_MARGIN)
        yield from legend

    def _in_front(self, drawn: list[_Drawn]) -> _Drawn | None:
        if self.front is None or self.front >= len(self._curves):
            return None
        wanted = self._curves[self.front]
        return next((one for one in drawn if one.curve == wanted), None)

    def _scale(self, one: _Drawn, n: int, height: int) -> str:
        """The words at a line of a plot: top, middle, bottom."""
        if n not in (0, height - 1, (height - 1) // 2) or (height < 4 and 0 < n < height - 1):
            return ""
        return self._text(one, one.top * (1 - n / (height - 1)))

    def _axis(self, margin: int) -> list[Piece]:
        """The times at both ends, and under the cursor."""
        width = self._width
        words = {0: _clock(self._begin), width - 8: _clock(self._times[-1])}
        if (column := self._column) is not None and self._cursor is not None:
            at = min(max(0, column - 4), width - 8)
            words = {x: text for x, text in words.items() if abs(x - at) > 9}
            words[at] = _clock(self._cursor)
        pieces: list[Piece] = [(" " * margin, "text")]
        for x, text in sorted(words.items()):
            role = "text" if self._cursor is not None and text == _clock(self._cursor) else "quiet"
            pieces.append((" " * (x + margin - width_of(pieces)), "text"))
            pieces.append((text, role))
        return pieces

    def _words(self, one: _Drawn) -> tuple[str, str]:
        """The value under the cursor or of now, and the greatest in sight."""
        return self._text(one, one.now), self._text(one, peak(one.values))

    def _text(self, one: _Drawn, value: float | None) -> str:
        if value is None:
            return self.glyphs.not_available
        return graph.with_unit(GPU[one.curve.id], value, self.glyphs.degree)

    def _legend(self, drawn: list[_Drawn]) -> Iterable[list[Piece]]:
        front = self._in_front(drawn)
        per = max(1, (self.size.width - 1) // _LEGEND)
        for n in range(0, len(drawn), per):
            line: list[Piece] = [(" ", "text")]
            for one in drawn[n : n + per]:
                now, highest = self._words(one)
                role = "heading" if one is front else "text"
                words: list[Piece] = [(f"{one.curve.label:<6} ", one.curve.role), (now, role)]
                line += sized([*words, (f"  peak {highest}", "quiet")], _LEGEND,
                              self.glyphs.ellipsis, left=True)  # fmt: skip
            yield line

    def _strips(self, drawn: list[_Drawn]) -> Iterable[list[Piece]]:
        """A filled curve each, with its words at the left; as many as there is room for, from
        the one in front on."""
        room = max(1, self.size.height - 2)
        front = self._in_front(drawn)
        first = drawn.index(front) if front else 0
        first = max(0, min(first, len(drawn) - room))
        shown = drawn[first : first + room]
        for k, one in enumerate(shown):
            height = room // len(shown) + (k < room % len(shown))
            canvas = Canvas(self._width, height, self.glyphs)
            canvas.draw(one.values, one.top, one.curve.role, one.curve.mark, filled=True)
            words = self._strip_words(one, height, one is front)
            for n, row in enumerate(canvas.rows(self._column)):
                label = words[n] if n < len(words) else []
                yield [*sized(label, _STRIP, self.glyphs.ellipsis, left=True), *row]
        yield self._axis(_STRIP)

    def _strip_words(self, one: _Drawn, height: int, front: bool) -> list[list[Piece]]:
        now, highest = self._words(one)
        label = (f" {one.curve.label:<10} ", "heading" if front else one.curve.role)
        if height == 1:
            return [[label, (now, "text")]]
        below = (f"  peak {highest}", f"  of {self._text(one, one.top)}")
        return [[label, (now, "text")], *([(text, "quiet")] for text in below)]


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds))
