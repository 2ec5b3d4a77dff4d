"""Where a process belongs, as /proc tells it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

import msgspec

from gputop.agent.process.processes import read_file, real_uid
from gputop.agent.process.tmux import TmuxSessions
from gputop.agent.process.views import Views
from gputop.agent.process.walk import Seen
from gputop.model.cgroup import parse_cgroup
from gputop.model.environ import parse_environ
from gputop.model.place import Ancestor, Place
from gputop.model.text import printable

_TERMINALS = ("tmux", "screen", "SCREEN", "sshd")
"""Beginnings of the names of those that a chain of parents ends with."""
_GENERATIONS = 32
_PATH = 512
_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")
"""What the directory of a virtual (PEP 405) or conda environment has in it."""


def read_place(
    pid: int, tmux: TmuxSessions, views: Views, look: Callable[[int], Seen | None]
) -> Place:
    """Read it; the container's name is not in /proc. `look` is walk's, or remembers it."""
    variables = parse_environ(read_file(f"/proc/{pid}/environ") or b"").variables
    place = parse_cgroup((read_file(f"/proc/{pid}/cgroup") or b"").decode("utf-8", "replace"))
    cwd = _link(f"/proc/{pid}/cwd")
    return msgspec.structs.replace(
        place,
        cwd=_text(cwd),
        venv=_text(_environment(pid, cwd, variables, views)),
        ancestors=tuple(_ancestors(pid, look)),
        session=_text(_session(pid, variables, tmux)),
        ssh_from=_text(variables.get("SSH_CONNECTION", "").partition(" ")[0]),
        slurm_job=place.slurm_job or _number(variables.get("SLURM_JOB_ID")),
        slurm_step=place.slurm_step or _number(variables.get("SLURM_STEP_ID")),
    )


def _ancestors(pid: int, look: Callable[[int], Seen | None]) -> Iterator[Ancestor]:
    seen = look(pid)
    for _ in range(_GENERATIONS):
        parent = seen.parent if seen else 0
        seen = look(parent) if parent > 1 else None
        if seen is None:
            return
        yield Ancestor(parent, printable(seen.name, 64))
        if seen.name.startswith(_TERMINALS):
            return


def _environment(
    pid: int, cwd: str | None, variables: Mapping[str, str], views: Views
) -> str | None:
    """The interpreter's own, else the one that was active: a venv's interpreter is a link, so
    that /proc/PID/exe leads out of it, and the first argument does not."""
    line = read_file(f"/proc/{pid}/cmdline") or b""
    program = os.fsdecode(line.partition(b"\0")[0])
    if program and "/" not in program:
        program = _which(program, variables.get("PATH", "")) or ""
    called = os.path.join(cwd, program) if cwd and program else None
    for path in (called, _link(f"/proc/{pid}/exe")):
        prefix = os.path.dirname(os.path.dirname(os.path.normpath(path))) if path else None
        if prefix and views.ask(_is_environment, pid, prefix):
            return prefix
    return variables.get("VIRTUAL_ENV") or variables.get("CONDA_PREFIX")


@lru_cache(maxsize=128)
def _which(program: str, path: str) -> str | None:
    """Of a program that runs: where it is does not change."""
    found = (f"{folder}/{program}" for folder in path.split(":") if folder)
    return next((file for file in found if os.access(file, os.X_OK)), None)


def _is_environment(pid: int, prefix: str) -> bool:
    return any(os.path.exists(f"/proc/{pid}/root{prefix}/{name}") for name in _ENVIRONMENT)


def _session(pid: int, variables: Mapping[str, str], tmux: TmuxSessions) -> str | None:
    """STY is the session's name; of tmux it is the number, where the server does not tell."""
    if variable := variables.get("TMUX"):
        socket, _, rest = variable.partition(",")
        name = tmux.name(variable, real_uid(pid)) or f"${rest.rpartition(',')[2]}"
        return f"tmux {os.path.basename(socket)}:{name}"
    return f"screen {variables['STY']}" if variables.get("STY") else None


def _number(text: str | None) -> str | None:
    """A plain one: the steps that have names have numbers close to 2**32."""
    return text if text and text.isascii() and text.isdecimal() and len(text) < 10 else None


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _text(text: str | None) -> str | None:
    return printable(text, _PATH) if text else None
