"""Counters of the driver that only rise; one that falls was reset, and counts on from there."""

from __future__ import annotations


class Gained:
    """What a counter has gained since the first look at it."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._total = 0

    def add(self, count: int | None) -> int | None:
        """With what it says now; None where it says nothing."""
        if count is None:
            return None
        if self._last is not None:
            self._total += max(0, count - self._last)
        self._last = count
        return self._total


class Rate:
    """How fast a counter rises."""

    def __init__(self) -> None:
        self._last: tuple[int, float] | None = None

    def per_second(self, count: int | None, now: float) -> float | None:
        """Since the look before; None where there was none, and where it fell meanwhile."""
        last, self._last = self._last, None if count is None else (count, now)
        if count is None or last is None or count < last[0] or now <= last[1]:
            return None
        return (count - last[0]) / (now - last[1])
