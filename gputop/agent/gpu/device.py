"""One GPU, read.

Each Device is read by one thread at a time. Whatever a driver or a card lacks is asked once, and
then left alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import pynvml

from gputop.agent.gpu import board, sanity
from gputop.agent.gpu.driver import DRIVER_GONE
from gputop.agent.gpu.ecc import EccSection
from gputop.agent.gpu.gpm import Gpm
from gputop.agent.gpu.health import HealthSection
from gputop.agent.gpu.lists import Running, RunningLists, Utilization
from gputop.agent.gpu.memory import read_memory
from gputop.agent.gpu.nvlink import NvlinkSection
from gputop.agent.gpu.parts import Parts, cores
from gputop.agent.gpu.pcie import Pcie
from gputop.agent.gpu.section import Section, Sections
from gputop.agent.gpu.throttle import Throttle
from gputop.agent.host import card_file, is_wsl
from gputop.model.gpu import UNREADABLE
from gputop.model.text import printable

T = TypeVar("T")

_SLOW_CYCLES, _SLOW_SECONDS = 10, 10.0
"""After so many cycles or seconds, what only an administrator changes is read again."""

_ABSENT = {
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_DEPRECATED,
}
"""Answers that stay the same: the call is not made again."""

_GPU_GONE = DRIVER_GONE | {
    pynvml.NVML_ERROR_GPU_IS_LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED,
    pynvml.NVML_ERROR_GPU_NOT_FOUND,
}
"""Answers about the GPU, not about the call: the cycle ends, and the handle is asked for again."""

_ASLEEP = {"suspended", "suspending"}
"""The kernel's words for a device that it has switched off until it is used
(Documentation/ABI/testing/sysfs-devices-power)."""

_SECTIONS: tuple[Callable[[], Section], ...] = (
    *board.SECTIONS, Throttle, Pcie, EccSection, HealthSection, NvlinkSection
)  # fmt: skip

_COMPUTE_MODES: dict[int | None, str] = {
    0: "default",
    1: "exclusive_thread",
    2: "prohibited",
    3: "exclusive_process",
}


class Reading(msgspec.Struct, frozen=True):
    """What one GPU answered in one cycle: keyword arguments of `model.frame.Gpu`, its running
    processes and their utilization (None where the driver takes no samples). `code` is NVML's
    error if there are no values."""

    values: dict[str, Any]
    running: tuple[Running, ...] = ()
    held: int | None = 0
    """Bytes of memory that they have together; None where one does not tell."""
    utilization: dict[int, Utilization] | None = None
    code: int = 0
    error: str | None = None


class Device:
    """One GPU, by its NVML index; `read` makes one cycle of calls, if `hasty` the first time only
    the quick ones."""

    def __init__(self, index: int, hasty: bool = False) -> None:
        self.index = index
        self._hasty = hasty
        self.handle: Any = None
        """NVML's; None until it has answered."""
        self._absent: set[tuple[Any, ...]] = set()
        self._fixed: dict[str, Any] = {}
        self._slow: dict[str, Any] = {}
        self._brisk: dict[str, Any] = {}
        self._slow_due = 0.0
        self._cycle = 0
        self._in_use = False
        self._lists = RunningLists()
        self._sections = Sections(section() for section in _SECTIONS)
        self._gpm = Gpm()
        self._parts = Parts()

    def look_again(self) -> None:
        """All is due: something has happened. From any thread."""
        self._slow_due = 0.0
        self._sections.hurry()

    def read(self) -> Reading:
        """All values of now. A lost GPU gives a Reading with `code` and what is known of it."""
        try:
            return self._read()
        except pynvml.NVMLError as error:
            self._gpm.forget()
            return self._without_values(printable(str(error), 120), error.value)

    def failed(self, words: str) -> Reading:
        """What stands for a `read` that raised what nobody thought of."""
        return self._without_values(f"{UNREADABLE}: {words}")

    def _without_values(self, error: str, code: int = 0) -> Reading:
        self.handle, self._in_use = None, False
        return Reading(values={"index": self.index, **self._fixed}, code=code, error=error)

    def _read(self) -> Reading:
        hasty, self._hasty = self._hasty, False
        if self.handle is None:
            self.handle = pynvml.nvmlDeviceGetHandleByIndex(self.index)
            self._absent.clear()
            self._lists = RunningLists()
            self._fixed = self._read_fixed()
            self._slow_due, self._brisk = 0.0, {}
            self._sections.forget()
        if not self._in_use and self._is_suspended():
            return self._asleep()
        self._cycle += 1
        if self._cycle >= _SLOW_CYCLES or time.monotonic() >= self._slow_due or self._parts.gone:
            self._take_slow()
        values = {"index": self.index, **self._fixed, **self._slow, **read_memory(self._ask)}
        values.update(self._read_fast())
        if hasty:
            return Reading(values=values, held=None)
        values.update(self._sections.read(self._ask, time.monotonic()))
        values["thermal"] = board.with_margin(values.get("thermal"), values["temperature"])
        self._gpm.begin(self._ask, self.handle, time.monotonic())
        values["activity"] = self._gpm.read(utilization=values["utilization"])
        values["mig"] = self._parts.read(self._gpm.read)
        total, used = values.get("memory_total"), values.get("memory_used")
        running = self._ask(self._lists.running, total, used) or ()
        self._in_use = bool(running)
        # Windows knows the processes: that none is listed says nothing there.
        values["processes_known"] = self._lists.known and (bool(running) or not is_wsl())
        return Reading(
            values=values,
            running=running,
            held=self._lists.held,
            utilization=self._ask(self._lists.utilization),
        )

    def _is_suspended(self) -> bool:
        """A GPU that somebody uses is not."""
        return card_file(self._fixed["pci_bus_id"], "power/runtime_status") in _ASLEEP

    def _asleep(self) -> Reading:
        """Who it is: any call would wake it. What it did before says nothing of now."""
        self._gpm.forget()
        identity = self._sections.values.get("identity")
        values = {"index": self.index, **self._fixed, "identity": identity, "asleep": True}
        return Reading(values=values)

    def _take_slow(self) -> None:
        """A card whose MIG mode was switched supports other calls than before."""
        before, self._slow = self._slow, self._read_slow()
        self._slow_due, self._cycle = time.monotonic() + _SLOW_SECONDS, 0
        if before and before["mig_mode"] != self._slow["mig_mode"]:
            self._absent.clear()
            self._sections.forget()
            self._gpm.forget()
            self._fixed.update(cores(self._ask))

    def _read_fixed(self) -> dict[str, Any]:
        return {
            "uuid": self._text(pynvml.nvmlDeviceGetUUID),
            "name": self._text(pynvml.nvmlDeviceGetName),
            "pci_bus_id": self._bus_id(),
            "minor": self._ask(pynvml.nvmlDeviceGetMinorNumber),
            "sm_clock_max": sanity.positive(
                sanity.hertz(self._ask(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM))
            ),
            **cores(self._ask),
        }

    def _read_slow(self) -> dict[str, Any]:
        mode = self._ask(pynvml.nvmlDeviceGetComputeMode)
        return {
            "power_limit": self._power_limit(),
            "persistence_mode": _flag(self._ask(pynvml.nvmlDeviceGetPersistenceMode)),
            "accounting_mode": _flag(self._ask(pynvml.nvmlDeviceGetAccountingMode)),
            "display_active": _flag(self._ask(pynvml.nvmlDeviceGetDisplayActive)),
            "compute_mode": _COMPUTE_MODES.get(mode),
            "mig_mode": self._mig_mode(),
            "ecc_uncorrected": sanity.counter(
                self._ask(
                    pynvml.nvmlDeviceGetTotalEccErrors,
                    pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                    pynvml.NVML_VOLATILE_ECC,
                )
            ),
        }

    def _read_fast(self) -> dict[str, Any]:
        ask = self._ask
        rates = ask(pynvml.nvmlDeviceGetUtilizationRates)
        sm_clock = ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM)
        if self._cycle % 2 or not self._brisk:
            self._brisk = self._read_brisk()
        return {
            "utilization": sanity.ratio(rates.gpu) if rates else None,
            "memory_utilization": sanity.ratio(rates.memory) if rates else None,
            "temperature": self._temperature(),
            "power": sanity.watts(ask(pynvml.nvmlDeviceGetPowerUsage)),
            "sm_clock": sanity.hertz(sm_clock),
            **self._brisk,
        }

    def _read_brisk(self) -> dict[str, Any]:
        """At every second look: they change seldom, and together."""
        memory_clock = self._ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM)
        return {
            "memory_clock": sanity.hertz(memory_clock),
            "pstate": sanity.pstate(self._ask(pynvml.nvmlDeviceGetPerformanceState)),
            "fan": sanity.fan_ratio(self._ask(pynvml.nvmlDeviceGetFanSpeed)),
        }

    def _temperature(self) -> float | None:
        degrees = self._ask(pynvml.nvmlDeviceGetTemperatureV, pynvml.NVML_TEMPERATURE_GPU)
        if degrees is None:
            degrees = self._ask(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU)
        return sanity.celsius(degrees)

    def _power_limit(self) -> float | None:
        limit = self._ask(pynvml.nvmlDeviceGetEnforcedPowerLimit)
        if limit is None:
            limit = self._ask(pynvml.nvmlDeviceGetPowerManagementLimit)
        return sanity.positive(sanity.watts(limit))

    def _mig_mode(self) -> bool | None:
        """Whether it is divided; into what is looked up, too."""
        modes = self._ask(pynvml.nvmlDeviceGetMigMode)
        on = None if modes is None else bool(modes[0])
        self._parts.find(self.handle, self._ask(pynvml.nvmlDeviceGetMaxMigDeviceCount) if on else 0)
        self._gpm.keep(self._parts.instances)
        return on

    def _bus_id(self) -> str | None:
        info = self._ask(pynvml.nvmlDeviceGetPciInfo) or self._ask(_pci_info_v2)
        if info is None:
            return None
        return f"{info.domain:08X}:{info.bus:02X}:{info.device:02X}.0"

    def _text(self, call: Callable[[Any], str]) -> str | None:
        text: str | None = self._ask(call)
        return None if text is None else printable(text, 96)

    def _ask(self, call: Callable[..., T], *arguments: int | None) -> T | None:
        """One call on this GPU; None where it has no answer. Raises if the GPU itself is gone."""
        name = (call, arguments)
        if name in self._absent:
            return None
        try:
            return call(self.handle, *arguments)
        except pynvml.NVMLError as error:
            if error.value in _GPU_GONE:
                raise
            if error.value == pynvml.NVML_ERROR_INVALID_ARGUMENT:
                pynvml.nvmlDeviceGetIndex(self.handle)  # raises if it is the handle that is wrong
                self._absent.add(name)
            if error.value in _ABSENT:
                self._absent.add(name)
            return None
        except UnicodeDecodeError:  # a string of the driver that is no UTF-8
            return None


def _pci_info_v2(handle: Any) -> Any:
    """Of drivers before _v3: the same struct without its last member."""
    info = pynvml.nvmlPciInfo_t()
    function = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetPciInfo_v2")
    pynvml._nvmlCheckReturn(function(handle, pynvml.byref(info)))
    return info


def _flag(value: int | None) -> bool | None:
    return None if value is None else bool(value)
