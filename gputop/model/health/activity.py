"""What a GPU has been doing for the last half minute, in words.

The thresholds are gputop's own: round numbers between the values of real jobs of each kind. They
tell kinds of work apart, and do not grade them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import dropwhile
from math import fsum

from msgspec.structs import replace

from gputop.model.machine.sections import Activity

WINDOW = 30.0
"""Seconds of the past that DOING is about."""
FEWEST = 3
"""Samples that it needs at least; they may be older than the window."""

IDLE = 0.02
"""Share of SMs in use under which a GPU is called idle: a display or a monitor needs less."""
GAPS = 0.7
"""Share of time with something running under which a GPU is said to wait for work."""
BURST, STALL, STALLS = 0.4, 0.1, 2
"""It also waits if SM activity falls from over BURST to under STALL at least STALLS times."""
LIGHT = 0.25
"""Share of SMs in use under which the work is too small for the GPU, however long it runs."""
MEMORY_HIGH = 0.6
"""Share of the memory's bandwidth in use; no program reaches all of it."""
PIPE_HIGH = 0.3
"""Share of arithmetic pipes in use; a good training run has the tensor cores at 0.4 to 0.6."""
TENSOR_UNUSED = 0.01

BY_UTILIZATION = " (by UTIL)"
"""Ends what is said without GPM, from utilization: the share of time with something running,
however little."""

WORDS = (
    ("idle", f"under {IDLE:.0%} of the SMs in use"),
    (
        "waiting for input",
        f"no work for over {1 - GAPS:.0%} of the time, or SM activity falls from over "
        f"{BURST:.0%} to under {STALL:.0%} repeatedly",
    ),
    ("light load", f"something runs on under {LIGHT:.0%} of the SMs: too little work for the GPU"),
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
"""Everything that a GPU can be doing and what it means; the first that fits counts."""


class ActivityWindow:
    """The samples of one GPU, or of one of its instances, in the last half minute."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Activity]] = deque()

    def add(
        self, sample: Activity | None, utilization: float | None, now: float
    ) -> Activity | None:
        """Add the sample of `now` (seconds), and return it with `doing`; without one, only that."""
        activity = sample
        if activity is None and utilization is not None:
            activity = Activity(graphics=utilization)
        if activity is not None:
            self._samples.append((now, activity))
        while len(self._samples) > FEWEST and self._samples[0][0] < now - WINDOW:
            self._samples.popleft()
        doing = activity_words([activity for _, activity in self._samples])
        if sample is not None:
            return replace(sample, doing=doing)
        return None if doing is None else Activity(doing=doing)


def activity_words(activities: Sequence[Activity]) -> str | None:
    """Return one of WORDS for samples in their order; None if there are too few."""
    measured = [activity for activity in activities if activity.sm is not None]
    if len(measured) >= FEWEST:
        # Samples from before the job started say nothing about it.
        at_work = list(dropwhile(lambda activity: (activity.sm or 0.0) < IDLE, measured))
        if len(at_work) < FEWEST:
            return "idle"
        return _measured_words(at_work, began=len(at_work) < len(measured))
    ratios = [activity.graphics for activity in activities if activity.graphics is not None]
    if measured or len(ratios) < FEWEST:
        return None
    return _utilization_words(ratios) + BY_UTILIZATION


def _measured_words(activities: Sequence[Activity], began: bool) -> str:
    sm = _mean(activity.sm for activity in activities)
    tensor = _mean(activity.tensor for activity in activities)
    single = max(
        _mean(activity.fp32 for activity in activities),
        _mean(activity.fp16 for activity in activities),
    )
    double = _mean(activity.fp64 for activity in activities)
    graphics = [activity.graphics for activity in activities if activity.graphics is not None]
    if began:
        del graphics[:1]  # it may be a mean that reaches back to before the work
    if (graphics and _mean(graphics) < GAPS) or _drops(
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


def _utilization_words(ratios: Sequence[float]) -> str:
    at_work = list(dropwhile(lambda ratio: ratio < IDLE, ratios))
    if len(at_work) < FEWEST:
        return "idle"
    return "waiting for input" if _mean(at_work) < GAPS or _drops(at_work) >= STALLS else "busy"


def _mean(values: Iterable[float | None]) -> float:
    """Return the mean of the known values; 0, which is over no threshold, if none is known."""
    measured = [value for value in values if value is not None]
    return fsum(measured) / len(measured) if measured else 0.0


def _drops(values: Iterable[float | None]) -> int:
    """Return how often a value fell from a burst to a stall, with anything in between."""
    falls, high = 0, False
    for value in values:
        if value is not None and value >= BURST:
            high = True
        elif value is not None and value <= STALL:
            falls, high = falls + high, False
    return falls
