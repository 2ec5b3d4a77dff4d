"""How many connections are made at once: an sshd, or the host that others are reached through,
refuses a crowd (MaxStartups, 10 unless set)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_AT_ONCE = 8
_MOST = 1.0
"""Seconds after which one that is still at it counts no more: those that are down delay nobody."""


class Wave:
    """Places for those that connect."""

    def __init__(self, at_once: int = _AT_ONCE, most: float = _MOST) -> None:
        self._at_once, self._most = at_once, most
        self._begun: list[float] = []
        self._changed = threading.Condition()

    @contextmanager
    def place(self, is_over: Callable[[], bool]) -> Iterator[None]:
        """Wait for a place and have it; none is needed once it `is_over`, after `wake`."""
        with self._changed:
            while not is_over() and (wait := self._wait()) > 0:
                self._changed.wait(wait)
            begun = time.monotonic()
            self._begun.append(begun)
        try:
            yield
        finally:
            with self._changed:
                self._begun.remove(begun)
                self._changed.notify_all()

    def wake(self) -> None:
        """Have those that wait ask whether it is over."""
        with self._changed:
            self._changed.notify_all()

    def _wait(self) -> float:
        """Return the seconds until there is a place, if nobody leaves before."""
        latest = sorted(self._begun)[-self._at_once :]
        if len(latest) < self._at_once:
            return 0.0
        return latest[0] + self._most - time.monotonic()


WAVE = Wave()
"""That of all connections of this gputop."""
