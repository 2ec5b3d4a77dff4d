"""How the driver's lists of processes bear on the mapping that a process's variables give.

The driver lists a process on the GPUs where it has a context, whatever its variables say. A GPU
that they hide contradicts them. If the process uses one GPU of several, two readings stay open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from gputop.model.cuda.enumeration import CudaDevice, DeviceId
from gputop.model.cuda.mapping import Mapping
from gputop.model.cuda.reach import DeviceSet, ProcessView
from gputop.model.machine.environment import RANKS

EvidenceKind = Literal[
    "confirmed", "contradicted", "ambiguous", "inferred", "unused", "unread", "unknown"
]
"""How the driver's lists relate to the variables of a process.

confirmed     it is where they say, so its names for the GPUs follow
contradicted  it is on a GPU that they hide, or that it cannot reach: they were changed, or count
              other GPUs
ambiguous     they fit, but so would a mask that the program set itself
inferred      taken from the variables of a process that it started, or that started it
unused        the driver does not list it with memory in use, which proves nothing
unread        its variables cannot be read
unknown       they do not settle which GPU is which
"""

HIDDEN = "its variables hide"
_ON_EVERY_GPU = {"tensorflow": "TensorFlow", "jax": "JAX"}
"""Frameworks that create a context on every GPU that they see."""


DeviceNames = tuple[tuple[DeviceId, str], ...]


class Evidence(msgspec.Struct, frozen=True):
    """What follows from the driver's lists."""

    kind: EvidenceKind
    because: str
    """A sentence for people; empty if there is nothing to say."""
    names: DeviceNames = ()
    """The process's name for each device in use; a name that is only likely ends in `?`."""
    against: str = ""
    """If contradicted: what rules out the GPU in use, as the end of a sentence."""

    @property
    def settles(self) -> bool:
        """Whether the process's own variables explain by themselves where it is."""
        return self.kind in ("confirmed", "unused") or (self.kind == "unread" and bool(self.names))


def weigh(mapping: Mapping, inside: DeviceSet, process: ProcessView) -> Evidence:
    """Compare the GPUs on which the driver sees a process with the mapping that its variables give
    among the GPUs that it can reach (`inside`)."""
    used = process.used
    if not used:
        return Evidence("unused", "The driver does not list it with memory in use on any GPU.")
    where = _where(used)
    if mapping.visible is None:
        # A list with one entry leaves only cuda:0, whichever GPU that is.
        single = len(used) == 1 and mapping.value and "," not in mapping.value
        return Evidence("unknown", f"{where}.", ((used[0].id, "cuda:0?"),) if single else ())
    if is_among(used, mapping):
        return _fitting(mapping, process, where)
    reached = {part.index for part in inside.devices or ()}
    if {device.index for device in used} <= reached:
        return Evidence("contradicted", f"{where}, which its variables hide.", against=HIDDEN)
    return _out_of_reach(inside, where)


def _where(used: Sequence[CudaDevice]) -> str:
    return f"The driver sees it on {', '.join(device.label for device in used)}"


def _out_of_reach(inside: DeviceSet, where: str) -> Evidence:
    because = f"{where}, which is not among {inside.reason}."
    return Evidence("contradicted", because, against="it should not reach")


def _fitting(mapping: Mapping, process: ProcessView, where: str) -> Evidence:
    """Return the evidence if both agree. The program may still have hidden GPUs itself, unseen,
    whether its variables list several or leave all visible; no probe of them shows that."""
    sure = mapping.certainty in ("exact", "expected") and mapping.documented
    visible = [device.id for device in mapping.visible or ()]
    used = [device.id for device in process.used]
    names = _names(visible, used, "" if sure else "?")
    # What the names are if the program sees no other GPU than those in use.
    alone = [device for device in visible if device in used]
    if alone == visible[: len(alone)]:
        return Evidence("confirmed", f"{where}, which fits.", names)
    called = [name for _, name in _names(visible, used, "")]
    for rank in RANKS:
        if f"cuda:{process.variables.get(rank)}" in called:
            because = f"{where}, which fits its {rank}={process.variables[rank]}."
            return Evidence("confirmed", because, names)
    on_every = [_ON_EVERY_GPU[id_] for id_ in process.context.frameworks if id_ in _ON_EVERY_GPU]
    if on_every:
        because = (
            f"{where} only. {on_every[0]} makes a context on every GPU that it sees: the program"
            " has probably hidden the others itself."
        )
        return Evidence("ambiguous", because, _names(alone, used, "?"))
    because = f"{where}: it may have chosen that, or hidden the other GPUs itself."
    return Evidence("ambiguous", because, _names(visible, used, "?"))


def inferred(guess: Mapping, process: ProcessView, whose: str) -> Evidence:
    """Name the GPUs by the variables of another process, which fit."""
    because = f"{_where(process.used)}, which fits the variables of {whose}."
    visible = [device.id for device in guess.visible or ()]
    return Evidence("inferred", because, _names(visible, [d.id for d in process.used], "?"))


def only_device(inside: DeviceSet, process: ProcessView) -> Evidence:
    """Return the evidence if variables cannot be read; with one GPU only they do not matter."""
    used = process.used
    where = _where(used) if used else ""
    devices = process.machine.devices if inside.devices is None else inside.devices
    if not {device.index for device in used} <= {device.index for device in devices}:
        return _out_of_reach(inside, where)
    reached = [part.id for device in devices for part in device.parts()]
    only = len(reached) == 1 and reached == [device.id for device in used]
    if only and not inside.has_unlisted:
        because = f"{where}, the only one that it can reach: any program calls that cuda:0."
        return Evidence("unread", because, ((used[0].id, "cuda:0"),))
    return Evidence("unread", f"{where}." if where else "")


def is_among(used: Sequence[CudaDevice], mapping: Mapping) -> bool:
    return {device.id for device in used} <= {device.id for device in mapping.visible or ()}


def _names(visible: list[DeviceId], used: list[DeviceId], end: str) -> DeviceNames:
    return tuple((device, f"cuda:{visible.index(device)}{end}") for device in used)
