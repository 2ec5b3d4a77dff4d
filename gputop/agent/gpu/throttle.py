"""What holds the clocks back, now and since the first look."""

from __future__ import annotations

from typing import ClassVar

import pynvml

from gputop.agent.gpu import sanity
from gputop.agent.gpu.board import QUICK
from gputop.agent.gpu.counters import Gained
from gputop.agent.gpu.section import Ask, Fields
from gputop.model import sections

_BITS = {
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "hw_slowdown": 0x08,
    "sw_thermal_slowdown": 0x20,
    "sw_power_cap": 0x04,
    "sync_boost": 0x10,
}
"""Of nvmlClocksEventReason*. Being idle, and clocks that somebody set, hold nothing back."""
_COUNTERS = {
    "hw_thermal_slowdown": 270,
    "hw_power_brake_slowdown": 271,
    "sw_thermal_slowdown": 269,
    "sw_power_cap": pynvml.NVML_FI_DEV_PERF_POLICY_POWER,
    "sync_boost": pynvml.NVML_FI_DEV_PERF_POLICY_SYNC_BOOST,
}
"""NVML_FI_DEV_CLOCKS_EVENT_REASON_*: nanoseconds. nvidia-smi writes them as microseconds."""


class Throttle:
    """Remembers the counters."""

    name: ClassVar[str] = "throttle"
    every: ClassVar[float] = QUICK
    fields: ClassVar[tuple[int, ...]] = tuple(_COUNTERS.values())

    def __init__(self) -> None:
        self._held = {name: Gained() for name in _COUNTERS}
        self._since: float | None = None

    def read(self, ask: Ask, fields: Fields, now: float) -> sections.Throttle | None:
        """As `Section.read`; drivers before R535 have the second call alone."""
        bits = ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons)
        if bits is None:
            bits = ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        shares = self._shares(fields, now)
        if bits is None:
            return None
        reasons = tuple(name for name, bit in _BITS.items() if bits & bit)
        return sections.Throttle(reasons=reasons, shares=shares)

    def _shares(self, fields: Fields, now: float) -> dict[str, float]:
        """Empty at the first look."""
        if self._since is None:
            self._since = now
        passed = (now - self._since) * 1e9
        held = {
            name: self._held[name].add(sanity.counter(fields.get(field)))
            for name, field in _COUNTERS.items()
        }
        return {
            name: round(min(1.0, nanoseconds / passed), 4)
            for name, nanoseconds in held.items()
            if nanoseconds is not None and passed > 0
        }
