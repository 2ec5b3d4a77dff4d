"""What a board says of itself: identity, BAR1, engines, clocks, power, temperatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import msgspec
import pynvml

from gputop.agent.gpu import sanity
from gputop.agent.gpu.counters import Gained
from gputop.agent.gpu.section import Ask, Fields, Section
from gputop.model import sections
from gputop.model.text import printable

S = TypeVar("S")

NEVER = float("inf")
"""Seconds between two looks at what does not change."""
QUICK, OFTEN, SELDOM = 2.0, 5.0, 10.0
"""What a person waits for; what moves as well; and what only an administrator changes."""

_ARCHITECTURES: dict[int | None, str] = {
    pynvml.NVML_DEVICE_ARCH_KEPLER: "Kepler",
    pynvml.NVML_DEVICE_ARCH_MAXWELL: "Maxwell",
    pynvml.NVML_DEVICE_ARCH_PASCAL: "Pascal",
    pynvml.NVML_DEVICE_ARCH_VOLTA: "Volta",
    pynvml.NVML_DEVICE_ARCH_TURING: "Turing",
    pynvml.NVML_DEVICE_ARCH_AMPERE: "Ampere",
    pynvml.NVML_DEVICE_ARCH_ADA: "Ada Lovelace",
    pynvml.NVML_DEVICE_ARCH_HOPPER: "Hopper",
    pynvml.NVML_DEVICE_ARCH_BLACKWELL: "Blackwell",
    13: "Rubin",  # nvidia-ml-py names it from 13 on
}
_VIRTUALIZATION: dict[int | None, str] = {
    0: "none",
    1: "passthrough",
    2: "vgpu",
    3: "host_vgpu",
    4: "host_vsga",
}
_ENGINES = {
    "encoder": pynvml.nvmlDeviceGetEncoderUtilization,
    "decoder": pynvml.nvmlDeviceGetDecoderUtilization,
    "jpeg": pynvml.nvmlDeviceGetJpgUtilization,
    "ofa": pynvml.nvmlDeviceGetOfaUtilization,
}
_HIGHEST = {
    "graphics_max": pynvml.NVML_CLOCK_GRAPHICS,
    "video_max": pynvml.NVML_CLOCK_VIDEO,
    "memory_max": pynvml.NVML_CLOCK_MEM,
}
_THRESHOLDS = {
    "slowdown": pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,
    "shutdown": pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN,
}


def known(kind: Callable[..., S], **values: Any) -> S | None:
    """The section of those values; None where the driver has none of them."""
    return None if all(value is None for value in values.values()) else kind(**values)


class Fixed:
    """Values that do not change: each is asked for until it is known."""

    def __init__(self, **asks: Callable[[Ask], Any]) -> None:
        self._asks = asks
        self._values: dict[str, Any] = dict.fromkeys(asks)

    def read(self, ask: Ask) -> dict[str, Any]:
        """All of them by name."""
        for name, value in self._values.items():
            if value is None:
                self._values[name] = self._asks[name](ask)
        return self._values


class Identity:
    """Asked once."""

    name: ClassVar[str] = "identity"
    every: ClassVar[float] = NEVER
    fields: ClassVar[tuple[int, ...]] = ()

    def read(self, ask: Ask, fields: Fields, now: float) -> sections.Identity | None:
        """As `Section.read`."""
        capability = ask(pynvml.nvmlDeviceGetCudaComputeCapability)
        return known(
            sections.Identity,
            serial=_text(ask(pynvml.nvmlDeviceGetSerial)),
            vbios=_text(ask(pynvml.nvmlDeviceGetVbiosVersion)),
            architecture=_ARCHITECTURES.get(ask(pynvml.nvmlDeviceGetArchitecture)),
            compute_capability=_capability(capability),
            virtualization=_VIRTUALIZATION.get(ask(pynvml.nvmlDeviceGetVirtualizationMode)),
        )


class Bar1:
    """Of which only what is used moves."""

    name: ClassVar[str] = "bar1"
    every: ClassVar[float] = SELDOM
    fields: ClassVar[tuple[int, ...]] = ()

    def read(self, ask: Ask, fields: Fields, now: float) -> sections.Bar1 | None:
        """As `Section.read`."""
        info = ask(pynvml.nvmlDeviceGetBAR1MemoryInfo)
        if info is None:
            return None
        total = sanity.positive(sanity.memory(info.bar1Total))
        return known(sections.Bar1, total=total, used=sanity.memory(info.bar1Used, total))


class Engines:
    """Each has a call of its own."""

    name: ClassVar[str] = "engines"
    every: ClassVar[float] = OFTEN
    fields: ClassVar[tuple[int, ...]] = ()

    def read(self, ask: Ask, fields: Fields, now: float) -> sections.Engines | None:
        """As `Section.read`."""
        answers = {name: ask(call) for name, call in _ENGINES.items()}
        busy = {name: sanity.ratio(told[0]) if told else None for name, told in answers.items()}
        return known(sections.Engines, **busy)


class Clocks:
    """The highest are asked for once."""

    name: ClassVar[str] = "clocks"
    every: ClassVar[float] = OFTEN
    fields: ClassVar[tuple[int, ...]] = ()

    def __init__(self) -> None:
        self._highest = Fixed(**{name: _highest_clock(kind) for name, kind in _HIGHEST.items()})

    def read(self, ask: Ask, fields: Fields, now: float) -> sections.Clocks | None:
        """As `Section.read`."""
        clock = pynvml.nvmlDeviceGetClockInfo
        return known(
            sections.Clocks,
            graphics=sanity.hertz(ask(clock, pynvml.NVML_CLOCK_GRAPHICS)),
            video=sanity.hertz(ask(clock, pynvml.NVML_CLOCK_VIDEO)),
            **self._highest.read(ask),
        )


class Power:
    """The limits that an administrator can set are asked for seldom."""

    name: ClassVar[str] = "power_more"
    every: ClassVar[float] = QUICK
    fields: ClassVar[tuple[int, ...]] = (
        pynvml.NVML_FI_DEV_POWER_AVERAGE,
        pynvml.NVML_FI_DEV_POWER_INSTANT,
    )

    def __init__(self) -> None:
        self._energy = Gained()
        self._limits: dict[str, float | None] = {}
        self._limits_due = 0.0

    def read(self, ask: Ask, fields: Fields, now: float) -> sections.Power | None:
        """As `Section.read`."""
        if now >= self._limits_due:
            self._limits, self._limits_due = _limits(ask), now + SELDOM
        used = sanity.counter(ask(pynvml.nvmlDeviceGetTotalEnergyConsumption))
        millijoules = self._energy.add(used)
        return known(
            sections.Power,
            average=sanity.watts(fields.get(pynvml.NVML_FI_DEV_POWER_AVERAGE)),
            instant=sanity.watts(fields.get(pynvml.NVML_FI_DEV_POWER_INSTANT)),
            energy=None if millijoules is None else millijoules / 1000,
            **self._limits,
        )


class Thermal:
    """The fixed thresholds are asked for once; `with_margin` does the rest."""

    name: ClassVar[str] = "thermal"
    every: ClassVar[float] = QUICK
    fields: ClassVar[tuple[int, ...]] = (pynvml.NVML_FI_DEV_MEMORY_TEMP,)

    def __init__(self) -> None:
        self._thresholds = Fixed(**{name: _threshold(kind) for name, kind in _THRESHOLDS.items()})

    def read(self, ask: Ask, fields: Fields, now: float) -> sections.Thermal | None:
        """As `Section.read`."""
        memory = sanity.celsius(fields.get(pynvml.NVML_FI_DEV_MEMORY_TEMP))
        return known(
            sections.Thermal,
            memory=sanity.positive(memory),
            margin=sanity.margin(ask(pynvml.nvmlDeviceGetMarginTemperature)),
            **self._thresholds.read(ask),
        )


SECTIONS: tuple[Callable[[], Section], ...] = (Identity, Bar1, Engines, Clocks, Power, Thermal)


def with_margin(thermal: Any, temperature: float | None) -> sections.Thermal | None:
    """Thermal where the card tells no T.Limit: what is left to the fixed threshold."""
    if not isinstance(thermal, sections.Thermal):
        return None
    if thermal.margin is not None or thermal.slowdown is None or temperature is None:
        return thermal
    return msgspec.structs.replace(thermal, margin=thermal.slowdown - temperature)


def _limits(ask: Ask) -> dict[str, float | None]:
    lowest, highest = ask(pynvml.nvmlDeviceGetPowerManagementLimitConstraints) or (None, None)
    return {
        "limit_default": _limit(ask(pynvml.nvmlDeviceGetPowerManagementDefaultLimit)),
        "limit_min": _limit(lowest),
        "limit_max": _limit(highest),
    }


def _limit(milliwatts: int | None) -> float | None:
    return sanity.positive(sanity.watts(milliwatts))


def _highest_clock(kind: int) -> Callable[[Ask], int | None]:
    return lambda ask: sanity.positive(sanity.hertz(ask(pynvml.nvmlDeviceGetMaxClockInfo, kind)))


def _threshold(kind: int) -> Callable[[Ask], float | None]:
    call = pynvml.nvmlDeviceGetTemperatureThreshold
    return lambda ask: sanity.positive(sanity.celsius(ask(call, kind)))


def _capability(numbers: Sequence[int] | None) -> str | None:
    """`9.0`."""
    return None if not numbers or not 0 < numbers[0] < 100 else ".".join(map(str, numbers))


def _text(text: str | None) -> str | None:
    return printable(text.strip(), 96) or None if text else None
