"""What the driver's lists of processes say to the mapping that a process's variables give.

The driver lists a process on the GPUs where it has a context, whatever its variables say. So a GPU
that they hide proves that they were changed, and a single one of many leaves two readings open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from gputop.model.device_sets import DeviceSet, Machine
from gputop.model.enumeration import Device, Place
from gputop.model.environ import Surroundings
from gputop.model.mapping import Mapping

EvidenceKind = Literal[
    "confirmed", "contradicted", "ambiguous", "inferred", "unused", "unread", "unknown"
]
"""How the driver's lists relate to the variables.

confirmed     it is where they say, and what it calls the GPU follows
contradicted  it is on a GPU that they hide: they were changed, or count otherwise
ambiguous     it fits, and so does a mask that the program set itself
inferred      taken from the variables of a process that it started
unused        the driver does not list it with memory in use, which proves nothing
unread        its variables cannot be read
unknown       they do not tell which GPU is which
"""

_GREEDY = {"tensorflow": "TensorFlow", "jax": "JAX"}
"""Frameworks that make a context on every GPU that they see."""


class Evidence(msgspec.Struct, frozen=True):
    """What follows from the driver's lists."""

    kind: EvidenceKind
    because: str
    """A sentence for people; empty: there is nothing to say."""
    names: tuple[tuple[Place, str], ...] = ()
    """Of the devices in use, what the process calls them; likely ones end in `?`."""


def weigh(
    mapping: Mapping, used: Sequence[Device], around: Surroundings, *, from_child: bool = False
) -> Evidence:
    """Hold `used`, where the driver sees the process, against what its variables give."""
    where = f"The driver sees it on {_listed(used)}"
    if not used:
        return Evidence("unused", "The driver does not list it with memory in use on any GPU.")
    if from_child and around.descendant is not None:
        because = (
            f"{where}, which fits the variables of a process that it started"
            f" ({around.descendant.pid}): it has probably set them itself."
        )
        return Evidence("inferred", because, _names(mapping, used, sure=False))
    if mapping.visible is None:
        return Evidence("unknown", f"{where}.")
    if not is_among(used, mapping):
        names = ((used[0].place, "cuda:0?"),) if len(used) == 1 else ()
        return Evidence("contradicted", f"{where}, which its variables hide.", names)
    return _fitting(mapping, used, around, where)


def _fitting(
    mapping: Mapping, used: Sequence[Device], around: Surroundings, where: str
) -> Evidence:
    """They agree. Yet a program may have masked GPUs itself, which shows nowhere."""
    sure = mapping.certainty in ("exact", "expected") and mapping.documented
    names = _names(mapping, used, sure=sure)
    masked = _masked(mapping, used)
    rank = around.environ.variables.get("LOCAL_RANK")
    if mapping.value is not None or [name for _, name in names] == [name for _, name in masked]:
        return Evidence("confirmed", f"{where}, which fits.", names)
    if rank is not None and f"cuda:{rank}" in [name.rstrip("?") for _, name in names]:
        return Evidence("confirmed", f"{where}, which fits its LOCAL_RANK={rank}.", names)
    greedy = [_GREEDY[one] for one in around.frameworks if one in _GREEDY]
    if greedy:
        because = (
            f"{where} only. {greedy[0]} makes a context on every GPU that it sees: the program has"
            " probably hidden the others itself."
        )
        return Evidence("ambiguous", because, tuple((place, f"{name}?") for place, name in masked))
    because = f"{where}: it may have chosen that, or hidden the other GPUs itself."
    return Evidence("ambiguous", because, _names(mapping, used, sure=False))


def only_device(inside: DeviceSet, machine: Machine, used: Sequence[Device]) -> Evidence:
    """Variables that cannot be read do not matter where there is one GPU only."""
    where = f"The driver sees it on {_listed(used)}" if used else ""
    devices = machine.devices if inside.devices is None else inside.devices
    parts = [part for device in devices for part in device.parts()]
    if [part.place for part in parts] == [device.place for device in used] and len(parts) == 1:
        because = f"{where}, the only one that it can reach: any program calls that cuda:0."
        return Evidence("unread", because, ((used[0].place, "cuda:0"),))
    return Evidence("unread", f"{where}." if where else "")


def is_among(used: Sequence[Device], mapping: Mapping) -> bool:
    """Tell whether all of them are visible."""
    return {one.place for one in used} <= {one.place for one in mapping.visible or ()}


def _names(
    mapping: Mapping, used: Sequence[Device], *, sure: bool
) -> tuple[tuple[Place, str], ...]:
    visible = [device.place for device in mapping.visible or ()]
    end = "" if sure else "?"
    return tuple((one.place, f"cuda:{visible.index(one.place)}{end}") for one in used)


def _masked(mapping: Mapping, used: Sequence[Device]) -> tuple[tuple[Place, str], ...]:
    """What the names are if the program sees no other GPU than those in use."""
    wanted = [one.place for one in used]
    seen = [one.place for one in mapping.visible or () if one.place in wanted]
    return tuple((place, f"cuda:{seen.index(place)}") for place in wanted)


def _listed(used: Sequence[Device]) -> str:
    return ", ".join(device.label for device in used)
