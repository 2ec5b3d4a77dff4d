"""What the CUDA driver itself makes of a CUDA_VISIBLE_DEVICES, compared with gputop's mapping."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import msgspec

from gputop.model.cuda.enumeration import CudaDevice, normalize_bus_id
from gputop.model.cuda.mapping import Mapping
from gputop.model.machine.probed import Probed, ProbedDevice


class ProbeResult(msgspec.Struct, frozen=True):
    """Whether the driver agrees with a mapping; `ok` is None if that is not known."""

    ok: bool | None
    reason: str


def compare(mapping: Mapping, probed: Probed, devices: Sequence[CudaDevice] = ()) -> ProbeResult:
    """Compare the driver's answer with the mapping of the same value and order.

    `devices` are the machine's, to name GPUs that the mapping does not have.
    """
    if probed.devices is None:
        return ProbeResult(None, f"the driver could not be asked: {probed.problem}")
    candidates = [*(mapping.visible or ()), *(hidden.device for hidden in mapping.hidden)]
    candidates += [part for device in devices for part in (*device.parts(), device)]
    said = [f"cuda:{k} is {_label(p, candidates)}" for k, p in enumerate(probed.devices)]
    if mapping.visible is None:
        words = f"the driver says {', '.join(said) or 'nothing is visible'}; gputop"
        if mapping.count not in (None, len(said)):
            return ProbeResult(False, f"{words} expected {mapping.count} visible")
        return ProbeResult(None, f"{words} cannot tell")
    pairs = list(zip_longest(mapping.visible, probed.devices))
    wrong = [k for k, pair in enumerate(pairs) if not _may_be(*pair)]
    if wrong:
        k = wrong[0]
        words = said[k] if k < len(said) else f"there is no cuda:{k}"
        device = pairs[k][0]
        expected = device.label if device else "none"
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        return ProbeResult(False, f"the driver says {words}, gputop expected {expected}{more}")
    if not all(_is(*pair) for pair in pairs):
        reason = "the driver agrees on the GPU, but does not tell MIG devices apart"
        return ProbeResult(None, reason)
    return ProbeResult(True, "verified by the driver")


def answer_to(answers: Sequence[Probed], value: str | None, order: str | None) -> Probed | None:
    """Return the driver's answer to these variables; None if it was not asked."""
    return next((a for a in answers if (a.value, a.order) == (value, order)), None)


def probed_order(
    answers: Sequence[Probed], order: str | None, devices: Sequence[CudaDevice]
) -> tuple[int, ...] | None:
    """Return the driver's order under CUDA_DEVICE_ORDER=`order`, as `resolve` wants it.

    None if it was not asked with CUDA_VISIBLE_DEVICES unset, or if its answer gives no order. With
    MIG there is none: CUDA then counts MIG devices in place of GPUs.
    """
    answer = answer_to(answers, None, order)
    if answer is None or answer.devices is None or any(device.mig_enabled for device in devices):
        return None
    fits = [[device.index for device in devices if _is(device, p)] for p in answer.devices]
    return tuple(indices[0] for indices in fits) if all(len(f) == 1 for f in fits) else None


def _label(probed: ProbedDevice, candidates: Sequence[CudaDevice]) -> str:
    labels = [device.label for device in candidates if _is(device, probed)]
    gpus = [gpu for gpu in candidates if gpu.mig_enabled and _has_bus_id(gpu, probed)]
    labels += [f"a MIG device of GPU {gpu.index}" for gpu in gpus]
    return labels[0] if labels else f"an unknown GPU ({probed.name}, {probed.pci_bus_id})"


def _is(device: CudaDevice | None, probed: ProbedDevice | None) -> bool:
    """Return whether both are one device, by UUID; for a GPU without UUID by PCI bus id."""
    if device is None or probed is None:
        return False
    if device.own_uuid or device.instance:
        return (device.own_uuid or "")[4:].lower() == probed.uuid  # without GPU- or MIG-
    return _has_bus_id(device, probed)


def _may_be(device: CudaDevice | None, probed: ProbedDevice | None) -> bool:
    """Return whether both may be one device: of a MIG device perhaps only the GPU is known."""
    if device is None or probed is None or not device.mig_enabled:
        return _is(device, probed)
    whole = _is(msgspec.structs.replace(device, instance=None), probed)
    old_form = (device.mig_uuid or "MIG-GPU-").startswith("MIG-GPU-")  # before R470
    return _is(device, probed) or (_has_bus_id(device, probed) and (whole or old_form))


def _has_bus_id(device: CudaDevice, probed: ProbedDevice) -> bool:
    address = normalize_bus_id(device.pci_bus_id)
    return address is not None and address == normalize_bus_id(probed.pci_bus_id)
