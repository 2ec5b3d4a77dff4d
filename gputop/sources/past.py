"""What is known of a machine's past: in memory, or recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from gputop.model.machine.frame import Frame
from gputop.sources.source import Source

Moment: TypeAlias = Literal["now", "past", "replay"]
"""What a picture is of: a machine that is watched, now or before; or a recording."""


class Past(Protocol):
    """Frames of one machine by time. SourceError where it cannot be read."""

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


@runtime_checkable
class RememberingSource(Source, Protocol):
    """A source whose frames can be looked at again."""

    @property
    def past(self) -> Past | None:
        """What can be looked at now; None where nothing is remembered."""
        ...

    def remember(self, wanted: bool) -> None:
        """Remember frames from now on, or none any more, and forget those before."""
        ...
