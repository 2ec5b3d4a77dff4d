"""One look at this machine by this very process.

It may hang in the driver: for a process that nobody waits for.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

from gputop.agent.collector import Collector
from gputop.agent.idle_record import with_idle_times
from gputop.model.frame import Frame
from gputop.model.protocol import Request

_PATIENCE = 5.0
"""Seconds for a driver that is silent."""


def one_frame() -> Frame:
    """With the CPU use of its processes measured, and what other agents know of idle ones."""
    return with_idle_times(Collector().collect(None, _PATIENCE, settle=True))


class Look:
    """A source of one frame; it is under way as soon as this is made."""

    def __init__(self) -> None:
        self._made: queue.SimpleQueue[Frame | Exception] = queue.SimpleQueue()
        threading.Thread(target=self._look, name="look", daemon=True).start()

    def frames(self) -> Iterator[Frame]:
        """The frame."""
        made = self._made.get()
        if isinstance(made, Exception):
            raise made
        yield made

    def request(self, request: Request) -> None:
        """Nothing: it looks once."""

    def close(self) -> None:
        """Nothing is left to end."""

    def _look(self) -> None:
        try:
            self._made.put(one_frame())
        except Exception as error:  # noqa: BLE001 - whoever waits raises it
            self._made.put(error)
