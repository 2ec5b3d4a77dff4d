"""Reads the process lists and the per-process utilization of one GPU.

It uses buffers of its own instead of nvidia-ml-py's functions. Those call twice for every list and
build an object for every process, most of a cycle's cost on a busy machine, and they know only the
newest layout.
"""

from __future__ import annotations

import ctypes
import math
import struct
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pynvml

from gputop.agent.gpu import validate
from gputop.agent.gpu.driver import DRIVER_GONE
from gputop.model.health.unaccounted import is_notable

_NO_INSTANCE = 0xFFFFFFFF
_FIRST_SAMPLES = 2.0
"""Seconds of samples taken the first time, when there is no last timestamp."""
_CLOCK_SKEW = 60.0
"""Seconds that a sample may be ahead of our clock; more is garbage, or our clock was set back."""
_SET_BACK = 1.0
"""Seconds from which on a clock is set back, not steered."""
_RARE = 5.0
"""Seconds between two readings of an empty list, but for that of compute processes, and of samples
while no process is at work."""
_SPARE = 32
_GROWTHS = 4

_NEWER = struct.Struct("<I4xQII")  # nvmlProcessInfo_v2_t and _v3_t
_OLDEST = struct.Struct("<I4xQ")  # nvmlProcessInfo_v1_t
_SAMPLE = struct.Struct("<I4xQIIII")  # nvmlProcessUtilizationSample_t

_RATIOS = {percentage: validate.ratio(percentage) for percentage in range(256)}
"""The ratio of each percentage; looked up, since every process has three of them."""

_LISTS = (
    ("C", "nvmlDeviceGetComputeRunningProcesses"),
    ("G", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("M", "nvmlDeviceGetMPSComputeRunningProcesses"),
)
_VERSIONS = (("_v3", _NEWER), ("_v2", _NEWER), ("", _OLDEST))


class GpuProcess(NamedTuple):
    """A process in one or more lists of a GPU; `memory` in bytes, instances are None off MIG."""

    pid: int
    type: str
    memory: int | None
    gpu_instance: int | None
    compute_instance: int | None


class Utilization(NamedTuple):
    """The newest sample of a process: ratios, None for garbage, and the driver's time in
    microseconds."""

    sm: float
    timestamp: int
    memory: float | None
    encoder: float | None
    decoder: float | None

    @property
    def is_busy(self) -> bool:
        """Whether any ratio is above 0: a decoder works without the SMs."""
        return bool(self.sm or self.memory or self.encoder or self.decoder)


class _Buffer:
    """A C array that NVML fills, grown to what is needed and kept for the next cycle."""

    def __init__(self, record: struct.Struct) -> None:
        self.record = record
        self._capacity = _SPARE
        self._bytes = ctypes.create_string_buffer(_SPARE * record.size)

    def fill(self, call: Any) -> bytes:
        """Return what `call(count, array)` fills in; it returns NVML's code. NVMLError. After
        INSUFFICIENT_SIZE `count` is the size needed; more processes may start meanwhile."""
        for _ in range(_GROWTHS):
            count = ctypes.c_uint(self._capacity)
            code = call(ctypes.byref(count), self._bytes)
            if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                break
            self._capacity = max(self._capacity, count.value) + _SPARE
            self._bytes = ctypes.create_string_buffer(self._capacity * self.record.size)
        pynvml._nvmlCheckReturn(code)
        length = min(count.value, self._capacity) * self.record.size
        return bytes(memoryview(self._bytes)[:length])


class _ProcessList:
    """One of the lists of a GPU."""

    def __init__(self, letter: str, function: Any, record: struct.Struct) -> None:
        self.letter, self._function, self._buffer = letter, function, _Buffer(record)
        self._is_absent = False
        self.records: bytes | None = None
        """The driver's last records; None if it gave none."""

    def read(self, handle: Any) -> None:
        """Read the list. NVMLError if the GPU or the driver is gone."""
        if self._is_absent:
            return
        self.records = None
        try:
            self.records = self._buffer.fill(lambda *arguments: self._function(handle, *arguments))
        except pynvml.NVMLError as error:
            self._is_absent = error.value == pynvml.NVML_ERROR_NOT_SUPPORTED
            if error.value in (*DRIVER_GONE, pynvml.NVML_ERROR_GPU_IS_LOST):
                raise

    def rows(self) -> Iterator[tuple[int, ...]]:
        """Yield PID, memory and, if the driver reports them, instances."""
        return self._buffer.record.iter_unpack(self.records or b"")


class ProcessLists:
    """The lists of one GPU; remembers which calls the driver has, and the last timestamp."""

    def __init__(self) -> None:
        self._lists = list(_newest_lists())
        self._samples = _Buffer(_SAMPLE)
        self._since = 0
        self._ahead = -math.inf
        """Seconds by which our clock was ahead of the time since the boot."""
        self._newest: dict[int, Utilization] = {}
        self._samples_due = 0.0
        self._answers: tuple[object, ...] = ()
        self._due = 0.0
        self._running: tuple[GpuProcess, ...] = ()
        self.complete = False
        """Whether the driver gave the list of compute processes the last time."""
        self.held: int | None = 0
        """Bytes of GPU memory that all processes hold; None if that of one is unknown."""

    def running(self, handle: Any, total: int | None, used: int | None) -> tuple[GpuProcess, ...]:
        """Return every process, once per MIG instance. A process in two lists holds its memory
        once, so the largest figure counts, not the sum; one above `total` bytes is garbage.

        Empty lists are read again if more memory is `used` than the processes hold. The result is
        the same object as long as the driver's answers are equal.
        """
        may_rest = self._may_rest(used)
        for processes in self._lists:
            if not (may_rest and processes.letter != "C" and processes.records == b""):
                processes.read(handle)
        answers = (total, *(processes.records for processes in self._lists))
        if answers != self._answers:
            self._answers, self._running = answers, self._read(total)
            amounts = [process.memory for process in self._running]
            self.held = None if None in amounts else sum(filter(None, amounts))
            compute = [processes for processes in self._lists if processes.letter == "C"]
            self.complete = any(processes.records is not None for processes in compute)
        return self._running

    def _may_rest(self, used: int | None) -> bool:
        now = time.monotonic()
        accounted = used is not None and self.held is not None and not is_notable(used - self.held)
        if accounted and now < self._due:
            return True
        self._due = now + _RARE
        return False

    def _read(self, total: int | None) -> tuple[GpuProcess, ...]:
        entries: dict[tuple[int, int, int], list[Any]] = {}
        for processes in self._lists:
            for pid, memory, *instance in processes.rows():
                gpu, compute = instance or (_NO_INSTANCE, _NO_INSTANCE)
                entry = entries.setdefault((pid, gpu, compute), [set(), None])
                entry[0].add(processes.letter)
                if (amount := validate.memory(memory, total)) is not None:
                    entry[1] = max(amount, entry[1] or 0)
        return tuple(
            GpuProcess(pid, _type(letters), memory, _instance(gpu), _instance(compute))
            for (pid, gpu, compute), (letters, memory) in entries.items()
        )

    def utilization(self, handle: Any, is_at_work: bool) -> dict[int, Utilization]:
        """Return the newest sample since the driver was asked last, by PID, of processes that have
        one. It takes an H200 1.5 to 3 ms: seldom asked while nothing is at work."""
        now = time.monotonic()
        is_at_work = is_at_work or any(sample.is_busy for sample in self._newest.values())
        if is_at_work or now >= self._samples_due:
            self._samples_due = now + _RARE
            self._newest = self._newest_samples(handle)
        return self._newest

    def _newest_samples(self, handle: Any) -> dict[int, Utilization]:
        function = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetProcessUtilization")
        now = time.time()
        before, self._ahead = self._ahead, now - time.monotonic()
        if self._ahead < before - _SET_BACK:  # all new samples would be older than the last one
            self._since = 0
        latest = int((now + _CLOCK_SKEW) * 1e6)
        if not 0 < self._since <= latest:
            self._since = int((now - _FIRST_SAMPLES) * 1e6)
        since = self._since
        stamp = ctypes.c_ulonglong(since)
        try:
            records = self._samples.fill(lambda count, array: function(handle, array, count, stamp))
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_NOT_FOUND:
                return {}
            raise
        newest: dict[int, Utilization] = {}
        ratio = _RATIOS.get
        for pid, timestamp, sm, memory, encoder, decoder in _SAMPLE.iter_unpack(records):
            if not since < timestamp <= latest or sm > 100:
                continue
            if pid not in newest or newest[pid].timestamp < timestamp:
                shares = ratio(memory), ratio(encoder), ratio(decoder)
                newest[pid] = Utilization(sm / 100, timestamp, *shares)
                self._since = max(self._since, timestamp)
        return newest


def _type(letters: set[str]) -> str:
    return "+".join(letter for letter in "MCG" if letter in letters)


def _newest_lists() -> Iterator[_ProcessList]:
    for letter, name in _LISTS:
        for suffix, record in _VERSIONS:
            try:
                function = pynvml._nvmlGetFunctionPointer(name + suffix)
            except pynvml.NVMLError:
                continue
            yield _ProcessList(letter, function, record)
            break


def _instance(number: int) -> int | None:
    return None if number == _NO_INSTANCE else number
