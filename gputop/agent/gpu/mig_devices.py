"""Reads a GPU's memory, multiprocessors, and the MIG devices that it is divided into."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml
from msgspec.structs import replace

from gputop.agent.gpu import validate
from gputop.agent.gpu.driver import ask_driver
from gputop.agent.gpu.sections import Ask, first_of
from gputop.model.machine.gpu import MigDevice
from gputop.model.machine.sections import Activity

_CAPABILITIES = {
    192: "3.0 3.2 3.5 3.7",
    128: "5.0 5.2 5.3 6.1 6.2 8.6 8.7 8.9 9.0 10.0 10.1 10.3 11.0 12.0 12.1",
    64: "6.0 7.0 7.2 7.5 8.0",
}
_CORES_PER_SM = {
    capability: cores for cores, text in _CAPABILITIES.items() for capability in text.split()
}
"""Keyed by compute capability; from helper_cuda.h of NVIDIA's cuda-samples."""
_MOST_SLOTS = 64
_NO_INSTANCE = 0xFFFFFFFF


def read_memory(ask: Ask) -> dict[str, int | None]:
    """Return the memory of a GPU in bytes, named as in Gpu; empty if the driver does not answer.

    The v2 call separates what the driver reserves from what is used; v1 counts it as used.
    """
    info: Any = first_of(ask, (_memory_v2, pynvml.nvmlDeviceGetMemoryInfo))
    if info is None:
        return {}
    total = validate.positive(validate.memory(info.total))
    return {
        "memory_total": total,
        "memory_used": validate.memory(info.used, total),
        "memory_free": validate.memory(info.free, total),
        "memory_reserved": validate.memory(getattr(info, "reserved", None), total),
    }


def _memory_v2(handle: Any) -> Any:
    return pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)


def cores(ask: Ask, capability: str | None) -> dict[str, int | None]:
    """Return the `cores` and `sm` of a GPU of a compute capability.

    Drivers refuse both while MIG mode is on (DataDog/datadog-agent#45266), and NVML promises the
    attributes of MIG devices alone.
    """
    count = validate.units(ask(pynvml.nvmlDeviceGetNumGpuCores))
    per_sm = _CORES_PER_SM.get(capability or "")
    if count is not None and per_sm is not None and count % per_sm == 0:
        return {"cores": count, "sm": count // per_sm}
    attributes = ask(pynvml.nvmlDeviceGetAttributes_v2)
    sm = validate.units(attributes.multiprocessorCount) if attributes else None
    return {"cores": count, "sm": sm}


class _OpenMigDevice:
    """A MIG device and its handle."""

    def __init__(self, handle: Any, device: MigDevice) -> None:
        self._handle, self.device = handle, device
        self._has_answered = False
        self.is_gone = False
        """Whether it has answered before, but no longer does."""

    def memory(self) -> dict[str, int | None]:
        """Return its total and used bytes. A device that does not answer is not asked again."""
        memory = read_memory(lambda call, *rest: ask_driver(call, self._handle, *rest))
        if not memory:
            self.is_gone, self._handle = self._has_answered, None
            return {}
        self._has_answered = True
        return {name: memory[name] for name in ("memory_total", "memory_used")}


class MigDevices:
    """The MIG devices of one GPU. They are listed seldom; their use is read each time."""

    def __init__(self) -> None:
        self._devices: list[_OpenMigDevice] | None = None

    @property
    def instances(self) -> set[int]:
        return {opened.device.gi for opened in self._devices or ()}

    @property
    def gone(self) -> bool:
        """Whether a device that has answered since `find` no longer does."""
        return any(opened.is_gone for opened in self._devices or ())

    def find(self, gpu: Any, slots: int | None) -> None:
        """List the devices of a GPU, by its handle and its number of slots; 0 off MIG mode.

        Handles are kept only until the next `find`: that of a destroyed device may come to mean
        another one (NVML, nvmlDeviceGetMigDeviceHandleByIndex).
        """
        self._devices = _mig_devices(gpu, slots)

    def read(self, activity: Callable[[int], Activity | None]) -> tuple[MigDevice, ...] | None:
        """Return all devices with their use, in NVML's order, with `activity` by GPU instance; None
        if not all of them are known."""
        if self._devices is None:
            return None
        return tuple(
            replace(opened.device, activity=activity(opened.device.gi), **opened.memory())
            for opened in self._devices
        )


def _mig_devices(gpu: Any, slots: int | None) -> list[_OpenMigDevice] | None:
    """Return the devices; None if the driver refuses a slot or an id, since a list without that
    device would deny it."""
    if not slots or slots > _MOST_SLOTS:
        return None
    try:
        devices = [opened for slot in range(slots) if (opened := _mig_device(gpu, slot))]
    except pynvml.NVMLError:
        return None
    ids = {opened.device.instance_ids for opened in devices}
    garbage = any(_NO_INSTANCE in pair for pair in ids) or len(ids) < len(devices)
    return None if garbage else devices


def _mig_device(gpu: Any, slot: int) -> _OpenMigDevice | None:
    """Return the device in a slot; None if the slot is empty, or was emptied meanwhile."""
    try:
        handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, slot)
        gi = pynvml.nvmlDeviceGetGpuInstanceId(handle)
        ci = pynvml.nvmlDeviceGetComputeInstanceId(handle)
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_NOT_FOUND:
            return None
        raise
    uuid = validate.text(ask_driver(pynvml.nvmlDeviceGetUUID, handle))
    # `NVIDIA H100 80GB HBM3 MIG 1g.10gb`
    name = validate.text(ask_driver(pynvml.nvmlDeviceGetName, handle)) or ""
    _, mig, profile = name.rpartition(" MIG ")
    device = MigDevice(uuid=uuid, gi=gi, ci=ci, profile=profile if mig else None)
    return _OpenMigDevice(handle, device)
