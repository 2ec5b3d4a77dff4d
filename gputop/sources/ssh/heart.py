"""Tells agents elsewhere that their reader is there: one thread for all connections."""

from __future__ import annotations

import threading
import time
from typing import Protocol
from weakref import WeakSet

BEAT = 3.0
"""Seconds between two pings."""
LEASE = 10.0
"""Seconds without one after which an agent ends: its reader is gone, or the network between."""


class Pinged(Protocol):
    """What wants a beat; it is asked in the thread of the heart, and does not wait."""

    def ping(self) -> None:
        """Say that somebody is there."""


class Heart:
    """Beats for connections as long as anybody holds them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: WeakSet[Pinged] = WeakSet()
        self._thread: threading.Thread | None = None

    def beat_for(self, connection: Pinged) -> None:
        """Ping it from now on."""
        with self._lock:
            self._connections.add(connection)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="heart", daemon=True)
                self._thread.start()

    def forget(self, connection: Pinged) -> None:
        """Ping it no more."""
        with self._lock:
            self._connections.discard(connection)

    def _run(self) -> None:
        while True:
            with self._lock:
                connections = list(self._connections)
            for connection in connections:
                connection.ping()
            time.sleep(BEAT)


HEART = Heart()
"""That of all connections of this gputop."""
