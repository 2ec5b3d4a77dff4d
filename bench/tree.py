"""What a program and all that it has started use."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_MIB = 1024


def tree(root: int) -> list[int]:
    """The process and its descendants."""
    children: dict[int, list[int]] = {}
    for pid, fields in _every_stat():
        children.setdefault(int(fields[1]), []).append(pid)
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def cpu_seconds(root: int) -> float:
    """Of all threads of the tree, those that have ended as well: the process clocks count
    nanoseconds of what runs; of children that have ended only clock ticks are told."""
    total = 0.0
    for pid in tree(root):
        with suppress(OSError, IndexError):
            total += time.clock_gettime((~pid) << 3 | 2)
            fields = _stat(pid)
            total += (int(fields[13]) + int(fields[14])) / _TICK
    return total


def memory_mib(root: int) -> tuple[float, float]:
    """RSS and PSS of the tree."""
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
    """The fields from the state on."""
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
