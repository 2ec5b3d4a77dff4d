"""What a CUDA_VISIBLE_DEVICES value means: which GPU is cuda:0, and why others are hidden.

    enumeration.py   the order in which CUDA counts the GPUs, before the value is applied
    entries.py       what each entry says, and where the list ends
    mapping.py       the answer
    resolve.py       how it is worked out (this module)
    export.py        the answer as a line for a shell

Source: NVIDIA CUDA Programming Guide 13.x, 5.2.1.1 and 5.2.1.2; NVIDIA MIG User Guide; the runs
that entries.py names.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gputop.model.cuda.entries import (
    EntryReason,
    ResolvedEntry,
    first_naming,
    kind_of,
    read_entries,
)
from gputop.model.cuda.enumeration import (
    ONE_DEVICE,
    ORDERS,
    CudaDevice,
    Enumeration,
    enumerate_devices,
    rules_for,
    shown,
    unset_devices,
    with_mig,
)
from gputop.model.cuda.mapping import Hidden, Mapping, unknown_mapping

_NO_START = "CUDA does not start with this CUDA_DEVICE_ORDER"
_ANY_ORDER = "the order in which CUDA counts the GPUs does not matter here"


def resolve(
    value: str | None,
    devices: Sequence[CudaDevice],
    *,
    order: str | None = None,
    cuda_order: Sequence[int] | None = None,
    driver_version: str | None = None,
) -> Mapping:
    """Work out what CUDA_VISIBLE_DEVICES=`value` means on a machine with these GPUs; never raises.

    `order` is CUDA_DEVICE_ORDER. `cuda_order` are the devices that the driver itself lists under
    that order with CUDA_VISIBLE_DEVICES unset, as NVML indices. `driver_version` is nvidia-smi's,
    such as 580.65.06; it matters only on machines with MIG.
    """
    if order not in ORDERS and not cuda_order:
        return _refused(value, order, devices)
    gpus = enumerate_devices(devices, order, cuda_order)
    mappings = []
    for rule in rules_for(devices, driver_version):
        cuda = with_mig(gpus, rule, mixed=_mixes_kinds(value or ""))
        mapping = _unset(order, cuda) if value is None else _listed(value, order, cuda)
        hidden = _hidden(mapping, devices, cuda)
        mappings.append(msgspec.structs.replace(mapping, hidden=hidden))
    if any(mapping.visible != mappings[-1].visible for mapping in mappings):
        return _depends_on_driver(value, order)
    documented = all(mapping.documented for mapping in mappings)
    return msgspec.structs.replace(mappings[-1], documented=documented)


def _refused(value: str | None, order: str | None, devices: Sequence[CudaDevice]) -> Mapping:
    """Return the mapping under a CUDA_DEVICE_ORDER with which CUDA does not start."""
    texts = value.split(",") if value else ()
    because = f"CUDA_DEVICE_ORDER={shown(order or '')} is neither PCI_BUS_ID nor FASTEST_FIRST"
    because += ": CUDA does not start (error 101)"
    return msgspec.structs.replace(
        _none_visible(value, order, because, "order"),
        entries=tuple(ResolvedEntry(i, text, "ignored") for i, text in enumerate(texts)),
        hidden=tuple(Hidden(part, _NO_START) for gpu in devices for part in gpu.parts()),
    )


def _none_visible(
    value: str | None, order: str | None, because: str, reason: EntryReason
) -> Mapping:
    return Mapping(
        value=value,
        order=order,
        certainty="exact",
        because=because,
        visible=(),
        count=0,
        reason=reason,
    )


def _unset(order: str | None, cuda: Enumeration) -> Mapping:
    devices, count, ordered = unset_devices(cuda)
    because, documented = cuda.because, True
    if cuda.mig != "none":
        documented = cuda.mig == "new" or bool(cuda.instances) or devices is None
        if cuda.instances or not ordered:
            because = "the order of MIG devices is not documented"
            because = ONE_DEVICE if cuda.mig == "old" else because
    return Mapping(
        value=None,
        order=order,
        certainty="unknown" if not ordered else "exact" if count == 1 else cuda.certainty,
        because=because,
        documented=documented,
        visible=devices if ordered else None,
        visible_set=None if ordered else devices,
        count=count,
        reason="unset" if ordered or cuda.mig == "none" else "mig",
    )


def _depends_on_driver(value: str | None, order: str | None) -> Mapping:
    because = "CUDA counts MIG devices otherwise from driver R570 on, and the driver is not known"
    texts = [] if value is None else value.split(",")
    entries = tuple(ResolvedEntry(i, text, "unresolved", because) for i, text in enumerate(texts))
    unknown = unknown_mapping(value, order, because)
    return msgspec.structs.replace(unknown, reason="mig", entries=entries)


def _mixes_kinds(value: str) -> bool:
    return kind_of(value) == "integer" and any(
        text.startswith(("GPU-", "MIG-")) for text in value.split(",")
    )


def _listed(value: str, order: str | None, cuda: Enumeration) -> Mapping:
    if not value:
        # No GPU: stated by the guide for CUDA 13; CUDA_ERROR_NO_DEVICE before that, too.
        return _none_visible("", order, _ANY_ORDER, "empty_value")
    kind = kind_of(value)
    entries = read_entries(value, cuda)
    end = next((e for e in entries if e.reason is not None), None)
    if end is not None and end.outcome == "unresolved":
        unknown = unknown_mapping(value, order, end.message)
        return msgspec.structs.replace(
            unknown, reason=end.reason, entries=entries, documented=end.documented
        )
    count = sum(entry.outcome == "visible" for entry in entries)
    counted = kind == "integer" and count > 0
    ordered = cuda.ordered or not counted
    documented = not (cuda.mig != "none" and _mixes_kinds(value)) and all(
        e.documented for e in entries
    )
    visible = tuple(e.device for e in entries if e.device is not None)
    return Mapping(
        value=value,
        order=order,
        certainty=cuda.certainty if counted else "exact",
        because=cuda.because if counted else _ANY_ORDER,
        documented=documented,
        visible=visible if ordered else None,
        visible_set=None if ordered or count < len(cuda.devices) else cuda.devices,
        count=count,
        reason=None if end is None else end.reason,
        entries=entries,
    )


# --- the hidden GPUs -----------------------------------------------------------------------------


def _hidden(
    mapping: Mapping, devices: Sequence[CudaDevice], cuda: Enumeration
) -> tuple[Hidden, ...]:
    if mapping.visible is None:
        return ()
    everything = [part for device in devices for part in device.parts()]
    rest = [device for device in everything if device not in mapping.visible]
    named = first_naming(mapping.entries, kind_of(mapping.value or ""), cuda)
    return tuple(Hidden(d, _why_hidden(d, named.get(d), mapping, cuda)) for d in rest)


def _why_hidden(
    device: CudaDevice, entry: ResolvedEntry | None, mapping: Mapping, cuda: Enumeration
) -> str:
    end = mapping.stopped_at
    if mapping.value == "":
        return "CUDA_VISIBLE_DEVICES is empty, which hides every GPU"
    uncounted = device not in cuda.devices and device not in cuda.instances
    if mapping.value is None or uncounted:
        return _why_uncounted(device, cuda)
    if end is None:
        return "no entry names it"
    if end.reason == "duplicate":
        return f"entry {end.position + 1} {shown(end.text)} repeats a GPU, which hides every GPU"
    if entry is not None:
        return (
            f"entry {entry.position + 1} names it, but the list ended at entry {end.position + 1}"
        )
    return "the list ended at its first entry" if end.position == 0 else "no entry names it"


def _why_uncounted(device: CudaDevice, cuda: Enumeration) -> str:
    if device.mig_enabled and device.instance is None:
        return f"GPU {device.index} is in MIG mode and has no instance"
    if cuda.mig == "old":
        return ONE_DEVICE
    return f"the CUDA driver does not count GPU {device.index}"
