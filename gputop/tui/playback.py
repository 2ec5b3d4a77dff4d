"""Which instant of a past is shown, and which comes next."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from math import inf, nextafter

from gputop.model.machine.frame import Frame
from gputop.model.machine.text import date_time
from gputop.model.metrics.history import RECENT, History
from gputop.sources.source import Past

SPEEDS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
"""Seconds of a past that pass in one second, for the keys 1 to 9."""
_LEADING = 900.0
"""Seconds of history to read before what is shown, or `RECENT` frames if they reach further."""
_GAP, _LEAST_GAP = 2.5, 5.0
"""A gap between two frames is longer than this many intervals, and than this many seconds."""
_AT_ONCE = 24
"""Frames that are read while a key waits: reading one and adding it takes about 1 ms."""


class Playback:
    """An instant of a past, and the history that leads up to it.

    The methods that move it raise SourceError if the past cannot be read.
    """

    def __init__(self, past: Past, live: History | None = None) -> None:
        """`live`: the history of a machine that is watched, which has all of the past. Without it,
        a history is made from the frames."""
        self._past, self._live = past, live
        self._name = "the recording" if live is None else "history"
        self.frame: Frame | None = None
        """The frame that is shown; None before `go`."""
        self.history = History()
        """The history that leads up to this frame."""
        self.note = ""
        """A note about the last move; may be empty."""
        self.is_at_end = False
        """Whether the last move went beyond the last frame."""
        self.is_running = False
        self.speed = SPEEDS[0]
        self._clock = 0.0
        """The time that a run has reached, which may lie between two frames."""
        self._whole = History()
        """The history up to `_reach`, the latest frame that was shown since the last leap."""
        self._reach = -inf
        self._filling: tuple[History, Iterator[Frame]] | None = None
        """A longer history that is being read, and its frames that are still to be read."""

    def go(self, when: float) -> None:
        """Show the last frame at or before a time, or the first of all."""
        self._show(self._index(when))
        if self._past.times and when > self._past.times[-1]:
            self.note = f"{self._name} ends at {date_time(self._past.times[-1])}"
        elif self._is_gap(index := self._index(when)):
            self._say_gap(index)

    def step(self, count: int) -> None:
        """Move by `count` frames, back if it is negative."""
        self._move(self._index(self.time) + count)

    def skip(self, seconds: float) -> None:
        """Move by some seconds, back if they are negative, and by at least one frame."""
        here, there = self._index(self.time), self._index(self.time + seconds)
        self._move(max(there, here + 1) if seconds > 0 else min(there, here - 1))

    def advance(self, seconds: float) -> bool:
        """Run on for some seconds of real time, if it runs; skip a gap at once. Return whether
        the frame has changed or the run has ended."""
        if not self.is_running:
            return False
        self._clock = clock = self._clock + seconds * self.speed
        times, here = self._past.times, self._index(self.time)
        there = min(self._index(clock), here + _AT_ONCE)
        if self._is_gap(here):
            there = here + 1
        elif here + 1 == len(times):
            there, self.is_running = here + 1, False
        if there == here:
            return False
        behind = there == here + _AT_ONCE
        self._move(there)
        if not (self.note or behind):
            self._clock = clock
        return True

    @property
    def time(self) -> float:
        """The time of the frame that is shown, in seconds since the epoch; -inf before `go`."""
        return -inf if self.frame is None else self.frame.time

    @property
    def is_filling(self) -> bool:
        """Whether part of the history has yet to be read."""
        return self._filling is not None

    def fill(self) -> bool:
        """Read some of what the history still lacks; return whether the history was replaced."""
        if self._filling is None:
            return False
        history, frames = self._filling
        some = list(islice(frames, _AT_ONCE))
        for frame in some:
            history.append(frame)
        if len(some) == _AT_ONCE:
            return False
        self._whole, self._filling = history, None
        self.history = history.copy(until=self.time)
        return True

    def _up_to_reach(self, since: float) -> Iterator[Frame]:
        """Yield the frames from a time up to `_reach`, which may grow meanwhile."""
        until = -inf
        while until < self._reach:
            until = self._reach
            yield from self._past.frames(since, until)
            since = nextafter(until, inf)

    def run(self, speed: int | None = None) -> None:
        """Run at a speed; without one, start or stop."""
        self.is_running = speed is not None or not self.is_running
        self.speed, self.note = speed or self.speed, ""

    def _index(self, when: float) -> int:
        """Return the place of the last frame at or before a time; -1 before the first."""
        return bisect_right(self._past.times, when) - 1

    def _move(self, index: int) -> None:
        """Show the frame at a place in the order, and note a gap that the move crosses."""
        before = self._index(self.time)
        self._show(index)
        first, last = sorted((before, self._index(self.time)))
        for between in range(first, last):
            if self._is_gap(between):
                self._say_gap(between)

    def _show(self, index: int) -> None:
        times = self._past.times
        self.note, self.is_at_end = "", index >= len(times)
        if not times:
            return
        if index < 0:
            self.note = f"{self._name} begins at {date_time(times[0])}"
        elif self.is_at_end:
            self.note = f"{self._name} ends at {date_time(times[-1])}"
        when = times[min(max(0, index), len(times) - 1)]
        frame = self._past.at(when)
        if frame is None or self.time <= frame.time < when:  # damage is skipped
            frame = next(self._past.frames(when, inf), frame)
        if frame is None:  # it was forgotten just now
            return
        if frame.time != when:
            self.note = "samples that cannot be read are left out"
        self.frame, self._clock = frame, frame.time
        if self._live is None:
            self._lead_up_to(frame)
        else:
            self.history = self._live.copy(until=frame.time)
            if not self.history.times:
                self.history.append(frame)

    def _is_gap(self, index: int) -> bool:
        """Return whether frames are missing after the frame at a place in the order."""
        times, frame = self._past.times, self.frame
        if frame is None or frame.interval is None or not 0 <= index < len(times) - 1:
            return False
        return times[index + 1] - times[index] > max(_LEAST_GAP, _GAP * frame.interval)

    def _say_gap(self, index: int) -> None:
        begin, end = self._past.times[index : index + 2]
        what = "recorded" if self._live is None else "read"
        self.note = f"nothing was {what} from {date_time(begin)} to {date_time(end, begin)}"

    def _lead_up_to(self, frame: Frame) -> None:
        """Set the history: from frames that are known, or from this frame alone at first."""
        whole, index = self._whole, self._index(frame.time)
        first = whole.times[0] if whole.times else inf
        if first <= frame.time <= self._reach:
            self.history = whole.copy(until=frame.time)
        elif first <= frame.time and index - self._index(self._reach) <= _AT_ONCE:
            for later in self._past.frames(nextafter(self._reach, inf), frame.time):
                whole.append(later)
            self._reach, self.history = frame.time, whole.copy(until=frame.time)
        else:
            self._whole, self._reach, self._filling = History(), frame.time, None
            self._whole.append(frame)
            self.history, first = self._whole, frame.time
        times = self._past.times
        since = max(times[0], min(frame.time - _LEADING, times[max(0, index - RECENT)]))
        is_short = frame.time - first < (frame.time - since) / 2
        if self._filling is None and is_short and since < first:
            self._filling = History(), self._up_to_reach(since)
