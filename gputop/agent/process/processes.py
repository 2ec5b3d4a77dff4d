"""Facts of the processes on GPUs, kept from tick to tick.

/proc/PID/stat is read every tick, in a child process (reader.py); if there are very many processes,
they take turns, and their I/O is read less often. The owner and the command line are read at first
sight, when the process renames itself, and now and then: it may execute another program of the same
name, and the name is only the beginning of a new title. Then I/O that could not be read is tried
again as well.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

import msgspec

from gputop.agent.process.namespaces import NUMBERING, in_first_namespace, shown_process
from gputop.agent.process.procfs import read_short
from gputop.agent.process.reader import READER
from gputop.agent.process.stat import (
    LONGEST_COMMAND,
    PAGE_SIZE,
    TICKS_PER_SECOND,
    command_line,
    name_of,
    read_stats,
    started,
)
from gputop.agent.process.users import UserNames, real_uid
from gputop.agent.worker import Worker
from gputop.model.machine.frame import Process
from gputop.model.machine.proc_stat import ProcStat
from gputop.proc import proc_field

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


def read_io(pid: int) -> tuple[int, int]:
    """Return the bytes that a process has read from and written to storage, proc_pid_io(5);
    OSError, ValueError."""
    text = read_short(f"/proc/{pid}/io")
    read, written = proc_field(text, b"read_bytes"), proc_field(text, b"write_bytes")
    if not (read and written):
        raise OSError("its counters cannot be read")
    return int(read[0]), int(written[0])


class _CachedFacts(msgspec.Struct):
    """What is kept of a process between ticks; times are monotonic."""

    pid: int
    stat: ProcStat
    uid: int | None
    command: str | None
    local: bool | None
    """The answer of `shown_process`: only a process known to be the one on a GPU has facts."""
    cpu_ticks: int
    cpu_time: float
    cpu: float | None = None
    io_read: float | None = None
    io_write: float | None = None
    io_unknown: bool = False
    """Whether its I/O could not be read: it is another user's, has ended, or did not answer."""
    io_counts: tuple[float, int, int] | None = None
    """When its I/O was counted last, and the bytes read from and written to storage until then."""

    def count_io(self, counts: tuple[int, int] | None) -> None:
        """Take the bytes read and written; None if they could not be read."""
        if counts is None:
            self.io_read, self.io_write, self.io_unknown = None, None, True
            return
        before, self.io_counts = self.io_counts, (time.monotonic(), *counts)
        if before is not None:
            seconds = self.io_counts[0] - before[0]
            self.io_read = round(max(0, counts[0] - before[1]) / seconds, 1)
            self.io_write = round(max(0, counts[1] - before[2]) / seconds, 1)


class ProcessCache:
    """Reads the processes of this machine by pid, and keeps their facts.

    A thread reads them, since one that does not answer takes a moment (reader.py).
    """

    def __init__(self) -> None:
        self._cached: dict[int, _CachedFacts] = {}
        self._users = UserNames()
        self._pids: frozenset[int] = frozenset()
        self._every = False
        self._pids_match = NUMBERING.pids_match
        self.missing: frozenset[int] = frozenset()
        """Pids of the last read that are not, and were not, processes on a GPU here: a driver may
        go on listing a process that has ended, because of a child."""
        self.silent: dict[int, Process] = {}
        """Processes of the last read that exist here and have never answered."""
        self._ended: set[int] = set()
        self._tick = 0
        self._worker = Worker("processes", self._read)

    def read(self, pids: Iterable[int], timeout: float, every: bool = False) -> dict[int, Process]:
        """Return the facts of those `pids` that exist here, after at most `timeout` seconds; if
        reading takes longer, the previous facts. With `every`, all are read without turns."""
        if not self._worker.busy:
            self._pids, self._every = frozenset(pids), every
            self._worker.ask()
        self._worker.wait(time.monotonic() + timeout)
        return self._worker.latest or {}

    # In the thread

    def _read(self) -> dict[int, Process]:
        """Read the facts; processes that are no longer requested are dropped."""
        self._tick += 1
        if self._pids_match != NUMBERING.pids_match:
            self._pids_match, self._cached = NUMBERING.pids_match, {}
        self._ended |= {pid for pid, cached in self._cached.items() if cached.local}
        read = self._read_stats()
        self._users.prepare(cached.uid for cached in self._cached.values())
        longest = _COMMANDS // (len(self._pids) or 1)
        longest = max(_SHORTEST_COMMAND, min(LONGEST_COMMAND, longest))
        before = self._worker.latest or {}
        facts = {
            pid: self._process(cached, longest) if pid in read or pid not in before else before[pid]
            for pid, cached in self._cached.items()
            if cached.local
        }
        here = {pid for pid, cached in self._cached.items() if cached.local is not False}
        self._ended &= self._pids - self._cached.keys()
        self.missing = self._pids - here - self._ended
        return facts

    def _read_stats(self) -> set[int]:
        """Update the cache; return the pids that were read in this turn."""
        turns = 1 if self._every else 1 + len(self._pids) // _STAT_READS
        io_turns = 1 + len(self._pids) // (_IO_READS * turns)
        before, self._cached = self._cached, {}
        due = [pid for pid in self._pids if pid not in before or not (self._tick + pid) % turns]
        stats = read_stats(due)
        for pid in self._pids - set(due):
            self._cached[pid] = before[pid]
        io: list[int] = []
        lines = {pid for pid, stat in stats.items() if _is_due(before.get(pid), stat,
                 (self._tick + pid) // turns)}  # fmt: skip
        commands = READER.ask_all(command_line, lines)
        for pid, stat in stats.items():
            cached = _updated(pid, before.get(pid), stat, pid in lines, commands.get(pid))
            self._cached[pid] = cached
            if (self._tick + pid) // turns % io_turns == 0 and not cached.io_unknown:
                io.append(pid)
        self._keep_silent(set(due) - stats.keys(), before)
        counters = READER.ask_all(read_io, io)
        for pid in io:
            self._cached[pid].count_io(counters.get(pid))
        return set(stats)

    def _keep_silent(self, pids: set[int], before: dict[int, _CachedFacts]) -> None:
        """Keep what is known of processes that exist and do not answer."""
        self.silent = {}
        for pid in pids:
            if pid in before and os.path.exists(f"/proc/{pid}"):
                self._cached[pid] = before[pid]
            elif READER.is_silent(pid, basic=True) and in_first_namespace():
                user = self._users.name_now(real_uid(pid))
                name = read_short(f"/proc/{pid}/comm").decode("utf-8", "replace").rstrip("\n")
                self.silent[pid] = Process(pid, user=user, command=name_of(pid, name))

    def _process(self, cached: _CachedFacts, longest: int) -> Process:
        stat = cached.stat
        command = cached.command or name_of(cached.pid, stat.name)
        return Process(
            pid=cached.pid,
            start_ticks=stat.start_ticks,
            start_time=started(stat.start_ticks),
            user=self._users.name(cached.uid),
            command=command if len(command) <= longest else f"{command[: longest - 1]}…",
            parent=stat.parent,
            state=stat.state,
            threads=stat.threads,
            rss=stat.pages * PAGE_SIZE,
            cpu=None if cached.cpu is None else round(max(0.0, cached.cpu), 4),
            io_read=cached.io_read,
            io_write=cached.io_write,
        )


def _is_due(cached: _CachedFacts | None, stat: ProcStat, turn: int) -> bool:
    """Return whether to read its owner and command line."""
    return (
        cached is None
        or cached.stat.start_ticks != stat.start_ticks
        or cached.stat.name != stat.name
        or cached.command is None  # it was just starting
        or turn % _COMMAND_TURNS == 0
    )


def _updated(
    pid: int, cached: _CachedFacts | None, stat: ProcStat, due: bool, command: str | None
) -> _CachedFacts:
    now = time.monotonic()
    if cached is None or cached.stat.start_ticks != stat.start_ticks:
        local = in_first_namespace() or shown_process(pid)
        uid = real_uid(pid)
        return _CachedFacts(pid, stat, uid, command, local, stat.cpu_ticks, now)
    if due:
        cached.uid = real_uid(pid)
        cached.command = command or cached.command  # a zombie keeps what it was
        cached.io_unknown = False
        if cached.local is None:
            cached.local = shown_process(pid)
    cached.stat = stat
    seconds = now - cached.cpu_time
    if seconds >= 1 / TICKS_PER_SECOND:
        cached.cpu = (stat.cpu_ticks - cached.cpu_ticks) / TICKS_PER_SECOND / seconds
        cached.cpu_ticks, cached.cpu_time = stat.cpu_ticks, now
    return cached
