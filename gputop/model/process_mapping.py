"""The mapping of a running process: its own variables among the GPUs that it can reach, held
against the GPUs on which the driver sees it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from gputop.model.advice import Advice
from gputop.model.device_sets import node_set
from gputop.model.enumeration import Device
from gputop.model.environ import NAME, ORDER, Environ
from gputop.model.mapping import Hidden, Mapping
from gputop.model.process_advice import container_advice, environ_advice, evidence_advice
from gputop.model.visibility import resolve

_WHY_UNKNOWN = {
    "overwritten": "the process wrote over the variables that it was started with",
    "unreadable": "only root and its owner may read the variables of this process",
    "gone": "there is no such process here any more",
}


def process_mapping(
    environ: Environ,
    devices: Sequence[Device],
    minors: Collection[int] | None,
    used: Collection[Device],
    *,
    driver_version: str | None = None,
    in_container: bool = False,
) -> tuple[Mapping, tuple[Advice, ...]]:
    """What CUDA devices mean inside a process, and what is to be said about it.

    `minors` are the device nodes that it sees (None: not known, the whole machine is assumed),
    `used` the NVML indices of the GPUs on which the driver lists it.
    """
    said = environ_advice(environ, in_container=in_container)
    because = _WHY_UNKNOWN.get(environ.missing)
    if because is not None:
        return _unknown(None, None, because), said
    value, order = environ.variables.get(NAME), environ.variables.get(ORDER)
    inside = None if minors is None else node_set(devices, minors)
    reachable = devices if inside is None or inside.devices is None else inside.devices
    mapping = resolve(value, reachable, order=order, driver_version=driver_version)
    if inside is not None:
        outside = [device for device in devices if device not in reachable]
        hidden = tuple(Hidden(device, f"not among {inside.because}") for device in outside)
        mapping = msgspec.structs.replace(mapping, hidden=(*mapping.hidden, *hidden))
    evidence = tuple(evidence_advice(mapping, [device.index for device in used]))
    advice = (*said, *container_advice(mapping, devices), *evidence)
    if any(one.id == "env-contradicted" for one in evidence):
        return _unknown(value, order, "the driver sees it on a GPU that its variables hide"), advice
    return mapping, advice


def _unknown(value: str | None, order: str | None, because: str) -> Mapping:
    return Mapping(
        value=value, order=order, certainty="unknown", because=because, visible=None, count=None
    )
