"""Tells agents elsewhere that their reader is there: one thread for all connections."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

BEAT = 3.0
"""Seconds between two pings."""
LEASE = 10.0
"""Seconds without one after which an agent ends: its reader is gone, or the network between."""


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


HEART = Heart()
"""That of all connections of this gputop."""
