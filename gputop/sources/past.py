"""A machine's past: in memory, or recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol, TypeAlias

from gputop.model.machine.frame import Frame

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
