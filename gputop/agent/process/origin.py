"""Reads the origin of a process from /proc."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

import msgspec

from gputop.agent.process.procfs import read_cgroup, read_file, read_link
from gputop.agent.process.stat import ancestors
from gputop.model.machine.origin import Ancestor, Origin
from gputop.model.machine.proc_stat import ProcStat
from gputop.model.machine.text import printable

_TERMINALS = ("tmux", "screen", "SCREEN", "sshd")
"""Beginnings of the names of processes at which a chain of ancestors ends."""
_GENERATIONS = 32
_PATH = 512
_INTERPRETER = re.compile(r"(?:python|pypy)[0-9.]*t?\Z", re.ASCII)
_SYSTEM = "", "/", "/usr", "/usr/local"
"""Folders of interpreters that are no environment's."""


def read_origin(
    pid: int,
    variables: Mapping[str, str],
    stat_of: Callable[[int], ProcStat | None],
) -> Origin:
    """Read the origin of a process; the container's name is not in /proc. `variables`: all that it
    was started with. `stat_of`: `read_stat`, or a cache of it."""
    origin = read_cgroup(pid) or Origin()
    cwd = read_link(pid, "cwd")
    return msgspec.structs.replace(
        origin,
        cwd=_text(cwd),
        venv=_text(_environment(pid, cwd, variables)),
        ancestors=tuple(_ancestors(pid, stat_of)),
        session=_text(_session(variables)),
        slurm_account=_text(origin.slurm_job and variables.get("SLURM_JOB_ACCOUNT")),
        ssh_from=_text(variables.get("SSH_CONNECTION", "").partition(" ")[0]),
    )


def _ancestors(pid: int, stat_of: Callable[[int], ProcStat | None]) -> Iterator[Ancestor]:
    for parent in islice(ancestors(pid, stat_of), _GENERATIONS):
        process = stat_of(parent) if parent > 1 else None
        if process is None:
            return
        yield Ancestor(parent, printable(process.name, 64))
        if process.name.startswith(_TERMINALS):
            return


def _environment(pid: int, cwd: str | None, variables: Mapping[str, str]) -> str | None:
    """Return the virtual or conda environment of a process. Nothing is looked up: these are texts.

    A venv's interpreter is a link that leads out of it (PEP 405), so /proc/PID/exe is elsewhere;
    conda's environments are in a folder `envs`. Otherwise it is the one that was active.
    """
    called = os.fsdecode(read_file(pid, "cmdline").partition(b"\0")[0])
    path = os.path.join(cwd, called) if cwd and "/" in called else ""
    prefix, real = _prefix(path), _prefix(read_link(pid, "exe") or "")
    if prefix and prefix != real:
        return prefix
    if real and os.path.basename(os.path.dirname(real)) == "envs":
        return real
    return variables.get("VIRTUAL_ENV") or variables.get("CONDA_PREFIX")


def _prefix(interpreter: str) -> str | None:
    """Return the folder whose bin/python a path is; None for the system's, and others."""
    folder, name = os.path.split(os.path.normpath(interpreter))
    prefix, bin_ = os.path.split(folder)
    is_one = bin_ == "bin" and prefix not in _SYSTEM and _INTERPRETER.match(name)
    return prefix if is_one else None


def _session(variables: Mapping[str, str]) -> str | None:
    """Return the session from the variables: STY is a name, TMUX has a number. The tmux server is
    not asked for a name: the process has chosen its socket."""
    socket, _, rest = variables.get("TMUX", "").partition(",")
    server, number = os.path.basename(socket), rest.rpartition(",")[2]
    if server and number.isascii() and number.isdecimal() and len(number) < 10:
        return f"tmux {server}:${number}"
    return f"screen {variables['STY']}" if variables.get("STY") else None


def _text(text: str | None) -> str | None:
    return printable(text, _PATH) if text else None
