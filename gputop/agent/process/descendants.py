"""The variables of the processes that a GPU process started.

What a program sets in its own environment shows in the children that it executes, never in its
own /proc/PID/environ. A forked child shows what its parent was started with.
"""

from __future__ import annotations

from collections.abc import Mapping

from gputop.agent.process.environ import read_environ
from gputop.agent.process.walk import Seen
from gputop.model.environ import NAME, ORDER, Descendant, Environ

_MOST = 64
"""Descendants of one process that are looked at."""


def telling(parents: Mapping[int, Environ], table: Mapping[int, Seen]) -> dict[int, Descendant]:
    """Of those `parents` (by pid, with their own variables) the telling descendants among the
    processes of a walk; who has none is not in it."""
    children: dict[int, list[int]] = {}
    for pid, seen in table.items():
        children.setdefault(seen.parent, []).append(pid)
    found = {pid: _agreed(own, _below(pid, children)) for pid, own in parents.items()}
    return {pid: one for pid, one in found.items() if one is not None}


def _agreed(own: Environ, below: list[int]) -> Descendant | None:
    """The first with a mask of another kind than `own`; None if they disagree."""
    before = (own.variables.get(NAME), own.variables.get(ORDER))
    found: list[Descendant] = []
    for pid in below:
        environ = read_environ(pid)
        mask = (environ.variables.get(NAME), environ.variables.get(ORDER))
        if mask[0] is not None and mask != before:
            found.append(Descendant(pid, environ))
    masks = {(one.environ.variables[NAME], one.environ.variables.get(ORDER)) for one in found}
    return found[0] if len(masks) == 1 else None


def _below(pid: int, children: Mapping[int, list[int]]) -> list[int]:
    found = list(children.get(pid, ()))
    for one in found:
        if len(found) >= _MOST:
            break
        found += children.get(one, ())
    return found[:_MOST]
