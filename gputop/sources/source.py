"""The interface of every source of frames, and of a machine's past, in memory or recorded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Literal, Protocol, TypeAlias

from gputop.model.fleet.link import HostLink
from gputop.model.machine.frame import Frame
from gputop.protocol.messages import Reply, Request

REFUSED = "only nvidia-smi and /proc are read on this host: install gputop or Python 3.9 there"
"""The answer to requests to a machine without an agent."""

Moment: TypeAlias = Literal["now", "past", "replay"]
"""What a picture shows: a watched machine now, its past, or a recording."""


class Past(Protocol):
    """Frames of one machine by time. SourceError if they cannot be read."""

    @property
    def times(self) -> Sequence[float]:
        """When there is a frame, oldest first; seconds since the epoch."""
        ...

    def at(self, when: float) -> Frame | None:
        """Return the last frame that is not after a time; None before the first."""
        ...

    def frames(self, since: float, until: float) -> Iterator[Frame]:
        """Yield the frames from a time to another, both included."""
        ...


class Source(ABC):
    """The frames of one machine, and its replies."""

    host: str
    """The name by which the machine was asked for."""

    @property
    def link(self) -> HostLink | None:
        """How the machine is reached just now, for any thread; None if there is no connection that
        could break."""
        return None

    @property
    def user(self) -> str | None:
        """The user that the machine is read as, as its processes name him; None if that is not
        known."""
        return None

    @property
    def past(self) -> Past | None:
        """Frames that can be viewed again; None if nothing is remembered."""
        return None

    def remember(self, wanted: bool) -> None:  # noqa: B027 - many remember nothing
        """Remember frames from now on, or stop and forget them. A source that always has a past, or
        never, does nothing."""

    @abstractmethod
    def frames(self) -> Iterator[Frame | Reply]:
        """Yield frames and replies in the order of their arrival, until `close` or `reconnect`.

        It blocks between them. Called again after an early stop, it goes on where it was. For one
        thread at a time. SourceError if it breaks, DriverError if it is silent.
        """

    @abstractmethod
    def request(self, request: Request) -> Reply | None:
        """Send a request, from any thread, without blocking; a Reply comes among the frames. Return
        the Reply at once if the request cannot be sent."""

    @abstractmethod
    def reconnect(self) -> None:
        """Start over, whatever hangs: `frames` ends, and must be called again."""

    @abstractmethod
    def close(self) -> None:
        """End at once, whatever hangs. From any thread, more than once."""


def is_smi_only(source: Source) -> bool:
    """Return whether only nvidia-smi and /proc are read, so that requests are not answered."""
    return source.link is not None and source.link.kind == "nvidia-smi"
