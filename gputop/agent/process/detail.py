"""The details of one process that a user has opened, read from /proc; the stack of a Python
process, which py-spy reads from its memory without stopping it; and whether it still runs."""

from __future__ import annotations

import os
import re
import sys
import time
from contextlib import suppress

from gputop.agent.process.environment import read_whole_environ
from gputop.agent.process.procfs import OpenFiles, open_files
from gputop.agent.process.stat import command_of, every_process, is_running, read_stat, started
from gputop.agent.process.users import UserNames, real_uid
from gputop.agent.program import MOST_BYTES, run_program
from gputop.model.machine.detail import ChildProcess, ProcessDetail, ProcessStack, env_variables
from gputop.model.machine.process_id import ProcessId, ProcessLiveness
from gputop.model.machine.text import printable
from gputop.protocol.messages import Detail, Stack
from gputop.trust import find_program

_DEVICE = re.compile(r"/dev/(?:nvidia|dri/)")
_MOST_CHILDREN = 64
_MOST_DEVICES = 64
_SECONDS = 0.5
"""Seconds to list the open files of the process."""
_MOST_LINES = 500
_WIDTH = 400
_INSTALL = "py-spy is not installed: pip install py-spy, in the environment of gputop or on PATH."


def read_detail(request: Detail) -> ProcessDetail:
    """Read the details of a process now; never raises."""
    pid, gone = request.process.pid, ProcessDetail(request.process, gone=True)
    if not is_running(request.process):
        return gone
    environ = read_whole_environ(pid)
    files: OpenFiles | None = None
    with suppress(OSError):  # they may not be read
        files = open_files(pid, time.monotonic() + _SECONDS)
    children, count = _children(pid)
    devices = None if files is None else sorted(filter(_DEVICE.match, files.names))
    detail = ProcessDetail(
        request.process,
        variables=env_variables(environ.variables, hidden=request.hidden) or None,
        variables_count=len(environ.variables),
        missing=environ.missing,
        files=None if files is None else _count(pid),
        devices=None if devices is None else tuple(map(printable, devices[:_MOST_DEVICES])),
        devices_whole=files is None or files.next is None,
        children=children,
        children_count=count,
    )
    # Another process may have got the PID meanwhile.
    return detail if is_running(request.process) else gone


def read_stack(request: Stack) -> ProcessStack:
    """Have py-spy read the stack of a process now; never raises."""
    process, gone = request.process, ProcessStack(request.process, problem="It has ended.")
    if not is_running(process):
        return gone
    lines, problem = dump_stack(process.pid)
    return ProcessStack(process, lines, problem) if is_running(process) else gone


def _count(pid: int) -> int | None:
    """Return how many files it has open: Linux 6.2 and later report it, others need a count."""
    try:
        count = os.stat(f"/proc/{pid}/fd").st_size
        return count or sum(1 for _ in os.scandir(f"/proc/{pid}/fd"))
    except OSError:
        return None


def _children(pid: int) -> tuple[tuple[ChildProcess, ...], int]:
    processes = every_process()
    children = sorted(
        (stat.start_ticks, child) for child, stat in processes.items() if stat.parent == pid
    )
    oldest = (
        ChildProcess(ProcessId(child, ticks), started(ticks), command_of(child, processes[child]))
        for ticks, child in children[:_MOST_CHILDREN]
    )
    return tuple(oldest), len(children)


def dump_stack(pid: int, seconds: float = 10.0) -> tuple[tuple[str, ...], str | None]:
    """Run py-spy for at most `seconds`: its lines, or why none and what to do; never raises."""
    program, refused = find_program("py-spy", [os.path.dirname(sys.executable)])
    if program is None:
        return (), printable(refused, 300) if refused else _INSTALL
    command = [program, "dump", "--pid", str(pid), "--nonblocking"]
    try:
        output, status, _ = run_program(command, seconds, {"RUST_BACKTRACE": "0"})
    except OSError as error:
        return (), printable(f"py-spy cannot be started: {error.strerror} ({program})", 300)
    lines = output.decode("utf-8", "replace").expandtabs().splitlines()
    if len(output) < MOST_BYTES:
        if status is None:
            return (), f"py-spy did not end within {seconds:g} s."
        if status:
            return (), _why_not(lines, status, " ".join(command[1:]))
    return tuple(printable(line, _WIDTH) for line in lines[:_MOST_LINES]), None


def _why_not(lines: list[str], status: int, arguments: str) -> str:
    if any("permission denied" in line.lower() for line in lines):
        return f'not permitted. By hand: sudo env "PATH=$PATH" py-spy {arguments}'
    said = [line for line in lines if line.strip()]
    errors = [line for line in said if line.startswith("Error")]
    words = (errors or said or ["it said nothing"])[0]
    return printable(f"py-spy ended with status {status}: {words}", 300)


def read_liveness(asked: ProcessId, users: UserNames) -> ProcessLiveness:
    """Read from /proc whether a process still runs; never raises."""
    pid = asked.pid
    if is_free(pid):
        return ProcessLiveness(process=asked, state="ended")
    stat = read_stat(pid)
    if stat is None:  # hidden (hidepid), or just ending: the next read shows which
        return ProcessLiveness(process=asked, state="unknown")
    is_other = asked.start_ticks not in (None, stat.start_ticks)
    # The first thread of a process may end before the others, and is a zombie until they do.
    if is_other or (stat.state in "ZX" and stat.threads <= 1):
        return ProcessLiveness(process=asked, state="ended")
    is_new = asked.start_ticks is None
    return ProcessLiveness(
        process=ProcessId(pid, stat.start_ticks),
        state="running",
        start_time=started(stat.start_ticks),
        user=users.name_now(real_uid(pid)) if is_new else None,
        # While a process waits in the kernel, reading its command line may wait with it.
        command=command_of(pid, stat) if is_new and stat.state != "D" else None,
    )


def is_free(pid: int) -> bool:
    """Return whether a PID is certainly free: one that /proc hides is not."""
    try:
        os.kill(pid, 0)  # which sends nothing
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False
    return False
