"""What is worth a word about the variables of a process, and about what the driver says of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputop.model.advice import Advice
from gputop.model.device_sets import DeviceSet
from gputop.model.enumeration import Device
from gputop.model.environ import CONTAINER, NAME, Environ
from gputop.model.evidence import Evidence
from gputop.model.mapping import Mapping
from gputop.model.text import printable


def name_advice(name: str) -> Advice:
    """Say that a misspelt name is not read."""
    message = f"{printable(name, 64)} is not read by CUDA. Did you mean {NAME}?"
    return Advice("name-typo", "error", f"{message} As it stands every GPU is visible.")


def container_variable_advice() -> Advice:
    """Say that the container runtime's variable means nothing to CUDA."""
    message = f"{CONTAINER} is read by the container runtime only; CUDA ignores it. Use {NAME}."
    return Advice("nvidia-visible-outside-container", "warning", message)


def environ_advice(environ: Environ, *, in_container: bool = False) -> tuple[Advice, ...]:
    """Judge the variables of a process."""
    found = [name_advice(name) for name in environ.misspelt]
    if environ.missing == "overwritten":
        message = (
            "The process overwrote its start-up environment (setproctitle: Ray, vLLM, gunicorn)."
            f" {NAME} cannot be read; showing only what NVML proves."
        )
        found.append(Advice("env-clobbered", "info", message))
    names = environ.variables
    if CONTAINER in names and NAME not in names and not in_container:
        found.append(container_variable_advice())
    return tuple(found)


def evidence_advice(
    mapping: Mapping, evidence: Evidence, used: Sequence[Device]
) -> Iterator[Advice]:
    """Judge what the driver's lists say to a process's variables."""
    names = ", ".join(device.label for device in used)
    if evidence.kind == "contradicted":
        message = (
            f"The process runs on {names}, which its variables hide: the program"
            " changed them before CUDA started (afterwards that has no effect), or counts other"
            " GPUs."
        )
        yield Advice("env-contradicted", "warning", message)
    elif evidence.kind == "ambiguous" and len(used) == 1 and mapping.visible:
        k = [device.place for device in mapping.visible].index(used[0].place)
        message = (
            f"The program may have set {NAME} itself (invisible in /proc) or simply chosen"
            f" cuda:{k}; the logical name of {names} is cuda:0 in the first case and cuda:{k} in"
            " the second."
        )
        yield Advice("set-in-process", "info", message)


def mps_advice(inside: DeviceSet, client: Mapping) -> Iterator[Advice]:
    """Judge an MPS client's value, which counts what its server left; `inside` is that."""
    stop, left = client.stopped_at, inside.order
    if stop is None or client.reason != "out_of_range" or not left:
        return
    numbers = ",".join(map(str, range(len(left))))
    message = (
        f"The MPS server already renumbered {','.join(map(str, left))} to {numbers}; the client's"
        f" index {printable(stop.entry, 24)} is invalid. Use UUIDs in both."
    )
    yield Advice("mps-double-mask", "warning", message)


def container_advice(inside: Mapping, machine: Sequence[Device]) -> Iterator[Advice]:
    """Judge a value that counts as the machine does, in a container that has fewer GPUs."""
    stop = inside.stopped_at
    if stop is None or inside.reason != "out_of_range":
        return
    if stop.entry.strip() in {str(device.index) for device in machine}:
        message = (
            f"GPU {stop.entry.strip()} of the machine has another number in the container, where"
            " GPUs count from 0. Use a UUID."
        )
        yield Advice("container-index", "warning", message)
