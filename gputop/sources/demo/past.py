"""The past of the invented machine: it can be made again."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator

from gputop.model.machine.frame import Frame

_SECONDS = 900.0


class DemoPast:
    """The frames of the last quarter of an hour."""

    def __init__(self, make: Callable[[float], Frame]) -> None:
        """`make` returns the frame of a time."""
        self._make = make
        self.times: list[float] = []

    def add(self, when: float) -> None:
        """Remember that there was a frame."""
        self.times = [*self.times[bisect_left(self.times, when - _SECONDS) :], when]

    def at(self, when: float) -> Frame | None:
        """See `Past`."""
        index = bisect_right(self.times, when)
        return self._make(self.times[index - 1]) if index else None

    def frames(self, since: float, until: float) -> Iterator[Frame]:
        """See `Past`."""
        times = self.times
        yield from map(self._make, times[bisect_left(times, since) : bisect_right(times, until)])
