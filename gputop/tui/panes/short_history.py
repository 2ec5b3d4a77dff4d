"""The short history in the last column of the GPU pane: one metric, one span for all GPUs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu
from gputop.model.metrics import graph
from gputop.model.metrics.history import History
from gputop.settings import Thresholds
from gputop.tui.panes.gpu_cells import load_role
from gputop.tui.panes.lines import Lines, Piece
from gputop.tui.panes.plot import peak, sparkline

_WORDS = {
    "utilization": "utilization",
    "memory_used": "memory",
    "power": "power",
    "temperature": "temperature",
    "sm_clock": "SM clock",
    "activity.sm": "SM activity",
    "activity.tensor": "tensor cores",
    "activity.dram": "DRAM bandwidth",
    "pcie.rx": "PCIe received",
    "nvlink.rx": "NVLink received",
}
HISTORIES = tuple(_WORDS)
"""The ids of the metrics that it can show."""
_SPANS = {
    15.0: ("15 seconds", "15 s"),
    30.0: ("30 seconds", "30 s"),
    60.0: ("minute", "1 min"),
    180.0: ("3 minutes", "3 min"),
    900.0: ("15 minutes", "15 min"),
    3600.0: ("hour", "1 h"),
}
"""Its spans, in seconds: the shortest with room for the past, or for its last 3 minutes or 90
frames, whichever is longer."""


class ShortHistory:
    """The latest values of a metric, in as many cells as there are."""

    def __init__(self, thresholds: Thresholds) -> None:
        self.metric_id = HISTORIES[0]
        """The metric that it shows."""
        self.is_chosen = False
        """Whether the user chose the metric, so that other columns give way to it."""
        self._elsewhere: Collection[str] = ()
        """Metrics that are drawn beside it."""
        self._thresholds = thresholds
        self._gpus: Sequence[Gpu] = ()
        self._history = History()
        self._times: Sequence[float] = ()
        self._span = 15.0
        self._begin = 0.0
        self._slots: Sequence[tuple[int, int]] = ()
        """The slots of the history in each cell (from, to), the same for all GPUs."""
        self._settled: dict[str, _Settled] = {}
        """The finished cells, by the key of the GPU."""

    @property
    def words(self) -> str:
        return _WORDS[self.metric_id]

    def show(self, frame: Frame, history: History) -> None:
        """Take in another frame, and choose the metric and the span."""
        if history is not self._history:
            self._settled.clear()
        self._gpus, self._history = frame.gpus, history
        self._times = history.times
        self._choose()
        past = self._times[-1] - self._times[0] if self._times else 0.0
        enough = min(past, max(180.0, 90 * (frame.interval or 1.0)))
        self._span = next((span for span in _SPANS if span >= enough), 3600.0)

    def leave_out(self, metrics: Collection[str]) -> None:
        """Show none of these metrics, which are drawn beside it, if there is another."""
        self._elsewhere = metrics
        self._choose()

    def _choose(self) -> None:
        if not self.is_chosen or self.metric_id in self._elsewhere:
            self.metric_id = (*self._others, *self._known, HISTORIES[0])[0]

    def choose_next(self) -> None:
        """Show the next metric that some GPU has."""
        if ids := self._others or self._known:
            self.is_chosen = True
            at = ids.index(self.metric_id) if self.metric_id in ids else -1
            self.metric_id = ids[(at + 1) % len(ids)]

    @property
    def graphed_id(self) -> str:
        """The metric that graphs of all GPUs begin with: the user's choice."""
        return self.metric_id if self.is_chosen else (*self._known, HISTORIES[0])[0]

    @property
    def _known(self) -> list[str]:
        """The ids of the metrics that some GPU has: GPUs in MIG mode have no utilization."""
        return [id_ for id_ in HISTORIES
                if any(self._history.knows(gpu.key, id_) for gpu in self._gpus)]  # fmt: skip

    @property
    def _others(self) -> list[str]:
        return [id_ for id_ in self._known if id_ not in self._elsewhere]

    def fit(self, cells: int) -> str:
        """Take a width; return the label, in the longest words that fit."""
        self._slots = ()
        if self._times:
            self._begin, self._slots = graph.window(self._times, self._span, cells)
        words, (span, short) = self.words, _SPANS[self._span]
        fitting = [f"the last {span} of {words}", f"{words}, {span}", f"{words} {short}", words]
        if self.metric_id == HISTORIES[0]:  # utilization has a column of its own
            fitting[1:] = [f"the last {span}", short]
        return next(text for text in (*fitting, "") if len(text) <= cells)

    def draw(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        """Return the cells of a GPU. All but the last are finished, and are drawn anew only when
        they move or the scale changes."""
        id_, total = self.metric_id, len(self._times)
        values = self._history.values(gpu.key, id_)
        if not values or not self._slots:
            return ()
        settled = self._settled.get(gpu.key)
        if settled is None or settled.of != (id_, self._begin, width):
            numbers = graph.line(values, self._slots[:-1], total)
            settled = _Settled((id_, self._begin, width), numbers, 0.0, [])
        newest = graph.line(values, self._slots[-1:], total)
        top = graph.ceiling([gpu], id_, peak([*settled.numbers, *newest]) or 0.0) or 1.0
        if top != settled.top:
            settled = settled._replace(top=top, pieces=self._curve(settled.numbers, top))
        self._settled[gpu.key] = settled
        return [*settled.pieces, *self._curve(newest, top)]

    def _curve(self, values: Sequence[float], top: float) -> Sequence[Piece]:
        def role(share: float) -> str:  # no load is a line
            return load_role(share, self._thresholds) if share > 0 else "track"

        return sparkline(values, top, role, Lines.glyphs)


class _Settled(NamedTuple):
    """All cells of a short history but the last."""

    of: tuple[str, float, int]
    """Metric, begin in seconds, and width in cells."""
    numbers: Sequence[float]
    top: float
    pieces: Sequence[Piece]
