"""What a CUDA_VISIBLE_DEVICES value means: which GPU is cuda:0, and why others are hidden.

    enumeration.py   the order in which CUDA counts the GPUs, before the value is applied
    readings.py      what one entry says by itself
    entries.py       the list, read from left to right
    visibility.py    the answer (this module)

Source: NVIDIA CUDA Programming Guide 13.x, 5.2.1.1 and 5.2.1.2. MIG devices are not resolved: a
result that depends on them is `unknown`.
"""

import shlex
from collections.abc import Sequence

import msgspec

from gputop.model.entries import Entry, Outcome, named_devices, read_entries, repeats_after_end
from gputop.model.enumeration import (
    FASTEST_FIRST,
    PCI_BUS_ID,
    Certainty,
    Device,
    Enumeration,
    enumerate_devices,
    normalize_bus_id,
    shown,
)
from gputop.model.readings import Reason, kind_of

__all__ = [
    "FASTEST_FIRST",
    "PCI_BUS_ID",
    "Certainty",
    "Device",
    "Entry",
    "Hidden",
    "Mapping",
    "Outcome",
    "Reason",
    "Stop",
    "export_line",
    "normalize_bus_id",
    "resolve",
    "uuid_export_line",
]

_ANY_ORDER = "the order in which CUDA counts the GPUs does not matter here"


class Stop(msgspec.Struct, frozen=True):
    """The entry at which the list ended."""

    position: int
    """Counted from 0."""
    entry: str
    reason: Reason


class Hidden(msgspec.Struct, frozen=True):
    """A GPU that the program does not see, and why, in one sentence."""

    device: Device
    reason: str


class Mapping(msgspec.Struct, frozen=True, kw_only=True):
    """What a value means on a machine."""

    value: str | None
    """CUDA_VISIBLE_DEVICES; None: unset."""
    order: str | None
    """CUDA_DEVICE_ORDER; None: unset."""
    certainty: Certainty
    """Of the order; a value that is not `documented` may mean something else all the same."""
    because: str
    """One sentence for people: what the certainty rests on."""
    documented: bool = True
    """False: sources are silent or disagree on this value; show "not documented"."""
    visible: tuple[Device, ...] | None
    """The k-th is cuda:k; None: which GPU is which cannot be told."""
    visible_set: tuple[Device, ...] | None = None
    """Where only the set is known: its GPUs, in no order that means anything."""
    count: int | None
    """How many GPUs are visible, which may be known where `visible` is not."""
    reason: Reason | None = None
    """Why the result is not simply the list: the stop, unset, empty, a duplicate, MIG."""
    stopped_at: Stop | None = None
    entries: tuple[Entry, ...] = ()
    hidden: tuple[Hidden, ...] = ()
    """The GPUs that surely stay hidden; empty where `visible` is None."""


def resolve(
    value: str | None,
    devices: Sequence[Device],
    *,
    order: str | None = None,
    cuda_order: Sequence[int] | None = None,
) -> Mapping:
    """Tell what CUDA_VISIBLE_DEVICES=`value` means on a machine with these GPUs; never raises.

    `order` is CUDA_DEVICE_ORDER. `cuda_order` is what the driver itself answered when it was asked
    for its devices under that order with CUDA_VISIBLE_DEVICES unset, as NVML indices.
    """
    cuda = enumerate_devices(devices, order, cuda_order)
    if value is None:
        mapping = _unset(order, cuda)
    elif value == "":
        mapping = _empty(order)
    else:
        mapping = _listed(value, order, cuda)
    return msgspec.structs.replace(mapping, hidden=_hidden(mapping, devices, cuda))


def export_line(mapping: Mapping) -> str:
    """Give a shell line that sets the value again.

    Integers count in CUDA_DEVICE_ORDER, so that one goes with them where it is set.
    """
    if mapping.value is None:
        return "unset CUDA_VISIBLE_DEVICES"
    line = f"export CUDA_VISIBLE_DEVICES={_quoted(mapping.value)}"
    counts = kind_of(mapping.value) == "integer" and mapping.count != 0
    if mapping.order is None or not counts:
        return line
    return f"{line} CUDA_DEVICE_ORDER={_quoted(mapping.order)}"


def uuid_export_line(mapping: Mapping) -> str | None:
    """Give a shell line for the same GPUs that means the same in every CUDA_DEVICE_ORDER.

    None where the GPUs or their UUIDs are not known. No GPU is -1, which older guides know too.
    """
    if mapping.visible is None:
        return None
    uuids = [device.uuid or "" for device in mapping.visible]
    if not all(uuid.startswith("GPU-") for uuid in uuids):
        return None
    return f"export CUDA_VISIBLE_DEVICES={_quoted(','.join(uuids) or '-1')}"


def _unset(order: str | None, cuda: Enumeration) -> Mapping:
    """Unset: every GPU, in CUDA's order."""
    if cuda.has_mig:
        return _unknown(None, order, cuda.because, "mig")
    return Mapping(
        value=None,
        order=order,
        certainty=cuda.certainty,
        because=cuda.because,
        documented=cuda.documented,
        visible=cuda.devices if cuda.ordered else None,
        visible_set=None if cuda.ordered else cuda.devices,
        count=len(cuda.devices),
        reason="unset",
    )


def _empty(order: str | None) -> Mapping:
    """Empty: no GPU (stated by the guide for CUDA 13; CUDA_ERROR_NO_DEVICE before that, too)."""
    return Mapping(
        value="",
        order=order,
        certainty="exact",
        because=_ANY_ORDER,
        visible=(),
        count=0,
        reason="empty_value",
    )


def _unknown(value: str | None, order: str | None, because: str, reason: Reason | None) -> Mapping:
    return Mapping(
        value=value,
        order=order,
        certainty="unknown",
        because=because,
        visible=None,
        count=None,
        reason=reason,
    )


def _listed(value: str, order: str | None, cuda: Enumeration) -> Mapping:
    kind = kind_of(value)
    entries = read_entries(value, cuda)
    end = next((e for e in entries if e.reason is not None), None)
    if end is not None and end.outcome == "unresolved":
        unknown = _unknown(value, order, end.message, end.reason)
        return msgspec.structs.replace(unknown, entries=entries)
    count = sum(entry.outcome == "visible" for entry in entries)
    counted = kind == "integer" and count > 0
    known = cuda.ordered or not counted
    documented = all(e.documented for e in entries) and not repeats_after_end(entries, kind, cuda)
    visible = tuple(e.device for e in entries if e.device is not None)
    return Mapping(
        value=value,
        order=order,
        certainty=cuda.certainty if counted else "exact",
        because=cuda.because if counted else _ANY_ORDER,
        documented=documented and (cuda.documented or not counted),
        visible=visible if known else None,
        visible_set=None if known or count < len(cuda.devices) else cuda.devices,
        count=count,
        reason=None if end is None else end.reason,
        stopped_at=_stop(end),
        entries=entries,
    )


def _stop(end: Entry | None) -> Stop | None:
    if end is None or end.reason is None:
        return None
    return Stop(end.position, end.text, end.reason)


def _hidden(mapping: Mapping, devices: Sequence[Device], cuda: Enumeration) -> tuple[Hidden, ...]:
    """Give every GPU that is not visible, in the order of the inventory."""
    if mapping.visible is None:
        return ()
    rest = [device for device in devices if device not in mapping.visible]
    if mapping.value is None or not rest:
        return tuple(Hidden(device, _uncounted(device)) for device in rest)
    named: dict[Device, Entry] = {}
    for entry, device in named_devices(mapping.entries, kind_of(mapping.value), cuda):
        named.setdefault(device, entry)
        if len(named) == len(cuda.devices):
            break
    return tuple(Hidden(d, _why_hidden(d, named.get(d), mapping, cuda)) for d in rest)


def _why_hidden(device: Device, entry: Entry | None, mapping: Mapping, cuda: Enumeration) -> str:
    if mapping.stopped_at is None and mapping.value == "":
        return "CUDA_VISIBLE_DEVICES is empty, which hides every GPU"
    if device not in cuda.devices:
        return _uncounted(device)
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


def _uncounted(device: Device) -> str:
    return f"the CUDA driver does not count GPU {device.index}"


def _quoted(text: str) -> str:
    """Quote for a POSIX shell; control characters become escapes, so that none is pasted raw."""
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(map(_escaped, text)) + "'"


def _escaped(character: str) -> str:
    if character in "\\'":
        return "\\" + character
    if character.isprintable():
        return character
    # Bytes of the environment that are not UTF-8 arrive as lone surrogates (PEP 383).
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))
