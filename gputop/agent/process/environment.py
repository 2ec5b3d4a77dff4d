"""The variables that a process was started with, and those of the processes that it started.

What a program sets in its own environment shows in the children that it executes, never in its
own /proc/PID/environ. A forked child shows what its parent was started with.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from gputop.agent.process.paths import alike
from gputop.agent.process.procfs import ENVIRON, read_bounded
from gputop.agent.process.stat import ProcStat, read_stat
from gputop.model.machine.environment import (
    NAME,
    ORDER,
    Descendant,
    Environ,
    parse_environ,
    what_matters,
)

_MOST = 64
"""Descendants of a process that are read."""


def read_environ(pid: int) -> Environ:
    """Read those that matter here."""
    return what_matters(read_whole_environ(pid))


def read_whole_environ(pid: int) -> Environ:
    """Read all of them, secrets too: not to be sent as they are, nor kept.

    Another user's are readable to root alone (PTRACE_MODE_READ, proc_pid_environ(5)).
    """
    try:
        block, whole = read_bounded(f"/proc/{pid}/environ", ENVIRON)
        if not block and _has_ended(pid):
            return Environ({}, "gone")
        return parse_environ(block) if whole else Environ({}, "too_long")
    except PermissionError:
        return Environ({}, "gone" if _has_ended(pid) else "unreadable")
    except OSError:  # gone before it was opened, or while it was read
        return Environ({}, "gone")
    except MemoryError:
        return Environ({}, "too_long")


def descendant_env(
    parents: Mapping[int, Environ], table: Mapping[int, ProcStat], seconds: float = math.inf
) -> dict[int, Descendant | None]:
    """Return the telling descendants of `parents` (by pid, with their own variables) among all
    processes, None where there is none; of the first parents, as many as there is time for."""
    children: dict[int, list[int]] = {}
    for pid, stat in table.items():
        children.setdefault(stat.parent, []).append(pid)
    end = time.monotonic() + seconds
    descendants: dict[int, Descendant | None] = {}
    for pid, own in parents.items():
        descendants[pid] = _agreed(pid, own, _below(pid, children), end)
        if time.monotonic() >= end:
            break
    return descendants


def _agreed(parent: int, own: Environ, below: list[int], end: float) -> Descendant | None:
    """Return the first with another mask than `own`; None if they disagree, or if there is no time
    to see whether they do. In a container of its own it counts other GPUs, and tells nothing."""
    before = (own.variables.get(NAME), own.variables.get(ORDER))
    descendants: list[Descendant] = []
    for pid in below:
        if time.monotonic() >= end:
            return None
        environ = read_environ(pid)
        mask = (environ.variables.get(NAME), environ.variables.get(ORDER))
        if mask[0] is not None and mask != before and alike(pid, parent):
            descendants.append(Descendant(pid, environ))
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
    """Return whether a process is a zombie, or not there. A zombie's file is root's, whoever ran
    it, and by the kernel's version opening it fails, or it is empty."""
    stat = read_stat(pid)
    return stat is None or stat.state in "ZX"
