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

from gputop.model.sections import Activity

WINDOW = 30.0
"""Seconds that are looked back on."""
FEWEST = 3
"""Looks without which nothing is said; they may be older than the window."""

IDLE = 0.02
"""SMs in use under which nothing runs: a display, a monitor."""
GAPS = 0.7
"""Share of time with something running under which the GPU waits for work."""
BURST, STALL, STALLS = 0.4, 0.1, 2
"""It also waits if SM activity falls from over BURST to under STALL so often."""
LIGHT = 0.25
"""SMs in use under which kernels are too small for the GPU, however long they run."""
MEMORY_HIGH = 0.6
"""Bandwidth of the memory in use; nobody reaches all of it."""
PIPE_HIGH = 0.3
"""Arithmetic pipes in use; a good training run has the tensor cores at 0.4 to 0.6."""
TENSOR_UNUSED = 0.01

BY_UTILIZATION = " (by UTIL)"
"""Ends a verdict where GPM is missing: it rests on utilization, which is the share of time with
something running, however little."""


def _percent(ratio: float) -> str:
    return f"{ratio:.0%}"


WORDS = (
    ("idle", f"under {_percent(IDLE)} of the SMs in use"),
    (
        "waiting for input",
        f"nothing runs for over {_percent(1 - GAPS)} of the time, or SM activity falls from over "
        f"{_percent(BURST)} to under {_percent(STALL)} again and again",
    ),
    ("light load", f"something runs, on under {_percent(LIGHT)} of the SMs: small kernels"),
    (
        "memory-bound",
        f"over {_percent(MEMORY_HIGH)} of the memory's bandwidth, tensor cores under "
        f"{_percent(PIPE_HIGH)}",
    ),
    (
        "tensor unused",
        f"FP32 or FP16 over {_percent(PIPE_HIGH)}, tensor cores under {_percent(TENSOR_UNUSED)}: "
        "mixed precision or TF32 would use them",
    ),
    ("compute-bound", f"tensor cores or an arithmetic pipe over {_percent(PIPE_HIGH)}"),
    ("busy", "SMs in use, and none of these"),
    (BY_UTILIZATION.strip(), "idle, waits, busy: without GPM, told from how long something ran"),
)
"""Every verdict, the first that fits counts, and what it means."""


class Recent:
    """The looks at one GPU, or at one of its instances, that a verdict rests on."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, Activity]] = deque()

    def judged(
        self, look: Activity | None, utilization: float | None, now: float
    ) -> Activity | None:
        """The look of `now` (seconds) with a verdict; without a look, the verdict alone."""
        known = look
        if known is None and utilization is not None:
            known = Activity(graphics=utilization)
        if known is not None:
            self._looks.append((now, known))
        while len(self._looks) > FEWEST and self._looks[0][0] < now - WINDOW:
            self._looks.popleft()
        said = verdict([one for _, one in self._looks])
        if look is not None:
            return replace(look, verdict=said)
        return None if said is None else Activity(verdict=said)


def verdict(looks: Sequence[Activity]) -> str | None:
    """One of WORDS for looks in their order; None where there are too few."""
    measured = [look for look in looks if look.sm is not None]
    if len(measured) >= FEWEST:
        # What was before the job started says nothing of it.
        at_work = list(dropwhile(lambda look: (look.sm or 0.0) < IDLE, measured))
        return _doing(at_work) if len(at_work) >= FEWEST else "idle"
    told = [look.graphics for look in looks if look.graphics is not None]
    if measured or len(told) < FEWEST:
        return None
    return _by_utilization(told) + BY_UTILIZATION


def _doing(looks: Sequence[Activity]) -> str:
    sm = _mean(look.sm for look in looks)
    tensor = _mean(look.tensor for look in looks)
    single = max(_mean(look.fp32 for look in looks), _mean(look.fp16 for look in looks))
    double = _mean(look.fp64 for look in looks)
    graphics = [look.graphics for look in looks if look.graphics is not None]
    if (graphics and _mean(graphics) < GAPS) or _falls(look.sm for look in looks) >= STALLS:
        return "waiting for input"
    if sm < LIGHT:
        return "light load"
    if _mean(look.dram for look in looks) >= MEMORY_HIGH and tensor < PIPE_HIGH:
        return "memory-bound"
    has_tensor_cores = any(look.tensor is not None for look in looks)
    if single >= PIPE_HIGH and tensor < TENSOR_UNUSED and has_tensor_cores:
        return "tensor unused"
    return "compute-bound" if max(tensor, single, double) >= PIPE_HIGH else "busy"


def _by_utilization(ratios: Sequence[float]) -> str:
    at_work = list(dropwhile(lambda ratio: ratio < IDLE, ratios))
    if len(at_work) < FEWEST:
        return "idle"
    return "waits" if _mean(at_work) < GAPS or _falls(at_work) >= STALLS else "busy"


def _mean(values: Iterable[float | None]) -> float:
    """Of those that are known; 0 where none is: it is over no threshold."""
    known = [value for value in values if value is not None]
    return fsum(known) / len(known) if known else 0.0


def _falls(values: Iterable[float | None]) -> int:
    """How often a value went from a burst to a stall, over whatever is between."""
    falls, high = 0, False
    for value in values:
        if value is not None and value >= BURST:
            high = True
        elif value is not None and value <= STALL:
            falls, high = falls + high, False
    return falls
