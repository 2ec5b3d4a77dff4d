"""The variables of the processes that a GPU process started.

What a program sets in its own environment shows in the children that it executes, never in its
own /proc/PID/environ. A forked child shows what its parent was started with.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping

from gputop.agent.environ import read_environ
from gputop.model.environ import NAME, ORDER, Descendant, Environ

_EVERY = 10.0
"""Seconds between two walks through /proc, at least."""
_SHARE = 200
"""And at least so many times as long as the last one took: half a percent of a core."""
_MOST = 64
"""Descendants of one process that are looked at."""


class Descendants:
    """Walks through all processes now and then."""

    def __init__(self) -> None:
        self._due = 0.0

    def look(self, parents: Mapping[int, Environ]) -> Mapping[int, Descendant] | None:
        """Of those `parents` (by pid, with their own variables) the telling descendant; None if
        it is not yet time for another walk."""
        now = time.monotonic()
        if not parents or now < self._due:
            return None
        found = dict(_telling(parents))
        self._due = now + max(_EVERY, _SHARE * (time.monotonic() - now))
        return found


def _telling(parents: Mapping[int, Environ]) -> Iterator[tuple[int, Descendant]]:
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    for pid, own in parents.items():
        found = _agreed(own, _below(pid, children))
        if found is not None:
            yield pid, found


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


def _parents() -> Iterator[tuple[int, int]]:
    """Every process and its parent."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                    yield int(name), int(file.read().rpartition(b")")[2].split(None, 2)[1])
            except (OSError, IndexError):  # it ended meanwhile
                continue
