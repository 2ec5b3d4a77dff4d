"""Measures how long GPUs and processes have been idle; samples miss work between them.

An agent that lasts records its idle times in a file, for agents that make a single frame. The file
is in a folder of its user alone: $XDG_RUNTIME_DIR/gputop, otherwise /tmp/gputop-UID, or /run/gputop
for root. Without such a folder nothing is written or known. A folder that hangs delays nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Annotated, TypeVar

import msgspec
from msgspec.structs import replace

from gputop.agent.gpu.lists import Utilization
from gputop.agent.process.stat import is_running, read_stat
from gputop.agent.worker import Worker
from gputop.deadline import within
from gputop.files import Folder, UnsafeFileError, open_folder, xdg_folder
from gputop.model.machine.frame import Frame, Process
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.process_id import ProcessId

_EVERY = 10.0
"""Seconds between two records."""
_FRESH = 30.0
"""Seconds, beyond the agent's interval, for which a record is valid."""
_UNOBSERVED = 150.0
"""Seconds without a look after which idle times begin anew: nobody knows what was done meanwhile.
Two frames are a minute apart at most."""
_LEAST = 1.0
"""The shortest idle time, in seconds, that is recorded."""
_MOST_BYTES = 1 << 22
_FORGOTTEN = 3600.0
"""Seconds after which a file that is not a record is removed."""

_TIMEOUT = 0.5
"""Seconds to wait for the records of other agents."""
_LAST_TIMEOUT = 0.1
"""Seconds to wait until this agent's record is removed."""

_RecordKey = tuple[str, ProcessId | None]
"""UUID of the GPU, and the process; None is the GPU itself."""
_Idle = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
R = TypeVar("R", Gpu, Process)


class IdleTimes:
    """Remembers when GPUs and processes were last seen at work.

    `at` is when the GPU answered (monotonic), so that no idle time grows while it is silent.
    """

    def __init__(self) -> None:
        self._since: dict[Hashable, tuple[float, float]] = {}
        """Since when each key is idle, and when it was looked at last."""
        self._latest: dict[Hashable, tuple[float, float]] = {}
        self._sampled: set[int] = set()

    def of_gpu(self, index: int, utilization: float | None, at: float) -> float | None:
        """Return the seconds since work was last sampled; None if the utilization is unknown."""
        return None if utilization is None else self._idle(index, utilization > 0, at)

    def of_process(
        self,
        key: tuple[int, ProcessId],
        samples: Mapping[int, Utilization] | None,
        utilization: float | None,
        at: float,
    ) -> float | None:
        """Return the seconds since a sample above 0; None if the driver takes no samples. `key`:
        the index of a GPU, and the process.

        An idle process has no sample. If the GPU works and no process on it ever had a sample,
        samples say nothing: every process there may be at work.
        """
        if samples is None:
            return None
        sample = samples.get(key[1].pid)
        if samples:
            self._sampled.add(key[0])
        if sample is not None and sample.is_busy:
            self._latest[key] = at, at
            return 0.0
        return self._idle(key, bool(utilization) and key[0] not in self._sampled, at)

    def end_cycle(self) -> None:
        """Forget the keys that this cycle did not ask about."""
        self._since, self._latest = self._latest, {}

    def _idle(self, key: Hashable, busy: bool, at: float) -> float:
        since, looked = self._since.get(key, (at, at))
        if busy or at - looked > _UNOBSERVED:
            since = at
        self._latest[key] = since, at
        return round(at - since, 1)


class _Record(msgspec.Struct, array_like=True):
    boot_id: str | None
    namespace: str
    """The PID namespace of the writer."""
    start_ticks: int
    """The writer's start, which tells it from a later process with its PID."""
    written: float
    """Monotonic seconds: one clock for all processes of a boot, however the time is set."""
    interval: float
    idle: list[tuple[str, ProcessId | None, _Idle]]


class IdleRecord:
    """Writes the record of this agent, in a thread of its own."""

    def __init__(self) -> None:
        self._due = 0.0
        self._record: _Record | None = None
        self._writer = Worker("idle record", self._write)

    def keep(self, frame: Frame) -> None:
        """Write the idle times of a frame, at most every `_EVERY` seconds."""
        now = time.monotonic()
        if now < self._due:
            return
        idle = [(*key, seconds) for key, seconds in _idle_times(frame) if seconds >= _LEAST]
        if not idle and self._record is None:
            return
        self._due = now + _EVERY
        if not self._writer.busy:
            me = read_stat(os.getpid())
            start = me.start_ticks if me else 0
            interval = frame.interval or 0.0
            self._record = _Record(frame.host.boot_id, _namespace(), start, now, interval, idle)
            self._writer.ask()

    def _write(self) -> None:
        record = self._record
        if record is not None:
            with suppress(OSError), _folder(make=True) as folder:
                folder.replace(_name(os.getpid()), msgspec.json.encode(record), durable=False)
                _read_all(folder, record.boot_id)  # removes those of dead agents


def remove_record() -> None:
    """Remove this agent's record, when it ends."""
    with suppress(OSError):
        within(_LAST_TIMEOUT, _remove)


def _remove() -> None:
    with _folder() as folder:
        folder.remove(_name(os.getpid()))


def with_idle_times(frame: Frame) -> Frame:
    """Return a frame with idle times recorded by running agents, 0 for what works now."""
    recorded: dict[_RecordKey, float] = {}
    with suppress(OSError):
        recorded = within(_TIMEOUT, lambda: _recorded(frame.host.boot_id))
    if not recorded:
        return frame
    gpus = (_idle(gpu, recorded.get((gpu.uuid or "", None)), gpu.utilization) for gpu in frame.gpus)
    processes = (_idle(row, recorded.get(_key(row)), _works(row)) for row in frame.processes)
    return replace(frame, gpus=tuple(gpus), processes=tuple(processes))


def _idle(row: R, seconds: float | None, works: object) -> R:
    return row if seconds is None else replace(row, idle_for=0.0 if works else seconds)


def _idle_times(frame: Frame) -> Iterator[tuple[_RecordKey, float]]:
    for gpu in frame.gpus:
        if gpu.uuid and gpu.idle_for is not None:
            yield (gpu.uuid, None), gpu.idle_for
    for process in frame.processes:
        if process.idle_for is not None:
            yield _key(process), process.idle_for


def _key(process: Process) -> _RecordKey:
    return process.gpu_uuid or "", process.id


def _works(process: Process) -> bool:
    shares = (process.sm_utilization, process.memory_utilization)
    return any((*shares, process.encoder_utilization, process.decoder_utilization))


def _recorded(boot_id: str | None) -> dict[_RecordKey, float]:
    with _folder() as folder:
        return _read_all(folder, boot_id)


def _read_all(folder: Folder, boot_id: str | None) -> dict[_RecordKey, float]:
    longest: dict[_RecordKey, float] = {}
    for name in folder.names():
        with suppress(OSError):
            record = _read(folder, name)
            if record is None:
                continue
            if record.boot_id != boot_id or not _lives(name, record):
                folder.remove(name)
            elif time.monotonic() - record.written <= _FRESH + record.interval:
                for uuid, process, seconds in record.idle:
                    key = (uuid, process)
                    longest[key] = max(seconds, longest.get(key, 0.0))
    return longest


def _read(folder: Folder, name: str) -> _Record | None:
    """Return a record of sane size; None for any other file, which is removed once it is old."""
    about = folder.find(name)
    with suppress(msgspec.MsgspecError, UnsafeFileError):
        return msgspec.json.decode(folder.read(name, _MOST_BYTES), type=_Record)
    if about is not None and time.time() - about.st_mtime > _FORGOTTEN:
        folder.remove(name)
    return None


def _lives(name: str, record: _Record) -> bool:
    """Return whether a record's writer runs; one in another PID namespace is assumed to."""
    if record.namespace != _namespace():
        return True
    pid = name.partition(".")[0]
    return pid.isdecimal() and is_running(ProcessId(int(pid), record.start_ticks))


def _namespace() -> str:
    return os.readlink("/proc/self/ns/pid")


def _name(pid: int) -> str:
    return f"{pid}.idle"


@contextmanager
def _folder(make: bool = False) -> Iterator[Folder]:
    """Open the records' folder. OSError if it is a link, not ours, or open to others."""
    base, me = xdg_folder("XDG_RUNTIME_DIR", ""), os.geteuid()
    if _is_ours(base):
        name = "gputop"
    else:
        base, name = ("/tmp", f"gputop-{me}") if me else ("/run", "gputop")
    with open_folder(base) as above, above.below(name, make) as folder:
        folder.check_ours()
        if os.fstat(folder.descriptor).st_mode & 0o077:
            raise UnsafeFileError(folder.path, "is open to others")
        yield folder


def _is_ours(path: str) -> bool:
    """Return whether a folder is set and ours, unlike after sudo -E. OSError if it is missing."""
    if not path:
        return False
    try:
        with open_folder(path) as folder:
            folder.check_ours()
    except UnsafeFileError:
        return False
    return True
