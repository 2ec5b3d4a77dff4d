"""What the screen and `gputop map` both say of a mapping."""

from __future__ import annotations

from gputop.model.cuda.enumeration import CudaDevice, normalize_bus_id
from gputop.model.cuda.mapping import Mapping
from gputop.model.machine.text import MISSING


def unnamed(mapping: Mapping) -> str:
    """Say why no device has a name such as cuda:0; empty where one has."""
    if mapping.visible is not None:
        return "" if mapping.visible else "no GPU is visible"
    if mapping.count is None:
        return "which GPUs are visible cannot be told"
    names = ", ".join(device.label for device in mapping.visible_set or ())
    gpus = f"{mapping.count} GPU{'s are' if mapping.count != 1 else ' is'} visible"
    return f"{gpus}{': ' * bool(names)}{names}; which is cuda:0 cannot be told"


def hidden_by_reason(mapping: Mapping) -> dict[str, list[CudaDevice]]:
    """Return the hidden devices by the reason why they are."""
    reasons: dict[str, list[CudaDevice]] = {}
    for hidden in mapping.hidden:
        reasons.setdefault(hidden.reason, []).append(hidden.device)
    return reasons


def bus_id(device: CudaDevice) -> str:
    """Return a PCI bus id as CUDA writes it, with a domain of four digits."""
    address = normalize_bus_id(device.pci_bus_id)
    return MISSING if address is None else "{:04x}:{:02x}:{:02x}.0".format(*address)
