"""Reads one GPU.

A call that the driver or the card lacks is made once, and not again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import pynvml

from gputop.agent.gpu import board, validate
from gputop.agent.gpu.driver import DRIVER_GONE, GPU_GONE
from gputop.agent.gpu.gpm import GpmSection
from gputop.agent.gpu.health import EccSection, HealthSection
from gputop.agent.gpu.lists import GpuProcess, ProcessLists, Utilization
from gputop.agent.gpu.mig_devices import MigDevices, cores, read_memory
from gputop.agent.gpu.sections import Sections, only, values_of
from gputop.agent.gpu.topology import PlacedGpu
from gputop.agent.gpu.traffic import NvlinkSection, PcieSection
from gputop.agent.host import card_file, is_wsl
from gputop.agent.worker import Worker
from gputop.model.machine.gpu import UNREADABLE, Gpu
from gputop.model.machine.limits import INTEGRATED
from gputop.model.machine.sections import BRIEF, LOADED, marked
from gputop.model.machine.text import printable

T = TypeVar("T")

_SLOW_CYCLES, _SLOW_SECONDS = 10, 10.0
"""Cycles and seconds after which values that only an administrator changes are read again."""

_ABSENT = {
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_DEPRECATED,
}
"""Answers that stay the same: the call is not made again."""

_GONE = DRIVER_GONE | GPU_GONE
"""Answers about the GPU, not about the call: the cycle ends, and the handle is asked for again."""

_ASLEEP = {"suspended", "suspending"}
"""The kernel's words for a device that it has switched off until it is used
(Documentation/ABI/testing/sysfs-devices-power)."""

_SECTIONS = (
    board.Bar1Section,
    board.EnginesSection,
    board.ClocksSection,
    board.PowerSection,
    board.ThermalSection,
    board.ThrottleSection,
    PcieSection,
    EccSection,
    HealthSection,
)

_TEMPERATURES = pynvml.nvmlDeviceGetTemperatureV, pynvml.nvmlDeviceGetTemperature
_POWER_LIMITS = pynvml.nvmlDeviceGetEnforcedPowerLimit, pynvml.nvmlDeviceGetPowerManagementLimit
_COMPUTE_MODES: dict[int | None, str] = dict(
    enumerate(("default", "exclusive_thread", "prohibited", "exclusive_process"))
)


def _pci_info_v2(handle: Any) -> Any:
    """Return the PCI info from a driver before _v3: the same struct without its last member."""
    info = pynvml.nvmlPciInfo_t()
    function = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetPciInfo_v2")
    pynvml._nvmlCheckReturn(function(handle, pynvml.byref(info)))
    return info


def _bus_id(info: Any) -> str | None:
    return f"{info.domain:08X}:{info.bus:02X}:{info.device:02X}.0" if info else None


_FIXED = {
    "pci_bus_id": (_bus_id, (pynvml.nvmlDeviceGetPciInfo, _pci_info_v2)),
    "uuid": (validate.text, pynvml.nvmlDeviceGetUUID),
    "name": (validate.text, pynvml.nvmlDeviceGetName),
    "minor": (lambda minor: minor, pynvml.nvmlDeviceGetMinorNumber),
    "numa_node": (validate.node, pynvml.nvmlDeviceGetNumaNodeId),
    "sm_clock_max": (
        validate.highest_hertz, pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM
    ),
}  # fmt: skip
_SLOW = {
    "persistence_mode": (validate.flag, pynvml.nvmlDeviceGetPersistenceMode),
    "accounting_mode": (validate.flag, pynvml.nvmlDeviceGetAccountingMode),
    "display_active": (validate.flag, pynvml.nvmlDeviceGetDisplayActive),
    "power_limit": (validate.limit, _POWER_LIMITS),
    "compute_mode": (_COMPUTE_MODES.get, pynvml.nvmlDeviceGetComputeMode),
    "ecc_uncorrected": (
        validate.counter, pynvml.nvmlDeviceGetTotalEccErrors,
        pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC,
    ),
}  # fmt: skip
_ALTERNATE = {
    "memory_clock": (validate.hertz, pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM),
    "pstate": (validate.pstate, pynvml.nvmlDeviceGetPerformanceState),
    "fan": (validate.fan_ratio, pynvml.nvmlDeviceGetFanSpeed),
}
"""Read in every second cycle: they change seldom, and together."""
_FAST = {
    "temperature": (validate.celsius, _TEMPERATURES, pynvml.NVML_TEMPERATURE_GPU),
    "power": (validate.watts, pynvml.nvmlDeviceGetPowerUsage),
    "sm_clock": (validate.hertz, pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
}


class GpuSample(msgspec.Struct, frozen=True):
    """What one GPU answered in one cycle: keyword arguments of `model.machine.gpu.Gpu`, its running
    processes and their utilization (None where the driver takes no samples). `code` is NVML's error
    if there are no values."""

    values: dict[str, Any]
    running: tuple[GpuProcess, ...] = ()
    held: int | None = 0
    """Bytes of memory that the processes hold; None if that of one is unknown."""
    utilization: dict[int, Utilization] | None = None
    unassigned: bool = False
    """Whether samples show work that may be of any of the processes; see `agent.nested`."""
    code: int = 0
    listed: float | None = None
    """When the driver was asked for the processes, in seconds since the boot (CLOCK_BOOTTIME, as
    /proc counts the starts of processes)."""


class GpuReader:
    """Reads one GPU, by its NVML index. Its `worker` makes one cycle of calls; the first cycle of a
    `hasty` one has only the quick calls, and a `brief` one asks only for values that are BRIEF."""

    def __init__(self, index: int, hasty: bool = False, brief: bool = False) -> None:
        self.index = index
        self._hasty, self._brief = hasty, brief
        self.handle: Any = None
        """NVML's handle; None until there is one, and after an error."""
        self._absent: set[tuple[Any, ...]] = set()
        self._fixed: dict[str, Any] = {}
        self._slow: dict[str, Any] = {}
        self._alternate: dict[str, Any] = {}
        self._slow_due = 0.0
        self._cycle = 0
        self._in_use = False
        self._lists = ProcessLists()
        self._slow_calls, self._alternate_calls, self._fast_calls = _SLOW, _ALTERNATE, _FAST
        self._identity, self._nvlinks = board.IdentitySection(), NvlinkSection()
        sections = [self._identity, *(section() for section in _SECTIONS), self._nvlinks]
        if brief:
            names = marked(Gpu, BRIEF)
            self._slow_calls, self._alternate_calls = only(_SLOW, names), only(_ALTERNATE, names)
            self._fast_calls = only(_FAST, names)
            sections = [section for section in sections if section.shorten()]
        self._sections = Sections(sections)
        self._gpm = GpmSection()
        self._mig_devices = MigDevices()
        self.worker = Worker(
            f"gpu {index}", self._read, lambda words: self._lost(f"{UNREADABLE}: {words}")
        )

    @property
    def latest(self) -> GpuSample:
        return self.worker.latest or GpuSample({"index": self.index})

    @property
    def link_states(self) -> Sequence[int] | None:
        """The states (NVML_NVLINK_STATE_*) of its NVLinks; None until they are known."""
        return self._nvlinks.states

    @property
    def place(self) -> PlacedGpu:
        bus_id, node = self._fixed.get("pci_bus_id"), self._fixed.get("numa_node")
        return PlacedGpu(self.handle, bus_id, node, self.link_states)

    def read_memory(self) -> tuple[int | None, frozenset[int]]:
        """Return the bytes in use and the listed PIDs, from another thread than the worker's.
        NVMLError."""
        memory = self._read_memory()
        total, used = memory.get("memory_total"), memory.get("memory_used")
        listed = ProcessLists().running(self.handle, total, used)
        return used, frozenset(process.pid for process in listed)

    def refresh(self) -> None:
        """Make all values due, after an event. From any thread."""
        self._slow_due = 0.0
        self._sections.refresh()

    # In the thread of the worker

    def _read(self) -> GpuSample:
        """Return all current values. For a lost GPU they are `code` and what is known of it."""
        try:
            return self._read_all()
        except pynvml.NVMLError as error:
            self._gpm.reset()
            return self._lost(printable(str(error), 120), error.value)

    def _lost(self, error: str, code: int = 0) -> GpuSample:
        self.handle, self._in_use = None, False
        values = {"index": self.index, **self._fixed, "state": "lost", "error": error}
        return GpuSample(values=values, code=code)

    def _read_all(self) -> GpuSample:
        hasty, self._hasty = self._hasty, False
        if self.handle is None:
            self.handle = pynvml.nvmlDeviceGetHandleByIndex(self.index)
            self._absent.clear()
            self._lists = ProcessLists()
            self._fixed = self._read_fixed()
            self._slow_due, self._alternate = 0.0, {}
            self._sections.reset()
        if not self._in_use and self._is_suspended():
            return self._asleep()
        self._cycle += 1
        if (
            self._cycle >= _SLOW_CYCLES
            or time.monotonic() >= self._slow_due
            or self._mig_devices.gone
        ):
            self._refresh_slow()
        values = {"index": self.index, **self._fixed, **self._slow, **self._read_memory()}
        values.update(self._read_fast())
        if hasty:
            return GpuSample(values=values, held=None)
        at_work = (values["utilization"] or 0.0) >= LOADED
        values.update(self._sections.read(self._ask, time.monotonic(), at_work))
        values["thermal"] = board.with_margin(values.get("thermal"), values["temperature"])
        if self._brief and board.is_held_back(values.get("throttle")):
            values.update(values_of(self._ask, only(_FAST, ("sm_clock",))))
        if not self._brief:
            self._gpm.begin(self._ask, self.handle, time.monotonic())
            values["activity"] = self._gpm.read(utilization=values["utilization"])
        values["mig"] = self._mig_devices.read(self._gpm.read)
        total, used = values.get("memory_total"), values.get("memory_used")
        listed = time.clock_gettime(time.CLOCK_BOOTTIME)
        running = self._ask(self._lists.running, total, used) or ()
        self._in_use = bool(running)
        # On WSL only Windows knows all processes: an empty list says nothing.
        is_listed = self._lists.complete and (running or not is_wsl())
        values["listed"] = "all" if is_listed else "none"
        return GpuSample(
            values=values,
            running=running,
            held=self._lists.held,
            utilization=self._ask(self._lists.utilization, values["utilization"] != 0),
            listed=listed,
        )

    def _is_suspended(self) -> bool:
        """Return whether the kernel has switched the GPU off. It never does so during use."""
        return card_file(self._fixed["pci_bus_id"], "power/runtime_status") in _ASLEEP

    def _asleep(self) -> GpuSample:
        self._gpm.reset()
        identity = self._sections.values.get("identity")
        values = {"index": self.index, **self._fixed, "identity": identity, "state": "asleep"}
        return GpuSample(values=values)

    def _refresh_slow(self) -> None:
        """Read the slow values. After a switch of MIG mode a card supports other calls."""
        # Set before the reading: a `refresh` during it asks for another one.
        self._slow_due, self._cycle = time.monotonic() + _SLOW_SECONDS, 0
        slow = {**values_of(self._ask, self._slow_calls), "mig_mode": self._mig_mode()}
        before, self._slow = self._slow, slow
        if before and before["mig_mode"] != self._slow["mig_mode"]:
            self._absent.clear()
            self._sections.reset()
            self._gpm.reset()
            self._fixed.update(cores(self._ask, self._identity.capability))

    def _read_fixed(self) -> dict[str, Any]:
        capability = board.capability(self._ask(pynvml.nvmlDeviceGetCudaComputeCapability))
        self._identity.capability = capability
        return {**values_of(self._ask, _FIXED), **cores(self._ask, capability)}

    def _read_memory(self) -> dict[str, int | None]:
        """Return the memory; empty for an integrated GPU, as some drivers report the machine's."""
        integrated = self._identity.capability in INTEGRATED
        return {} if integrated else read_memory(self._ask)

    def _read_fast(self) -> dict[str, Any]:
        rates = self._ask(pynvml.nvmlDeviceGetUtilizationRates)
        if self._cycle % 2 or not self._alternate:
            self._alternate = values_of(self._ask, self._alternate_calls)
        return {
            "utilization": validate.ratio(rates.gpu) if rates else None,
            "memory_utilization": validate.ratio(rates.memory) if rates else None,
            **values_of(self._ask, self._fast_calls),
            **self._alternate,
        }

    def _mig_mode(self) -> bool | None:
        modes = self._ask(pynvml.nvmlDeviceGetMigMode)
        on = None if modes is None else bool(modes[0])
        slots = self._ask(pynvml.nvmlDeviceGetMaxMigDeviceCount) if on else 0
        self._mig_devices.find(self.handle, slots)
        self._gpm.keep(self._mig_devices.instances)
        return on

    def _ask(self, call: Callable[..., T], *arguments: int | None) -> T | None:
        """Make one call on this GPU; None if it has no answer. NVMLError if the GPU is gone."""
        name = (call, arguments)
        if name in self._absent:
            return None
        try:
            return call(self.handle, *arguments)
        except pynvml.NVMLError as error:
            if error.value in _GONE:
                raise
            if error.value == pynvml.NVML_ERROR_INVALID_ARGUMENT:
                pynvml.nvmlDeviceGetIndex(self.handle)  # raises if the handle is what is wrong
                self._absent.add(name)
            if error.value in _ABSENT:
                self._absent.add(name)
            return None
        except UnicodeDecodeError:  # the driver's string is not UTF-8
            return None
