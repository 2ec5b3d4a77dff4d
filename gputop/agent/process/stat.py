"""The start, parent, state and command line of one process or of all."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import psutil

from gputop.agent.process.procfs import COMMAND, read_if_any, read_short
from gputop.agent.process.reader import READER, killable
from gputop.model.machine.proc_stat import ProcStat, parse_stat
from gputop.model.machine.process_id import ProcessId
from gputop.model.machine.text import printable

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
LONGEST_COMMAND = 4096
"""Characters of a command line that are kept."""
PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


@killable(None)
def read_stat(pid: int) -> ProcStat | None:
    """Read one process; None if it does not exist, or does not answer."""
    text = read_short(f"/proc/{pid}/stat")
    return _parsed(text) if text else None


_parsed = lru_cache(maxsize=1024)(parse_stat)
"""That of a process that sleeps says the same every time, and parsing takes as long as reading."""


def is_running(process: ProcessId) -> bool:
    """Return whether the PID still is this process; a zombie has nothing left to read."""
    stat = read_stat(process.pid)
    return stat is not None and stat.start_ticks == process.start_ticks and stat.state not in "ZX"


def every_process() -> dict[int, ProcStat]:
    return read_stats(psutil.pids())


def read_stats(pids: Iterable[int]) -> dict[int, ProcStat]:
    """Read several processes, by pid, without those that do not exist or do not answer."""
    stats = READER.ask_all(read_stat, pids)
    return {pid: stat for pid, stat in stats.items() if stat is not None}


def ancestors(pid: int, stat_of: Callable[[int], ProcStat | None] = read_stat) -> Iterator[int]:
    """Yield the ancestors of a process, its parent first, each once, whatever changes meanwhile."""
    visited = {pid}
    while (stat := stat_of(pid)) and (pid := stat.parent) and pid not in visited:
        visited.add(pid)
        yield pid


def started(ticks: int) -> float:
    """Return the seconds since the epoch for a start in the clock ticks of /proc/PID/stat."""
    return round(_boot_time() + ticks / TICKS_PER_SECOND, 2)


def latest_start(boot_clock: float | None) -> float:
    """Return the last start in clock ticks that is certainly before a time in seconds of
    CLOCK_BOOTTIME: a start is known to the tick."""
    return math.inf if boot_clock is None else math.floor(boot_clock * TICKS_PER_SECOND) - 1


@lru_cache(maxsize=1)
def _boot_time() -> float:
    """Return the boot time, read once: it moves when the clock is set, and starts shall not. The
    clock tells it, less steadily, where /proc/stat cannot be read."""
    try:
        return psutil.boot_time()
    except (OSError, RuntimeError):
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


@killable(None)
def command_line(pid: int) -> str | None:
    """Read the command line, its arguments joined by spaces; None for a zombie or a kernel thread,
    or if it does not answer."""
    data, whole = read_if_any(f"/proc/{pid}/cmdline", COMMAND)
    line = data.rstrip(b"\0")
    if not line.strip():
        return None
    text = printable(line.replace(b"\0", b" ").decode("utf-8", "replace"), LONGEST_COMMAND)
    return text if whole or text.endswith("…") else f"{text} …"


def command_of(pid: int, stat: ProcStat) -> str:
    """Read the command line; without one, return the name in brackets."""
    return command_line(pid) or name_of(pid, stat.name)


def name_of(pid: int, name: str) -> str:
    """Return the text shown for a process whose command line is not known."""
    return printable(f"[{name}]") + (" does not answer" if READER.is_silent(pid) else "")
