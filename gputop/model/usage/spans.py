"""How long each frame of a recording stands for, and which times are not recorded.

A frame stands for the time since the frame before it, in which the driver took the frame's samples.
The first frame, and the first one after a gap, stand for no time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from gputop.model.machine.frame import Frame

_LATE = 2.5
"""Intervals after which the next frame counts as missing: one may be late or lost."""
_USUAL = 10.0
"""The assumed interval in seconds of frames that do not have one."""


class Coverage(msgspec.Struct):
    """How much of a span of time is recorded of one host. Seconds, and seconds since the epoch."""

    since: float
    until: float
    recorded: float = 0.0
    missing: float = 0.0
    """In gaps: no frame stands for this time, so nothing counts as held in it."""
    gaps: int = 0
    unread: float = 0.0
    """The part of `recorded` in which the driver could not be read."""

    @property
    def span(self) -> float:
        """Seconds of the whole span."""
        return self.until - self.since

    def add_gap(self, seconds: float) -> None:
        """Count time without frames."""
        self.missing += seconds
        self.gaps += 1


def longest_span(frame: Frame) -> float:
    """Return the seconds after a frame beyond which the next one counts as missing."""
    return _LATE * (frame.interval or _USUAL)


def spans(frames: Iterable[Frame], coverage: Coverage) -> Iterator[tuple[Frame, float]]:
    """Yield the frames of one host, each with the seconds that it stands for; count these, and the
    gaps, in `coverage`."""
    before: Frame | None = None
    for frame in frames:
        seconds = _span(before, frame, coverage)
        coverage.recorded += seconds
        if frame.problem is not None:
            coverage.unread += seconds
        yield frame, seconds
        before = frame
    if before is None:
        coverage.add_gap(coverage.span)
    elif (rest := coverage.until - before.time) > longest_span(before):
        coverage.add_gap(rest)


def _span(before: Frame | None, frame: Frame, coverage: Coverage) -> float:
    """Return the seconds from one frame to the next, 0 if there is a gap between them or the clock
    was set back."""
    since = coverage.since if before is None else before.time
    seconds = frame.time - since
    if seconds > longest_span(before or frame):
        coverage.add_gap(seconds)
        return 0.0
    return 0.0 if before is None else max(0.0, seconds)
