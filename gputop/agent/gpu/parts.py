"""What a GPU is made of: its multiprocessors, and the MIG devices that it is divided into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pynvml

from gputop.agent.gpu import sanity
from gputop.model.gpu import MigDevice
from gputop.model.text import printable

_CAPABILITIES = {
    192: "3.0 3.2 3.5 3.7",
    128: "5.0 5.2 5.3 6.1 6.2 8.6 8.7 8.9 9.0 10.0 10.1 10.3 11.0 12.0 12.1",
    64: "6.0 7.0 7.2 7.5 8.0",
}
_CORES_PER_SM = {one: cores for cores, ones in _CAPABILITIES.items() for one in ones.split()}
"""By compute capability, as helper_cuda.h of NVIDIA's cuda-samples has it."""
_MOST_SLOTS = 64
_NO_INSTANCE = 0xFFFFFFFF


def cores(ask: Callable[[Callable[[Any], Any]], Any]) -> dict[str, int | None]:
    """The `cores` and `sm` of the GPU that `ask` asks (None: no answer).

    Drivers refuse both while MIG mode is on (DataDog/datadog-agent#45266), and NVML promises the
    attributes of MIG devices alone.
    """
    count = sanity.units(ask(pynvml.nvmlDeviceGetNumGpuCores))
    attributes = ask(pynvml.nvmlDeviceGetAttributes_v2)
    sm = sanity.units(attributes.multiprocessorCount) if attributes else None
    if sm is None and count is not None:
        sm = _multiprocessors(count, ask(pynvml.nvmlDeviceGetCudaComputeCapability))
    return {"cores": count, "sm": sm}


def _multiprocessors(count: int, capability: Sequence[int] | None) -> int | None:
    per_sm = _CORES_PER_SM.get(".".join(map(str, capability or ())))
    return None if per_sm is None or count % per_sm else count // per_sm


def mig_devices(gpu: Any, slots: int | None) -> tuple[MigDevice, ...] | None:
    """The MIG devices of a GPU's handle with room for so many, in NVML's order.

    None where the driver refuses a slot or an id: a list that lacks one would say that it is not
    there. Handles are asked for anew each time: that of a device that was destroyed may come to
    mean another one (NVML, nvmlDeviceGetMigDeviceHandleByIndex).
    """
    if not slots or slots > _MOST_SLOTS:
        return None
    try:
        found = [device for slot in range(slots) if (device := _mig_device(gpu, slot))]
    except pynvml.NVMLError:
        return None
    places = {(device.gi, device.ci) for device in found}
    garbage = any(_NO_INSTANCE in place for place in places) or len(places) < len(found)
    return None if garbage else tuple(found)


def _mig_device(gpu: Any, slot: int) -> MigDevice | None:
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
    return MigDevice(uuid=uuid, gi=gi, ci=ci, profile=profile if mig else None)


def _text(call: Callable[[Any], str], handle: Any) -> str | None:
    try:
        return printable(call(handle), 96)
    except (pynvml.NVMLError, UnicodeDecodeError):
        return None
