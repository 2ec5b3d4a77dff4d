"""What a GPU has been doing for the last half minute, in words.

The thresholds are of our own: round numbers between what real jobs of each kind show. They are
for telling kinds apart, not for marking.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import dropwhile
from math import fsum

from msgspec.structs import replace

from gputop.model.machine.sections import Activity

WINDOW = 30.0
"""Seconds that are looked back on."""
FEWEST = 3
"""Looks without which nothing is said; they may be older than the window."""

IDLE = 0.02
"""SMs in use under which it is called idle: a display, a monitor."""
GAPS = 0.7
"""Share of time with something running under which the GPU waits for work."""
BURST, STALL, STALLS = 0.4, 0.1, 2
"""It also waits if SM activity falls from over BURST to under STALL so often."""
LIGHT = 0.25
"""SMs in use under which the work is too small for the GPU, however long it runs."""
MEMORY_HIGH = 0.6
"""Bandwidth of the memory in use; nobody reaches all of it."""
PIPE_HIGH = 0.3
"""Arithmetic pipes in use; a good training run has the tensor cores at 0.4 to 0.6."""
TENSOR_UNUSED = 0.01

BY_UTILIZATION = " (by UTIL)"
"""Ends a verdict where GPM is missing: it rests on utilization, which is the share of time with
something running, however little."""

WORDS = (
    ("idle", f"under {IDLE:.0%} of the SMs in use"),
    (
        "waiting for input",
        f"no work for over {1 - GAPS:.0%} of the time, or SM activity falls from over "
        f"{BURST:.0%} to under {STALL:.0%} again and again",
    ),
    ("light load", f"something runs, on under {LIGHT:.0%} of the SMs: too little for it"),
    (
        "memory-bound",
        f"over {MEMORY_HIGH:.0%} of the memory's bandwidth, tensor cores under {PIPE_HIGH:.0%}",
    ),
    (
        "tensor unused",
        f"FP32 or FP16 over {PIPE_HIGH:.0%}, tensor cores under {TENSOR_UNUSED:.0%}: "
        "mixed precision or TF32 would use them",
    ),
    ("compute-bound", f"tensor cores or an arithmetic pipe over {PIPE_HIGH:.0%}"),
    ("busy", "SMs in use, and none of these"),
    (
        BY_UTILIZATION.strip(),
        "after DOING, without GPM: idle, waiting for input, busy, from samples of how long "
        "something ran",
    ),
)
"""Every verdict, the first that fits counts, and what it means."""


class Recent:
    """The looks at one GPU, or at one of its instances, that a verdict rests on."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, Activity]] = deque()

    def judged(
        self, sample: Activity | None, utilization: float | None, now: float
    ) -> Activity | None:
        """The look of `now` (seconds) with a verdict; without a look, the verdict alone."""
        activity = sample
        if activity is None and utilization is not None:
            activity = Activity(graphics=utilization)
        if activity is not None:
            self._looks.append((now, activity))
        while len(self._looks) > FEWEST and self._looks[0][0] < now - WINDOW:
            self._looks.popleft()
        words = verdict([activity for _, activity in self._looks])
        if sample is not None:
            return replace(sample, verdict=words)
        return None if words is None else Activity(verdict=words)


def verdict(activities: Sequence[Activity]) -> str | None:
    """One of WORDS for looks in their order; None where there are too few."""
    measured = [activity for activity in activities if activity.sm is not None]
    if len(measured) >= FEWEST:
        # What was before the job started says nothing of it.
        at_work = list(dropwhile(lambda activity: (activity.sm or 0.0) < IDLE, measured))
        return _doing(at_work) if len(at_work) >= FEWEST else "idle"
    ratios = [activity.graphics for activity in activities if activity.graphics is not None]
    if measured or len(ratios) < FEWEST:
        return None
    return _by_utilization(ratios) + BY_UTILIZATION


def _doing(activities: Sequence[Activity]) -> str:
    sm = _mean(activity.sm for activity in activities)
    tensor = _mean(activity.tensor for activity in activities)
    single = max(
        _mean(activity.fp32 for activity in activities),
        _mean(activity.fp16 for activity in activities),
    )
    double = _mean(activity.fp64 for activity in activities)
    graphics = [activity.graphics for activity in activities if activity.graphics is not None]
    if (graphics and _mean(graphics) < GAPS) or _falls(
        activity.sm for activity in activities
    ) >= STALLS:
        return "waiting for input"
    if sm < LIGHT:
        return "light load"
    if _mean(activity.dram for activity in activities) >= MEMORY_HIGH and tensor < PIPE_HIGH:
        return "memory-bound"
    has_tensor_cores = any(activity.tensor is not None for activity in activities)
    if single >= PIPE_HIGH and tensor < TENSOR_UNUSED and has_tensor_cores:
        return "tensor unused"
    return "compute-bound" if max(tensor, single, double) >= PIPE_HIGH else "busy"


def _by_utilization(ratios: Sequence[float]) -> str:
    at_work = list(dropwhile(lambda ratio: ratio < IDLE, ratios))
    if len(at_work) < FEWEST:
        return "idle"
    return "waiting for input" if _mean(at_work) < GAPS or _falls(at_work) >= STALLS else "busy"


def _mean(values: Iterable[float | None]) -> float:
    """Of those that are known; 0 where none is: it is over no threshold."""
    measured = [value for value in values if value is not None]
    return fsum(measured) / len(measured) if measured else 0.0


def _falls(values: Iterable[float | None]) -> int:
    """How often a value went from a burst to a stall, over whatever is between."""
    falls, high = 0, False
    for value in values:
        if value is not None and value >= BURST:
            high = True
        elif value is not None and value <= STALL:
            falls, high = falls + high, False
    return falls
