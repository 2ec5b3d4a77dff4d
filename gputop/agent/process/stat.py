"""Who a process is: its start, parent, state and command line, one process or all of them."""

from __future__ import annotations

import math
import os
from functools import lru_cache
from typing import NamedTuple

import psutil

from gputop.agent.process.procfs import COMMAND, read_bounded, read_short
from gputop.model.machine.text import printable

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
LONGEST_COMMAND = 4096
"""Characters."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_FIELDS = 22
"""Of /proc/PID/stat, from the state to the resident set."""


class ProcStat(NamedTuple):
    """What /proc/PID/stat tells of a process."""

    name: str
    state: str
    parent: int
    group: int
    flags: int
    cpu_ticks: int
    threads: int
    start_ticks: int
    rss: int
    """Bytes."""


def parse_stat(text: bytes) -> ProcStat:
    """Parse proc_pid_stat(5); ValueError. The name may hold spaces and parentheses."""
    head, _, tail = text.rpartition(b")")
    fields = tail.split(None, _FIELDS)
    if len(fields) < _FIELDS:
        raise ValueError("/proc/PID/stat is not as usual")
    return ProcStat(
        name=head.partition(b"(")[2].decode("utf-8", "replace"),
        state=fields[0].decode("ascii", "replace"),
        parent=int(fields[1]),
        group=int(fields[2]),
        flags=int(fields[6]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        threads=int(fields[17]),
        start_ticks=int(fields[19]),
        rss=max(0, int(fields[21])) * _PAGE,
    )


def read_stat(pid: int) -> ProcStat | None:
    """Read one process; None if it is not there."""
    text = read_short(f"/proc/{pid}/stat")
    return parse_stat(text) if text else None


def every_process() -> dict[int, ProcStat]:
    """Read all processes that are there, by pid."""
    return {pid: stat for pid in psutil.pids() if (stat := read_stat(pid)) is not None}


def started(ticks: int) -> float:
    """Return seconds since the epoch, of a start as /proc/PID/stat tells it."""
    return round(_boot_time() + ticks / TICKS_PER_SECOND, 2)


def start_ticks(start_time: float) -> int:
    """Return what `started` was given; the boot may have another time in other processes."""
    return round((start_time - _boot_time()) * TICKS_PER_SECOND)


def latest_start(boot_clock: float | None) -> float:
    """Return the last start, as `started` has it, that is before a second of CLOCK_BOOTTIME for
    certain: a start is known to the tick. What is set on the clock of the wall does not matter."""
    if boot_clock is None:
        return math.inf
    return started(math.floor(boot_clock * TICKS_PER_SECOND) - 1) + 0.1 / TICKS_PER_SECOND


@lru_cache(maxsize=1)
def _boot_time() -> float:
    """Asked once: it moves when the clock is set, and processes are told by it."""
    return psutil.boot_time()


def command_line(pid: int) -> str | None:
    """Read the command line, its arguments joined by spaces; None of a zombie or a kernel thread.

    That of a process that the kernel holds can take as long as it is held.
    """
    try:
        data, whole = read_bounded(f"/proc/{pid}/cmdline", COMMAND)
    except (OSError, MemoryError):
        return None
    line = data.rstrip(b"\0")
    if not line.strip():
        return None
    text = printable(line.replace(b"\0", b" ").decode("utf-8", "replace"), LONGEST_COMMAND)
    return text if whole or text.endswith("…") else f"{text} …"


def bracketed(name: str) -> str:
    """Return what is shown of a process without a command line, as ps does."""
    return printable(f"[{name}]")


def command_of(pid: int, stat: ProcStat) -> str:
    """Read the command line; the name in brackets where there is none."""
    return command_line(pid) or bracketed(stat.name)
