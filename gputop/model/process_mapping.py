"""The mapping of a running process: its own variables among the GPUs that it can reach, held
against the GPUs on which the driver sees it.

    environ.py           the variables that it was started with
    device_sets.py       the GPUs that it can reach: container, Slurm job, MPS server
    process_mapping.py   what CUDA makes of both (this module)
    evidence.py          what the driver's lists of processes say to that
    logical_names.py     the same for every process of a frame
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from gputop.model.advice import Advice
from gputop.model.device_sets import DeviceSet, Machine, reachable
from gputop.model.enumeration import Device
from gputop.model.environ import NAME, ORDER, Environ, Surroundings
from gputop.model.evidence import Evidence, is_among, only_device, weigh
from gputop.model.mapping import Hidden, Mapping
from gputop.model.probe import probed_order
from gputop.model.process_advice import (
    container_advice,
    environ_advice,
    evidence_advice,
    mps_advice,
)
from gputop.model.readings import kind_of
from gputop.model.text import printable
from gputop.model.visibility import resolve

_WHY_UNKNOWN = {
    "overwritten": "the process wrote over the variables that it was started with",
    "unreadable": "only root and its owner may read the variables of this process",
    "gone": "there is no such process here any more",
    "too_long": "its variables are too long to be taken over",
}
_SHORT = {"overwritten": "wiped", "unreadable": "private"}


class ProcessMapping(msgspec.Struct, frozen=True):
    """What CUDA's devices are inside a process."""

    mapping: Mapping
    evidence: Evidence
    inside: DeviceSet
    environ: Environ
    advice: tuple[Advice, ...] = ()

    def name(self, device: Device) -> str | None:
        """Give what the process calls a GPU or MIG device that it uses: `cuda:0`, `cuda:0?` where
        that is likely and not sure; None where nothing can be said."""
        return dict(self.evidence.names).get(device.place)

    def why_not(self) -> str | None:
        """Give the reason of there being no name, in a word; None where it needs none."""
        if self.evidence.kind == "contradicted":
            return "changed"
        if self.mapping.certainty != "unknown":
            return None
        return _SHORT.get(self.environ.missing, "unknown")

    def reasoning(self) -> tuple[str, ...]:
        """How it was found, a sentence each, printable."""
        lines = (_started(self.environ), self.reach, _meaning(self.mapping), self.evidence.because)
        return tuple(printable(line, 600) for line in lines if line)

    @property
    def reach(self) -> str:
        """The GPUs that it can reach, as a sentence; empty where that is all."""
        if not self.inside.because or self.inside.devices is None:
            return ""
        names = ", ".join(device.label for device in self.inside.devices) or "no GPU"
        return printable(f"It reaches {names}: {self.inside.because}.", 600)

    @property
    def unread(self) -> str | None:
        """Why its variables are not known; None where they are."""
        return _WHY_UNKNOWN.get(self.environ.missing)


def process_mapping(
    around: Surroundings, machine: Machine, used: Sequence[Device], *, mps: bool = False
) -> ProcessMapping:
    """Tell what CUDA devices mean inside a process.

    `used` are the GPUs and MIG devices on which the driver lists it with memory in use, `mps` is
    true for a client that the driver lists as one.
    """
    own, child = around.environ, around.descendant
    inside = reachable(own.variables, around, machine, mps=mps)
    said = environ_advice(own, in_container=around.in_container)
    if child is not None and used:
        guess = _resolve(child.environ, inside, machine)
        if is_among(used, guess):
            evidence = weigh(guess, used, around, from_child=True)
            return ProcessMapping(guess, evidence, inside, own, said)
    because = _WHY_UNKNOWN.get(own.missing)
    if because is not None:
        mapping = _unknown(None, None, because)
        return ProcessMapping(mapping, only_device(inside, machine, used), inside, own, said)
    mapping = _resolve(own, inside, machine)
    evidence = weigh(mapping, used, around)
    counted = container_advice(mapping, machine.devices)
    if inside.order is not None:
        counted = mps_advice(inside, mapping)
    advice = (*said, *counted, *evidence_advice(mapping, evidence, used))
    if evidence.kind == "contradicted":
        because = "the driver sees it on a GPU that its variables hide"
        mapping = _unknown(mapping.value, mapping.order, because)
    return ProcessMapping(mapping, evidence, inside, own, advice)


def _resolve(environ: Environ, inside: DeviceSet, machine: Machine) -> Mapping:
    """Ask the resolver about the GPUs that the process reaches."""
    value, order = environ.variables.get(NAME), environ.variables.get(ORDER)
    devices = inside.devices
    if devices is None:
        # A whole UUID names the same GPU anywhere; integers count what is not known.
        if not value or kind_of(value) == "integer":
            return _unknown(value, order, inside.because)
        devices = machine.devices
    indices = [device.index for device in devices]
    known = inside.order or probed_order(machine.probed, order, machine.devices)
    mapping = resolve(
        value,
        devices,
        order=order,
        cuda_order=known and [index for index in known if index in indices],
        driver_version=machine.driver_version,
    )
    outside = [device for device in machine.devices if device.index not in indices]
    return _with_hidden(mapping, outside, inside.because)


def _with_hidden(mapping: Mapping, outside: Collection[Device], because: str) -> Mapping:
    hidden = tuple(Hidden(device, f"not among {because}") for device in outside)
    return msgspec.structs.replace(mapping, hidden=(*mapping.hidden, *hidden))


def _unknown(value: str | None, order: str | None, because: str) -> Mapping:
    return Mapping(
        value=value, order=order, certainty="unknown", because=because, visible=None, count=None
    )


def _started(environ: Environ) -> str:
    because = _WHY_UNKNOWN.get(environ.missing)
    if because is not None:
        return f"What it was started with cannot be read: {because}."
    parts = []
    for name in (NAME, ORDER):
        value = environ.get(name).value
        parts.append(f"{name} unset" if value is None else f"{name}={printable(value, 200)}")
    return f"It was started with {' and '.join(parts)}."


def _meaning(mapping: Mapping) -> str:
    if mapping.visible is None:
        return f"Which GPU is cuda:0 in it cannot be told: {mapping.because}."
    names = [f"cuda:{k} is {device.label}" for k, device in enumerate(mapping.visible)]
    how = mapping.certainty if mapping.documented else "not documented"
    return f"There {', '.join(names) or 'no GPU is visible'} ({how}: {mapping.because})."
