"""The recent past of each GPU and each process, for the graphs.

All that is kept shares one time axis of `SLOTS` slots, a ring. A frame takes a slot; frames that
come within `STEP` of the slot's begin share it, and the greatest of their values stays. So the
slots are 15 minutes at least, at any interval, and 15 hours at an interval of a minute. After a
pause one slot is left empty.

Memory: 4 KiB for a metric of a GPU that has values, 8 KiB for a process on a GPU. 8 GPUs with all
metrics and 200 processes take 2.5 MiB, with 1000 processes 9.3 MiB (measured, full). Of no more
than `MOST_PROCESSES` a past is kept, which bounds all of it at 20 MiB for 16 GPUs.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import inf
from typing import Any

from gputop.model.frame import Frame, Process
from gputop.model.gpu import Gpu
from gputop.model.gpu_metrics import GPU

SLOTS = 1024
STEP = 0.9
"""Seconds. Less than one, since frames of every second do not come quite every second."""
RECENT = 120
"""Slots of a short history."""
MOST_PROCESSES = 2000

KEPT = (
    "utilization", "memory_used", "power", "temperature", "sm_clock",
    "activity.sm", "activity.occupancy", "activity.tensor", "activity.fp64", "activity.fp32",
    "activity.fp16", "activity.dram",
    "memory_utilization", "memory_clock", "memory_unexplained", "bar1.used", "thermal.memory",
    "thermal.margin", "fan", "pcie.tx", "pcie.rx", "nvlink.tx", "nvlink.rx",
    "engines.encoder", "engines.decoder", "engines.jpeg", "engines.ofa", "power_more.instant",
)  # fmt: skip
"""The metrics of a GPU whose past is kept, those that are looked at most first."""

_METRICS = tuple((id_, GPU[id_].read) for id_ in KEPT)
_NOTHING = -inf
"""In place of a value that there was not: less than any, so that `max` passes over it."""

_Row = tuple[int, float | None, str | None, int | None, int | None]


class Series:
    """The values of one thing, by slot; those that are older than the ring are overwritten."""

    __slots__ = ("_begin", "_end", "_values")

    def __init__(self, begin: int) -> None:
        self._begin = self._end = begin
        self._values = array("f")

    def put(self, slot: int, value: float | None) -> None:
        """Take in the value of a slot; those that were passed over stay empty."""
        number = _NOTHING if value is None else value
        if slot < self._end:
            if number > self._values[(slot - self._begin) % SLOTS]:
                self._values[(slot - self._begin) % SLOTS] = number
            return
        if slot > self._end:
            for empty in range(max(self._end, slot + 1 - SLOTS), slot):
                self._write(empty, _NOTHING)
        self._write(slot, number)
        self._end = slot + 1

    def last(self, count: int, end: int = 0) -> array[float]:
        """The values of the newest `count` slots, up to `end` if that is later than its own;
        fewer where there are fewer. Those that were none are below all numbers."""
        at = (self._end - self._begin) % SLOTS if len(self._values) == SLOTS else 0
        ordered = self._values[at:] + self._values[:at]
        ordered.extend([_NOTHING] * (end - self._end))
        return ordered[-count:]

    def _write(self, slot: int, number: float) -> None:
        at = (slot - self._begin) % SLOTS
        if at < len(self._values):
            self._values[at] = number
        else:
            # Where slots were passed over beyond a ring's length, what is missing is empty, too.
            self._values.extend([_NOTHING] * (at - len(self._values)))
            self._values.append(number)


class Past:
    """Memory and SM share of a process on a GPU, by slot, side by side in one ring: there may be
    thousands of these, and each takes in a value every frame."""

    __slots__ = ("_begin", "_end", "_values")

    def __init__(self, begin: int) -> None:
        self._begin = self._end = begin
        self._values = array("f")

    def put(self, slot: int, memory: float | None, sm: float | None) -> None:
        """Take in the values of a slot; of a slot's values the last count, and those that were
        passed over stay empty."""
        if slot > self._end:
            for empty in range(max(self._end, slot + 1 - SLOTS), slot):
                self._write(empty, _NOTHING, _NOTHING)
        self._write(slot, _NOTHING if memory is None else memory, _NOTHING if sm is None else sm)
        self._end = slot + 1

    @property
    def memory(self) -> list[float | None]:
        """Bytes, oldest first: of the short history."""
        return self._recent(0)

    @property
    def sm(self) -> list[float | None]:
        """Ratios."""
        return self._recent(1)

    def _recent(self, which: int) -> list[float | None]:
        values = self._values[which::2]
        at = (self._end - self._begin) % SLOTS if len(values) == SLOTS else 0
        return _known((values[at:] + values[:at])[-RECENT:])

    def _write(self, slot: int, memory: float, sm: float) -> None:
        at = (slot - self._begin) % SLOTS * 2
        values = self._values
        if at == len(values):
            values.append(memory)
            values.append(sm)
            return
        # Where slots were passed over beyond a ring's length, what is missing is empty, too.
        values.extend([_NOTHING] * (at + 2 - len(values)))
        values[at], values[at + 1] = memory, sm


class History:
    """Of what was in the frames; None where there was no value: a gap stays a gap."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._times = array("d")
        self._end = 0
        """Slots so far."""
        self._interval: float | None = None
        self._gpus: dict[str, dict[str, Series]] = {}
        self._pasts: dict[_Row, Past] = {}

    def append(self, frame: Frame) -> None:
        """Take in a frame. GPUs and processes that are gone are forgotten, and everything is
        where the machine's clock was put back by more than a slot."""
        slot = self._slot(frame)
        kept, self._gpus = self._gpus, {}
        for gpu in frame.gpus:
            series = self._gpus[gpu.key] = kept.get(gpu.key) or {}
            self._append(gpu, series, slot)
        pasts, self._pasts = self._pasts, {}
        live = {gpu.uuid for gpu in frame.gpus if gpu.stale_for is None}
        for process in frame.processes[:MOST_PROCESSES]:
            row = _row(process)
            past = self._pasts[row] = pasts.get(row) or Past(slot)
            if process.gpu_uuid in live:
                past.put(slot, process.gpu_memory, process.sm_utilization)
            else:
                past.put(slot, None, None)

    @property
    def times(self) -> array[float]:
        """When each slot began, oldest first; seconds since the epoch."""
        at = self._end % SLOTS if len(self._times) == SLOTS else 0
        return self._times[at:] + self._times[:at]

    def values(self, gpu: str, id_: str) -> Sequence[float]:
        """Of the last slots, oldest first, for a graph: below all numbers where there is none.
        `gpu` is a key; empty if there never was a value."""
        series = self._gpus.get(gpu, {}).get(id_)
        return series.last(SLOTS, self._end) if series else ()

    def knows(self, gpu: str, id_: str) -> bool:
        """Whether there ever was a value, of the GPU of a key."""
        return id_ in self._gpus.get(gpu, {})

    def recent(self, gpu: Gpu, id_: str, count: int = RECENT) -> list[float | None]:
        """The newest values, oldest first."""
        series = self._gpus.get(gpu.key, {}).get(id_)
        return _known(series.last(count, self._end)) if series else []

    def of_process(self, process: Process) -> Past:
        """Of a process on the GPU of this entry."""
        return self._pasts.get(_row(process)) or Past(self._end)

    def _append(self, gpu: Gpu, series: dict[str, Series], slot: int) -> None:
        live = gpu.stale_for is None
        for id_, read in _METRICS:
            value: Any = read(gpu) if live else None
            if id_ in series:
                series[id_].put(slot, value)
            elif value is not None:
                series[id_] = Series(slot)
                series[id_].put(slot, value)

    def _slot(self, frame: Frame) -> int:
        """The slot of a frame."""
        if self._end:
            before = self._times[(self._end - 1) % SLOTS]
            if frame.time < before - STEP:
                self._clear()
            elif frame.time < before + STEP:
                return self._end - 1
            elif frame.time - before > 2.5 * max(self._interval or 1.0, 1.0):
                self._open(before + max(self._interval or 1.0, 1.0))
        self._interval = frame.interval
        self._open(frame.time)
        return self._end - 1

    def _open(self, time: float) -> None:
        if len(self._times) < SLOTS:
            self._times.append(time)
        else:
            self._times[self._end % SLOTS] = time
        self._end += 1


def _row(process: Process) -> _Row:
    return (
        process.pid,
        process.start_time,
        process.gpu_uuid,
        process.gpu_instance,
        process.compute_instance,
    )


def _known(values: Sequence[float]) -> list[float | None]:
    return [None if value == _NOTHING else value for value in values]
