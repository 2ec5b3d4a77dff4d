"""What a graph shows: which values stand where in time, how far up it goes, and its words."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import floor, inf, log2, log10
from typing import Any

from gputop.model.gpu import Gpu
from gputop.model.gpu_metrics import GPU
from gputop.model.metrics import Metric

SPANS = (60.0, 300.0, 900.0)
"""Seconds that a graph may show."""

_CEILINGS = {
    "memory_used": "memory_total",
    "bar1.used": "bar1.total",
    "power": "power_limit",
    "power_more.instant": "power_limit",
    "sm_clock": "sm_clock_max",
    "memory_clock": "clocks.memory_max",
}
_BOILING = 100.0
_UNITS = {"0..1": "%", "W": " W", "Hz": " MHz", "B/s": " B/s"}


def fitting(times: Sequence[float], longest: float = SPANS[-1]) -> float:
    """The shortest span that has room for all of these times, as long as that is not too long."""
    past = times[-1] - times[0] if times else 0.0
    return min(next((span for span in SPANS if span >= past), longest), longest)


def begin_of(last: float, span: float, cells: int) -> float:
    """Where a graph of so many cells begins that has the time `last` in its last cell: at a
    multiple of a cell, so that what was drawn moves by whole cells."""
    cell = span / cells
    return (floor(last / cell) + 1 - cells) * cell


def dots(times: Sequence[float], begin: float, width: float, count: int) -> list[tuple[int, int]]:
    """Of which slots each of `count` dots of `width` seconds tells: from, to.

    Those that begin within it; where none does, the one before, which holds until the next.
    """
    edges = [bisect_left(times, begin + width * n) for n in range(count + 1)]
    return [(a, z) if a < z else (a - 1, a) for a, z in pairwise(edges)]


def line(values: Sequence[float], slots: Iterable[tuple[int, int]], count: int) -> list[float]:
    """The greatest value in each dot; minus infinity where there is none.

    `values` are those of the newest of `count` slots.
    """
    missing = count - len(values)
    found = []
    for a, z in slots:
        a, z = max(a - missing, 0), z - missing
        if z - a == 1:
            found.append(values[a])
        else:
            found.append(max(values[a:z]) if z > a else -inf)
    return found


def ceiling(gpus: Iterable[Gpu], id_: str, peak: float) -> float:
    """How far up a graph goes: what the card can do, 100 %, 100 degrees, or a round number that
    is not below the peak."""
    metric = GPU[id_]
    if metric.unit == "0..1":
        return max(1.0, peak)
    if metric.unit == "Celsius":
        return max(_BOILING, peak)
    of = _CEILINGS.get(id_)
    known = [top for gpu in gpus if of and (top := GPU[of].read(gpu)) is not None]
    return float(max([*known, peak])) if known else _round(peak, metric.unit)


def with_unit(metric: Metric[Gpu], value: Any, degree: str) -> str:
    """A value and its unit, where the text does not have it; `degree` is the terminal's sign."""
    unit = f"{degree}C" if metric.unit == "Celsius" else _UNITS.get(metric.unit, "")
    return f"{metric.show(value)}{unit if isinstance(value, int | float) else ''}"


def _round(peak: float, unit: str) -> float:
    """The next power of two for bytes, else the next 1, 2 or 5."""
    if peak <= 0 or peak == inf:
        return 1.0
    if unit in ("bytes", "B/s"):
        return float(2 ** -floor(-log2(peak)))
    power = 10.0 ** floor(log10(peak))
    return next((power * step for step in (1, 2, 5) if power * step >= peak), power * 10)
