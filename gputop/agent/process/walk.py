"""All processes of this /proc, in one walk."""

from __future__ import annotations

import os
from typing import NamedTuple

from gputop.agent.process.processes import bracketed, command_line, read_stat


class Seen(NamedTuple):
    """What /proc/PID/stat tells of a process."""

    name: str
    state: str
    parent: int
    group: int
    start_ticks: int


def every_process() -> dict[int, Seen]:
    """Of all processes that are there, by pid."""
    return {pid: seen for pid in _pids() if (seen := look(pid)) is not None}


def look(pid: int) -> Seen | None:
    """One process; None if it is not there."""
    stat = read_stat(pid)
    if stat is None:
        return None
    name, fields = stat
    return Seen(
        name.decode("utf-8", "replace"),
        fields[0].decode("ascii", "replace"),
        int(fields[1]),
        int(fields[2]),
        int(fields[19]),
    )


def command_of(pid: int, seen: Seen) -> str:
    """The command line; where there is none, the name in brackets, as ps has it."""
    return command_line(pid) or bracketed(seen.name.encode())


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]
