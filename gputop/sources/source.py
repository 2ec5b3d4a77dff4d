"""What every source of frames can do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from gputop.model.frame import Frame
from gputop.model.protocol import Request


class Source(Protocol):
    """Frames of one machine."""

    def frames(self) -> Iterator[Frame]:
        """Frames as they come; blocks between them, ends after `close`. SourceError if broken."""
        ...

    def request(self, request: Request) -> None:
        """Ask the other side; from any thread, without blocking."""
        ...

    def close(self) -> None:
        """End, at once and whatever hangs; from any thread, more than once."""
        ...
