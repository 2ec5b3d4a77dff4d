"""The GPUs that a process can reach at all, by the best evidence there is.

    device nodes   facts: without /dev/nvidiaN, or if its control group forbids it, there is no
                   GPU N, whatever a variable says
    container      NVIDIA_VISIBLE_DEVICES, if the nodes are not known
    batch job      SLURM_STEP_GPUS, SLURM_JOB_GPUS: its control group may hide the other GPUs
    MPS server     its clients count the GPUs of its own CUDA_VISIBLE_DEVICES

Inside each of these, integers count from 0 again and an abbreviated UUID may be unique. The indices
that NVML gives gputop count from 0 among the GPUs of gputop's *own* container and job; a process
outside these counts others.

Sources: nvidia-container-toolkit, NVIDIA_VISIBLE_DEVICES (a set: its order means nothing); Slurm
gres.html and SLURM_JOB_GPUS; NVIDIA MPS guide, CUDA_VISIBLE_DEVICES.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from gputop.model.cuda.enumeration import Certainty, CudaDevice, shown
from gputop.model.cuda.mapping import weaker
from gputop.model.cuda.probe import probed_order
from gputop.model.cuda.resolve import resolve
from gputop.model.machine.environment import (
    CONTAINER,
    JOB_GPUS,
    NAME,
    ORDER,
    PIPE,
    AgentSurroundings,
    CudaContext,
    Environ,
    job_gpus,
    job_of,
    slurm_ids,
)
from gputop.model.machine.probed import Probed

NODES = "the device nodes that the process can see"
_DEFAULT_PIPE = "/tmp/nvidia-mps"
_NO_PIPE = "/dev/null"
"""The pipe folder that keeps a program off MPS although a server runs."""
_INDEX = re.compile(r"[0-9]{1,9}")
_MIG_INDEX = re.compile(r"([0-9]{1,9}):([0-9]{1,9})")


class DeviceSet(msgspec.Struct, frozen=True):
    """Devices of a machine that a process can reach, as `resolve` takes them."""

    devices: tuple[CudaDevice, ...] | None
    """None: which they are is not known."""
    reason: str
    """What says so, for people: the reason why other GPUs are not in the set. Empty: it has all."""
    order: tuple[int, ...] | None = None
    """The NVML indices in the order that integers count, if that is not CUDA's order."""
    certainty: Certainty = "exact"
    """The most that a mapping among them can have: less than exact if the set rests on a guess, or
    on a variable, which the process may have got from anywhere."""
    has_unlisted: bool = False
    """It may reach GPUs that NVML does not list to gputop."""

    def weakened(self, certainty: Certainty) -> DeviceSet:
        return msgspec.structs.replace(self, certainty=weaker(self.certainty, certainty))

    def missing(self, machine: Sequence[CudaDevice]) -> list[CudaDevice]:
        """Return the GPUs of a machine that are not in the set."""
        indices = {device.index for device in self.devices or ()}
        return [device for device in machine if device.index not in indices]


class Machine(msgspec.Struct, frozen=True):
    """What is the same for every process of a machine."""

    devices: tuple[CudaDevice, ...]
    driver_version: str | None = None
    probed: tuple[Probed, ...] = ()
    mps_servers: tuple[Environ, ...] = ()
    """The variables of the MPS servers that run on it."""
    surroundings: AgentSurroundings = AgentSurroundings()


class ProcessView(NamedTuple):
    """The facts about a process from which its GPUs are worked out."""

    context: CudaContext
    machine: Machine
    used: Sequence[CudaDevice] = ()
    """The GPUs and MIG devices on which the driver lists it with memory in use."""
    mps: bool | None = None
    """Whether the driver lists it as a client of an MPS server; None: it does not list it."""

    @property
    def variables(self) -> dict[str, str]:
        """The variables that it was started with."""
        return self.context.environ.variables

    @property
    def in_our_job(self) -> bool:
        """Whether gputop is in its batch job: by job id, or by GPUs if either has no id."""
        ours, job = self.machine.surroundings, job_of(self.variables)
        if job is None or ours.job is None:
            ids = job_gpus(self.variables)
            return ids is not None and ids == ours.job_gpus
        return job == ours.job


def reachable(process: ProcessView) -> DeviceSet:
    inside = _in_job(_in_view(process), process)
    if inside.devices == () or not is_mps_client(process):
        return inside
    return _mps_client(inside, process)


def _all(machine: Machine) -> DeviceSet:
    return DeviceSet(tuple(machine.devices), "")


# --- device nodes and containers -----------------------------------------------------------------


def _in_view(process: ProcessView) -> DeviceSet:
    context, machine = process.context, process.machine
    devices, minors = machine.devices, context.minors
    if minors is None and not context.in_container:
        return _beside_gputop(process)
    if minors is None:
        return container_set(devices, process.variables.get(CONTAINER))
    if context.in_container and any(d.mig_enabled and d.minor in minors for d in devices):
        # All MIG devices of a GPU share its node; the variable says which of them are given.
        parts = container_set(devices, process.variables.get(CONTAINER))
        left = tuple(device for device in parts.devices or () if device.minor in minors)
        return parts if parts.devices is None else msgspec.structs.replace(parts, devices=left)
    if _unlisted(minors, machine):
        return DeviceSet(None, "it reaches GPUs that are hidden from gputop", has_unlisted=True)
    inside = node_set(devices, minors)
    return inside if inside.devices is None or inside.missing(devices) else _all(machine)


def _unlisted(minors: Sequence[int], machine: Machine) -> bool:
    """Return whether a process has GPUs that NVML does not list to gputop. A node that gputop sees
    too is a leftover of a GPU that is gone, unless a batch job hides it."""
    ours, more = machine.surroundings, set(minors) - {device.minor for device in machine.devices}
    if ours.job is not None or ours.minors is None:
        return bool(more) and (ours.container or ours.job is not None)
    return not more <= set(ours.minors)


def _beside_gputop(process: ProcessView) -> DeviceSet:
    """Return the GPUs of a process that sees the same files as gputop. If gputop is in a batch job,
    that job's control group may limit what NVML lists to the job's GPUs."""
    machine, ours = process.machine, process.machine.surroundings
    if ours.job is None or process.in_our_job:
        return _all(machine)
    ids, indices = set(slurm_ids(ours.job_gpus)), {device.index for device in machine.devices}
    renumbered = bool(ids) and ids != indices and len(slurm_ids(ours.job_gpus)) == len(indices)
    if renumbered or not {*(ours.minors or ())} <= {device.minor for device in machine.devices}:
        return DeviceSet(None, f"gputop itself is in a batch job ({ours.job}), this process is not")
    return _all(machine)


def node_set(devices: Sequence[CudaDevice], minors: Collection[int]) -> DeviceSet:
    """Return the GPUs whose device nodes (/dev/nvidia<minor>) the process can open."""
    if not minors:
        return DeviceSet((), NODES)
    if any(device.minor is None for device in devices):
        return DeviceSet(None, "the minor numbers of the GPUs are not all known")
    return DeviceSet(tuple(device for device in devices if device.minor in minors), NODES)


def container_set(devices: Sequence[CudaDevice], text: str | None) -> DeviceSet:
    """Read NVIDIA_VISIBLE_DEVICES of a container; prefer `node_set`, which shows its effect."""
    if text is None or text in ("", "void"):
        return DeviceSet(None, "NVIDIA_VISIBLE_DEVICES does not say which GPUs the container has")
    because = f"NVIDIA_VISIBLE_DEVICES={shown(text)} of the container"
    if text in ("all", "none"):
        return DeviceSet(tuple(devices) if text == "all" else (), because, certainty="expected")
    chosen: list[CudaDevice] = []
    for name in text.split(","):
        # It may be a CDI name, such as nvidia.com/gpu=0.
        named = _named(name.strip().rpartition("=")[2], devices)
        if named is None:
            return DeviceSet(None, f"{because} names a GPU that is not here")
        chosen += named
    return DeviceSet(_chosen(devices, chosen), because, certainty="expected")


def _named(name: str, devices: Sequence[CudaDevice]) -> tuple[CudaDevice, ...] | None:
    """Find what one name stands for: an index, 0:1 (the second MIG device of GPU 0) or a UUID."""
    if name == "all":
        return tuple(devices)
    if _INDEX.fullmatch(name):
        return tuple(d for d in devices if d.index == int(name)) or None
    parts = [part for device in devices for part in device.parts()]
    if mig := _MIG_INDEX.fullmatch(name):
        instances = [part for part in parts if part.index == int(mig[1]) and part.instance]
        return tuple(instances[int(mig[2]) :][:1]) or None
    if name.startswith("MIG-"):
        return tuple(part for part in parts if part.mig_uuid == name) or None
    fits = [d for d in devices if name.startswith("GPU-") and (d.uuid or "").startswith(name)]
    return (fits[0],) if len(fits) == 1 else None


def _chosen(devices: Sequence[CudaDevice], chosen: Sequence[CudaDevice]) -> tuple[CudaDevice, ...]:
    """Return the chosen devices in the machine's order, GPUs in MIG mode with the chosen parts."""
    kept = []
    for device in devices:
        instances = tuple(p.instance for p in device.parts() if p in chosen and p.instance)
        if device in chosen:
            kept.append(device)
        elif instances:
            kept.append(msgspec.structs.replace(device, mig=instances))
    return tuple(kept)


# --- batch jobs ----------------------------------------------------------------------------------


def _in_job(inside: DeviceSet, process: ProcessView) -> DeviceSet:
    variables, devices = process.variables, process.machine.devices
    job, ids = job_of(variables), job_gpus(variables)
    if not inside.devices or (job is None and ids is None):
        return inside
    if process.in_our_job:
        return _in_our_job(inside, process)
    if ids is None and process.used:
        return inside.weakened("predicted")
    if ids is None:
        because = f"it is in a batch job ({job}), and nothing says which GPUs it has"
        return DeviceSet(None, because)
    numbers, indices = slurm_ids(ids), {device.index for device in devices}
    if process.used and len(numbers) == len(devices) and not {*numbers} <= indices:
        # The job has as many GPUs as NVML lists, by other numbers: gputop was started in it, too.
        return inside.weakened("predicted")
    return _both(inside, _slurm(process, ids), ids)


def _slurm(process: ProcessView, ids: str | None) -> DeviceSet:
    """Read a job's GPUs, which are `ids` as NVML counts them here."""
    variables = process.variables
    said = (f"{name}={shown(variables[name])}" for name in JOB_GPUS if name in variables)
    return slurm_set(process.machine.devices, ids, variables.get(NAME), next(said, ""))


def _in_our_job(inside: DeviceSet, process: ProcessView) -> DeviceSet:
    """Narrow the GPUs of gputop's own job, which are all that NVML lists, to those of a step."""
    variables, devices = process.variables, process.machine.devices
    theirs, ours = slurm_ids(job_gpus(variables)), slurm_ids(process.machine.surroundings.job_gpus)
    if not theirs or len(theirs) == len(devices):
        return inside
    if len(ours) != len(devices):
        return _both(inside, _slurm(process, job_gpus(variables)), None)
    # Slurm and NVML count alike: the k-th of the job's numbers is the k-th that NVML lists.
    index = dict(zip(sorted(ours), sorted(device.index for device in devices), strict=True))
    if not set(theirs) <= index.keys():
        return DeviceSet(None, "its Slurm step has GPUs that gputop's own step does not have")
    here = ",".join(str(index[number]) for number in theirs)
    return _both(inside, _slurm(process, here), here)


def _both(inside: DeviceSet, job: DeviceSet, ids: str | None) -> DeviceSet:
    kept = {device.index for device in inside.devices or ()}
    if job.devices is None:
        return job if not inside.reason or not kept <= set(slurm_ids(ids)) else inside
    indices = {device.index for device in job.devices}
    left = tuple(device for device in inside.devices or () if device.index in indices)
    smaller = inside if kept <= indices else job
    return DeviceSet(left, smaller.reason, certainty=weaker(inside.certainty, job.certainty))


def slurm_set(
    devices: Sequence[CudaDevice], job_gpus: str | None, value: str | None, said: str = ""
) -> DeviceSet:
    """Read SLURM_JOB_GPUS (or SLURM_STEP_GPUS), which keeps the machine's numbers.

    `said` is the variable as it was set. `value` is CUDA_VISIBLE_DEVICES. If it equals the job's
    numbers, Slurm did not renumber the GPUs (ConstrainDevices); if it counts from 0, Slurm did.
    """
    ids, by_index = slurm_ids(job_gpus), {device.index: device for device in devices}
    if not ids or not by_index.keys() >= set(ids):
        return DeviceSet(None, f"{said or 'SLURM_JOB_GPUS'} does not say which GPUs the job has")
    if len(ids) == len(by_index):
        return DeviceSet(tuple(devices), "")  # with the whole machine, nothing is left to hide
    because = said or f"SLURM_JOB_GPUS={shown(job_gpus or '')}"
    constrained = _constrained(ids, value)
    if constrained is None:
        return DeviceSet(None, f"{because}, and whether Slurm hides the other GPUs is not known")
    # Slurm's numbers are the order of its gres.conf: NVML's with AutoDetect=nvml.
    if not constrained:
        because = f"{because} with the numbers of the machine"
        return DeviceSet(tuple(devices), because, certainty="expected")
    inside = _chosen(devices, [by_index[number] for number in ids])
    return DeviceSet(inside, because, certainty="expected")


def _constrained(ids: Sequence[int], value: str | None) -> bool | None:
    """Return whether Slurm hides other GPUs, by CUDA_VISIBLE_DEVICES; None if that is not clear."""
    if value == ",".join(map(str, ids)):
        return False
    renumbered = value == ",".join(map(str, range(len(ids))))
    return True if renumbered or (value or "").startswith(("GPU-", "MIG-")) else None


# --- MPS servers ---------------------------------------------------------------------------------


def is_mps_client(process: ProcessView) -> bool:
    """Return whether an MPS server numbers the GPUs of a process, or will.

    The driver's list comes first. A program that has not started CUDA connects to the server in the
    folder that its variable names, or in the default folder (nvidia-cuda-mps-control(1)).
    """
    if process.mps:
        return True
    pipe = _pipe(process.context.environ)
    if not process.machine.mps_servers or pipe == _NO_PIPE:
        return False
    if pipe != _DEFAULT_PIPE:
        return True
    return process.mps is None and not process.context.in_container and bool(_servers(process))


def _mps_client(inside: DeviceSet, process: ProcessView) -> DeviceSet:
    servers = _servers(process)
    kinds = {(server.variables.get(NAME), server.variables.get(ORDER)) for server in servers}
    if len(kinds) != 1 or {server.missing for server in servers} - {"unset", "empty_block"}:
        because = "an MPS server, whose variables are not known, may have numbered them"
        return DeviceSet(None, because)
    if inside.reason:
        return DeviceSet(None, "an MPS server and its container or job both number its GPUs")
    served = mps_set(process.machine, *kinds.pop())
    # A process that the driver does not list as a client may still start without the server.
    return served if process.mps else served.weakened("expected")


def mps_set(machine: Machine, value: str | None, order: str | None) -> DeviceSet:
    """Return the GPUs of an MPS server with these variables, in the order that a client's integers
    count. For a client, call `resolve` with `cuda_order` = the set's `order`."""
    mapping = resolve(
        value,
        machine.devices,
        order=order,
        cuda_order=probed_order(machine.probed, order, machine.devices),
        driver_version=machine.driver_version,
    )
    because = "the GPUs of the MPS server's CUDA_VISIBLE_DEVICES"
    if mapping.visible is None:
        return DeviceSet(None, f"it counts {because}, and {mapping.because}")
    counted = tuple(device.index for device in mapping.visible)
    certainty = mapping.certainty if mapping.documented else "predicted"
    return DeviceSet(mapping.visible, because, counted, certainty)


def _servers(process: ProcessView) -> list[Environ]:
    pipe = _pipe(process.context.environ)
    return [server for server in process.machine.mps_servers if _pipe(server) == pipe]


def _pipe(environ: Environ) -> str:
    """Return the folder of an MPS server; unset or empty means the default."""
    pipe = environ.variables.get(PIPE)
    return posixpath.normpath(pipe) if pipe else _DEFAULT_PIPE
