"""Instants as people write them, in local time."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from gputop.model.quantity import DURATIONS

FORMS = "2026-11-21 03:00, 03:00 or -2h"
"""The forms that may be written."""
_SPAN = re.compile(r"([+-])(\d{1,9})([smhd])", re.ASCII)
_DAY = r"(\d{4})-(\d{1,2})-(\d{1,2})"
_CLOCK = r"(\d{1,2}):(\d{2})(?::(\d{2}))?"
_DATED = re.compile(rf"{_DAY}(?:[ T]+{_CLOCK})?", re.ASCII)
_TIMED = re.compile(_CLOCK, re.ASCII)


def is_span(text: str) -> bool:
    """Whether a text is a span of time, as -2h."""
    return _SPAN.fullmatch(text) is not None


def parse_instant(text: str, base: float) -> float:
    """Return the instant that a text means, in seconds since the epoch; ValueError for none.

    A span, as -2h or +10m, counts from `base`, and 03:00 is on its day. If clocks are set back, so
    that an hour occurs twice, the first is meant; a time in an hour they skip is an hour later.
    """
    text = text.strip()
    if span := _SPAN.fullmatch(text):
        seconds = int(span[2]) * DURATIONS[span[3]]
        return base - seconds if span[1] == "-" else base + seconds
    try:
        day = datetime.fromtimestamp(base).replace(hour=0, minute=0, second=0, microsecond=0)
        clock: tuple[str | None, ...] = ()
        if dated := _DATED.fullmatch(text):
            year, month, number = map(int, dated.groups()[:3])
            day = datetime(year, month, number)
            clock = dated.groups()[3:]
        elif timed := _TIMED.fullmatch(text):
            clock = timed.groups()
        else:
            raise ValueError
        return _at(day, *(int(part or 0) for part in clock)).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r} is not a time: write {FORMS}") from None


def _at(day: datetime, hour: int = 0, minute: int = 0, second: int = 0) -> datetime:
    """Return a time of a day; 24:00 is the end of it. ValueError for no time of a day."""
    if (hour, minute, second) == (24, 0, 0):
        return day + timedelta(days=1)
    return day.replace(hour=hour, minute=minute, second=second)
