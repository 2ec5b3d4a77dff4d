"""Which of the driver's numbers can be true; the others are None.

Drivers answer with sentinels (all bits set), with percentages over 100 and with memory in use
beyond the total. A wrong number is worse than none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gputop.model.machine.text import printable

T = TypeVar("T", int, float)

NOT_AVAILABLE_64 = 0xFFFFFFFFFFFFFFFF
_MOST = NOT_AVAILABLE_64 >> 1


def _within(
    least: float, most: float, convert: Callable[[float], T]
) -> Callable[[float | None], T | None]:
    """Return a check: None for a number outside of a range, both ends included."""

    def checked(value: float | None) -> T | None:
        return None if value is None or not least <= value <= most else convert(value)

    return checked


ratio = _within(0, 110, lambda percentage: min(percentage, 100) / 100)
"""0..1 of a percentage; a little over 100 is 1, much over 100 is garbage."""
fan_ratio = _within(0, 200, lambda percentage: percentage / 100)
"""A fan may be driven beyond its rated speed: NVML allows more than 100 here."""
bytes_per_second = _within(0, 1 << 24, lambda mebibytes: mebibytes * (1 << 20))
"""Of a link, of NVML's MiB per second; the most is 16 TiB."""
margin = _within(-50, 250, float)
"""Degrees left to a limit: below 0 it is passed, so that -1 is no sentinel here."""
watts = _within(0, 20_000_000, lambda milliwatts: milliwatts / 1000)
"""Of NVML's milliwatts; 0 is what a suspended card draws."""
hertz = _within(0, 20_000, lambda megahertz: int(megahertz) * 1_000_000)
"""Of NVML's megahertz."""
highest_hertz = _within(1, 20_000, lambda megahertz: int(megahertz) * 1_000_000)
pstate = _within(0, 15, int)
"""NVML_PSTATE_UNKNOWN is 32."""
units = _within(1, 1_000_000, int)
"""Cores or multiprocessors: some, and no sentinel."""
rows = _within(0, 1_000_000, int)
"""Pages or rows of memory."""
counter = _within(0, _MOST - 1, int)
"""What happened since some start."""
node = _within(0, 1023, int)
"""A NUMA node, of MAX_NUMNODES of a kernel; -1 is none."""
pcie_generation = _within(1, 9, int)
pcie_width = _within(1, 32, int)


def celsius(degrees: float | None) -> float | None:
    """A temperature; sensors answer 0xFFFFFFFF, which is -1 where signed, when they have none."""
    return None if degrees == -1 else margin(degrees)


def memory(count: int | None, total: int | None = None) -> int | None:
    """Bytes; more than there is can only be a sentinel or a counter that ran over."""
    if count is None or not 0 <= count < _MOST:
        return None
    return None if total is not None and count > total else count


def positive(value: T | None) -> T | None:
    """Of what cannot be 0: a limit, a highest clock, the size of a memory."""
    return value or None


def limit(milliwatts: float | None) -> float | None:
    """Watts that may be drawn: some."""
    return positive(watts(milliwatts))


def text(answer: str | None) -> str | None:
    """Of a name; who writes it may be nobody to trust."""
    return None if answer is None else printable(answer, 96)


def flag(value: float | None) -> bool | None:
    """NVML's booleans are 0 and 1."""
    return bool(value) if value in (0, 1) else None
