"""Takes psutil's place in a carried agent, with what the agent uses and nothing else.

psutil's compiled part fits one architecture, and with psutil's Python it would be a third of what
is carried; what the agent needs is in a few lines of /proc. Numbers are those of psutil 7.2: busy
is neither idle nor waiting for storage, and guests count once (proc_stat(5)).
"""

from __future__ import annotations

import os
from typing import NamedTuple


class VirtualMemory(NamedTuple):
    """Bytes of RAM."""

    total: int
    available: int


def pids() -> list[int]:
    """Return the numbers of all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isascii() and name.isdecimal()]


def boot_time() -> float:
    """Return the seconds since the epoch at which the machine was booted. RuntimeError."""
    with open("/proc/stat", "rb") as file:
        for line in file:
            if line.startswith(b"btime"):
                return float(line.split()[1])
    raise RuntimeError("/proc/stat has no btime")


def cpu_count() -> int | None:
    """Return how many logical CPUs there are."""
    return os.cpu_count()


def virtual_memory() -> VirtualMemory:
    """Return the machine's RAM. A container's file system may report more available than total."""
    fields = _fields("/proc/meminfo")
    total, free = fields["MemTotal"] * 1024, fields["MemFree"] * 1024
    available = fields.get("MemAvailable", 0) * 1024 or free
    return VirtualMemory(total, free if available > total else available)


def cpu_percent() -> float:
    """Return the share of all CPUs' time in use since the call before."""
    global _last_times
    before, _last_times = _last_times, _cpu_times()
    all_, idle = (max(0, now - then) for now, then in zip(_last_times, before, strict=True))
    return round(min(100.0, 100.0 * (all_ - idle) / all_), 1) if all_ else 0.0


def _cpu_times() -> tuple[int, int]:
    """Return all CPU time since the machine's start, and the idle part of it, in ticks."""
    with open("/proc/stat", "rb") as file:
        _, user, nice, system, idle, waiting, *interrupts = file.readline().split()[:9]
    ticks = [int(word) for word in (user, nice, system, idle, waiting, *interrupts)]
    return sum(ticks), int(idle) + int(waiting)


def _fields(path: str) -> dict[str, int]:
    """Return the first number of each line `name: number`. OSError."""
    fields = {}
    with open(path, encoding="ascii", errors="replace") as file:
        for line in file:
            name, colon, value = line.partition(":")
            if colon and value.split()[:1]:
                fields[name.strip()] = int(value.split()[0])
    return fields


_last_times = _cpu_times()
