"""How long each frame of a recording stands for, and which times are not recorded.

A frame stands for the time since the frame before it, in which the driver took the frame's samples.
The first frame, and the first one after a gap, stand for no time.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from gputop.model.machine.frame import Frame

Amount = Annotated[float, msgspec.Meta(ge=0, le=1e18)]
"""Seconds, joules or GPU-seconds; what was stored is checked."""
_SECOND, _JOULE = 1 << 20, 1 << 10
_LATE = 2.5
"""Intervals after which the next frame counts as missing: one may be late or lost."""
_USUAL = 10.0
"""The assumed interval in seconds of frames that do not have one."""


def whole_time(seconds: float) -> float:
    """Return seconds in multiples of 2**-20: up to 2**33 their sums are exact, so that they do not
    depend on the order in which hours and days are added."""
    return round(seconds * _SECOND) / _SECOND


def whole_energy(joules: float) -> float:
    """Return joules in multiples of 2**-10, for the same reason."""
    return round(joules * _JOULE) / _JOULE


class FrameTime(msgspec.Struct, frozen=True):
    """What the next frame needs to know of a frame."""

    time: Amount
    """Seconds since the epoch."""
    longest: Amount
    """Seconds after it beyond which the next one counts as missing."""
    counters: dict[str, Amount] = {}
    """The energy counters of its GPUs, in joules."""

    @classmethod
    def of(cls, frame: Frame, counters: dict[str, float]) -> FrameTime:
        return cls(frame.time, _LATE * (frame.interval or _USUAL), counters)


class Coverage(msgspec.Struct):
    """How much of a span of time is recorded, in seconds."""

    recorded: Amount = 0.0
    missing: Amount = 0.0
    """In gaps: no frame stands for this time, so nothing counts as held in it."""
    gaps: int = 0
    unread: Amount = 0.0
    """The part of `recorded` in which the driver could not be read."""

    def add_gap(self, seconds: float) -> None:
        """Count time without frames."""
        self.missing += whole_time(seconds)
        self.gaps += 1

    def add_time(self, before: FrameTime, now: float, is_read: bool) -> float:
        """Count the time from one frame to the next; return the seconds that the next one stands
        for, 0 if there is a gap between them or the clock was set back."""
        seconds = now - before.time
        if seconds > before.longest:
            self.add_gap(seconds)
            return 0.0
        seconds = whole_time(max(0.0, seconds))
        self.recorded += seconds
        if not is_read:
            self.unread += seconds
        return seconds

    def merge(self, other: Coverage) -> None:
        self.recorded += other.recorded
        self.missing += other.missing
        self.gaps += other.gaps
        self.unread += other.unread
