"""Sources without an agent, which answer requests themselves."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Generator
from queue import Empty, SimpleQueue
from typing import TypeAlias

from gputop.protocol.messages import AnsweredRequest, Refresh, Reply, Request, SetInterval
from gputop.sources.source import Source

Events: TypeAlias = SimpleQueue[Reply | bool]
"""Replies; True asks for a frame now, False ends `frames`."""


class AgentlessSource(Source):
    """A source whose `frames` calls `_pause` between two of them."""

    def __init__(self, host: str) -> None:
        self.host = host
        self._events: Events = SimpleQueue()
        """The events for the next call of `frames`; earlier calls have a queue of their own."""

    @abstractmethod
    def _answer(self, request: AnsweredRequest) -> Reply:
        """Return the reply to a request."""

    def request(self, request: Request) -> None:
        """Answer a request, or have a frame made; other requests have no effect."""
        if isinstance(request, AnsweredRequest):
            self._events.put(self._answer(request))
        elif isinstance(request, Refresh | SetInterval):
            self._events.put(True)

    def reconnect(self) -> None:
        before, self._events = self._events, SimpleQueue()
        before.put(False)

    def close(self) -> None:
        self._events.put(False)

    def _pause(self, events: Events, seconds: float | None) -> Generator[Reply, None, bool]:
        """Yield replies until `seconds` are over, or a frame is wanted at once; return whether more
        frames are to follow."""
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            try:
                event = events.get(
                    timeout=None if end is None else max(0.0, end - time.monotonic())
                )
            except Empty:
                return True
            if isinstance(event, bool):
                return event
            yield event
