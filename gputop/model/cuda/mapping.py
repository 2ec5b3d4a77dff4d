"""The answer to what a CUDA_VISIBLE_DEVICES value means."""

from __future__ import annotations

import msgspec

from gputop.model.cuda.entries import EntryReason, ResolvedEntry
from gputop.model.cuda.enumeration import Certainty, CudaDevice, normalize_bus_id
from gputop.model.machine.text import MISSING

_CERTAINTIES: tuple[Certainty, ...] = ("exact", "expected", "predicted", "unknown")


def weaker(certainty: Certainty, other: Certainty) -> Certainty:
    """Return whichever of two certainties claims less."""
    return max(certainty, other, key=_CERTAINTIES.index)


class Hidden(msgspec.Struct, frozen=True):
    """A GPU or MIG device that the program does not see, and why, in one sentence."""

    device: CudaDevice
    reason: str


class Mapping(msgspec.Struct, frozen=True, kw_only=True):
    """What a value means on a machine."""

    value: str | None
    """CUDA_VISIBLE_DEVICES; None: unset."""
    order: str | None
    """CUDA_DEVICE_ORDER; None: unset."""
    certainty: Certainty
    """Certainty of the order; a value that is not `documented` may still mean something else."""
    because: str
    """A sentence for people: what the certainty rests on."""
    order_certainty: Certainty | None = None
    """Certainty of the order alone, where something else limits `certainty`; otherwise None."""
    documented: bool = True
    """False: sources are silent on this value; show "not documented"."""
    visible: tuple[CudaDevice, ...] | None = None
    """The k-th is cuda:k; None: which GPU is which is not known."""
    visible_set: tuple[CudaDevice, ...] | None = None
    """The GPUs if only the set of them is known; their order means nothing."""
    count: int | None = None
    """The number of visible GPUs, which may be known even if `visible` is not."""
    reason: EntryReason | None = None
    """Why the result is not simply the list: a stop, an order, unset, empty, twice, MIG."""
    entries: tuple[ResolvedEntry, ...] = ()
    hidden: tuple[Hidden, ...] = ()
    """The GPUs that surely stay hidden; empty if `visible` is None."""

    @property
    def stopped_at(self) -> ResolvedEntry | None:
        """The entry that cut the list off or hid all GPUs; None if there is none."""
        ends = (entry for entry in self.entries if entry.outcome in ("stopped", "duplicate"))
        return next(ends, None)

    def weakened(self, certainty: Certainty, because: str) -> Mapping:
        """Return the mapping with `certainty` at most, which rests on `because`, not the order."""
        return msgspec.structs.replace(
            self,
            certainty=weaker(self.certainty, certainty),
            because=because,
            order_certainty=self.order_certainty or self.certainty,
        )


def unknown_mapping(value: str | None, order: str | None, because: str) -> Mapping:
    """Return a mapping that claims nothing, and says why."""
    return Mapping(value=value, order=order, certainty="unknown", because=because)


# --- what the screen and `gputop map` both say of it ---------------------------------------------


def unnamed(mapping: Mapping) -> str:
    """Return why no device has a name such as cuda:0; empty if one has."""
    if mapping.visible is not None:
        return "" if mapping.visible else "no GPU is visible"
    if mapping.count is None:
        return "which GPUs are visible is not known"
    names = ", ".join(device.label for device in mapping.visible_set or ())
    gpus = f"{mapping.count} GPU{'s are' if mapping.count != 1 else ' is'} visible"
    return f"{gpus}{': ' * bool(names)}{names}; which is cuda:0 is not known"


def hidden_by_reason(mapping: Mapping) -> dict[str, list[CudaDevice]]:
    reasons: dict[str, list[CudaDevice]] = {}
    for hidden in mapping.hidden:
        reasons.setdefault(hidden.reason, []).append(hidden.device)
    return reasons


def bus_id(device: CudaDevice) -> str:
    """Return a device's PCI bus id as CUDA writes it, with a domain of four digits."""
    address = normalize_bus_id(device.pci_bus_id)
    return MISSING if address is None else "{:04x}:{:02x}:{:02x}.0".format(*address)
