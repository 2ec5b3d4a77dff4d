"""A process as /proc/PID/stat tells it, on this machine or on another one, which may lie."""

from __future__ import annotations

from typing import NamedTuple

_FIELDS = 22
"""Fields behind the name that are read, from the state to the resident set."""
_LARGEST = 10**18
"""More than any number of a kernel; those of messages have 64 bits."""


class ProcStat(NamedTuple):
    """The fields of /proc/PID/stat that gputop uses."""

    name: str
    state: str
    """A letter: R, S, D, Z, T, ..."""
    parent: int
    group: int
    flags: int
    cpu_ticks: int
    threads: int
    start_ticks: int
    pages: int
    """Pages of memory in RAM."""


def parse_stat(text: bytes) -> ProcStat:
    """Parse proc_pid_stat(5); ValueError. The name may hold spaces and parentheses."""
    head, _, tail = text.rpartition(b")")
    fields = tail.split(None, _FIELDS)
    if len(fields) < _FIELDS:
        raise ValueError("/proc/PID/stat is not as usual")
    stat = ProcStat(
        name=head.partition(b"(")[2].decode("utf-8", "replace"),
        state=fields[0][:1].decode("ascii", "replace"),
        parent=int(fields[1]),
        group=int(fields[2]),
        flags=int(fields[6]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        threads=int(fields[17]),
        start_ticks=int(fields[19]),
        pages=max(0, int(fields[21])),
    )
    if max(stat[2:]) > _LARGEST:
        raise ValueError("/proc/PID/stat is not as usual")
    return stat
