"""Takes psutil's place in a carried agent, with what the agent uses and nothing else.

psutil's compiled part fits one architecture, and with psutil's Python it would be a third of what
is carried; what the agent needs is in a few lines of /proc. Numbers are those of psutil 7.2: busy
is neither idle nor waiting for storage, and guests count once (proc_stat(5)).
"""

from __future__ import annotations

import os
from typing import NamedTuple

from gputop.proc import proc_field


class VirtualMemory(NamedTuple):
    """Bytes of RAM."""

    total: int
    available: int


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isascii() and name.isdecimal()]


def boot_time() -> float:
    """Return the seconds since the epoch at which the machine was booted. RuntimeError."""
    with open("/proc/stat", "rb") as file:
        for line in file:
            if line.startswith(b"btime"):
                return float(line.split()[1])
    raise RuntimeError("/proc/stat has no btime")


def cpu_count() -> int | None:
    return os.cpu_count()


def virtual_memory() -> VirtualMemory:
    """Return the machine's RAM. A container's file system may report more available than total."""
    with open("/proc/meminfo", "rb") as file:
        text = b"\n" + file.read()
    total, free = (1024 * int(proc_field(text, name)[0]) for name in (b"MemTotal", b"MemFree"))
    available = 1024 * int((proc_field(text, b"MemAvailable") or [b"0"])[0])  # before Linux 3.14
    return VirtualMemory(total, available if 0 < available <= total else free)


def cpu_percent() -> float:
    """Return the share of all CPUs' time in use since the call before."""
    global _last_times
    before, _last_times = _last_times, _cpu_times()
    all_, idle = (max(0, now - then) for now, then in zip(_last_times, before, strict=True))
    return round(min(100.0, 100.0 * (all_ - idle) / all_), 1) if all_ else 0.0


def _cpu_times() -> tuple[int, int]:
    """Return all CPU time since the machine's start, and the idle part of it, in ticks."""
    with open("/proc/stat", "rb") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return sum(ticks), ticks[3] + ticks[4]


_last_times = _cpu_times()
