"""What all connections of this gputop share: turns to connect, the logins that hang, and one thread
that pings their agents."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gputop.sources.ssh.names import HostName

PING_INTERVAL = 3.0
"""Seconds between two pings."""
LEASE = 10.0
"""Seconds without a ping after which an agent ends: its reader or the network is gone."""
_AT_ONCE = 8
_MOST = 1.0
"""Seconds after which a slow connection counts no more: hosts that are down delay no other."""
_MOST_THROUGH_PROXY = 60.0
"""The same through a jump host, which has part in all of them: each counts until its login is done,
or given up."""


class ConnectLimiter:
    """Limits how many connect at a time: an sshd, or a host that leads to others, refuses more
    (MaxStartups, 10 unless set)."""

    def __init__(self, at_once: int = _AT_ONCE, most: float = _MOST) -> None:
        self._at_once, self._most = at_once, most
        self._begun: list[float] = []
        self._changed = threading.Condition()

    @contextmanager
    def place(self, is_over: Callable[[], bool]) -> Iterator[None]:
        """Wait for a place and hold it; one that `is_over` at a `wake` waits no longer."""
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
        """Have waiting connections check whether they are over."""
        with self._changed:
            self._changed.notify_all()

    def _wait(self) -> float:
        """Return the seconds until there is a place, if none becomes free before."""
        latest = sorted(self._begun)[-self._at_once :]
        if len(latest) < self._at_once:
            return 0.0
        return latest[0] + self._most - time.monotonic()


class Pinger:
    """Pings the agents of all connections every `interval` seconds, in a thread that lasts as long
    as there are any. One whose ping raises is pinged no more: its agent ends, and the others go on.
    """

    def __init__(self, interval: float = PING_INTERVAL) -> None:
        self._interval, self._changed = interval, threading.Condition()
        self._pings: set[Callable[[], None]] = set()
        self._thread: threading.Thread | None = None

    def add(self, ping: Callable[[], None]) -> None:
        """Call `ping` from now on, in the thread of all pings: it must not wait."""
        with self._changed:
            self._pings.add(ping)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="pings", daemon=True)
                thread.start()
                self._thread = thread

    def forget(self, ping: Callable[[], None]) -> None:
        with self._changed:
            self._pings.discard(ping)
            self._changed.notify_all()

    def _run(self) -> None:
        while pings := self._due():
            for ping in pings:
                try:
                    ping()
                except Exception:  # noqa: BLE001 - its lease ends, which its connection reports
                    self.forget(ping)

    def _due(self) -> list[Callable[[], None]]:
        """Wait for the next round, and return its pings; without any, the thread is to end."""
        with self._changed:
            self._changed.wait_for(lambda: not self._pings, self._interval)
            if not self._pings:
                self._thread = None
            return list(self._pings)


def limiter_of(proxy: str) -> ConnectLimiter:
    """Return what limits the connections through a proxy, as ssh's configuration names it; empty:
    those without one."""
    most = _MOST_THROUGH_PROXY if proxy else _MOST
    return _LIMITERS.setdefault(proxy, ConnectLimiter(most=most))


_LIMITERS: dict[str, ConnectLimiter] = {}
PINGER = Pinger()
HUNG_LOGINS: Counter[HostName] = Counter()
"""How many logins on a host have not come to an end since the last that did. They stay there as
processes, whatever becomes of the connection."""


def _begin_anew() -> None:
    _LIMITERS.clear()
    PINGER.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_begin_anew)  # a copy of this program has none of its threads
