"""What a CUDA_VISIBLE_DEVICES value means: which GPU is cuda:0, and why others are hidden.

    enumeration.py   the order in which CUDA counts the GPUs, before the value is applied
    readings.py      what one entry says by itself
    entries.py       the list, read from left to right
    mig.py           what changes where a GPU is in MIG mode
    mapping.py       the answer
    visibility.py    how it is found (this module)
    hidden.py        why a GPU is not in it
    shell.py         the answer as a line for a shell

Source: NVIDIA CUDA Programming Guide 13.x, 5.2.1.1 and 5.2.1.2; NVIDIA MIG User Guide.
"""

from collections.abc import Sequence

import msgspec

from gputop.model.entries import Entry, Outcome, read_entries, repeats_after_end
from gputop.model.enumeration import (
    FASTEST_FIRST,
    PCI_BUS_ID,
    Certainty,
    Device,
    Enumeration,
    MigInstance,
    MigRule,
    enumerate_devices,
    normalize_bus_id,
)
from gputop.model.hidden import hidden_devices
from gputop.model.mapping import Hidden, Mapping, Stop
from gputop.model.mig import ONE_DEVICE, rules_for, unset_devices, with_mig
from gputop.model.readings import Reason, kind_of
from gputop.model.shell import export_line, uuid_export_line

__all__ = [
    "FASTEST_FIRST",
    "PCI_BUS_ID",
    "Certainty",
    "Device",
    "Entry",
    "Hidden",
    "Mapping",
    "MigInstance",
    "Outcome",
    "Reason",
    "Stop",
    "export_line",
    "normalize_bus_id",
    "resolve",
    "uuid_export_line",
]

_ANY_ORDER = "the order in which CUDA counts the GPUs does not matter here"


def resolve(
    value: str | None,
    devices: Sequence[Device],
    *,
    order: str | None = None,
    cuda_order: Sequence[int] | None = None,
    driver_version: str | None = None,
) -> Mapping:
    """Tell what CUDA_VISIBLE_DEVICES=`value` means on a machine with these GPUs; never raises.

    `order` is CUDA_DEVICE_ORDER. `cuda_order` is what the driver itself answered when it was asked
    for its devices under that order with CUDA_VISIBLE_DEVICES unset, as NVML indices.
    `driver_version` is nvidia-smi's, as 580.65.06; it matters on machines with MIG only.
    """
    gpus = enumerate_devices(devices, order, cuda_order)
    rules = rules_for(devices, driver_version)
    answers = [_resolve(value, devices, order, gpus, rule) for rule in rules]
    answer = answers[-1]
    if any(other.visible != answer.visible for other in answers):
        return _depends_on_driver(value, order)
    documented = all(other.documented for other in answers)
    return msgspec.structs.replace(answer, documented=documented)


def _resolve(
    value: str | None,
    devices: Sequence[Device],
    order: str | None,
    gpus: Enumeration,
    rule: MigRule,
) -> Mapping:
    cuda = with_mig(gpus, rule, mixed=_mixes_kinds(value or ""))
    if value is None:
        mapping = _unset(order, cuda)
    elif value == "":
        mapping = _empty(order)
    else:
        mapping = _listed(value, order, cuda)
    return msgspec.structs.replace(mapping, hidden=hidden_devices(mapping, devices, cuda))


def _unset(order: str | None, cuda: Enumeration) -> Mapping:
    """Unset: every GPU, in CUDA's order."""
    if cuda.has_mig:
        return _unset_mig(order, cuda)
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


def _unset_mig(order: str | None, cuda: Enumeration) -> Mapping:
    found, count, ordered = unset_devices(cuda)
    exact = ordered and count == 1
    certainty: Certainty = "exact" if exact else cuda.certainty if ordered else "unknown"
    because = ONE_DEVICE if cuda.mig == "old" else "the order of MIG devices is not documented"
    return Mapping(
        value=None,
        order=order,
        certainty=certainty,
        because=because if cuda.instances or not ordered else cuda.because,
        documented=cuda.mig == "new" or bool(cuda.instances) or found is None,
        visible=found if ordered else None,
        visible_set=None if ordered else found,
        count=count,
        reason="unset" if ordered else "mig",
    )


def _depends_on_driver(value: str | None, order: str | None) -> Mapping:
    because = "CUDA counts MIG devices otherwise from driver R570 on, and the driver is not known"
    texts = [] if value is None else value.split(",")
    entries = tuple(Entry(i, text, "unresolved", because) for i, text in enumerate(texts))
    unknown = _unknown(value, order, because, "mig")
    return msgspec.structs.replace(unknown, entries=entries)


def _mixes_kinds(value: str) -> bool:
    """Tell whether a list of integers goes on with UUIDs."""
    return kind_of(value) == "integer" and any(
        text.startswith(("GPU-", "MIG-")) for text in value.split(",")
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
        return msgspec.structs.replace(unknown, entries=entries, documented=end.documented)
    count = sum(entry.outcome == "visible" for entry in entries)
    counted = kind == "integer" and count > 0
    known = cuda.ordered or not counted
    mixed = cuda.has_mig and _mixes_kinds(value)
    documented = (
        not mixed
        and all(e.documented for e in entries)
        and not repeats_after_end(entries, kind, cuda)
    )
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
