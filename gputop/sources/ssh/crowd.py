"""What all connections of this gputop share: turns to connect, and one thread that says that their
reader is there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

BEAT = 3.0
"""Seconds between two pings."""
LEASE = 10.0
"""Seconds without one after which an agent ends: its reader is gone, or the network between."""
_AT_ONCE = 8
_MOST = 1.0
"""Seconds after which one that is still at it counts no more: those that are down delay nobody."""


class Wave:
    """Places for those that connect: an sshd, or a host that others are reached through, refuses
    more (MaxStartups, 10 unless set)."""

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


class Heart:
    """Beats as long as anybody holds a connection."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pings: set[Callable[[], None]] = set()
        self._thread: threading.Thread | None = None

    def beat_for(self, ping: Callable[[], None]) -> None:
        """Call it from now on, in the thread of the heart: it does not wait."""
        with self._lock:
            self._pings.add(ping)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="heart", daemon=True)
                self._thread.start()

    def forget(self, ping: Callable[[], None]) -> None:
        """Call it no more."""
        with self._lock:
            self._pings.discard(ping)

    def _run(self) -> None:
        while True:
            with self._lock:
                pings = list(self._pings)
            for ping in pings:
                ping()
            time.sleep(BEAT)


WAVE, HEART = Wave(), Heart()
"""Those of all connections."""
