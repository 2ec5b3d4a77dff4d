"""Checks the driver's numbers: one that cannot be true becomes None.

Drivers answer with sentinels (all bits set), with percentages over 100 and with memory in use
beyond the total. A wrong number is worse than none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

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
"""0..1 from a percentage; a little over 100 is 1, much over 100 is garbage."""
fan_ratio = _within(0, 200, lambda percentage: percentage / 100)
"""A fan may be driven beyond its rated speed: NVML allows more than 100 here."""
bytes_per_second = _within(0, 1 << 24, lambda mebibytes: mebibytes * (1 << 20))
"""The rate of a link, from NVML's MiB per second; the most is 16 TiB/s."""
margin = _within(-50, 250, float)
"""Degrees left to a limit; below 0 it is exceeded, so -1 is no sentinel here."""
watts = _within(0, 20_000_000, lambda milliwatts: milliwatts / 1000)
"""Watts, from NVML's milliwatts; a suspended card draws 0."""
hertz = _within(0, 20_000, lambda megahertz: int(megahertz) * 1_000_000)
"""Hertz, from NVML's megahertz."""
highest_hertz = _within(1, 20_000, lambda megahertz: int(megahertz) * 1_000_000)
pstate = _within(0, 15, int)
"""NVML_PSTATE_UNKNOWN is 32."""
units = _within(1, 1_000_000, int)
"""A number of cores or multiprocessors, 1 or more."""
rows = _within(0, 1_000_000, int)
"""A number of pages or rows of memory."""
counter = _within(0, _MOST - 1, int)
"""A number of events since some start."""
node = _within(0, 1023, int)
"""A NUMA node, below the kernel's MAX_NUMNODES; -1 means none."""
pcie_generation = _within(1, 9, int)
pcie_width = _within(1, 32, int)


def celsius(degrees: float | None) -> float | None:
    """Return a temperature; a missing sensor answers 0xFFFFFFFF, which is -1 if signed."""
    return None if degrees == -1 else margin(degrees)


def memory(count: int | None, total: int | None = None) -> int | None:
    """Return bytes; more than `total` can only be a sentinel or a counter that overflowed."""
    if count is None or not 0 <= count < _MOST:
        return None
    return None if total is not None and count > total else count


def positive(value: T | None) -> T | None:
    """Return a value that cannot be 0: a limit, a highest clock, the size of a memory."""
    return value or None


def limit(milliwatts: float | None) -> float | None:
    """Return a power limit in watts, from NVML's milliwatts; it cannot be 0."""
    return positive(watts(milliwatts))


def text(answer: str | None) -> str | None:
    """Return a name, made printable: its source may not be trustworthy."""
    return None if answer is None else printable(answer, 96)


def pair(convert: Callable[[Any], Any]) -> Callable[[Sequence[Any] | None], tuple[Any, ...]]:
    """Return a conversion of two answers in one, both None if there is none."""
    return lambda answer: tuple(map(convert, answer or (None, None)))


def flag(value: float | None) -> bool | None:
    """Return one of NVML's booleans, 0 or 1."""
    return bool(value) if value in (0, 1) else None
