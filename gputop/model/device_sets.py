"""The GPUs that a process lives among: container, Slurm job, MPS server.

Each gives a part of the machine's devices, which is what `resolve` is to be asked about: inside,
integers count from 0 again and an abbreviated UUID may be unique.

Sources: nvidia-container-toolkit, NVIDIA_VISIBLE_DEVICES (a set: its order means nothing); Slurm
gres.html and SLURM_JOB_GPUS; NVIDIA MPS guide, CUDA_VISIBLE_DEVICES.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import msgspec

from gputop.model.enumeration import Device, shown
from gputop.model.environ import CONTAINER, NAME, ORDER, Environ, Surroundings
from gputop.model.probed import Probed
from gputop.model.visibility import resolve

_PIPE = "CUDA_MPS_PIPE_DIRECTORY"
_INDEX = re.compile(r"[0-9]{1,9}")
_MIG_INDEX = re.compile(r"([0-9]{1,9}):([0-9]{1,9})")


class DeviceSet(msgspec.Struct, frozen=True):
    """Devices of a machine, as the resolver wants them."""

    devices: tuple[Device, ...] | None
    """None: which they are cannot be told."""
    because: str
    """What says so, for people; the reason of every GPU that is not in it. Empty: it is all."""
    order: tuple[int, ...] | None = None
    """Where integers count in another order than CUDA's: their NVML indices in it."""


class Machine(msgspec.Struct, frozen=True):
    """What is the same for every process of a machine."""

    devices: tuple[Device, ...]
    driver_version: str | None = None
    probed: tuple[Probed, ...] = ()
    mps_servers: tuple[Environ, ...] = ()
    """The variables of the MPS servers that run on it."""


def reachable(
    variables: Mapping[str, str], around: Surroundings, machine: Machine, *, mps: bool = False
) -> DeviceSet:
    """Give the GPUs that a process can reach at all, by what tells it best.

    Device nodes are facts; without them the variables of container and scheduler are asked, and an
    MPS server's for its client.
    """
    devices, container = machine.devices, variables.get(CONTAINER)
    if around.in_container and (around.minors is None or any(d.mig_enabled for d in devices)):
        return container_set(devices, container)  # the node of a GPU is that of all its parts
    if around.minors is not None:
        inside = node_set(devices, around.minors)
        if inside.devices is None or len(inside.devices) < len(devices):
            return inside
    job = variables.get("SLURM_STEP_GPUS", variables.get("SLURM_JOB_GPUS"))
    if job is not None:
        return slurm_set(devices, job, variables.get(NAME))
    if mps or (_PIPE in variables and machine.mps_servers):
        return _mps_client(variables, machine)
    return DeviceSet(tuple(devices), "")


def _mps_client(variables: Mapping[str, str], machine: Machine) -> DeviceSet:
    pipe = variables.get(_PIPE)
    servers = [one for one in machine.mps_servers if one.variables.get(_PIPE) == pipe]
    if len(servers) != 1 or servers[0].missing not in ("unset", "empty_block"):
        return DeviceSet(
            None, "an MPS server, whose variables are not known, may have numbered them"
        )
    server = servers[0].variables
    return mps_set(
        machine.devices,
        server.get(NAME),
        order=server.get(ORDER),
        driver_version=machine.driver_version,
    )


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

    Ask `resolve` about a client with `cuda_order` = its `order`.
    """
    mapping = resolve(daemon_value, devices, order=order, driver_version=driver_version)
    counted = None if mapping.visible is None else tuple(d.index for d in mapping.visible)
    return DeviceSet(mapping.visible, "the MPS daemon's CUDA_VISIBLE_DEVICES", counted)


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
