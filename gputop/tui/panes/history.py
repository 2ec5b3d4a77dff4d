"""The last minutes of every GPU, in the lines that other panes leave free."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from math import log
from typing import NamedTuple

from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.text import MISSING, percent, size
from gputop.model.metrics import graph
from gputop.model.metrics.history import History
from gputop.settings import Thresholds
from gputop.tui.panes.columns import crop_or_pad
from gputop.tui.panes.gpu_cells import load_role, value
from gputop.tui.panes.lines import Lines, Piece, StyledLine, spread
from gputop.tui.panes.plot import area, dots_across

_FEW = 4
"""Up to this many GPUs, there is room for their memory beside their utilization."""
_MAX_SPAN_SECONDS = 300.0
"""The longest span shown, in seconds; G shows more."""
_NARROW = 12
"""The least width of a graph and the gap after it, in cells."""
_LOW = 3
"""The least number of lines of a graph and its label."""
_GAP = 2
_SHAPE = 8.0
"""The ratio of cells to lines at which a graph looks best."""
_TITLES = {"utilization": "utilization", "memory_used": "memory"}
"""What the rule calls the metrics of GPUs, in its order."""


class _SmallGraph(NamedTuple):
    metric_id: str
    """Empty for that of the CPUs."""
    label: str
    now: str
    values: Sequence[float]
    top: float


class HistoryPane(Lines):
    """A rule, then a small graph for each GPU and one for the CPUs of the host; with few GPUs, also
    one for the memory of each."""

    def __init__(self, thresholds: Thresholds) -> None:
        super().__init__()
        self._thresholds = thresholds
        self._history = History()
        self._graphs: list[_SmallGraph] = []
        self._lines: list[StyledLine] = []
        self._plots: list[list[StyledLine]] = []
        self._drawn: object = None
        """What the plots show, and up to which time."""

    def show_frame(self, frame: Frame, history: History) -> None:
        self._history = history
        self._graphs = list(_graphs(frame, history))
        if self.display:
            self._draw()
            self.repaint_changed()

    @property
    def metric_ids(self) -> frozenset[str]:
        """The metrics of GPUs that it draws."""
        return frozenset(shown.metric_id for shown in self._graphs if shown.metric_id)

    def on_resize(self) -> None:
        self._draw()
        super().on_resize()

    def least(self, width: int) -> int:
        """Return how many lines the pane needs at least; 0 if there is nothing to show."""
        count = len(self._graphs)
        return 1 + _LOW * -(-count // max(1, width // _NARROW)) if count else 0

    def pieces(self, y: int) -> Iterable[Piece]:
        return self._lines[y] if y < len(self._lines) else ()

    def _draw(self) -> None:
        graphs, (width, height) = self._graphs, self.size
        self._lines = []
        if not graphs or height < self.least(width):
            return
        across = _columns(len(graphs), width, height - 1)
        rows = -(-len(graphs) // across)
        lines = [(height - 1) // rows + (k < (height - 1) % rows) for k in range(rows)]
        cells = max(1, (width - 1 + _GAP) // across - _GAP)
        span = graph.fitting(self._history.times, _MAX_SPAN_SECONDS)
        self._plot(span, cells, [lines[k // across] - 1 for k in range(len(graphs))])
        self._lines = [self._rule(span)]
        labelled = [
            [self._label(shown, cells), *plot]
            for shown, plot in zip(graphs, self._plots, strict=True)
        ]
        for first in range(0, len(graphs), across):
            beside = zip_longest(*labelled[first : first + across], fillvalue=[])
            self._lines += map(_side_by_side, beside)

    def _plot(self, span: float, cells: int, heights: list[int]) -> None:
        """Draw the plots anew if a dot has been completed since the last time. A dot may span many
        seconds, and unchanged lines are not sent to the terminal."""
        times, dots = self._history.times, cells * dots_across(self.glyphs)
        labels = [shown.label for shown in self._graphs]
        drawn = (self._history, labels, span, cells, heights, times[-1] // (span / dots))
        if drawn == self._drawn:
            return
        self._drawn, self._plots = drawn, []
        _, slots = graph.window(times, span, cells, dots_across(self.glyphs))
        for shown, height in zip(self._graphs, heights, strict=True):
            values = graph.line(shown.values, slots, len(times))
            lines = area(values, shown.top, height, self.glyphs)
            self._plots.append(
                [[(line, self._role(height - k, height))] for k, line in enumerate(lines)]
            )

    def _role(self, line: int, height: int) -> str:
        """Return the colour of the loads that end in a line, counted from below; those of an idle
        GPU end in the lowest."""
        return load_role((line - 0.5) / height if line > 1 else 0.01, self._thresholds)

    def _rule(self, span: float) -> StyledLine:
        line, drawn = self.glyphs.rule, self.metric_ids
        title = " and ".join(title for id_, title in _TITLES.items() if id_ in drawn)
        title = title[:1].upper() + title[1:]
        left = [(f"{line} ", "track"), (f"{title} ", "quiet")]
        right = [(f" last {span / 60:.0f} min ", "quiet"), (f"{line * 2} ", "track"), ("G", "key"),
                 (" shows more ", "quiet"), (line, "track")]  # fmt: skip
        return spread(left, right, self.size.width, (line, "track"))

    def _label(self, shown: _SmallGraph, cells: int) -> StyledLine:
        pieces = [(f"{shown.label} ", "quiet"), value(shown.now)]
        return crop_or_pad(pieces, cells, self.glyphs.ellipsis)


def _graphs(frame: Frame, history: History) -> Iterator[_SmallGraph]:
    loads = [
        _SmallGraph("utilization", f"GPU {gpu.index}", _share(gpu.utilization, gpu), values, 1.0)
        for gpu in frame.gpus
        if (values := history.values(gpu.key, "utilization"))
    ]
    memory = [
        _SmallGraph("memory_used", f"MEM {gpu.index}", _memory(gpu), values, gpu.memory_total)
        for gpu in frame.gpus
        if gpu.memory_total and (values := history.values(gpu.key, "memory_used"))
    ]
    yield from loads
    yield from memory if len(loads) <= _FEW else ()  # in MIG mode there are no loads
    if (loads or memory) and history.cpu:
        yield _SmallGraph("", "CPU", _share(frame.host.cpu), history.cpu, 1.0)


def _share(ratio: float | None, gpu: Gpu | None = None) -> str:
    return MISSING if ratio is None or (gpu and gpu.state != "answers") else f"{percent(ratio)}%"


def _memory(gpu: Gpu) -> str:
    if gpu.memory_used is None or gpu.state != "answers":
        return MISSING
    return f"{size(gpu.memory_used)}/{size(gpu.memory_total)}"


def _side_by_side(parts: Sequence[StyledLine]) -> StyledLine:
    line: StyledLine = []
    for part in parts:
        line += [(" " * (_GAP if line else 1), "text"), *part]
    return line


def _columns(count: int, width: int, height: int) -> int:
    def ugliness(across: int) -> tuple[bool, float]:
        rows = -(-count // across)
        lines, empty = height // rows, across * rows - count
        shape = width / across / max(1, lines)
        return lines < _LOW, abs(log(shape / _SHAPE)) + 0.2 * empty

    return min(range(1, max(2, min(count, width // _NARROW) + 1)), key=ugliness)
