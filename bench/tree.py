"""What a program and all its descendants use."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_MIB = 1024


def tree(root: int) -> list[int]:
    """Return the process and its descendants."""
    children: dict[int, list[int]] = {}
    for pid, fields in _every_stat():
        children.setdefault(int(fields[1]), []).append(pid)
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def cpu_seconds(root: int) -> float:
    """Return CPU seconds of the tree, with threads and children that have ended: nanoseconds by the
    process clocks, but for children that have ended only clock ticks are known."""
    total = 0.0
    for pid in tree(root):
        with suppress(OSError, IndexError):
            total += time.clock_gettime((~pid) << 3 | 2)
            fields = _stat(pid)
            total += (int(fields[13]) + int(fields[14])) / _TICK
    return total


def memory_mib(root: int) -> tuple[float, float]:
    """Return RSS and PSS of the tree in MiB."""
    rss = pss = 0.0
    for pid in tree(root):
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Rss:"):
                    rss += int(line.split()[1]) / _MIB
                if line.startswith("Pss:"):
                    pss += int(line.split()[1]) / _MIB
    return rss, pss


def _every_stat() -> Iterator[tuple[int, list[bytes]]]:
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError):
                yield int(name), _stat(int(name))


def _stat(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the state on."""
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
