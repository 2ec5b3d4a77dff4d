"""What the CUDA driver itself says of a CUDA_VISIBLE_DEVICES, beside what gputop worked out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import msgspec

from gputop.model.enumeration import Device, normalize_bus_id
from gputop.model.mapping import Mapping
from gputop.model.probed import Probed, ProbedDevice


class Verdict(msgspec.Struct, frozen=True):
    """Whether the driver agrees with a mapping; `ok` None: that cannot be told."""

    ok: bool | None
    reason: str


def compare(mapping: Mapping, probed: Probed, devices: Sequence[Device] = ()) -> Verdict:
    """Hold the driver's answer against the mapping of the same value and order.

    `devices`, those of the machine, name the GPUs that the mapping does not hold.
    """
    if probed.devices is None:
        return Verdict(None, f"the driver could not be asked: {probed.problem}")
    known = [*(mapping.visible or ()), *(one.device for one in mapping.hidden)]
    known += [part for device in devices for part in (*device.parts(), device)]
    said = [f"cuda:{k} is {_label(one, known)}" for k, one in enumerate(probed.devices)]
    if mapping.visible is None:
        words = f"the driver says {', '.join(said) or 'nothing is visible'}; gputop"
        if mapping.count not in (None, len(said)):
            return Verdict(False, f"{words} expected {mapping.count} visible")
        return Verdict(None, f"{words} cannot tell")
    pairs = list(zip_longest(probed.devices, mapping.visible))
    wrong = [k for k, (found, device) in enumerate(pairs) if not _may_be(device, found)]
    if wrong:
        k = wrong[0]
        words = said[k] if k < len(said) else f"there is no cuda:{k}"
        device = pairs[k][1]
        expected = device.label if device else "none"
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        return Verdict(False, f"the driver says {words}, gputop expected {expected}{more}")
    if not all(_is(device, found) for found, device in pairs):
        return Verdict(None, "the driver agrees on the GPU, but does not tell MIG devices apart")
    return Verdict(True, "verified by the driver")


def cuda_order(probed: Probed, devices: Sequence[Device]) -> tuple[int, ...] | None:
    """The order for `resolve`, from the answer to the value left unset; None where it gives none.

    With MIG it gives none: CUDA then counts MIG devices in place of GPUs.
    """
    if probed.devices is None or any(device.mig_enabled for device in devices):
        return None
    found = [[d.index for d in devices if _is(d, one)] for one in probed.devices]
    return tuple(one[0] for one in found) if all(len(one) == 1 for one in found) else None


def answer_to(answers: Sequence[Probed], value: str | None, order: str | None) -> Probed | None:
    """The driver's answer to these variables among those of a frame; None: it was not asked."""
    return next((one for one in answers if (one.value, one.order) == (value, order)), None)


def probed_order(
    answers: Sequence[Probed], order: str | None, devices: Sequence[Device]
) -> tuple[int, ...] | None:
    """The order that the driver gave under CUDA_DEVICE_ORDER=`order`; None where it was not asked
    with CUDA_VISIBLE_DEVICES unset, or its answer gives none."""
    found = answer_to(answers, None, order)
    return None if found is None else cuda_order(found, devices)


def _label(found: ProbedDevice, known: Sequence[Device]) -> str:
    labels = [device.label for device in known if _is(device, found)]
    gpus = [device for device in known if device.mig_enabled and _same_place(device, found)]
    labels += [f"a MIG device of GPU {gpu.index}" for gpu in gpus]
    return labels[0] if labels else f"an unknown GPU ({found.name}, {found.pci_bus_id})"


def _is(device: Device | None, found: ProbedDevice | None) -> bool:
    """By UUID; a GPU without one by its PCI bus id."""
    if device is None or found is None:
        return False
    uuid = device.mig_uuid if device.instance else device.uuid
    if uuid or device.instance:
        return (uuid or "")[4:].lower() == found.uuid  # without GPU- or MIG-
    return _same_place(device, found)


def _may_be(device: Device | None, found: ProbedDevice | None) -> bool:
    """As `_is`, and where driver or NVML tells the GPU of a MIG device but not which one it is."""
    if device is None or found is None or not device.mig_enabled:
        return _is(device, found)
    whole = _is(msgspec.structs.replace(device, instance=None), found)
    untold = (device.mig_uuid or "MIG-GPU-").startswith("MIG-GPU-")  # the form before R470
    return _is(device, found) or (_same_place(device, found) and (whole or untold))


def _same_place(device: Device, found: ProbedDevice) -> bool:
    place = normalize_bus_id(device.pci_bus_id)
    return place is not None and place == normalize_bus_id(found.pci_bus_id)
