"""Facts of a process from /proc, cached by (pid, start time).

`/proc/PID/stat` is read every tick, by hand: psutil needs ten times as long. Of very many processes
each is read in its turn; `/proc/PID/io` more seldom. The owner and the command line are read at
first sight, when the process renames itself, and now and then: what it executes next may have the
same name, and only the beginning of a new title is one.
"""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from gputop.agent.process.namespaces import in_first_namespace, local_process
from gputop.agent.worker import Worker
from gputop.model.text import printable

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_FIELDS = 22
"""Of /proc/PID/stat, from the state to the resident set."""
_LOOK_AGAIN = 20
"""Ticks between two looks at the command line of a process that kept its name."""
_STAT_READS = 128
"""Processes that are looked at in a tick; of more, each in its turn."""
_IO_READS = 20
"""Processes whose I/O is read in a tick; of more, each in its turn."""
_NAME_PATIENCE = 0.05
"""Seconds that a tick waits for the name of a new user; directory services can take many."""


class ProcessFacts(msgspec.Struct, frozen=True):
    """What is known of a process now, as Process has it; rates are None at first sight."""

    start_time: float
    user: str | None
    command: str | None
    parent: int
    state: str
    threads: int
    rss: int
    cpu: float | None
    io_read: float | None
    io_write: float | None


class _Known(msgspec.Struct):
    """What is kept of a process between ticks."""

    start_ticks: int
    name: bytes
    uid: int | None
    command: str | None
    cpu_ticks: int
    seen: float
    cpu: float | None = None
    elsewhere: bool = False
    io: tuple[int, int] | None = (0, 0)
    """Bytes read and written; None where that may not be known."""
    io_seen: float | None = None
    io_rates: tuple[float, float] | None = None


class UserNames:
    """Names of user ids, looked up in a thread of their own and remembered, misses too."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._wanted: set[int] = set()
        self._worker = Worker("user names", self._look_up)

    def prepare(self, uids: Iterable[int]) -> None:
        """Look up new ids, waiting a moment for them."""
        self._wanted |= set(uids) - self._names.keys()
        if self._wanted:
            self._worker.ask()
            self._worker.wait(time.monotonic() + _NAME_PATIENCE)

    def name(self, uid: int) -> str:
        """The name, or the number while it is unknown."""
        return self._names.get(uid, str(uid))

    def _look_up(self) -> None:
        for uid in list(self._wanted):
            try:
                name = printable(pwd.getpwuid(uid).pw_name, 64)
            except KeyError:
                name = str(uid)
            self._names[uid] = name
            self._wanted.discard(uid)


class Processes:
    """The processes of this machine, by pid.

    They are read in a thread: to read the command line of a process that the kernel holds can
    take as long as it is held.
    """

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}
        self._users = UserNames()
        self._wanted: frozenset[int] = frozenset()
        self._every = False
        self._facts: dict[int, ProcessFacts] = {}
        self._tick = 0
        self._turns = self._io_turns = 1
        self._worker = Worker("processes", self._read)

    def read(
        self, pids: Iterable[int], patience: float, every: bool = False
    ) -> dict[int, ProcessFacts]:
        """The facts of those `pids` that exist here, after at most `patience` seconds; those of
        the time before if it takes longer. With `every` no one waits for a turn."""
        if not self._worker.busy:
            self._wanted, self._every = frozenset(pids), every
            self._worker.ask()
        self._worker.wait(time.monotonic() + patience)
        return self._worker.latest or {}

    def _read(self) -> dict[int, ProcessFacts]:
        """In the thread. Who is not wanted any more is forgotten."""
        self._tick += 1
        self._turns = 1 if self._every else 1 + len(self._wanted) // _STAT_READS
        self._io_turns = 1 + len(self._wanted) // (_IO_READS * self._turns)
        known, facts = self._known, self._facts
        looked: dict[int, list[bytes]] = {}
        self._known = {}
        for pid in self._wanted:
            if pid in known and (self._tick + pid) % self._turns:
                self._known[pid] = known[pid]
            elif (stat := read_stat(pid)) is not None:
                self._known[pid] = self._update(pid, known.get(pid), *stat)
                looked[pid] = stat[1]
        self._users.prepare(one.uid for one in self._known.values() if one.uid is not None)
        self._facts = {
            pid: self._told(one, looked[pid]) if pid in looked else facts[pid]
            for pid, one in self._known.items()
            if not one.elsewhere
        }
        return self._facts

    def _update(self, pid: int, known: _Known | None, name: bytes, fields: list[bytes]) -> _Known:
        start_ticks = int(fields[19])
        cpu_ticks = int(fields[11]) + int(fields[12])
        now = time.monotonic()
        if known is None or known.start_ticks != start_ticks:
            known = _Known(start_ticks, name, real_uid(pid), command_line(pid), cpu_ticks, now)
            known.elsewhere = _is_elsewhere(pid)
        elif (
            known.command is None  # seen while it began to execute
            or known.name != name
            or (self._tick + pid) // self._turns % _LOOK_AGAIN == 0
        ):
            known.name, known.uid = name, real_uid(pid)
            known.command = command_line(pid) or known.command  # a zombie keeps what it was
        if now - known.seen >= 1 / _TICK:
            known.cpu = (cpu_ticks - known.cpu_ticks) / _TICK / (now - known.seen)
            known.cpu_ticks, known.seen = cpu_ticks, now
        if known.io is not None and (self._tick + pid) // self._turns % self._io_turns == 0:
            self._read_io(pid, known, now)
        return known

    def _read_io(self, pid: int, known: _Known, now: float) -> None:
        before, known.io = known.io, io_of(pid)
        if before is None or known.io is None:
            known.io_rates = None
            return
        if known.io_seen is not None and now > known.io_seen:
            read, written = (max(0, n - b) for n, b in zip(known.io, before, strict=True))
            seconds = now - known.io_seen
            known.io_rates = round(read / seconds, 1), round(written / seconds, 1)
        known.io_seen = now

    def _told(self, known: _Known, fields: list[bytes]) -> ProcessFacts:
        return ProcessFacts(
            start_time=started(known.start_ticks),
            user=None if known.uid is None else self._users.name(known.uid),
            command=known.command or bracketed(known.name),
            parent=int(fields[1]),
            state=fields[0].decode("ascii", "replace"),
            threads=int(fields[17]),
            rss=max(0, int(fields[21])) * _PAGE,
            cpu=None if known.cpu is None else round(max(0.0, known.cpu), 4),
            io_read=known.io_rates and known.io_rates[0],
            io_write=known.io_rates and known.io_rates[1],
        )


def started(ticks: int) -> float:
    """Seconds since the epoch, of a start as /proc/PID/stat tells it."""
    return round(_boot_time() + ticks / _TICK, 2)


def start_ticks(start_time: float) -> int:
    """What `started` was told; other processes may take another time for that of the boot."""
    return round((start_time - _boot_time()) * _TICK)


@lru_cache(maxsize=1)
def _boot_time() -> float:
    """Seconds since the epoch, proc_stat(5)."""
    for line in (read_file("/proc/stat") or b"").splitlines():
        if line.startswith(b"btime"):
            return float(line.split()[1])
    return round(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME))


def _is_elsewhere(pid: int) -> bool:
    """Whether a pid of the driver's is not known to be the process that has that number here.

    Where there are no device nodes at all (WSL) they prove nothing.
    """
    if in_first_namespace():
        return False
    if not os.path.exists(f"/proc/{pid}"):
        return True
    nodes = any(name.startswith("nvidia") and name[6:].isdecimal() for name in os.listdir("/dev"))
    return nodes and local_process(pid) is not True


def read_file(path: str) -> bytes | None:
    """All of it; None where it cannot be read. Without a file object, which costs as much again."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    pieces = []
    try:
        while piece := os.read(descriptor, 1 << 16):
            pieces.append(piece)
    except OSError:  # it ended meanwhile
        return None
    finally:
        os.close(descriptor)
    return b"".join(pieces)


def read_stat(pid: int) -> tuple[bytes, list[bytes]] | None:
    """The name and the fields from the state on; the name may hold spaces and parentheses."""
    head, found, tail = _read_short(f"/proc/{pid}/stat").rpartition(b")")
    return (head.partition(b"(")[2], tail.split(None, _FIELDS)) if found else None


def _read_short(path: str) -> bytes:
    """A file of one page at most, empty where it cannot be read; one read is enough for it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, 4096)
    except OSError:  # it ended meanwhile
        return b""
    finally:
        os.close(descriptor)


def real_uid(pid: int) -> int | None:
    """The real user. Not the owner of /proc/PID: that is root for processes that may not dump."""
    for line in (read_file(f"/proc/{pid}/status") or b"").splitlines():
        if line.startswith(b"Uid:"):
            return int(line.split()[1])
    return None


def io_of(pid: int) -> tuple[int, int] | None:
    """Bytes read from and written to storage, proc_pid_io(5)."""
    words = _read_short(f"/proc/{pid}/io").split()
    return (int(words[9]), int(words[11])) if len(words) >= 12 else None


def command_line(pid: int) -> str | None:
    """The command line, its arguments joined by spaces; None of a zombie or a kernel thread."""
    line = (read_file(f"/proc/{pid}/cmdline") or b"").rstrip(b"\0")
    if not line.strip():
        return None
    return printable(line.replace(b"\0", b" ").decode("utf-8", "replace"))


def bracketed(name: bytes) -> str:
    """What is shown of a process without a command line, as ps does."""
    return printable(f"[{name.decode('utf-8', 'replace')}]")
