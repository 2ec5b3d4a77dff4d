"""Which files processes see: all of one mount namespace and root see the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_View = tuple[int, int, int]
"""Inode of the mount namespace, device and inode of the root."""


class Views:
    """Answers about files by who sees them; one of these for each look at many processes."""

    def __init__(self) -> None:
        self._views: dict[int, _View | None] = {}
        self._answers: dict[tuple[Any, ...], Any] = {}

    def ask(self, question: Callable[..., T], pid: int, *more: str) -> T:
        """`question(pid, *more)`, which is asked once of all processes that see the same."""
        if pid not in self._views:
            self._views[pid] = _view_of(pid)
        view = self._views[pid]
        key = (question, view, more)
        if view is None or key not in self._answers:
            answer = question(pid, *more)
            if view is None or _view_of(pid) != view:  # that of a process that ends is its own
                return answer
            self._answers[key] = answer
        kept: T = self._answers[key]
        return kept


def _view_of(pid: int) -> _View | None:
    """None where it cannot be seen: of another user's process, or one that has ended."""
    try:
        root = os.stat(f"/proc/{pid}/root/")
        return os.stat(f"/proc/{pid}/ns/mnt").st_ino, root.st_dev, root.st_ino
    except OSError:
        return None
