"""The GPUs that a process lives among: container, Slurm job, MPS server.

Each gives a part of the machine's devices, which is what `resolve` is to be asked about: inside,
integers count from 0 again and an abbreviated UUID may be unique.

Sources: nvidia-container-toolkit, NVIDIA_VISIBLE_DEVICES (a set: its order means nothing); Slurm
gres.html and SLURM_JOB_GPUS; NVIDIA MPS guide, CUDA_VISIBLE_DEVICES.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import msgspec

from gputop.model.enumeration import Device, shown
from gputop.model.visibility import resolve

_INDEX = re.compile(r"[0-9]{1,9}")
_MIG_INDEX = re.compile(r"([0-9]{1,9}):([0-9]{1,9})")


class DeviceSet(msgspec.Struct, frozen=True):
    """Devices of a machine, as the resolver wants them."""

    devices: tuple[Device, ...] | None
    """None: which they are cannot be told."""
    because: str
    """What says so, for people; the reason of every GPU that is not in it."""


def container_set(devices: Sequence[Device], nvidia_visible_devices: str | None) -> DeviceSet:
    """Read NVIDIA_VISIBLE_DEVICES of a container; prefer `node_set`, which is what came of it."""
    text = nvidia_visible_devices
    if text is None or text in ("", "void"):
        return DeviceSet(None, "NVIDIA_VISIBLE_DEVICES does not say which GPUs the container has")
    because = f"NVIDIA_VISIBLE_DEVICES={shown(text)} of the container"
    if text in ("all", "none"):
        return DeviceSet(tuple(devices) if text == "all" else (), because)
    chosen: list[Device] = []
    for name in text.split(","):
        # A CDI name, as nvidia.com/gpu=0.
        found = _named(name.strip().rpartition("=")[2], devices)
        if found is None:
            return DeviceSet(None, f"{because} names something that is not here")
        chosen += found
    return DeviceSet(_part(devices, chosen), because)


def node_set(devices: Sequence[Device], minors: Collection[int]) -> DeviceSet:
    """Take the GPUs whose device nodes (/dev/nvidia<minor>) the process can see."""
    if any(device.minor is None for device in devices):
        return DeviceSet(None, "the minor numbers of the GPUs are not all known")
    inside = tuple(device for device in devices if device.minor in minors)
    return DeviceSet(inside, "the device nodes that the process can see")


def slurm_set(
    devices: Sequence[Device],
    job_gpus: str | None,
    value: str | None,
    *,
    constrained: bool | None = None,
) -> DeviceSet:
    """Read SLURM_JOB_GPUS (or SLURM_STEP_GPUS), which keeps the machine's numbers.

    `value` is CUDA_VISIBLE_DEVICES and `constrained` Slurm's ConstrainDevices, None if not known:
    then a value equal to the job's numbers was not counted anew, and one from 0 on was.
    """
    ids = (job_gpus or "").split(",")
    by_index = {str(device.index): device for device in devices}
    if not set(ids) <= by_index.keys():
        return DeviceSet(None, "SLURM_JOB_GPUS does not say which GPUs the job has")
    because = f"SLURM_JOB_GPUS={shown(','.join(ids))}"
    if constrained is None:
        numbered_anew = value == ",".join(str(number) for number in range(len(ids)))
        constrained = True if numbered_anew or (value or "").startswith(("GPU-", "MIG-")) else None
        constrained = False if value == job_gpus else constrained
    if constrained is None:
        return DeviceSet(None, f"{because}, and whether Slurm hides the other GPUs is not known")
    if not constrained:
        return DeviceSet(tuple(devices), "Slurm does not hide the other GPUs")
    return DeviceSet(_part(devices, [by_index[number] for number in ids]), because)


def mps_set(
    devices: Sequence[Device],
    daemon_value: str | None,
    *,
    order: str | None = None,
    driver_version: str | None = None,
) -> DeviceSet:
    """Give the GPUs of an MPS daemon, in the order in which a client's integers count them.

    Ask `resolve` about a client with `cuda_order` = their indices.
    """
    mapping = resolve(daemon_value, devices, order=order, driver_version=driver_version)
    return DeviceSet(mapping.visible, "the MPS daemon's CUDA_VISIBLE_DEVICES")


def _named(name: str, devices: Sequence[Device]) -> tuple[Device, ...] | None:
    """Find what one name stands for: an index, 0:1 (the second MIG device of GPU 0) or a UUID."""
    if name == "all":
        return tuple(devices)
    if _INDEX.fullmatch(name):
        return tuple(d for d in devices if d.index == int(name)) or None
    parts = [part for device in devices for part in device.parts()]
    mig = _MIG_INDEX.fullmatch(name)
    if mig is not None:
        place = [part for part in parts if part.index == int(mig[1]) and part.instance]
        return tuple(place[int(mig[2]) :][:1]) or None
    if name.startswith("MIG-"):
        return tuple(part for part in parts if part.mig_uuid == name) or None
    fits = [d for d in devices if name.startswith("GPU-") and (d.uuid or "").startswith(name)]
    return (fits[0],) if len(fits) == 1 else None


def _part(devices: Sequence[Device], chosen: Sequence[Device]) -> tuple[Device, ...]:
    """Keep the machine's order, and of a GPU in MIG mode the MIG devices that were chosen."""
    kept = []
    for device in devices:
        if device in chosen:
            kept.append(device)
            continue
        instances = tuple(
            part.instance for part in device.parts() if part in chosen and part.instance
        )
        if instances:
            kept.append(msgspec.structs.replace(device, mig=instances))
    return tuple(kept)
