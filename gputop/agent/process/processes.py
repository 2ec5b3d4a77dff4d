"""Facts of the processes on GPUs, kept from tick to tick.

/proc/PID/stat is read every tick; if there are very many processes, they take turns, and their I/O
is read less often. The owner and the command line are read at first sight, when the process renames
itself, and now and then: it may execute another program of the same name, and the name is only the
beginning of a new title.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress

import msgspec
import psutil

from gputop.agent.process.namespaces import NUMBERING, in_first_namespace, shown_process
from gputop.agent.process.stat import (
    LONGEST_COMMAND,
    TICKS_PER_SECOND,
    ProcStat,
    bracketed,
    command_line,
    read_stat,
    started,
)
from gputop.agent.process.users import UserNames, real_uid
from gputop.agent.worker import Worker

_COMMAND_TURNS = 20
"""The command line of a process that keeps its name is read once in this many reads."""
_STAT_READS = 128
"""Processes that are read in a tick; more than that take turns."""
_IO_READS = 20
"""Processes with their I/O read in a tick; more than that take turns."""
_COMMANDS = 1 << 20
"""Characters of the command lines of all processes that travel with a frame at most."""
_SHORTEST_COMMAND = 256
"""Characters of a command line that are kept however many processes there are."""


class ProcessFacts(msgspec.Struct, frozen=True):
    """Facts of a process as of now, in the units of Process; rates are None at first sight."""

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


class IoRates:
    """Bytes a second that a process reads from and writes to storage."""

    def __init__(self, pid: int) -> None:
        self.read: float | None = None
        self.write: float | None = None
        self._pid = pid
        self._process: psutil.Process | None = None
        self._last: tuple[float, int, int] | None = None
        """Monotonic time, bytes read, bytes written."""
        self._unknown = False

    def update(self) -> None:
        """Read the counters; never again after an error (another user's process, or it ended)."""
        if self._unknown:
            return
        try:
            self._process = self._process or psutil.Process(self._pid)
            _, _, read, written, *_ = self._process.io_counters()
        except (psutil.Error, OSError, RuntimeError, ValueError):
            self.read, self.write, self._unknown = None, None, True
            return
        before, self._last = self._last, (time.monotonic(), read, written)
        if before is not None:
            seconds = self._last[0] - before[0]
            self.read = round(max(0, read - before[1]) / seconds, 1)
            self.write = round(max(0, written - before[2]) / seconds, 1)


class _CachedFacts(msgspec.Struct):
    """What is kept of a process between ticks; times are monotonic."""

    stat: ProcStat
    uid: int | None
    command: str | None
    local: bool | None
    """The answer of `shown_process`: only a process known to be the one on a GPU has facts."""
    cpu_ticks: int
    cpu_time: float
    io: IoRates
    cpu: float | None = None


class ProcessCache:
    """Reads the processes of this machine by pid, and keeps their facts.

    A thread reads them: reading the command line of a process that waits in the kernel can
    take as long as that wait.
    """

    def __init__(self) -> None:
        self._cached: dict[int, _CachedFacts] = {}
        self._facts: dict[int, ProcessFacts] = {}
        self._users = UserNames()
        self._pids: frozenset[int] = frozenset()
        self._every = False
        self._believed = NUMBERING.believed
        self.missing: frozenset[int] = frozenset()
        """Pids of the last read that are not, and were not, processes on a GPU here: a driver may
        go on listing a process that has ended, because of a child."""
        self._ended: set[int] = set()
        self._tick = 0
        self._worker = Worker("processes", self._read)

    def read(
        self, pids: Iterable[int], timeout: float, every: bool = False
    ) -> dict[int, ProcessFacts]:
        """Return the facts of those `pids` that exist here, after at most `timeout` seconds; if
        reading takes longer, the previous facts. With `every`, all are read without turns."""
        if not self._worker.busy:
            self._pids, self._every = frozenset(pids), every
            self._worker.ask()
        self._worker.wait(time.monotonic() + timeout)
        return self._worker.latest or {}

    # In the thread

    def _read(self) -> dict[int, ProcessFacts]:
        """Read the facts; processes that are no longer requested are dropped."""
        self._tick += 1
        if self._believed != NUMBERING.believed:
            self._believed, self._cached = NUMBERING.believed, {}
        self._ended |= {pid for pid, cached in self._cached.items() if cached.local}
        read = self._read_stats()
        self._users.prepare(cached.uid for cached in self._cached.values())
        longest = _COMMANDS // (len(self._pids) or 1)
        longest = max(_SHORTEST_COMMAND, min(LONGEST_COMMAND, longest))
        self._facts = {
            pid: self._facts_of(cached, longest) if pid in read else self._facts[pid]
            for pid, cached in self._cached.items()
            if cached.local
        }
        here = {pid for pid, cached in self._cached.items() if cached.local is not False}
        self._ended &= self._pids - self._cached.keys()
        self.missing = self._pids - here - self._ended
        return self._facts

    def _read_stats(self) -> set[int]:
        """Update the cache; return the pids that were read in this turn."""
        turns = 1 if self._every else 1 + len(self._pids) // _STAT_READS
        io_turns = 1 + len(self._pids) // (_IO_READS * turns)
        before, self._cached = self._cached, {}
        read = set()
        for pid in self._pids:
            cached, turn = before.get(pid), self._tick + pid
            if cached is not None and turn % turns:
                self._cached[pid] = cached
                continue
            stat = read_stat(pid)
            if stat is None:
                continue
            if cached is not None:
                self._cached[pid] = cached
            with suppress(MemoryError):  # one process must not cost the others their rows
                self._cached[pid] = cached = _updated(pid, cached, stat, turn // turns)
                read.add(pid)
                if turn // turns % io_turns == 0:
                    cached.io.update()
        return read

    def _facts_of(self, cached: _CachedFacts, longest: int) -> ProcessFacts:
        stat, command = cached.stat, cached.command or bracketed(cached.stat.name)
        return ProcessFacts(
            start_time=started(stat.start_ticks),
            user=self._users.name(cached.uid),
            command=command if len(command) <= longest else f"{command[: longest - 1]}…",
            parent=stat.parent,
            state=stat.state,
            threads=stat.threads,
            rss=stat.rss,
            cpu=None if cached.cpu is None else round(max(0.0, cached.cpu), 4),
            io_read=cached.io.read,
            io_write=cached.io.write,
        )


def _updated(pid: int, cached: _CachedFacts | None, stat: ProcStat, turn: int) -> _CachedFacts:
    now = time.monotonic()
    if cached is None or cached.stat.start_ticks != stat.start_ticks:
        local = in_first_namespace() or shown_process(pid)
        return _CachedFacts(
            stat, real_uid(pid), command_line(pid), local, stat.cpu_ticks, now, IoRates(pid)
        )
    renamed = cached.stat.name != stat.name
    executing = cached.command is None  # it was just starting
    if renamed or executing or turn % _COMMAND_TURNS == 0:
        cached.uid = real_uid(pid)
        cached.command = command_line(pid) or cached.command  # a zombie keeps what it was
        if cached.local is None:
            cached.local = shown_process(pid)
    cached.stat = stat
    seconds = now - cached.cpu_time
    if seconds >= 1 / TICKS_PER_SECOND:
        cached.cpu = (stat.cpu_ticks - cached.cpu_ticks) / TICKS_PER_SECOND / seconds
        cached.cpu_ticks, cached.cpu_time = stat.cpu_ticks, now
    return cached
