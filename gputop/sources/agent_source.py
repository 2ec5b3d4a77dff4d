"""Frames from an agent at the other end of a pipe, an ssh, or a socket."""

from __future__ import annotations

from _thread import allocate_lock
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, TypeVar

from gputop.errors import SourceError
from gputop.model.machine.frame import Frame
from gputop.model.machine.signals import Verdict
from gputop.protocol.assemble import Assembler
from gputop.protocol.messages import AnsweredRequest, Reply, Request, SetInterval, Signal
from gputop.protocol.recent import RecentFrames
from gputop.sources.source import Past, Source


class AgentConnection(ABC):
    """The way to one agent, from its start to its end. One thread reads `messages`; any thread may
    call the rest."""

    def __init__(self, requested_name: str | None = None) -> None:
        """`requested_name`: the name by which the machine was asked for."""
        self.assembler = Assembler(requested_name=requested_name)
        self.recent: RecentFrames | None = None
        """Keeps lines to be read again; None: no lines are kept."""
        self._reading = allocate_lock()
        """Held while a thread reads `messages`, and not while its caller has one of them."""
        self._is_freed = False

    def read(self) -> Iterator[Frame | Reply]:
        """Yield `messages`, until `end` or their SourceError, which frees."""
        messages = self.messages()
        while True:
            with self._reading:
                try:
                    message = None if self._is_freed else next(messages, None)
                except SourceError:
                    self._free_once()
                    raise
            if message is None:
                return
            yield message

    def take(self, line: bytes) -> Frame | Reply | None:
        """Return what a line of the agent's completes. SourceError."""
        message = self.assembler.read(line)
        if (recent := self.recent) is not None:  # another thread may set it to None
            recent.add(line, message, self.assembler)
        return message

    def end(self) -> None:
        """Stop the agent, and free what a thread that reads frees when it notices."""
        self.stop()
        if self._reading.acquire(blocking=False):
            try:
                self._free_once()
            finally:
                self._reading.release()

    def _free_once(self) -> None:
        if not self._is_freed:
            self._is_freed = True
            self.free()

    @abstractmethod
    def messages(self) -> Iterator[Frame | Reply]:
        """Yield frames and replies, from where reading stopped. SourceError at the end, also after
        `stop`; DriverError."""

    @abstractmethod
    def request(self, request: Request) -> bool:
        """Send a request, without waiting; return False if there is no room for it. If the agent is
        gone, `messages` reports that."""

    @abstractmethod
    def stop(self) -> None:
        """End the agent, or leave it, and wake who reads. May be called more than once."""

    @abstractmethod
    def free(self) -> None:
        """Close the descriptors, once: nobody reads any more."""


_NO_ROOM = "the agent takes no requests just now: nothing was sent"
C = TypeVar("C", bound=AgentConnection)


class AgentSource(Source, Generic[C]):
    """Frames of an agent; the way to it is made at once, and anew by `reconnect`.

    With `interval` None it sends one frame and ends.
    """

    def __init__(self, host: str, interval: float | None) -> None:
        self.host, self._interval = host, interval
        self._is_closed = self._is_late = False
        """Whether it is closed, and whether the agent has not been sent the interval yet."""
        self._refused: SourceError | None = None
        """Why the last `reconnect` found no agent."""
        self._connection = self._connect()

    @abstractmethod
    def _connect(self) -> C:
        """Return the way to a new agent. SourceError."""

    @property
    def user(self) -> str | None:
        hello = self._connection.assembler.hello
        return None if hello is None else hello.user

    @property
    def past(self) -> Past | None:
        """The last minutes of the current agent."""
        return self._connection.recent

    def remember(self, wanted: bool) -> None:
        self._connection.recent = RecentFrames() if wanted else None

    def frames(self) -> Iterator[Frame | Reply]:
        """See `Source`; with `interval` None it ends after the first frame."""
        if self._refused is not None:
            raise self._refused
        connection = self._connection
        try:
            for message in connection.read():
                if connection is not self._connection:
                    return
                if self._is_late and self._interval is not None:
                    self.request(SetInterval(self._interval))
                yield message
                if self._interval is None and isinstance(message, Frame):
                    self.close()
        except SourceError:
            if connection is self._connection and not self._is_closed:
                raise

    def request(self, request: Request) -> Reply | None:
        is_sent = self._connection.request(request)
        if isinstance(request, SetInterval):
            self._interval, self._is_late = request.seconds, not is_sent
        return None if is_sent else _reply_to_unsent(request)

    def reconnect(self) -> None:
        """Start over with a new agent, which loads the driver's library anew. If there is none,
        `frames` raises the error."""
        before = self._connection
        try:
            self._connection, self._refused = self._connect(), None
            self.remember(before.recent is not None)
        except SourceError as error:
            self._refused = error
        before.end()
        if self._is_closed:
            self._connection.end()

    def close(self) -> None:
        self._is_closed = True
        self._connection.end()


def _reply_to_unsent(request: Request) -> Reply | None:
    if isinstance(request, Signal):
        verdicts = (
            Verdict(
                request_id=request.id, process=target.process,
                signal=request.number, outcome="unknown", words=_NO_ROOM,
            )
            for target in request.targets
        )  # fmt: skip
        return Reply(request=request.id, verdicts=tuple(verdicts))
    if isinstance(request, AnsweredRequest):
        return Reply(request=request.id, error=_NO_ROOM)
    return None
