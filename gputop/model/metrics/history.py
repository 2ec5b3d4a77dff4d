"""The recent past of each GPU and each process, for the graphs.

All that is kept shares one time axis of `SLOTS` slots, a ring. A frame takes a slot; frames that
come within `STEP` of the slot's begin share it, and the greatest of their values stays. So the
slots cover at least 15 minutes at any interval, and 17 hours at an interval of a minute. If frames
were missing, one slot is left empty.

Memory: 4 KiB for a metric of a GPU that has values, 8 KiB for a process on a GPU. 8 GPUs with all
metrics and 200 processes take 2.7 MiB, with 1000 processes 9.6 MiB (measured, full). A past is kept
of at most `MOST_PROCESSES`, which bounds the total at 20 MiB for 16 GPUs.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from copy import copy
from math import inf
from typing import Any, Literal, TypeVar

from gputop.model.machine.frame import Frame, Process, ProcessIdentity, identity_of
from gputop.model.machine.gpu import Gpu
from gputop.model.metrics.gpu import GPU

SLOTS = 1024
STEP = 0.9
"""Seconds. Less than one, since frames at an interval of a second are not exactly on time."""
_SPARE = 32
"""Slots that are kept beyond `SLOTS`: the oldest are dropped this many at a time."""
RECENT = 120
"""Slots of a short history."""
MOST_PROCESSES = 2000

KEPT = (
    "utilization", "memory_used", "power", "temperature", "sm_clock",
    "activity.sm", "activity.occupancy", "activity.tensor", "activity.fp64", "activity.fp32",
    "activity.fp16", "activity.dram",
    "memory_utilization", "memory_clock", "memory_unaccounted", "bar1.used", "thermal.memory",
    "thermal.margin", "fan", "pcie.tx", "pcie.rx", "nvlink.tx", "nvlink.rx",
    "engines.encoder", "engines.decoder", "engines.jpeg", "engines.ofa", "power_more.instant",
)  # fmt: skip
"""The metrics of a GPU with a past, the most viewed first."""

_METRICS = tuple((id_, GPU[id_].read) for id_ in KEPT)
_IN_BRIEF = _METRICS[:2]
_NOTHING = -inf
"""Stands for a missing value: less than any number, so that `max` passes over it."""

R = TypeVar("R", bound="Ring")


class Ring:
    """The rows of the newest `SLOTS` slots, each of `width` numbers.

    They lie flat in one array: there may be thousands of rings, and each gets a row per frame.
    """

    __slots__ = ("_end", "_values", "_width")

    def __init__(self, begin: int, width: int = 1, typecode: Literal["f", "d"] = "f") -> None:
        self._end, self._width, self._values = begin, width, array(typecode)

    def put(self, slot: int, *row: float | None) -> None:
        """Add a row to the last slot or a later one. A slot keeps the greatest values of its rows,
        and slots that were passed over stay empty."""
        numbers = [_NOTHING if value is None else value for value in row]
        values, width = self._values, self._width
        if slot < self._end:
            numbers = list(map(max, numbers, values[-width:]))
            del values[-width:]
        elif slot > self._end:
            values.extend([_NOTHING] * (min(slot - self._end, SLOTS) * width))
        values.extend(numbers)
        self._end = slot + 1
        if len(values) >= (SLOTS + _SPARE) * width:
            del values[: -SLOTS * width]

    def last(self, count: int, end: int = 0, column: int = 0) -> array[float]:
        """Return a column of the newest `count` slots, or of all if there are fewer, up to `end` if
        that is later than the last one. Missing values are below all numbers."""
        values = self._values[column :: self._width]
        values.extend([_NOTHING] * (end - self._end))
        return values[-count:]

    def copy(self: R, end: int) -> R:
        """Return another ring with the rows before slot `end`."""
        ring, later = copy(self), max(0, self._end - end)
        rows = self._values[-SLOTS * self._width :]
        ring._values = rows[: max(0, len(rows) - later * self._width)]
        ring._end = self._end - later
        return ring


class ProcessHistory(Ring):
    """The memory and SM share of a process on a GPU, the newest `RECENT` slots, oldest first."""

    __slots__ = ()

    def __init__(self, begin: int) -> None:
        super().__init__(begin, width=2)

    @property
    def memory(self) -> list[float]:
        """Bytes; minus infinity where not known."""
        return self.last(RECENT).tolist()

    @property
    def sm(self) -> list[float]:
        """Ratios; minus infinity where not known."""
        return self.last(RECENT, column=1).tolist()


class History:
    """The values of past frames; a frame without a value leaves a gap."""

    def __init__(self) -> None:
        self.brief = False
        """Whether only the first two metrics are kept, and nothing of processes: for a machine that
        is not on the screen."""
        self._clear()

    def _clear(self) -> None:
        self._times = Ring(0, typecode="d")
        self._begun = 0.0
        """When the newest slot began."""
        self._end = 0
        """Slots so far."""
        self._interval: float | None = None
        self._cpu = Ring(0)
        self._gpus: dict[str, dict[str, Ring]] = {}
        self._processes: dict[ProcessIdentity, ProcessHistory] = {}

    def append(self, frame: Frame) -> None:
        """Add a frame. Drop GPUs and processes that are gone, and everything if the machine's clock
        was set back by more than a slot."""
        slot = self._slot(frame)
        self._cpu.put(slot, frame.host.cpu)
        kept, self._gpus = self._gpus, {}
        for gpu in frame.gpus:
            series = self._gpus[gpu.key] = kept.get(gpu.key) or {}
            self._append(gpu, series, slot)
        processes, self._processes = self._processes, {}
        if self.brief:
            return
        live = {gpu.uuid for gpu in frame.gpus if gpu.state == "answers"}
        for process in frame.processes[:MOST_PROCESSES]:
            identity = identity_of(process)
            ring = self._processes[identity] = processes.get(identity) or ProcessHistory(slot)
            is_live = process.gpu_uuid in live
            ring.put(
                slot,
                process.gpu_memory if is_live else None,
                process.sm_utilization if is_live else None,
            )

    def copy(self, until: float = inf) -> History:
        """Return a copy that later frames do not change, up to a time, for the GPUs and processes
        that are known now."""
        times = self.times
        count = bisect_right(times, until)
        history, end = copy(self), self._end - len(times) + count
        if 0 < count < len(times):
            history._begun = times[count - 1]
        history._end = end
        history._times, history._cpu = self._times.copy(end), self._cpu.copy(end)
        history._gpus = {key: {id_: ring.copy(end) for id_, ring in series.items()}
                         for key, series in self._gpus.items()}  # fmt: skip
        history._processes = {
            identity: ring.copy(end) for identity, ring in self._processes.items()
        }
        return history

    @property
    def times(self) -> array[float]:
        """When each slot began, oldest first; seconds since the epoch."""
        return self._times.last(SLOTS)

    @property
    def cpu(self) -> array[float]:
        """The share of the host's CPUs in use, as in `values`; empty if it was never known."""
        values = self._cpu.last(SLOTS, self._end)
        return values if max(values, default=_NOTHING) > _NOTHING else values[:0]

    def values(self, gpu: str, id_: str) -> Sequence[float]:
        """Return a metric's values in the last slots, oldest first; missing ones are below all
        numbers. `gpu` is a key. Empty if there never was a value."""
        series = self._gpus.get(gpu, {}).get(id_)
        return series.last(SLOTS, self._end) if series else ()

    def knows(self, gpu: str, id_: str) -> bool:
        """Whether the GPU of a key ever had a value of a metric."""
        return id_ in self._gpus.get(gpu, {})

    def of_process(self, process: Process) -> ProcessHistory:
        """Return the past of a process on the GPU of this entry."""
        return self._processes.get(identity_of(process)) or ProcessHistory(self._end)

    def _append(self, gpu: Gpu, series: dict[str, Ring], slot: int) -> None:
        live = gpu.state == "answers"
        metrics = _IN_BRIEF if self.brief else _METRICS
        if self.brief and len(series) > len(metrics):
            for id_ in KEPT[len(metrics) :]:
                series.pop(id_, None)
        for id_, read in metrics:
            value: Any = read(gpu) if live else None
            ring = series.get(id_)
            if ring is None and value is not None:
                ring = series[id_] = Ring(slot)
            if ring is not None:
                ring.put(slot, value)

    def _slot(self, frame: Frame) -> int:
        if self._end:
            usual = max(self._interval or 1.0, 1.0)
            if frame.time < self._begun - STEP:
                self._clear()
            elif frame.time < self._begun + STEP:
                return self._end - 1
            elif frame.time - self._begun > 2.5 * usual:
                self._open(self._begun + usual)
        self._interval = frame.interval
        self._open(frame.time)
        return self._end - 1

    def _open(self, time: float) -> None:
        self._times.put(self._end, time)
        self._begun = time
        self._end += 1
