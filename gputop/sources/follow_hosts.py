"""Frames and errors of machines as they arrive, each machine read in a thread of its own."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

from gputop.errors import GputopError, SourceError
from gputop.model.machine.frame import Frame
from gputop.sources.ask import frames_of
from gputop.sources.feed import NO_THREAD, close_all
from gputop.sources.follow import follow
from gputop.sources.opening import open_source
from gputop.sources.source import Source
from gputop.sources.ssh.names import HostName

HostNews: TypeAlias = tuple[HostName | None, Frame | GputopError]
"""A host, None for this machine, and its next frame or the reason why there is none."""
_ENDS = 2.0
"""Seconds for the threads to end."""


class HostFollower:
    """An iterator over frames and errors, until no machine is left to try again, or until `close`.
    A machine is not tried again if ssh needs a person."""

    def __init__(
        self,
        hosts: Sequence[HostName | None],
        interval: float,
        demo: bool = False,
        newest: bool = False,
    ) -> None:
        """With `newest`, a reader that is slow gets only the last of each machine; otherwise the
        machines wait for it. SourceError if no thread can be started."""
        self._newest, self._most, self._left = newest, len(hosts), len(hosts)
        self._pid = os.getpid()
        self._news: deque[HostNews] = deque()
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []
        self._sources = {host: open_source(host, interval, demo=demo) for host in hosts}
        try:
            for host, source in self._sources.items():
                thread = threading.Thread(target=self._read, args=(host, source), daemon=True)
                thread.start()
                self._threads.append(thread)
        except RuntimeError:
            self.close()
            raise SourceError(NO_THREAD) from None

    def __iter__(self) -> HostFollower:
        return self

    def __next__(self) -> HostNews:
        """Wait for the next, in any thread. SourceError in a copy of the process that made this."""
        if os.getpid() != self._pid:
            raise SourceError(
                "this is a fork of the process that watches: call watch() again in it"
            )
        with self._changed:
            self._changed.wait_for(lambda: self._news or self._is_over)
            if self._closed.is_set() or not self._news:
                raise StopIteration
            news = self._news.popleft()
            self._changed.notify_all()
        return news

    def user_of(self, host: HostName | None) -> str | None:
        """Return the user that a machine is read as; None if that is not known."""
        return self._sources[host].user

    @property
    def _is_over(self) -> bool:
        return self._closed.is_set() or not self._left

    def close(self) -> None:
        """Close the sources, and end the threads and whoever waits. From any thread, more than
        once. In a copy of this process, which has no such threads, it does nothing."""
        if os.getpid() != self._pid:
            return
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
        close_all(list(self._sources.values()))
        end = time.monotonic() + _ENDS
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _read(self, host: HostName | None, source: Source) -> None:
        follow(source, frames_of, lambda message: self._put((host, message)), self._closed)
        with self._changed:
            self._left -= 1
            self._changed.notify_all()

    def _put(self, news: HostNews) -> None:
        with self._changed:
            if self._newest:
                self._news = deque(earlier for earlier in self._news if earlier[0] != news[0])
            else:
                self._changed.wait_for(lambda: len(self._news) < self._most or self._is_over)
            self._news.append(news)
            self._changed.notify_all()
