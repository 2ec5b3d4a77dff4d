"""Frames of another machine: its agent at the end of `ssh HOST`."""

from __future__ import annotations

import random
from collections.abc import Iterator

from gputop.errors import SourceError
from gputop.model.fleet.link import Link
from gputop.model.machine.check import Check
from gputop.model.machine.frame import Frame
from gputop.protocol.codec import encode
from gputop.protocol.messages import Reply, Request, SetInterval
from gputop.sources.agent_process import SILENCE
from gputop.sources.past import Past
from gputop.sources.ssh.client import allow_many_files
from gputop.sources.ssh.connection import AgentOptions, Connection
from gputop.sources.ssh.heart import BEAT
from gputop.sources.ssh.login import login_command
from gputop.sources.ssh.names import HostName
from gputop.sources.ssh.ways import ways_check

_STALL = 20.0
"""Seconds without a line, be it a ping's reply, after which a screen begins anew."""
_LEAST_PAUSE = 1.0
_MOST_PAUSE = 30.0

__all__ = ["Link", "SshSource", "backoff", "login_command"]


def backoff(attempt: int) -> float:
    """Return the seconds between an attempt, 1 and up, and the next: 1 to 30, never quite the
    same, so that machines that went down together do not come back at once."""
    whole = min(_MOST_PAUSE, _LEAST_PAUSE * 2.0 ** min(attempt, 8))
    return whole * random.uniform(0.5, 1.0)


class SshSource:
    """An agent on another machine, started when its frames are first asked for.

    Arguments as for LocalSource, but a screen does not wait for ever: the network may be cut.
    """

    def __init__(
        self,
        host: HostName,
        interval: float | None = 1.0,
        waits: bool = False,
        driver: bool = True,
    ) -> None:
        allow_many_files()
        self.host = host.asked
        self.name, self._interval, self._driver = host, interval, driver
        self._timeout = _STALL if waits else SILENCE + max(interval or 0.0, BEAT)
        self._is_closed = False
        """Of the machine in its last frame."""
        self._remembers = False
        self._connection = self._connect()

    @property
    def past(self) -> Past | None:
        """The last minutes of the connection of now."""
        return self._connection.recent

    def remember(self, wanted: bool) -> None:
        """See `RememberingSource`."""
        self._remembers = wanted
        self._connection.remember(wanted)

    @property
    def link(self) -> Link:
        """How the machine is reached just now; for any thread."""
        return self._connection.link

    @property
    def way(self) -> Check | None:
        """Which of the three ways to read the machine was taken, and why; None before that."""
        how, remote = self.link.how, self._connection.remote
        return None if how is None or remote is None else ways_check(how, remote)

    def frames(self) -> Iterator[Frame | Reply]:
        """See `Source`; the frame of an agent that was asked for one is the last. LoginError where
        ssh wants to ask somebody."""
        connection = self._connection
        try:
            for message in connection.messages():
                yield message
                if self._interval is None and isinstance(message, Frame):
                    connection.stop()
                    return
        except SourceError:
            if connection is self._connection and not self._is_closed:
                raise

    def request(self, request: Request) -> None:
        """Send a request; one that is asked before there is an agent waits for it, and is lost
        where none comes."""
        if isinstance(request, SetInterval):
            self._interval = request.seconds
        self._connection.request(encode(request) + b"\n")

    def reconnect(self) -> None:
        """Begin anew, with another agent."""
        before, self._connection = self._connection, self._connect()
        before.stop()

    def close(self) -> None:
        """End it, here and there; waits for nothing."""
        self._is_closed = True
        self._connection.stop()

    def _connect(self) -> Connection:
        options = AgentOptions(self._interval, self._driver)
        connection = Connection(self.name, options, self._timeout)
        connection.remember(self._remembers)
        return connection
