"""Types for argparse: points of time, as a date or so long before another one."""

from __future__ import annotations

import argparse
import time
from typing import NamedTuple

from gputop.commands.quantities import duration

_FORMATS = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d")
_ago = duration("a time")


class Ago(NamedTuple):
    """So long before the end of what is asked for."""

    seconds: float

    def before(self, end: float) -> float:
        """Return the point of time, seconds since the epoch."""
        return end - self.seconds


class Moment(NamedTuple):
    """A point of time by the clock on the wall."""

    time: float

    def before(self, _end: float) -> float:
        """Return it, seconds since the epoch."""
        return self.time


def moment(text: str) -> Ago | Moment:
    """Return what `7d`, `2026-11-21` or `2026-11-21 03:00` means, in local time."""
    for form in _FORMATS:
        try:
            return Moment(time.mktime(time.strptime(text.replace("T", " "), form)))
        except (ValueError, OverflowError):
            continue
    try:
        return Ago(_ago(text))
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time, as 12h, 7d, 2026-11-21 or '2026-11-21 03:00'"
        ) from None
