"""Frames that an agent sends: at the other end of a pipe, of ssh, or of a socket."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, TypeVar

from gputop.errors import SourceError
from gputop.model.machine.frame import Frame
from gputop.protocol.assemble import Assembler
from gputop.protocol.messages import Reply, Request, SetInterval
from gputop.protocol.recent import RecentFrames
from gputop.sources.past import Past
from gputop.sources.source import Source


class AgentConnection(ABC):
    """The way to one agent, from its start to its end. One thread reads `messages`; any may do the
    rest."""

    def __init__(self, asked: str | None = None) -> None:
        """`asked`: the name by which the machine was asked for."""
        self.assembler = Assembler(asked=asked)

    @abstractmethod
    def messages(self) -> Iterator[Frame | Reply]:
        """Yield what comes, from where it was left; nothing where that has ended. SourceError,
        DriverError."""

    @abstractmethod
    def request(self, request: Request) -> None:
        """Send a request, without waiting; nothing if nobody reads it, `messages` tells that."""

    @abstractmethod
    def stop(self) -> None:
        """End the agent, or let go of it; more than once."""


C = TypeVar("C", bound=AgentConnection)


class AgentSource(Source, Generic[C]):
    """An agent that is started, or connected to, when this is made; anew by `reconnect`.

    With `interval` None it sends one frame and ends.
    """

    def __init__(self, host: str, interval: float | None) -> None:
        self.host, self._interval = host, interval
        self._is_closed = False
        self._refused: SourceError | None = None
        """Why there was no way to another agent."""
        self._connection = self._connect()

    @abstractmethod
    def _connect(self) -> C:
        """Return the way to another agent. SourceError."""

    @property
    def past(self) -> Past | None:
        """The last minutes of the agent of now."""
        return self._connection.assembler.recent

    def remember(self, wanted: bool) -> None:
        self._connection.assembler.recent = RecentFrames() if wanted else None

    def frames(self) -> Iterator[Frame | Reply]:
        """See `Source`; the frame of an agent that was asked for one is the last."""
        if self._refused is not None:
            raise self._refused
        connection = self._connection
        try:
            for message in connection.messages():
                yield message
                if self._interval is None and isinstance(message, Frame):
                    self.close()
        except SourceError:
            if connection is self._connection and not self._is_closed:
                raise

    def request(self, request: Request) -> None:
        if isinstance(request, SetInterval):
            self._interval = request.seconds
        self._connection.request(request)

    def reconnect(self) -> None:
        """Begin anew, with another agent: it loads the driver's library anew. That there is none is
        told by `frames`."""
        before = self._connection
        try:
            self._connection, self._refused = self._connect(), None
            self.remember(before.assembler.recent is not None)
        except SourceError as error:
            self._refused = error
        before.stop()

    def close(self) -> None:
        self._is_closed = True
        self._connection.stop()
