"""Reads the memory of single GPUs, for a caller that waits until it is freed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import pynvml

from gputop.agent.gpu.reader import GpuReader
from gputop.agent.worker import Worker, ask_all

_TIMEOUT = 0.02
"""Seconds that a reading waits for the driver; the next one has a later answer."""


class GpuMemory(NamedTuple):
    """The memory use of a GPU."""

    asked: float
    """When the GPU was asked, in monotonic seconds."""
    used: int | None
    """Bytes in use."""
    pids: frozenset[int]
    """The processes that the driver lists."""


class MemoryWatch:
    """Asks GPUs for their memory alone, each in a thread of its own: one may hang.

    Samples of utilization are left to the frames, which would miss them.
    """

    def __init__(self, gpus: Callable[[], Sequence[GpuReader]]) -> None:
        """`gpus` returns the current GPUs, from any thread."""
        self._gpus = gpus
        self._workers: dict[str, Worker[GpuMemory | None]] = {}

    def read(self, uuids: Iterable[str]) -> dict[str, GpuMemory]:
        """Ask these GPUs, and return their last answers by UUID. Call it from one thread."""
        workers = {uuid: self._worker(uuid) for uuid in uuids}
        ask_all(workers.values(), _TIMEOUT)
        said = {uuid: worker.latest for uuid, worker in workers.items()}
        return {uuid: memory for uuid, memory in said.items() if memory is not None}

    def _worker(self, uuid: str) -> Worker[GpuMemory | None]:
        if uuid not in self._workers:
            self._workers[uuid] = Worker(f"memory of {uuid}", partial(self._read, uuid))
        return self._workers[uuid]

    def _read(self, uuid: str) -> GpuMemory | None:
        asked = time.monotonic()
        for gpu in self._gpus():
            if gpu.latest.values.get("uuid") == uuid:
                with suppress(pynvml.NVMLError):  # it is lost, and the frames say so
                    return GpuMemory(asked, *gpu.read_memory())
        return None
