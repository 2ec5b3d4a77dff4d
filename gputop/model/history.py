"""The recent past of each GPU and each process, for the graphs."""

from __future__ import annotations

from array import array
from collections import deque
from math import nan

from gputop.model.frame import Frame, Process
from gputop.model.gpu import Gpu

LENGTH = 120
"""Samples that are kept of each GPU and of each process on a GPU."""

_Row = tuple[int, float | None, str | None, int | None, int | None]


class Past:
    """Memory and SM share of a process on a GPU, oldest first; in two arrays, since there may be
    thousands of these."""

    def __init__(self) -> None:
        self._memory = array("d")
        self._sm = array("f")

    def append(self, process: Process, live: bool) -> None:
        """Take in a sample."""
        memory = process.gpu_memory if live else None
        sm = process.sm_utilization if live else None
        self._memory.append(nan if memory is None else memory)
        self._sm.append(nan if sm is None else sm)
        del self._memory[:-LENGTH], self._sm[:-LENGTH]

    @property
    def memory(self) -> list[float | None]:
        """Bytes."""
        return _known(self._memory)

    @property
    def sm(self) -> list[float | None]:
        """Ratios."""
        return _known(self._sm)


class History:
    """Of what was in the frames; None where there was no value: a gap stays a gap."""

    def __init__(self) -> None:
        self._utilization: dict[str, deque[float | None]] = {}
        self._pasts: dict[_Row, Past] = {}

    def append(self, frame: Frame) -> None:
        """Take in a frame. GPUs and processes that are gone are forgotten."""
        kept = self._utilization
        self._utilization = {
            gpu.key: kept.get(gpu.key) or deque(maxlen=LENGTH) for gpu in frame.gpus
        }
        for gpu in frame.gpus:
            live = gpu.stale_for is None
            self._utilization[gpu.key].append(gpu.utilization if live else None)
        pasts, self._pasts = self._pasts, {}
        live_gpus = {gpu.uuid for gpu in frame.gpus if gpu.stale_for is None}
        for process in frame.processes:
            row = _row(process)
            past = self._pasts[row] = pasts.get(row) or Past()
            past.append(process, process.gpu_uuid in live_gpus)

    def utilization(self, gpu: Gpu) -> list[float | None]:
        """Ratios, oldest first."""
        return list(self._utilization.get(gpu.key, ()))

    def of_process(self, process: Process) -> Past:
        """Of a process on the GPU of this entry."""
        return self._pasts.get(_row(process)) or Past()


def _row(process: Process) -> _Row:
    return (
        process.pid,
        process.start_time,
        process.gpu_uuid,
        process.gpu_instance,
        process.compute_instance,
    )


def _known(values: array[float]) -> list[float | None]:
    return [None if value != value else value for value in values]
