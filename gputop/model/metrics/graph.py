"""What a graph shows: which values stand where in time, how far up it goes, and its words."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import floor, inf, log2, log10
from typing import Any

from gputop.model.machine.gpu import Gpu
from gputop.model.metrics.gpu import GPU
from gputop.model.metrics.metric import Metric

SPANS = (60.0, 120.0, 180.0, 300.0, 600.0, 900.0)
"""Seconds that a graph may show: no past of over a minute leaves more than half of it empty."""

_CEILINGS = {
    "memory_used": "memory_total",
    "memory_unaccounted": "memory_total",
    "bar1.used": "bar1.total",
    "power": "power_limit",
    "power_more.instant": "power_limit",
    "sm_clock": "sm_clock_max",
    "memory_clock": "clocks.memory_max",
}
_BOILING = 100.0
_LEAST = {"bytes": 2.0**30, "B/s": 1e9}
"""By unit: the least top of a graph if the card's maximum is not known, so that a trifle does not
look like much."""
_LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""Bytes per second of a PCIe lane, one way, by generation: 2.5 to 64 GT/s (PCI-SIG's
specifications) less the encoding."""
_NVLINK = {"Pascal": 20e9, "Volta": 25e9, "Ampere": 25e9, "Hopper": 25e9, "Blackwell": 50e9}
"""Bytes per second of an NVLink, one way, by architecture (NVIDIA's data sheets)."""
_UNITS = {"0..1": "%", "W": " W", "Hz": " MHz"}


def fitting(times: Sequence[float], longest: float = SPANS[-1]) -> float:
    """Return the shortest of SPANS that has room for all these times, but at most `longest`."""
    past = times[-1] - times[0] if times else 0.0
    return min(next((span for span in SPANS if span >= past), longest), longest)


def window(
    times: Sequence[float], span: float, cells: int, across: int = 1
) -> tuple[float, list[tuple[int, int]]]:
    """Return when a graph of `span` seconds begins, and the slots that each of its dots shows, from
    and to: `across` dots in a cell.

    It begins at a multiple of a cell's seconds, so that the drawing moves by whole cells. A dot
    shows the slots that begin within it; if none does, the slot before, which lasts until the next.
    """
    cell, count = span / cells, cells * across
    begin = (floor(times[-1] / cell) + 1 - cells) * cell
    edges = [bisect_left(times, begin + span / count * n) for n in range(count + 1)]
    return begin, [(a, z) if a < z else (a - 1, a) for a, z in pairwise(edges)]


def line(values: Sequence[float], slots: Iterable[tuple[int, int]], count: int) -> list[float]:
    """Return the greatest value in each dot; minus infinity if there is none.

    `values` are those of the newest of `count` slots.
    """
    missing = count - len(values)
    greatest = []
    for a, z in slots:
        a, z = max(a - missing, 0), z - missing
        if z - a == 1:
            greatest.append(values[a])
        else:
            greatest.append(max(values[a:z]) if z > a else -inf)
    return greatest


def ceiling(gpus: Iterable[Gpu], id_: str, peak: float) -> float:
    """Return the top of a graph that begins at 0: the card's maximum, 100 %, 100 degrees, or if
    none is known, a round number not below the peak."""
    metric = GPU[id_]
    if metric.unit == "0..1":
        return max(1.0, peak)
    if metric.unit == "Celsius":
        return max(_BOILING, peak)
    tops = [top for gpu in gpus if (top := _most(gpu, id_))]
    if tops:
        return float(max([*tops, peak]))
    return max(_round(peak, metric.unit), _LEAST.get(metric.unit, 0.0))


def _most(gpu: Gpu, id_: str) -> float | None:
    section = id_.partition(".")[0]
    if section == "pcie" and gpu.pcie is not None:
        lane, lanes = _LANE.get(gpu.pcie.generation_max or 0), gpu.pcie.width_max
        return lane and lanes and lane * lanes
    if section == "nvlink" and gpu.nvlink is not None and gpu.identity is not None:
        links = (gpu.nvlink.up, gpu.nvlink.down, gpu.nvlink.asleep)
        return _NVLINK.get(gpu.identity.architecture or "", 0.0) * sum(n or 0 for n in links)
    most: float | None = GPU[_CEILINGS[id_]].read(gpu) if id_ in _CEILINGS else None
    return most


def with_unit(metric: Metric[Gpu], value: Any, degree: str) -> str:
    """Return a value with its unit, if the text lacks it; `degree` is the terminal's sign."""
    unit = f"{degree}C" if metric.unit == "Celsius" else _UNITS.get(metric.unit, "")
    return f"{metric.show(value)}{unit if isinstance(value, int | float) else ''}"


def _round(peak: float, unit: str) -> float:
    """Return the next power of two for bytes, otherwise the next 1, 2 or 5 times a power of ten."""
    if peak <= 0 or peak == inf:
        return 1.0
    if unit == "bytes":
        return float(2 ** -floor(-log2(peak)))
    power = 10.0 ** floor(log10(peak))
    return next((power * step for step in (1, 2, 5) if power * step >= peak), power * 10)
