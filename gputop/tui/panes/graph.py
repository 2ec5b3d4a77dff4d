"""Curves over time: several GPUs in one plot, or a strip for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from textual.events import Click

from gputop.model.machine.frame import Frame
from gputop.model.machine.text import clock
from gputop.model.metrics import graph
from gputop.model.metrics.gpu import GPU
from gputop.model.metrics.history import History
from gputop.tui.panes.columns import crop_or_pad
from gputop.tui.panes.gpu_cells import worded
from gputop.tui.panes.lines import Lines, Piece, StyledLine, spread, width_of
from gputop.tui.panes.plot import Canvas, area, dots_across, peak, with_cursor
from gputop.tui.terminal import drawing

_MARGIN = 11
"""The width of the scale at the left of a plot, in cells."""
_MARKS = 12
"""The width of the GPU indices at the right of a plot, in cells."""
_COLOURS = {
    "": "#56b4e9 #e69f00 #009e73 #cc79a7 #f0e442 #d55e00 #a58cff $foreground",
    ":light": "#0072b2 #d55e00 #009e73 #cc79a7 #8f7a00 #56b4e9 #7a3e9d $foreground",
    ":ansi": "ansi_cyan ansi_magenta ansi_bright_blue ansi_green ansi_yellow ansi_default"
    " ansi_bright_magenta ansi_bright_cyan",
    ":ansi:light": "ansi_blue ansi_magenta ansi_cyan ansi_green ansi_red ansi_default"
    " ansi_bright_magenta ansi_bright_blue",
}
"""The colours of curves in one plot, by kind of theme: eight, as most machines have eight GPUs at
most. Those in RGB are Okabe and Ito's, or close to them if the background requires it."""
_CURVES = 8
_STRIP = (20, 30)
"""The least and the greatest width of the words at the left of a strip, in cells."""
_LEGEND = 29
"""The width of a curve's words under a plot, in cells."""


@dataclass(frozen=True)
class Curve:
    """A metric of a GPU."""

    index: int
    """The index of the GPU, or the number of the metric if one GPU has several curves."""
    gpu: str
    """The key of the GPU."""
    id: str
    label: str

    @property
    def mark(self) -> str:
        """The sign of the curve in ASCII."""
        return "0123456789abcdef"[self.index % 16]

    @property
    def role(self) -> str:
        return f"curve{self.index % _CURVES}"


@dataclass
class _CurveTrace:
    """The part of a curve that is in sight."""

    curve: Curve
    values: list[float]
    now: float | None
    """The value under the cursor, or otherwise the newest."""
    top: float = 1.0


class Graph(Lines):
    """A heading, the curves, what each of them is, and their time axis."""

    COMPONENT_CLASSES = drawing.components(f"lines--curve{number}" for number in range(_CURVES))
    DEFAULT_CSS = "\n".join(
        f"Graph{kind} .lines--curve{number} {{ color: {colour}; }}"
        for kind, colours in _COLOURS.items()
        for number, colour in enumerate(colours.split())
    )

    def __init__(self) -> None:
        super().__init__()
        self.heading: list[Piece] = []
        self.stacked = True
        """Whether each curve has a strip of its own."""
        self.front: int | None = None
        """The number of the curve in front of the others; None if there is none."""
        self._wanted: float | None = None
        """The chosen span in seconds; None for one that has room for the past."""
        self._span = graph.SPANS[0]
        self._cursor: float | None = None
        """The time under the cursor, which moves with the curves; None without a cursor."""
        self._curves: Sequence[Curve] = ()
        self._frame: Frame | None = None
        self._history = History()
        self._times: Sequence[float] = ()
        self._lines: list[list[Piece]] = []
        self._begin = 0.0

    def show_curves(self, curves: Sequence[Curve], frame: Frame, history: History) -> None:
        """Show other curves, or newer values of the same ones."""
        self._curves, self._frame, self._history = curves, frame, history
        self.draw()

    def on_resize(self) -> None:
        super().on_resize()
        self.draw()

    def zoom(self, step: int) -> None:
        """Show a longer or a shorter time."""
        at = graph.SPANS.index(self._span) + step
        self._wanted = graph.SPANS[min(max(0, at), len(graph.SPANS) - 1)]
        self.draw()

    def move(self, step: int) -> None:
        """Move the cursor by cells; the first key puts it on the newest."""
        if not self._times:
            return
        self._wanted = self._span  # the span in view does not change under a cursor
        cell = self._span / self._width
        at = self._times[-1] if self._cursor is None else self._cursor + step * cell
        self._cursor = min(max(at, self._begin), self._times[-1])
        self.draw()

    def put_away(self) -> bool:
        """Remove the cursor, and put no curve in front; return whether either was set."""
        any_shown = self._cursor is not None or self.front is not None
        self._cursor = self.front = None
        self.draw()
        return any_shown

    def bring_forward(self, step: int) -> None:
        """Bring the next curve to the front."""
        if self._curves:
            at = (-1 if step > 0 else 0) if self.front is None else self.front
            self.front = (at + step) % len(self._curves)
            self.draw()

    def on_click(self, event: Click) -> None:
        event.stop()
        column = event.x - self._left
        if self._times and 0 <= column < self._width:
            self._wanted = self._span
            self._cursor = min(self._begin + (column + 0.5) * self._span / self._width,
                               self._times[-1])  # fmt: skip
            self.draw()

    def on_mouse_scroll_down(self) -> None:
        self.bring_forward(1)

    def on_mouse_scroll_up(self) -> None:
        self.bring_forward(-1)

    def pieces(self, y: int) -> Iterable[Piece]:
        return self._lines[y] if y < len(self._lines) else ()

    def draw(self) -> None:
        """Work out all lines, and paint those that changed."""
        if self._frame is None or not self.size.width:
            return
        self._times = self._history.times
        self._span = self._wanted or graph.fitting(self._times)
        traces = self._traces() if self._times else []
        if not traces:
            none = [[(" No values yet, or this card does not report them.", "quiet")]]
            self._lines = [self.heading, [], *none]
        else:
            body = self._strips(traces) if self.stacked else self._plot(traces)
            self._lines = [self._title(), *body]
        self.repaint_changed()

    @property
    def _width(self) -> int:
        taken = self._left if self.stacked else _MARGIN + _MARKS
        return max(4, self.size.width - taken - 1)

    @property
    def _left(self) -> int:
        least, most = _STRIP
        return min(most, max(least, self.size.width * 3 // 8)) if self.stacked else _MARGIN

    @property
    def _column(self) -> int | None:
        if self._cursor is None:
            return None
        return int((self._cursor - self._begin) / self._span * self._width)

    def _traces(self) -> list[_CurveTrace]:
        across = dots_across(self.glyphs)
        self._begin, slots = graph.window(self._times, self._span, self._width, across)
        if self._cursor is not None:
            self._cursor = min(max(self._cursor, self._begin), self._times[-1])
        column, total = self._column, len(self._times)
        traces = []
        for curve_ in self._curves:
            values = self._history.values(curve_.gpu, curve_.id)
            if values:
                line = graph.line(values, slots, total)
                now = peak(values[-1:])
                if column is not None:
                    now = peak(line[column * across : (column + 1) * across])
                traces.append(_CurveTrace(curve_, line, now))
        self._scale_alike(traces)
        return traces

    def _scale_alike(self, traces: list[_CurveTrace]) -> None:
        """Give all curves of a metric one scale."""
        shown = {trace.curve.gpu for trace in traces}
        gpus = [gpu for gpu in self._frame.gpus if gpu.key in shown] if self._frame else []
        for id_ in {trace.curve.id for trace in traces}:
            alike = [trace for trace in traces if trace.curve.id == id_]
            highest = max(peak(trace.values) or 0.0 for trace in alike)
            top = graph.ceiling(gpus, id_, highest) or 1.0
            for trace in alike:
                trace.top = top

    def _title(self) -> list[Piece]:
        span = f"{self._span / 60:.0f} min "
        if self._cursor is not None:
            span = f"at {clock(self._cursor)}  {span}"
        return spread(self.heading, [(span, "text")], self.size.width)

    def _plot(self, traces: list[_CurveTrace]) -> Iterable[list[Piece]]:
        legend = list(self._legend(traces))
        height = max(2, self.size.height - 2 - len(legend))
        canvas = Canvas(self._width, height, self.glyphs)
        front = self._in_front(traces)
        ends: list[list[tuple[int, str]]] = [[] for _ in range(height)]
        for trace in [trace for trace in traces if trace is not front] + ([front] if front else []):
            role = trace.curve.role if front in (None, trace) else "quiet"
            canvas.draw(trace.values, trace.top, role, trace.curve.mark)
            if (last := peak(trace.values[-1:])) is not None:
                ends[canvas.level(last, trace.top)].append((trace.curve.index, role))
        first = traces[0]
        for n, row in enumerate(canvas.rows(self._column)):
            words = self._scale(first, n, height)
            names = crop_or_pad(_named(ends[height - 1 - n]), _MARKS + 1, self.glyphs.ellipsis)
            yield [(f"{words:>{_MARGIN - 1}} ", "quiet"), *row, *names]
        yield self._axis()
        yield from legend

    def _in_front(self, traces: list[_CurveTrace]) -> _CurveTrace | None:
        if self.front is None or self.front >= len(self._curves):
            return None
        wanted = self._curves[self.front]
        return next((trace for trace in traces if trace.curve == wanted), None)

    def _scale(self, trace: _CurveTrace, n: int, height: int) -> str:
        """Return the words of the scale beside line `n`: only top, middle and bottom have some."""
        if n not in (0, height - 1, (height - 1) // 2) or (height < 4 and 0 < n < height - 1):
            return ""
        return self._text(trace, trace.top * (1 - n / (height - 1)))

    def _axis(self) -> list[Piece]:
        width, margin = self._width, self._left
        words = {max(0, width - 8): clock(self._times[-1])}
        if width > 17:
            words[0] = clock(self._begin)
        if (column := self._column) is not None and self._cursor is not None:
            at = max(0, min(column - 4, width - 8))
            words = {x: text for x, text in words.items() if abs(x - at) > 9}
            words[at] = clock(self._cursor)
        pieces: list[Piece] = [(" " * margin, "text")]
        for x, text in sorted(words.items()):
            role = "text" if self._cursor is not None and text == clock(self._cursor) else "quiet"
            pieces.append((" " * (x + margin - width_of(pieces)), "text"))
            pieces.append((text, role))
        return pieces

    def _words(self, trace: _CurveTrace) -> tuple[str, str]:
        return self._text(trace, trace.now), self._text(trace, peak(trace.values))

    def _text(self, trace: _CurveTrace, value: float | None) -> str:
        return worded(GPU[trace.curve.id], value, self.glyphs)

    def _legend(self, traces: list[_CurveTrace]) -> Iterable[list[Piece]]:
        front = self._in_front(traces)
        per = max(1, (self.size.width - 1) // _LEGEND)
        for n in range(0, len(traces), per):
            line: list[Piece] = [(" ", "text")]
            for trace in traces[n : n + per]:
                now, highest = self._words(trace)
                role = "heading" if trace is front else "text"
                words: list[Piece] = [(f"{trace.curve.label:<6} ", trace.curve.role), (now, role)]
                words.append((f"  peak {highest}", "quiet"))
                line += crop_or_pad(words, _LEGEND, self.glyphs.ellipsis)
            yield line

    def _strips(self, traces: list[_CurveTrace]) -> Iterable[list[Piece]]:
        """Draw each curve filled, with its words at the left: as many as fit, beginning with the
        one in front unless too few follow it."""
        room = max(1, self.size.height - 2)
        front = self._in_front(traces)
        first = traces.index(front) if front else 0
        first = max(0, min(first, len(traces) - room))
        shown = traces[first : first + room]
        for k, trace in enumerate(shown):
            height = room // len(shown) + (k < room % len(shown))
            role = "memory" if trace.curve.id.startswith("memory_u") else "load"
            words = self._strip_words(trace, height, trace is front)
            for n, line in enumerate(area(trace.values, trace.top, height, self.glyphs)):
                label = words[n] if n < len(words) else []
                yield [*crop_or_pad(label, self._left, self.glyphs.ellipsis),
                       *with_cursor(line, role, self._column, self.glyphs)]  # fmt: skip
        yield self._axis()

    def _strip_words(self, trace: _CurveTrace, height: int, front: bool) -> list[list[Piece]]:
        now, highest = self._words(trace)
        label = (f" {trace.curve.label:<10} ", "heading" if front else "text")
        value: StyledLine = [label, (now, "text")]
        scale: Piece = (f" of {self._text(trace, trace.top)}", "quiet")
        peak_: StyledLine = [(f"  peak {highest}", "quiet")]
        fits = trace.now is not None and width_of([*value, scale]) < self._left
        (value if fits else peak_).append(scale)
        return [value, peak_]


def _named(curves: Sequence[tuple[int, str]]) -> StyledLine:
    pieces: StyledLine = []
    for _, run in groupby(enumerate(sorted(curves)), lambda pair: pair[1][0] - pair[0]):
        (first, role), *rest = (curve_ for _, curve_ in run)
        pieces.append((",", "quiet") if pieces else (" GPU ", "quiet"))
        pieces.append((str(first), role))
        if rest:
            pieces += [("-" if len(rest) > 1 else ",", "quiet"), (str(rest[-1][0]), rest[-1][1])]
    return pieces
