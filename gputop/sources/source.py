"""What every source of frames can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from gputop.model.fleet.link import Link
from gputop.model.machine.frame import Frame
from gputop.protocol.messages import Reply, Request
from gputop.sources.past import Past

REFUSED = "only nvidia-smi and ps are read on this host: install gputop or Python 3.10 there"
"""Why a machine is not asked: there is nobody who could answer."""


class Source(ABC):
    """The frames of one machine, and what it replies."""

    host: str
    """The name by which the machine was asked for."""

    @property
    def link(self) -> Link | None:
        """How the machine is reached just now, for any thread; None where there is no way to it
        that could break."""
        return None

    @property
    def past(self) -> Past | None:
        """What can be looked at again; None where nothing is remembered."""
        return None

    def remember(self, wanted: bool) -> None:  # noqa: B027 - many remember nothing
        """Remember frames from now on, or none any more, and forget those before; nothing to do
        where the past is there in any case, or never."""

    @abstractmethod
    def frames(self) -> Iterator[Frame | Reply]:
        """Yield frames and replies in the order of their arrival, until `close` or `reconnect`.

        It blocks between them. Left before its end and called again it goes on where it was. By
        one thread at a time. SourceError if it breaks, DriverError if it is silent.
        """

    @abstractmethod
    def request(self, request: Request) -> None:
        """Send a request, from any thread, without blocking; a Reply comes among the frames."""

    @abstractmethod
    def reconnect(self) -> None:
        """Begin anew, whatever hangs: `frames` ends, and is to be called again."""

    @abstractmethod
    def close(self) -> None:
        """End, at once and whatever hangs; from any thread, more than once."""


def is_poor(source: Source) -> bool:
    """Return whether nvidia-smi and ps are all that is read, and nobody answers questions."""
    return source.link is not None and source.link.how == "poor"
