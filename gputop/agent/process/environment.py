"""The variables that a process was started with, and those of the processes that it started.

Variables that a program sets for itself show in the children that it executes, never in its own
/proc/PID/environ. A forked child shows the variables that its parent was started with.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from itertools import islice

from gputop.agent.process.mounts import alike
from gputop.agent.process.procfs import ENVIRON, read_bounded
from gputop.agent.process.reader import READER, NoAnswerError
from gputop.agent.process.stat import ancestors, read_stat
from gputop.model.machine.environment import (
    NAME,
    ORDER,
    Environ,
    RelatedProcess,
    parse_environ,
    relevant_variables,
)
from gputop.model.machine.grouped import grouped
from gputop.model.machine.proc_stat import ProcStat

_MOST = 64
"""Descendants of a process, or ancestors, that are read at most."""
_INIT = 1


def read_environ(pid: int) -> Environ:
    """Read the variables of a process that matter to gputop."""
    return relevant_variables(read_whole_environ(pid))


def read_whole_environ(pid: int) -> Environ:
    """Read all variables of a process, secrets too: never send or keep them as they are.

    Only root can read another user's (PTRACE_MODE_READ, proc_pid_environ(5)).
    """
    try:
        block, whole = READER.ask(read_block, pid)
        if not block and _has_ended(pid):
            return Environ({}, "gone")
        return parse_environ(block) if whole else Environ({}, "too_long")
    except NoAnswerError:
        return Environ({}, "no_answer")
    except PermissionError:
        return Environ({}, "gone" if _has_ended(pid) else "unreadable")
    except OSError:  # gone before it was opened, or while it was read
        return Environ({}, "gone")
    except MemoryError:
        return Environ({}, "too_long")


def read_block(pid: int) -> tuple[bytes, bool]:
    """Return the environment and whether it is all of it; OSError."""
    return read_bounded(f"/proc/{pid}/environ", ENVIRON)


def descendant_env(
    parents: Mapping[int, Environ], table: Mapping[int, ProcStat], seconds: float = math.inf
) -> dict[int, RelatedProcess | None]:
    """Return, by pid, the descendant of each of `parents` (given with their own variables) that
    shows another mask, or None. When `seconds` are over, the remaining parents are left out."""
    children = grouped(table, lambda pid: table[pid].parent)
    end = time.monotonic() + seconds
    descendants: dict[int, RelatedProcess | None] = {}
    for pid, own in parents.items():
        descendants[pid] = _agreed(pid, own, _below(pid, children), end)
        if time.monotonic() >= end:
            break
    return descendants


def ancestor_env(pid: int, own: Environ) -> RelatedProcess | None:
    """Return from whom a process that wrote over its variables, as vLLM's and gunicorn's workers
    do, probably has them: the nearest ancestor that did not, if it has a mask and sees the same
    files. One without a mask proves nothing: a shell may set it for its child alone."""
    for parent in islice(ancestors(pid), _MOST) if own.missing == "overwritten" else ():
        if parent <= _INIT:
            return None
        environ = read_environ(parent)
        if environ.missing != "overwritten":
            fits = NAME in environ.variables and alike(pid, parent)
            return RelatedProcess(parent, environ) if fits else None
    return None


def _agreed(parent: int, own: Environ, below: list[int], end: float) -> RelatedProcess | None:
    """Return the first descendant with another mask than `own`; None if they disagree, or if time
    runs out. A descendant in another container is skipped: it numbers other GPUs."""
    before = (own.variables.get(NAME), own.variables.get(ORDER))
    descendants: list[RelatedProcess] = []
    for pid in below:
        if time.monotonic() >= end:
            return None
        environ = read_environ(pid)
        mask = (environ.variables.get(NAME), environ.variables.get(ORDER))
        if mask[0] is not None and mask != before and alike(pid, parent):
            descendants.append(RelatedProcess(pid, environ))
    variables = [descendant.environ.variables for descendant in descendants]
    masks = {(names[NAME], names.get(ORDER)) for names in variables}
    return descendants[0] if len(masks) == 1 else None


def _below(pid: int, children: Mapping[int, list[int]]) -> list[int]:
    below = list(children.get(pid, ()))
    for child in below:
        if len(below) >= _MOST:
            break
        below += children.get(child, ())
    return below[:_MOST]


def _has_ended(pid: int) -> bool:
    """Return whether a process is a zombie or no longer exists. A zombie's file belongs to root,
    whoever ran it; depending on the kernel, opening it fails, or it is empty."""
    stat = read_stat(pid)
    return stat is None or stat.state in "ZX"
