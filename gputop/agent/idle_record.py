"""Idle times beyond one look: agents that go on write down what they have seen, for those that
look once.

A file for each agent, in a directory that is its user's alone: $XDG_RUNTIME_DIR/gputop, else
/tmp/gputop-UID. Where that cannot be had, nothing is written and nothing known.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated

import msgspec

from gputop.agent.process.processes import start_ticks
from gputop.agent.process.walk import look
from gputop.model.frame import Frame, Process

_EVERY = 10.0
"""Seconds between two records."""
_FRESH = 30.0
"""Seconds, and the agent's interval, that a record is good for."""
_LEAST = 1.0
"""Seconds without work that are worth a record."""
_MOST_BYTES = 1 << 22
_FORGOTTEN = 3600.0
"""Seconds after which a file goes that is no record."""

_Key = tuple[str, int, int | None]
"""UUID of the GPU, pid and start in clock ticks; pid 0 is the GPU itself."""
_Idle = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class _Record(msgspec.Struct, array_like=True):
    boot_id: str | None
    namespace: str
    """Of the writer's PIDs."""
    start_ticks: int
    """Of the writer, by which it is told from a later process of its number."""
    written: float
    """Monotonic: the same for all processes of a boot, however the clock is set."""
    interval: float
    idle: list[tuple[str, int, int | None, _Idle]]


class IdleRecord:
    """What one agent writes down."""

    def __init__(self) -> None:
        self._due = 0.0
        self._exists = False

    def keep(self, frame: Frame) -> None:
        """Write the idle times of a frame, now and then."""
        now = time.monotonic()
        if now < self._due:
            return
        idle = [(*key, seconds) for key, seconds in _told(frame) if seconds >= _LEAST]
        if idle or self._exists:
            self._exists, self._due = True, now + _EVERY
            with suppress(OSError), _directory(make=True) as directory:
                _write(directory, frame, now, idle)
                _read_all(directory, frame.host.boot_id)  # those of the dead go


def remove_record() -> None:
    """At the end of an agent."""
    with suppress(OSError), _directory() as directory:
        os.unlink(_name(os.getpid()), dir_fd=directory)


def with_idle_times(frame: Frame) -> Frame:
    """A single look with the idle times that running agents know; who works now is not idle."""
    known: dict[_Key, float] = {}
    with suppress(OSError), _directory() as directory:
        known = _read_all(directory, frame.host.boot_id)
    if not known:
        return frame
    gpus = (
        msgspec.structs.replace(gpu, idle_for=0.0 if gpu.utilization else seconds)
        if gpu.uuid and (seconds := known.get((gpu.uuid, 0, None))) is not None
        else gpu
        for gpu in frame.gpus
    )
    processes = (
        msgspec.structs.replace(one, idle_for=0.0 if _works(one) else seconds)
        if (seconds := known.get(_key(one))) is not None
        else one
        for one in frame.processes
    )
    return msgspec.structs.replace(frame, gpus=tuple(gpus), processes=tuple(processes))


def _told(frame: Frame) -> Iterator[tuple[_Key, float]]:
    for gpu in frame.gpus:
        if gpu.uuid and gpu.idle_for is not None:
            yield (gpu.uuid, 0, None), gpu.idle_for
    for process in frame.processes:
        if process.idle_for is not None:
            yield _key(process), process.idle_for


def _key(process: Process) -> _Key:
    start = process.start_time
    return process.gpu_uuid or "", process.pid, None if start is None else start_ticks(start)


def _works(process: Process) -> bool:
    shares = (process.sm_utilization, process.memory_utilization)
    return any((*shares, process.encoder_utilization, process.decoder_utilization))


def _write(
    directory: int, frame: Frame, now: float, idle: list[tuple[str, int, int | None, float]]
) -> None:
    """As a whole or not at all."""
    me = look(os.getpid())
    interval = frame.interval or 0.0
    record = _Record(
        frame.host.boot_id, _namespace(), me.start_ticks if me else 0, now, interval, idle
    )
    name = _name(os.getpid())
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(f"{name}.next", flags, 0o600, dir_fd=directory), "wb") as file:
        file.write(msgspec.json.encode(record))
    os.replace(f"{name}.next", name, src_dir_fd=directory, dst_dir_fd=directory)


def _read_all(directory: int, boot_id: str | None) -> dict[_Key, float]:
    """The longest that any live agent knows; what the dead have left is removed."""
    known: dict[_Key, float] = {}
    for name in os.listdir(directory):
        with suppress(OSError):
            record = _read(directory, name)
            if record is None:
                continue
            if record.boot_id != boot_id or not _lives(name, record):
                os.unlink(name, dir_fd=directory)
            elif time.monotonic() - record.written <= _FRESH + record.interval:
                for uuid, pid, start, seconds in record.idle:
                    key = (uuid, pid, start)
                    known[key] = max(seconds, known.get(key, 0.0))
    return known


def _read(directory: int, name: str) -> _Record | None:
    """A file that is ours, plain and of a sane size; None if it is no record, and soon gone."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(name, flags, dir_fd=directory), "rb") as file:
        about = os.fstat(file.fileno())
        plain = stat.S_ISREG(about.st_mode) and about.st_uid == os.getuid()
        data = file.read(_MOST_BYTES) if plain and about.st_size < _MOST_BYTES else b""
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(data, type=_Record)
    if plain and time.time() - about.st_mtime > _FORGOTTEN:
        os.unlink(name, dir_fd=directory)
    return None


def _lives(name: str, record: _Record) -> bool:
    """Whether its writer does; in another PID namespace it is taken to."""
    if record.namespace != _namespace():
        return True
    pid = name.partition(".")[0]
    seen = look(int(pid)) if pid.isdecimal() else None
    return seen is not None and seen.start_ticks == record.start_ticks and seen.state != "Z"


def _namespace() -> str:
    return os.readlink("/proc/self/ns/pid")


def _name(pid: int) -> str:
    return f"{pid}.idle"


@contextmanager
def _directory(make: bool = False) -> Iterator[int]:
    """Its descriptor; OSError unless it is a directory, no link, and open to its user alone."""
    path, me = os.environ.get("XDG_RUNTIME_DIR", ""), os.getuid()
    inherited = not os.path.isabs(path) or os.stat(path).st_uid != me  # sudo -E
    path = f"/tmp/gputop-{me}" if inherited else f"{path}/gputop"
    if make:
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    directory = os.open(path, flags)
    try:
        about = os.fstat(directory)
        if about.st_uid != me or about.st_mode & 0o077:
            raise PermissionError
        yield directory
    finally:
        os.close(directory)
