"""Where a process belongs, as /proc tells it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

import msgspec

from gputop.agent.process.paths import MountCache, Sight
from gputop.agent.process.procfs import read_cgroup, read_link, read_short
from gputop.agent.process.stat import ProcStat
from gputop.model.machine.origin import Ancestor, Origin
from gputop.model.machine.text import printable

_TERMINALS = ("tmux", "screen", "SCREEN", "sshd")
"""Beginnings of the names of those that a chain of parents ends with."""
_GENERATIONS = 32
_PATH = 512
_SEARCHED = 4096
"""Characters of PATH."""
_MOST_FOLDERS = 64
"""Of a PATH that are looked through."""
_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")
"""What the directory of a virtual (PEP 405) or conda environment has in it."""


def read_origin(
    pid: int,
    variables: Mapping[str, str],
    mounts: MountCache,
    stat_of: Callable[[int], ProcStat | None],
) -> Origin:
    """Read it; the container's name is not in /proc. `variables`: all that it was started with.
    `stat_of` is as `read_stat`, or remembers."""
    origin = read_cgroup(pid) or Origin()
    cwd = read_link(f"/proc/{pid}/cwd")
    return msgspec.structs.replace(
        origin,
        cwd=_text(cwd),
        venv=_text(_environment(pid, cwd, variables, mounts)),
        ancestors=tuple(_ancestors(pid, stat_of)),
        session=_text(_session(variables)),
        ssh_from=_text(variables.get("SSH_CONNECTION", "").partition(" ")[0]),
        slurm_job=origin.slurm_job or _number(variables.get("SLURM_JOB_ID")),
        slurm_step=origin.slurm_step or _number(variables.get("SLURM_STEP_ID")),
    )


def _ancestors(pid: int, stat_of: Callable[[int], ProcStat | None]) -> Iterator[Ancestor]:
    process = stat_of(pid)
    for _ in range(_GENERATIONS):
        parent = process.parent if process else 0
        process = stat_of(parent) if parent > 1 else None
        if process is None:
            return
        yield Ancestor(parent, printable(process.name, 64))
        if process.name.startswith(_TERMINALS):
            return


def _environment(
    pid: int, cwd: str | None, variables: Mapping[str, str], mounts: MountCache
) -> str | None:
    """Return the interpreter's own, else the one that was active: a venv's interpreter is a link,
    so that /proc/PID/exe leads out of it, and the first argument does not."""
    program = os.fsdecode(read_short(f"/proc/{pid}/cmdline").partition(b"\0")[0])
    if program and "/" not in program:
        file = mounts.ask(_which, pid, program, variables.get("PATH", "")[:_SEARCHED])
        program = file or ""
    called = os.path.join(cwd, program) if cwd and program else None
    for path in (called, read_link(f"/proc/{pid}/exe")):
        prefix = os.path.dirname(os.path.dirname(os.path.normpath(path))) if path else None
        if prefix and mounts.ask(_is_environment, pid, prefix):
            return prefix
    return variables.get("VIRTUAL_ENV") or variables.get("CONDA_PREFIX")


def _which(sight: Sight, program: str, path: str) -> str | None:
    for folder in path.split(":", _MOST_FOLDERS)[:_MOST_FOLDERS]:
        file = f"{folder}/{program}"
        with suppress(OSError, ValueError), sight.find(file) as descriptor:
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISREG(mode) and mode & 0o111:
                return file
    return None


def _is_environment(sight: Sight, prefix: str) -> bool:
    return any(sight.exists(f"{prefix}/{name}") for name in _ENVIRONMENT)


def _session(variables: Mapping[str, str]) -> str | None:
    """Return what the variables say: STY is a name, TMUX has a number. No server is asked for the
    name of that: the socket is one that the process chose."""
    socket, _, rest = variables.get("TMUX", "").partition(",")
    server, number = os.path.basename(socket), _number(rest.rpartition(",")[2])
    if server and number:
        return f"tmux {server}:${number}"
    return f"screen {variables['STY']}" if variables.get("STY") else None


def _number(text: str | None) -> str | None:
    """A plain one: the steps that have names have numbers close to 2**32."""
    return text if text and text.isascii() and text.isdecimal() and len(text) < 10 else None


def _text(text: str | None) -> str | None:
    return printable(text, _PATH) if text else None
