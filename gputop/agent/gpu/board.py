"""Sections about the board: identity, BAR1, engines, clocks and what holds them back, power,
temperatures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pynvml

from gputop.agent.gpu import validate
from gputop.agent.gpu.sections import (
    NEVER,
    OFTEN,
    QUICK,
    SELDOM,
    Ask,
    CounterTotal,
    Fields,
    Section,
    first_of,
)
from gputop.model.health.throttle import THROTTLE_REASONS
from gputop.model.machine import sections

_FROM_KEPLER = ("Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Ampere", "Ada Lovelace",
                "Hopper", "Blackwell")  # fmt: skip
_ARCHITECTURES: dict[int | None, str] = {
    **dict(enumerate(_FROM_KEPLER, start=pynvml.NVML_DEVICE_ARCH_KEPLER)),
    13: "Rubin",  # nvidia-ml-py names it from 13 on
}
"""Keyed by NVML_DEVICE_ARCH_*."""
_VIRTUALIZATION: dict[int | None, str] = dict(
    enumerate(("none", "passthrough", "vgpu", "host_vgpu", "host_vsga"))
)
_HELD_BACK = {
    name: reason.counter for name, reason in THROTTLE_REASONS.items() if reason.counter is not None
}
_THROTTLE_REASONS = (
    pynvml.nvmlDeviceGetCurrentClocksEventReasons,
    pynvml.nvmlDeviceGetCurrentClocksThrottleReasons,  # before R535
)
_LASTING = 3
"""Readings in a row after which a throttle reason counts as lasting."""
_ENERGY = pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION
_clock, _max_clock = pynvml.nvmlDeviceGetClockInfo, pynvml.nvmlDeviceGetMaxClockInfo
_threshold = pynvml.nvmlDeviceGetTemperatureThreshold


def capability(numbers: Sequence[int] | None) -> str | None:
    """Return a compute capability such as `9.0`, from NVML's two numbers."""
    return None if not numbers or not 0 < numbers[0] < 100 else ".".join(map(str, numbers))


def _text(text: str | None) -> str | None:
    return validate.text(text.strip()) or None if text else None


def _share(answer: Sequence[int] | None) -> float | None:
    """Return the ratio in an answer of a percentage and its sample period."""
    return validate.ratio(answer[0]) if answer else None


def _positive_celsius(degrees: float | None) -> float | None:
    return validate.positive(validate.celsius(degrees))


def _bar1(info: Any) -> tuple[int | None, int | None]:
    if info is None:
        return None, None
    total = validate.positive(validate.memory(info.bar1Total))
    return total, validate.memory(info.bar1Used, total)


class IdentitySection(Section):
    """Identity, which is asked for once."""

    name, kind, every = "identity", sections.Identity, NEVER
    calls = {
        "serial": (_text, pynvml.nvmlDeviceGetSerial),
        "vbios": (_text, pynvml.nvmlDeviceGetVbiosVersion),
        "architecture": (_ARCHITECTURES.get, pynvml.nvmlDeviceGetArchitecture),
        "virtualization": (_VIRTUALIZATION.get, pynvml.nvmlDeviceGetVirtualizationMode),
    }
    capability: str | None = None
    """The compute capability, which the reader of the GPU needs before all else."""

    def other_values(self, ask: Ask, fields: Fields, now: float) -> dict[str, Any]:
        return {"compute_capability": self.capability}


class Bar1Section(Section):
    """BAR1, the aperture through which the PCI bus sees the memory; only its use changes."""

    name, kind, every = "bar1", sections.Bar1Memory, SELDOM
    calls = {("total", "used"): (_bar1, pynvml.nvmlDeviceGetBAR1MemoryInfo)}


class EnginesSection(Section):
    """Video and image engines, with one call for each."""

    name, kind, every = "engines", sections.Engines, OFTEN
    calls = {
        "encoder": (_share, pynvml.nvmlDeviceGetEncoderUtilization),
        "decoder": (_share, pynvml.nvmlDeviceGetDecoderUtilization),
        "jpeg": (_share, pynvml.nvmlDeviceGetJpgUtilization),
        "ofa": (_share, pynvml.nvmlDeviceGetOfaUtilization),
    }


class ClocksSection(Section):
    """Clocks; the highest ones are asked for once."""

    name, kind, every = "clocks", sections.Clocks, OFTEN
    calls = {
        "graphics": (validate.hertz, _clock, pynvml.NVML_CLOCK_GRAPHICS),
        "video": (validate.hertz, _clock, pynvml.NVML_CLOCK_VIDEO),
    }
    fixed = {
        "graphics_max": (validate.highest_hertz, _max_clock, pynvml.NVML_CLOCK_GRAPHICS),
        "video_max": (validate.highest_hertz, _max_clock, pynvml.NVML_CLOCK_VIDEO),
        "memory_max": (validate.highest_hertz, _max_clock, pynvml.NVML_CLOCK_MEM),
    }


class PowerSection(Section):
    """Power; limits are asked for seldom, and so is the energy, which takes an H100 with driver 580
    some 5 ms."""

    name, kind, every, slow = "power_more", sections.Power, QUICK, SELDOM
    fields = {
        "average": (validate.watts, pynvml.NVML_FI_DEV_POWER_AVERAGE),
        "instant": (validate.watts, pynvml.NVML_FI_DEV_POWER_INSTANT),
    }
    slow_fields = {"energy": (_ENERGY,)}
    slow_calls = {
        "limit_default": (validate.limit, pynvml.nvmlDeviceGetPowerManagementDefaultLimit),
        ("limit_min", "limit_max"): (
            validate.pair(validate.limit), pynvml.nvmlDeviceGetPowerManagementLimitConstraints
        ),
    }  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._energy = CounterTotal()

    def slow_values(self, ask: Ask, fields: Fields) -> dict[str, Any]:
        count = fields.get(_ENERGY)
        if count is None:
            count = ask(pynvml.nvmlDeviceGetTotalEnergyConsumption)
        millijoules = self._energy.add(validate.counter(count))
        energy = None if millijoules is None else millijoules / 1000
        return {**super().slow_values(ask, fields), "energy": energy}


class ThermalSection(Section):
    """Temperatures. Fixed thresholds are asked for once; `with_margin` adds a missing margin. That
    of the driver takes an H200 1 ms."""

    name, kind, every, slow = "thermal", sections.Thermal, QUICK, OFTEN
    fields = {"memory": (_positive_celsius, pynvml.NVML_FI_DEV_MEMORY_TEMP)}
    slow_calls = {"margin": (validate.margin, pynvml.nvmlDeviceGetMarginTemperature)}
    fixed = {
        "slowdown": (_positive_celsius, _threshold, pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
        "shutdown": (_positive_celsius, _threshold, pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN),
    }


def with_margin(thermal: Any, temperature: float | None) -> sections.Thermal | None:
    """Return thermal; without a T.Limit its margin is what is left to the slowdown threshold."""
    if not isinstance(thermal, sections.Thermal):
        return None
    if thermal.margin is not None or thermal.slowdown is None or temperature is None:
        return thermal
    return msgspec.structs.replace(thermal, margin=thermal.slowdown - temperature)


def is_held_back(throttle: Any) -> bool:
    """Return whether there is a finding about throttling, which tells the clock."""
    reasons = throttle.reasons if isinstance(throttle, sections.Throttle) else ()
    return any(THROTTLE_REASONS[name].code for name in reasons)


class ThrottleSection(Section):
    """What holds the clocks back, now and, as shares of time, since the first reading."""

    name, kind, every, slow = "throttle", sections.Throttle, QUICK, SELDOM
    slow_fields = {"shares": tuple(_HELD_BACK.values())}

    def __init__(self) -> None:
        super().__init__()
        self._held = {name: CounterTotal() for name in _HELD_BACK}
        self._since: float | None = None
        self._shares: dict[str, float] = {}
        self._in_a_row = dict.fromkeys(THROTTLE_REASONS, 0)

    def other_values(self, ask: Ask, fields: Fields, now: float) -> dict[str, Any]:
        self._count(fields, now)
        bits = first_of(ask, _THROTTLE_REASONS)
        if bits is None:
            return {}
        for name, reason in THROTTLE_REASONS.items():
            self._in_a_row[name] = self._in_a_row[name] + 1 if bits & reason.bit else 0
        return {
            "reasons": tuple(name for name, times in self._in_a_row.items() if times),
            "lasting": tuple(name for name, times in self._in_a_row.items() if times >= _LASTING),
            "shares": self._shares,
        }

    def _count(self, fields: Fields, now: float) -> None:
        """Take in the counters, if they were asked for: the driver needs 4 ms for them."""
        asked = {name: fields[field] for name, field in _HELD_BACK.items() if field in fields}
        if not asked:
            return
        if self._since is None:
            self._since = now
        passed = (now - self._since) * 1e9
        held = {
            name: self._held[name].add(validate.counter(count)) for name, count in asked.items()
        }
        self._shares = {
            name: round(min(1.0, nanoseconds / passed), 4)
            for name, nanoseconds in held.items()
            if nanoseconds is not None and passed > 0
        }
