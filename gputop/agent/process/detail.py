"""Looks closely at the one process that somebody looks at."""

from __future__ import annotations

import os
import re
import time

from gputop.agent.process.environment import read_whole_environ
from gputop.agent.process.procfs import OpenFiles, open_files
from gputop.agent.process.stack import dump_stack
from gputop.agent.process.stat import command_of, every_process, read_stat, started
from gputop.model.machine.detail import ChildProcess, ProcessDetail, ProcessStack, env_variables
from gputop.model.machine.text import printable
from gputop.protocol.messages import Detail, Stack

_DEVICE = re.compile(r"/dev/(?:nvidia|dri/)")
_MOST_CHILDREN = 64
_MOST_DEVICES = 64
_SECONDS = 0.5
"""For its open files."""


def read_detail(request: Detail) -> ProcessDetail:
    """Look at a process now; never raises."""
    pid, start_time = request.pid, request.start_time
    gone = ProcessDetail(pid, start_time, gone=True)
    if not _is_there(pid, start_time):
        return gone
    environ = read_whole_environ(pid)
    files = _open_files(pid)
    children, count = _children(pid)
    devices = None if files is None else sorted(filter(_DEVICE.match, files.names))
    detail = ProcessDetail(
        pid,
        start_time,
        variables=env_variables(environ.variables, hidden=request.hidden) or None,
        variables_count=len(environ.variables),
        missing=environ.missing,
        files=None if files is None else _count(pid),
        devices=None if devices is None else tuple(map(printable, devices[:_MOST_DEVICES])),
        devices_whole=files is None or files.next is None,
        children=children,
        children_count=count,
    )
    # Another process may have been given the number meanwhile.
    return detail if _is_there(pid, start_time) else gone


def read_stack(request: Stack) -> ProcessStack:
    """Have py-spy look into a process now; never raises."""
    pid, start_time = request.pid, request.start_time
    gone = ProcessStack(pid, start_time, problem="It has ended.")
    if not _is_there(pid, start_time):
        return gone
    lines, problem = dump_stack(pid)
    if not _is_there(pid, start_time):
        return gone
    return ProcessStack(pid, start_time, lines, problem)


def _is_there(pid: int, start_time: float) -> bool:
    """Whether a process still is the one; a zombie has nothing left to look at."""
    stat = read_stat(pid)
    return stat is not None and stat.state != "Z" and started(stat.start_ticks) == start_time


def _open_files(pid: int) -> OpenFiles | None:
    """Its open files, as many as there is time for; None where they may not be seen."""
    try:
        return open_files(pid, deadline=time.monotonic() + _SECONDS)
    except OSError:
        return None


def _count(pid: int) -> int | None:
    """How many files it has open: kernels from 6.2 on tell, others have them counted."""
    try:
        count = os.stat(f"/proc/{pid}/fd").st_size
        return count or sum(1 for _ in os.scandir(f"/proc/{pid}/fd"))
    except OSError:
        return None


def _children(pid: int) -> tuple[tuple[ChildProcess, ...], int]:
    """The oldest, and how many there are."""
    children = [
        (stat.start_ticks, child, stat)
        for child, stat in every_process().items()
        if stat.parent == pid
    ]
    oldest = sorted(children, key=lambda child: child[:2])[:_MOST_CHILDREN]
    shown = (
        ChildProcess(child, started(ticks), command_of(child, stat))
        for ticks, child, stat in oldest
    )
    return tuple(shown), len(children)
