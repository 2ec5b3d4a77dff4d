"""The GPUs of a machine, from a frame or from a file about another machine.

A file is the output of `gputop --json`, or an object with `gpus` (`index`, `name`, `uuid`,
`pci_bus_id`; also `mig_enabled`, `mig` of `uuid`, `gi`, `ci`, `profile`; `cores`, `sm`,
`sm_clock_max` in hertz, `minor`, `memory_total` and `memory_free` in bytes), and perhaps
`driver_version` and `cuda_order` (an order seen on that machine, as NVML indices).
"""

from __future__ import annotations

from typing import Any

import msgspec

from gputop.errors import UsageError
from gputop.model.cuda.enumeration import CudaDevice
from gputop.model.machine.frame import Frame, Host
from gputop.model.machine.gpu import Gpu, MigDevice
from gputop.model.machine.summary import free_memory, is_full, users

_MOST_PARTS = 1 << 18
"""Lists and objects of a file: they take 20 times the memory of their brackets."""


class DeviceUse(msgspec.Struct, frozen=True):
    """A GPU's memory in bytes (None: not known), and its users."""

    memory_total: int | None = None
    memory_free: int | None = None
    users: tuple[str, ...] = ()
    was_full: bool = False
    """Whether the memory was full in the frame before."""

    @property
    def is_full(self) -> bool:
        """Whether so much of the memory is in use that little can be allocated."""
        if not self.memory_total or self.memory_free is None:
            return False
        return is_full(1 - self.memory_free / self.memory_total, self.was_full)


class Inventory(msgspec.Struct, frozen=True):
    """The facts about a machine from which a mapping is worked out."""

    devices: tuple[CudaDevice, ...]
    driver_version: str | None = None
    cuda_order: tuple[int, ...] | None = None
    usage: dict[int, DeviceUse] = {}
    """The usage of each GPU, by NVML index."""
    lost: tuple[int, ...] = ()
    """NVML indices of the GPUs that the driver can no longer reach."""

    def usage_of(self, device: CudaDevice) -> DeviceUse:
        """Return the usage of a device; a MIG device's own share is not known."""
        return DeviceUse() if device.instance else self.usage.get(device.index, DeviceUse())


class _DescribedGpu(Gpu, frozen=True, kw_only=True):
    mig_enabled: bool | None = None


def _device(gpu: Gpu) -> CudaDevice:
    mig = None
    if gpu.mig is not None:
        mig = tuple(MigDevice(uuid=d.uuid, gi=d.gi, ci=d.ci, profile=d.profile) for d in gpu.mig)
    enabled = isinstance(gpu, _DescribedGpu) and gpu.mig_enabled
    return CudaDevice(
        index=gpu.index,
        uuid=gpu.uuid,
        pci_bus_id=gpu.pci_bus_id,
        name=gpu.name,
        mig_enabled=bool(enabled or gpu.mig_mode or gpu.mig),
        mig=mig,
        cores=gpu.cores,
        sms=gpu.sm,
        sm_clock=gpu.sm_clock_max,
        minor=gpu.minor,
    )


class _DescribedMachine(Frame, frozen=True, kw_only=True):
    gpus: tuple[_DescribedGpu, ...]
    host: Host = Host(name="")
    time: float = 0.0
    cuda_order: tuple[int, ...] | None = None


def frame_devices(frame: Frame) -> tuple[CudaDevice, ...]:
    """Return the GPUs of a frame as `resolve` takes them."""
    return tuple(_device(gpu) for gpu in frame.gpus)


def frame_inventory(frame: Frame, before: Inventory | None = None) -> Inventory:
    """Return the GPUs of a frame and their usage; `before`: those of an earlier frame."""
    lost = tuple(gpu.index for gpu in frame.gpus if gpu.state == "lost")
    usage = usage_of(frame, before)
    return Inventory(frame_devices(frame), frame.driver_version, None, usage, lost)


def usage_of(frame: Frame, before: Inventory | None = None) -> dict[int, DeviceUse]:
    """Return the usage of the GPUs of a frame, by NVML index; `before`: of an earlier frame."""
    earlier = {} if before is None else before.usage
    full = {index for index, usage in earlier.items() if usage.is_full}
    return {
        gpu.index: DeviceUse(gpu.memory_total, free_memory(frame, gpu), tuple(users(frame, gpu)),
                             gpu.index in full)
        for gpu in frame.gpus
    }  # fmt: skip


def without(frame: Frame, pid: int) -> Frame:
    """Return the frame as it would be without a process: neither its rows nor its memory."""
    held: dict[str | None, int] = {}
    for row in frame.processes:
        if row.pid == pid and not row.elsewhere:
            held[row.gpu_uuid] = held.get(row.gpu_uuid, 0) + (row.gpu_memory or 0)
    gpus = tuple(
        msgspec.structs.replace(gpu, memory_free=gpu.memory_free + held.get(gpu.uuid, 0))
        if gpu.memory_free is not None
        else gpu
        for gpu in frame.gpus
    )
    rest = tuple(row for row in frame.processes if row.pid != pid or row.elsewhere)
    return msgspec.structs.replace(frame, gpus=gpus, processes=rest)


def read_inventory(text: str | bytes, path: str) -> Inventory:
    """Read a file's text; UsageError with `path` and the reason if it describes none."""
    try:
        machine = msgspec.convert(_decode(text), _DescribedMachine)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UsageError(f"{path} does not describe a machine: {error}") from None
    inventory = msgspec.structs.replace(frame_inventory(machine), cuda_order=machine.cuda_order)
    indices = inventory.usage.keys()
    if len(indices) < len(inventory.devices):
        raise UsageError(f"{path} does not describe a machine: two GPUs have the same index")
    if not set(inventory.cuda_order or ()) <= indices:
        raise UsageError(f"{path}: cuda_order names a GPU that is not in gpus")
    return inventory


def _decode(text: str | bytes) -> Any:
    """Decode a file; if it has several frames (`gputop --json --watch`), the last."""
    data = text.encode() if isinstance(text, str) else text
    errors = []
    for part in (data, data.rstrip().rpartition(b"\n")[2]):
        try:
            return _decode_bounded(part)
        except msgspec.DecodeError as error:
            errors.append(error)
    raise errors[0]


def _decode_bounded(data: bytes) -> Any:
    if data.count(b"{") + data.count(b"[") > _MOST_PARTS:
        raise msgspec.DecodeError(f"it has more than {_MOST_PARTS} lists and objects")
    return msgspec.json.decode(data)
