"""Which of the driver's numbers can be true; the others are None.

Drivers answer with sentinels (all bits set), with percentages over 100 and with memory in use
beyond the total. A wrong number is worse than none.
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T", int, float)

NOT_AVAILABLE_64 = 0xFFFFFFFFFFFFFFFF
_ROUNDING = 110
_HOTTEST = 250
_MOST_OVER = 50
_MOST_POWER_MW = 20_000_000
_FASTEST_MHZ = 20_000
_FASTEST_FAN = 200
_MOST_UNITS = 1_000_000
_FASTEST_LINK = 1 << 24
"""MiB per second: 16 TiB."""


def ratio(percentage: float | None) -> float | None:
    """0..1 of a percentage; a little over 100 is 1, much over 100 is garbage."""
    if percentage is None or not 0 <= percentage <= _ROUNDING:
        return None
    return min(percentage, 100) / 100


def fan_ratio(percentage: int | None) -> float | None:
    """A fan may be driven beyond its rated speed: NVML allows more than 100 here."""
    if percentage is None or not 0 <= percentage <= _FASTEST_FAN:
        return None
    return percentage / 100


def bytes_per_second(mebibytes: float | None) -> float | None:
    """Of a link, of NVML's MiB per second."""
    if mebibytes is None or not 0 <= mebibytes <= _FASTEST_LINK:
        return None
    return mebibytes * (1 << 20)


def celsius(degrees: float | None) -> float | None:
    """A temperature; sensors answer 0xFFFFFFFF, which is -1 where signed, when they have none."""
    if degrees is None or degrees == -1 or not -50 <= degrees <= _HOTTEST:
        return None
    return float(degrees)


def margin(degrees: int | None) -> float | None:
    """Degrees left to a limit: below 0 it is passed, so that -1 is no sentinel here."""
    if degrees is None or not -_MOST_OVER <= degrees <= _HOTTEST:
        return None
    return float(degrees)


def watts(milliwatts: float | None) -> float | None:
    """Watts of NVML's milliwatts; 0 is what a suspended card draws."""
    if milliwatts is None or not 0 <= milliwatts <= _MOST_POWER_MW:
        return None
    return milliwatts / 1000


def hertz(megahertz: int | None) -> int | None:
    """Hertz of NVML's megahertz."""
    if megahertz is None or not 0 <= megahertz <= _FASTEST_MHZ:
        return None
    return megahertz * 1_000_000


def pstate(state: int | None) -> int | None:
    """0..15; NVML_PSTATE_UNKNOWN is 32."""
    return state if state is not None and 0 <= state <= 15 else None


def memory(count: int | None, total: int | None = None) -> int | None:
    """Bytes; more than there is can only be a sentinel or a counter that ran over."""
    if count is None or count < 0 or count >= NOT_AVAILABLE_64 >> 1:
        return None
    return None if total is not None and count > total else count


def positive(value: T | None) -> T | None:
    """Of what cannot be 0: a limit, a highest clock, the size of a memory."""
    return value or None


def units(count: int | None) -> int | None:
    """Cores or multiprocessors: some, and no sentinel."""
    return count if count is not None and 0 < count <= _MOST_UNITS else None


def counter(count: float | None) -> int | None:
    """What happened since some start."""
    return None if count is None or not 0 <= count < NOT_AVAILABLE_64 >> 1 else int(count)


def few(count: int | None, most: int) -> int | None:
    """Of what is one at least, and `most` at most."""
    return count if count is not None and 1 <= count <= most else None


def rows(count: int | None) -> int | None:
    """Pages or rows: none, or some, and no sentinel."""
    return count if count is not None and 0 <= count <= _MOST_UNITS else None


def flag(value: float | None) -> bool | None:
    """NVML's booleans are 0 and 1."""
    return bool(value) if value in (0, 1) else None
