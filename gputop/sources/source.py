"""What every source of frames can do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from gputop.model.fleet.link import Link
from gputop.model.machine.frame import Frame
from gputop.protocol.messages import Reply, Request

REFUSED = "only nvidia-smi and ps are read on this host: install gputop or Python 3.10 there"
"""Why a machine is not asked: there is nobody who could answer."""


class Source(Protocol):
    """The frames of one machine, and what it replies."""

    @property
    def host(self) -> str:
        """The name by which the machine was asked for."""
        ...

    def frames(self) -> Iterator[Frame | Reply]:
        """Yield frames and replies in the order of their arrival, until `close` or `reconnect`.

        It blocks between them. Left before its end and called again it goes on where it was. By
        one thread at a time. SourceError if it breaks, DriverError if it is silent.
        """
        ...

    def request(self, request: Request) -> None:
        """Send a request, from any thread, without blocking; a Reply comes among the frames."""
        ...

    def reconnect(self) -> None:
        """Begin anew, whatever hangs: `frames` ends, and is to be called again."""
        ...

    def close(self) -> None:
        """End, at once and whatever hangs; from any thread, more than once."""
        ...


@runtime_checkable
class LinkedSource(Source, Protocol):
    """A source that is reached over a connection."""

    @property
    def link(self) -> Link:
        """How it is reached just now; for any thread."""
        ...


def is_poor(source: Source) -> bool:
    """Return whether nvidia-smi and ps are all that is read, and nobody answers questions."""
    return isinstance(source, LinkedSource) and source.link.how == "poor"
