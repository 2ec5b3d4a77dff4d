"""The columns of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.cells import cell_len

from gputop.model import summary
from gputop.model.frame import Frame
from gputop.model.gpu import Gpu
from gputop.model.gpu_metrics import GPU
from gputop.model.graph import ceiling
from gputop.model.health import findings
from gputop.model.history import History
from gputop.model.limits import is_unified
from gputop.model.sections import THROTTLE_REASONS
from gputop.model.text import MISSING, duration, short_name
from gputop.settings import Session
from gputop.tui.glyphs import Glyphs, spark
from gputop.tui.widgets import gpucells
from gputop.tui.widgets.columns import Column, Fitted, fit, sized
from gputop.tui.widgets.gpucells import Line, PartCells
from gputop.tui.widgets.lines import Piece, width_of

Draw = Callable[[Gpu, int], Sequence[Piece]]

_HISTORY_LABELS = {
    "utilization": "UTIL",
    "memory_used": "MEMORY",
    "power": "POWER",
    "temperature": "TEMP",
    "sm_clock": "CLOCK",
    "activity.sm": "SM-ACTIVITY",
    "activity.tensor": "TENSOR",
    "activity.dram": "DRAM",
    "pcie.rx": "PCIE-RX",
    "nvlink.rx": "NVLINK-RX",
}
HISTORIES = tuple(_HISTORY_LABELS)
"""What the short history can show."""
_MAX_NAME = 24
_MAX_PROFILE = 12
_WIDE, _WIDEST = 150, 170
"""Cells from which on there is room for words on what a GPU does, and for the numbers."""


class GpuColumns:
    """What stands in each cell of a GPU of one frame, and of its MIG devices."""

    def __init__(self, settings: Session) -> None:
        self._thresholds = settings.thresholds
        self._idle_after = settings.processes.idle_after
        self.history_id = HISTORIES[0]
        """The metric that the short history shows."""

    @property
    def history_label(self) -> str:
        """What the short history is called."""
        return _HISTORY_LABELS[self.history_id]

    def fitted(
        self, frame: Frame | None, history: History, width: int, gap: int, glyphs: Glyphs
    ) -> tuple[Fitted[Gpu], Fitted[Line]]:
        """The columns for a width: of GPUs, and the same of MIG devices where there are any."""
        self._frame, self._history, self._width, self._glyphs = frame, history, width, glyphs
        gpus = frame.gpus if frame else ()
        columns = fit(self._all_columns(gpus), max(1, width - 1), gap)
        if frame is None or not any(gpu.mig for gpu in gpus):
            return columns, []
        return columns, PartCells(frame, glyphs, self._thresholds.full).columns(columns)

    def silent(self, gpu: Gpu, gap: int, role: str | None) -> list[Piece]:
        """A GPU without values: why, across the line."""
        name = self._glyphs.text(short_name(gpu.name))
        reason = gpu.error or "has not answered yet"
        if gpu.stale_for is not None:
            reason = f"{self._glyphs.stale} no answer for {duration(gpu.stale_for)}"
        pieces = [(f" {gpu.index:>3}{' ' * gap}{name}  ", role or "text")]
        pieces += [(text, role or own) for text, own in (*self._mark(gpu, 0), (reason, "alarm"))]
        return sized(pieces, self._width, self._glyphs.ellipsis, left=True)

    def _all_columns(self, gpus: Sequence[Gpu]) -> list[Column[Gpu]]:
        name = max((cell_len(short_name(gpu.name)) for gpu in gpus), default=4)
        divided = any(gpu.mig for gpu in gpus)
        name = min(_MAX_NAME, max(_MAX_PROFILE if divided else 4, name))
        index = 4 if divided else 3
        columns = [
            Column("index", "GPU", index, index, 0, self._plain("index")),
            Column("name", "NAME", min(name, 14), name, 4, self._product, left=True),
            Column("bar", "MEM", 8, 24, 5, self._memory_bar, left=True),
            Column("memory", "GiB", 11, 11, 3, self._memory),
            Column("share", "%", 4, 4, 10, self._memory_share),
            Column("load", "UTIL", 8, 16, 11, self._load_bar, left=True),
            Column("utilization", "%", 4, 4, 1, self._load),
            Column("history", self.history_label, 4, 12, 6, self._spark),
            *self._activity(gpus),
            Column("temperature", "TEMP", 4, 4, 2, self._temperature),
            *self._margin(gpus),
            Column("power", "POWER", 5, 8, 4, self._power),
            Column("clock", "CLOCK", 5, 5, 8, self._plain("sm_clock")),
            *self._throttled(gpus),
            Column("pstate", "PERF", 4, 4, 7, self._plain("pstate")),
            Column("who", "WHO", 10, 20, 3, self._who, left=True),
        ]
        if any(gpu.fan is not None for gpu in gpus):
            columns.insert(-1, Column("fan", "FAN%", 4, 4, 7, self._plain("fan")))
        return columns

    def _plain(self, id_: str) -> Draw:
        metric = GPU[id_]

        def draw(gpu: Gpu, width: int) -> Sequence[Piece]:
            return [self._value(metric.text(gpu))]

        return draw

    def _activity(self, gpus: Sequence[Gpu]) -> Iterable[Column[Gpu]]:
        """What it looks like; what GPM tells of the chip, where it tells."""
        if self._width < _WIDE:
            return
        yield Column("doing", "DOING", 18, 18, 12, self._doing, left=True)
        known = [gpu.activity for gpu in gpus]
        known += [one.activity for gpu in gpus for one in gpu.mig or ()]
        some = any(activity is not None and activity.sm is not None for activity in known)
        if some and self._width >= _WIDEST:
            for id_, label in (("sm", "SM"), ("tensor", "TENS"), ("dram", "DRAM")):
                yield Column(id_, label, 4, 4, 13, self._active(f"activity.{id_}"))

    def _throttled(self, gpus: Sequence[Gpu]) -> list[Column[Gpu]]:
        """Letters of what holds clocks back, where something does."""
        held = any(gpu.throttle and gpu.throttle.reasons for gpu in gpus)
        return [Column("throttle", "THR", 3, 3, 5, self._letters, left=True)] if held else []

    def _letters(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        reasons = gpu.throttle.reasons if gpu.throttle else ()
        return [
            (THROTTLE_REASONS[name][0], "alarm" if name.startswith("hw_") else "notice")
            for name in reasons
        ]

    def _margin(self, gpus: Sequence[Gpu]) -> Iterable[Column[Gpu]]:
        """Degrees left and the memory's, where there is room and some GPU tells."""
        told = [gpu.thermal for gpu in gpus if gpu.thermal]
        if self._width >= _WIDE and any(one.margin is not None for one in told):
            yield Column("margin", "LEFT", 4, 4, 12, self._plain("thermal.margin"))
        if self._width >= _WIDEST and any(one.memory is not None for one in told):
            yield Column("memory-temperature", "TMEM", 4, 4, 14, self._plain("thermal.memory"))

    def _active(self, id_: str) -> Draw:
        return lambda gpu, _: gpucells.ratio(GPU[id_].read(gpu), self._glyphs)

    def _value(self, text: str, role: str = "text") -> Piece:
        return gpucells.value(text, self._glyphs, role)

    def _product(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        return [(self._glyphs.text(short_name(gpu.name)), "text")]

    def _memory_bar(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        return gpucells.bar(gpucells.used_share(gpu), width, "memory", self._glyphs)

    def _load_bar(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        return gpucells.bar(gpu.utilization, width, "load", self._glyphs)

    def _memory(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        if is_unified(gpu) and gpu.memory_total is None:
            return [("unified", "quiet")]
        return gpucells.memory(gpu, self._glyphs, self._thresholds.full)

    def _memory_share(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        return gpucells.ratio(gpucells.used_share(gpu), self._glyphs)

    def _load(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        return gpucells.ratio(gpu.utilization, self._glyphs)

    def _doing(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        return gpucells.doing(gpu, self._glyphs)

    def _spark(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        id_ = self.history_id
        past = self._history.recent(gpu, id_, width)
        top = ceiling([gpu], id_, max((value for value in past if value is not None), default=0.0))
        ratios = [value if value is None else value / (top or 1.0) for value in past]
        return [(spark(ratios, width, self._glyphs), "memory" if id_ == "memory_used" else "load")]

    def _temperature(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        if gpu.temperature is None:
            return [self._value(MISSING)]
        role = "alarm" if gpu.temperature >= self._thresholds.hot else "text"
        return [(f"{gpu.temperature:.0f}", role), (f"{self._glyphs.degree}C".strip(), "quiet")]

    def _power(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        if gpu.power is None:
            return [self._value(MISSING)]
        if width < 8 or gpu.power_limit is None:
            return [(f"{gpu.power:.0f}", "text"), ("W", "quiet")]
        return [(f"{gpu.power:.0f}", "text"), (f"/{gpu.power_limit:.0f}W", "quiet")]

    def _who(self, gpu: Gpu, width: int) -> Sequence[Piece]:
        pieces: list[Piece] = []
        if gpu.stale_for is not None:
            pieces.append((f"{self._glyphs.stale} stale {duration(gpu.stale_for)} ", "alarm"))
        pieces += self._holders(gpu)
        idle = gpu.idle_for is not None and gpu.idle_for >= self._idle_after
        if idle and gpu.stale_for is None and self._frame and not summary.is_free(self._frame, gpu):
            pieces.append((f" idle {duration(gpu.idle_for)}", "notice"))
        return [*self._mark(gpu, width - width_of(pieces)), *pieces]

    def _mark(self, gpu: Gpu, room: int) -> list[Piece]:
        """The worst that is found; a notice only where it leaves room for what else is said."""
        for finding in findings(self._frame, gpu)[:1] if self._frame else ():
            text = f"{self._glyphs.warning} {finding.code} "
            if finding.level == "alarm" or len(text) <= room:
                return [(text, finding.level)]
        return []

    def _holders(self, gpu: Gpu) -> list[Piece]:
        frame = self._frame
        if frame is None:
            return []
        if gpu.asleep:
            return [("asleep", "quiet")]
        if pieces := gpucells.names(frame, gpu, self._glyphs):
            return pieces
        if gpu.processes_known is False:
            return [("processes not listed", "notice")]
        if summary.is_free(frame, gpu):
            return [("free", "good")]
        if gpu.mig_mode and gpu.mig is not None:
            return [(f"{len(gpu.mig)} MIG", "quiet")]
        if (gpu.memory_used is None and not is_unified(gpu)) or gpu.stale_for is not None:
            return [(self._glyphs.not_available, "quiet")]
        return [(summary.only_display(frame, gpu) or "no process", "quiet")]
