"""Reads the origin of a process from /proc."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

import msgspec

from gputop.agent.process.paths import MountCache, Sight
from gputop.agent.process.procfs import read_cgroup, read_file, read_link
from gputop.agent.process.stat import ProcStat
from gputop.model.machine.origin import Ancestor, Origin
from gputop.model.machine.text import printable

_TERMINALS = ("tmux", "screen", "SCREEN", "sshd")
"""Beginnings of the names of processes at which a chain of ancestors ends."""
_GENERATIONS = 32
_PATH = 512
_SEARCHED = 4096
"""Characters of a PATH that are searched."""
_MOST_FOLDERS = 64
"""Folders of a PATH that are searched."""
_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")
"""Names that the directory of a virtual (PEP 405) or conda environment contains."""


def read_origin(
    pid: int,
    variables: Mapping[str, str],
    mounts: MountCache,
    stat_of: Callable[[int], ProcStat | None],
) -> Origin:
    """Read the origin of a process; the container's name is not in /proc. `variables`: all that it
    was started with. `stat_of`: `read_stat`, or a cache of it."""
    origin = read_cgroup(pid) or Origin()
    cwd = read_link(pid, "cwd")
    return msgspec.structs.replace(
        origin,
        cwd=_text(cwd),
        venv=_text(_environment(pid, cwd, variables, mounts)),
        ancestors=tuple(_ancestors(pid, stat_of)),
        session=_text(_session(variables)),
        ssh_from=_text(variables.get("SSH_CONNECTION", "").partition(" ")[0]),
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
    """Return the environment of the interpreter, otherwise the one that was active. The first
    argument comes before /proc/PID/exe, which leads out of a venv: its interpreter is a link."""
    program = os.fsdecode(read_file(pid, "cmdline").partition(b"\0")[0])
    if program and "/" not in program:
        file = mounts.ask(_which, pid, program, variables.get("PATH", "")[:_SEARCHED])
        program = file or ""
    called = os.path.join(cwd, program) if cwd and program else None
    for path in (called, read_link(pid, "exe")):
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
    """Return the session from the variables: STY is a name, TMUX has a number. The tmux server is
    not asked for a name: the process has chosen its socket."""
    socket, _, rest = variables.get("TMUX", "").partition(",")
    server, number = os.path.basename(socket), _number(rest.rpartition(",")[2])
    if server and number:
        return f"tmux {server}:${number}"
    return f"screen {variables['STY']}" if variables.get("STY") else None


def _number(text: str | None) -> str | None:
    """Return a plain number or None: Slurm steps with names have numbers close to 2**32."""
    return text if text and text.isascii() and text.isdecimal() and len(text) < 10 else None


def _text(text: str | None) -> str | None:
    return printable(text, _PATH) if text else None
