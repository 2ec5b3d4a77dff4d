"""What a GPU is made of: memory, multiprocessors, and the MIG devices that it is divided into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pynvml
from msgspec.structs import replace

from gputop.agent.gpu import validate
from gputop.agent.gpu.sections import Ask, first_of
from gputop.model.machine.gpu import MigDevice
from gputop.model.machine.sections import Activity
from gputop.model.machine.text import printable

_CAPABILITIES = {
    192: "3.0 3.2 3.5 3.7",
    128: "5.0 5.2 5.3 6.1 6.2 8.6 8.7 8.9 9.0 10.0 10.1 10.3 11.0 12.0 12.1",
    64: "6.0 7.0 7.2 7.5 8.0",
}
_CORES_PER_SM = {
    capability: cores for cores, text in _CAPABILITIES.items() for capability in text.split()
}
"""By compute capability, as helper_cuda.h of NVIDIA's cuda-samples has it."""
_MOST_SLOTS = 64
_NO_INSTANCE = 0xFFFFFFFF


def read_memory(ask: Ask) -> dict[str, int | None]:
    """The memory of a GPU in bytes, as Gpu has it; empty where it does not tell.

    The v2 call tells what the driver reserves from what is used; v1 counts it as used.
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


def cores(ask: Ask) -> dict[str, int | None]:
    """The `cores` and `sm` of a GPU.

    Drivers refuse both while MIG mode is on (DataDog/datadog-agent#45266), and NVML promises the
    attributes of MIG devices alone.
    """
    count = validate.units(ask(pynvml.nvmlDeviceGetNumGpuCores))
    attributes = ask(pynvml.nvmlDeviceGetAttributes_v2)
    sm = validate.units(attributes.multiprocessorCount) if attributes else None
    if sm is None and count is not None:
        sm = _multiprocessors(count, ask(pynvml.nvmlDeviceGetCudaComputeCapability))
    return {"cores": count, "sm": sm}


def _multiprocessors(count: int, capability: Sequence[int] | None) -> int | None:
    per_sm = _CORES_PER_SM.get(".".join(map(str, capability or ())))
    return None if per_sm is None or count % per_sm else count // per_sm


class MigDevices:
    """The MIG devices of one GPU: which there are is asked seldom, what they use each time."""

    def __init__(self) -> None:
        self._devices: tuple[MigDevice, ...] | None = None
        self._handles: list[Any] = []
        self._answered: list[bool] = []
        self.gone = False
        """Whether one that answered does not any more, since `find`."""

    @property
    def instances(self) -> set[int]:
        """Ids of the GPU instances."""
        return {device.gi for device in self._devices or ()}

    def find(self, gpu: Any, slots: int | None) -> None:
        """Ask which there are, of a GPU's handle with room for so many; 0 off MIG mode.

        Handles are kept until the next time and no longer: that of a device that was destroyed may
        come to mean another one (NVML, nvmlDeviceGetMigDeviceHandleByIndex).
        """
        devices = _mig_devices(gpu, slots)
        self._devices = None if devices is None else tuple(device for _, device in devices)
        self._handles = [handle for handle, _ in devices or ()]
        self._answered = [False] * len(self._handles)
        self.gone = False

    def read(self, activity: Callable[[int], Activity | None]) -> tuple[MigDevice, ...] | None:
        """All in NVML's order with what they use, `activity` by GPU instance; None where not all
        of them are known."""
        if self._devices is None:
            return None
        return tuple(
            replace(device, activity=activity(device.gi), **self._memory(k))
            for k, device in enumerate(self._devices)
        )

    def _memory(self, k: int) -> dict[str, int | None]:
        if self._handles[k] is None:
            return {}
        try:
            info = _memory_of(self._handles[k])
        except pynvml.NVMLError:
            self.gone |= self._answered[k]
            self._handles[k] = None
            return {}
        self._answered[k] = True
        total = validate.positive(validate.memory(info.total))
        return {"memory_total": total, "memory_used": validate.memory(info.used, total)}


def _memory_of(handle: Any) -> Any:
    try:
        return _memory_v2(handle)
    except pynvml.NVMLError:
        return pynvml.nvmlDeviceGetMemoryInfo(handle)


def _mig_devices(gpu: Any, slots: int | None) -> list[tuple[Any, MigDevice]] | None:
    """None where the driver refuses a slot or an id: a list that lacks one would say that it is not
    there."""
    if not slots or slots > _MOST_SLOTS:
        return None
    try:
        devices = [device for slot in range(slots) if (device := _mig_device(gpu, slot))]
    except pynvml.NVMLError:
        return None
    ids = {device.instance_ids for _, device in devices}
    garbage = any(_NO_INSTANCE in pair for pair in ids) or len(ids) < len(devices)
    return None if garbage else devices


def _mig_device(gpu: Any, slot: int) -> tuple[Any, MigDevice] | None:
    """None: the slot is empty, or was emptied meanwhile."""
    try:
        handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, slot)
        gi = pynvml.nvmlDeviceGetGpuInstanceId(handle)
        ci = pynvml.nvmlDeviceGetComputeInstanceId(handle)
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_NOT_FOUND:
            return None
        raise
    uuid = _text(pynvml.nvmlDeviceGetUUID, handle)
    # `NVIDIA H100 80GB HBM3 MIG 1g.10gb`
    _, mig, profile = (_text(pynvml.nvmlDeviceGetName, handle) or "").rpartition(" MIG ")
    return handle, MigDevice(uuid=uuid, gi=gi, ci=ci, profile=profile if mig else None)


def _text(call: Callable[[Any], str], handle: Any) -> str | None:
    try:
        return printable(call(handle), 96)
    except (pynvml.NVMLError, UnicodeDecodeError):
        return None
