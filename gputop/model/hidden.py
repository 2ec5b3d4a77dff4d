"""Why a program does not see a GPU."""

from collections.abc import Sequence

from gputop.model.entries import Entry, named_devices
from gputop.model.enumeration import Device, Enumeration, shown
from gputop.model.mapping import Hidden, Mapping
from gputop.model.mig import ONE_DEVICE
from gputop.model.readings import kind_of


def hidden_devices(
    mapping: Mapping, devices: Sequence[Device], cuda: Enumeration
) -> tuple[Hidden, ...]:
    """Give every GPU and MIG device that is not visible, in the order of the inventory."""
    if mapping.visible is None:
        return ()
    everything = [part for device in devices for part in device.parts()]
    rest = [device for device in everything if device not in mapping.visible]
    if mapping.value is None or not rest:
        return tuple(Hidden(device, _uncounted(device, cuda)) for device in rest)
    named: dict[Device, Entry] = {}
    for entry, device in named_devices(mapping.entries, kind_of(mapping.value), cuda):
        named.setdefault(device, entry)
        if len(named) == len(everything):
            break
    return tuple(Hidden(d, _why_hidden(d, named.get(d), mapping, cuda)) for d in rest)


def _why_hidden(device: Device, entry: Entry | None, mapping: Mapping, cuda: Enumeration) -> str:
    if mapping.stopped_at is None and mapping.value == "":
        return "CUDA_VISIBLE_DEVICES is empty, which hides every GPU"
    if device not in cuda.devices and device not in cuda.instances:
        return _uncounted(device, cuda)
    end = mapping.stopped_at
    if end is not None and end.reason == "duplicate":
        return f"entry {end.position + 1} {shown(end.entry)} repeats a GPU, which hides every GPU"
    if end is not None and entry is not None:
        return (
            f"entry {entry.position + 1} names it, but the list ended at entry {end.position + 1}"
        )
    if end is not None and end.position == 0:
        return "the list ended at its first entry"
    return "no entry names it"


def _uncounted(device: Device, cuda: Enumeration) -> str:
    if device.mig_enabled and device.instance is None:
        return f"GPU {device.index} is in MIG mode and has no instance"
    if cuda.mig == "old":
        return ONE_DEVICE
    return f"the CUDA driver does not count GPU {device.index}"
