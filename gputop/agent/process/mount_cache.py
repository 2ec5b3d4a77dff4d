"""Which files processes see: all of one mount namespace and root see the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from gputop.agent.process.mounts import read_mounts
from gputop.agent.process.paths import Sight
from gputop.agent.stall import CallGuard, Step

T = TypeVar("T")

_MountRoot = tuple[int, str]
"""Inode of the mount namespace, and the root in it."""


class MountCache:
    """Answers about files by who sees them; one of these for each round of many processes.

    To be used within calls of `guard`, which `step` belongs to. After one that stalled a new one is
    wanted: this is still in the hands of the thread that hangs.
    """

    def __init__(self, guard: CallGuard) -> None:
        self.step = Step()
        self._guard = guard
        self._views: dict[int, _MountRoot | None] = {}
        self._sights: dict[_MountRoot, Sight] = {}
        self._answers: dict[tuple[Any, ...], Any] = {}

    def ask(self, question: Callable[..., T], pid: int, *more: str) -> T | None:
        """Return `question(sight, *more)`, which is asked once of all processes that see the same;
        None where it cannot be looked at, or is not to be."""
        if pid not in self._views:
            self._views[pid] = view_of(pid)
        view = self._views[pid]
        if view is None:
            return None
        key = (question, view, more)
        if key not in self._answers:
            answer = self._answer(question, pid, view, *more)
            if view_of(pid) != view:  # that of a process that ends is its own
                return answer
            self._answers[key] = answer
        kept: T | None = self._answers[key]
        return kept

    def _answer(
        self, question: Callable[..., T], pid: int, view: _MountRoot, *more: str
    ) -> T | None:
        before = self.step.at
        try:
            sight = self._sights.get(view)
            mounts = read_mounts(pid) if sight is None else sight.mounts
            sight = self._sights[view] = Sight(pid, mounts, self._guard, self.step)
            return question(sight, *more)
        except (OSError, ValueError):
            return None
        finally:
            self.step.go_on(before)


def view_of(pid: int) -> _MountRoot | None:
    """None where it cannot be seen: of another user's process, or one that has ended. The root
    itself is not touched: it may be of a file system that does not answer."""
    try:
        return os.stat(f"/proc/{pid}/ns/mnt").st_ino, os.readlink(f"/proc/{pid}/root")
    except OSError:
        return None
