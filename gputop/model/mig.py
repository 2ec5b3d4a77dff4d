"""What CUDA counts on a machine with MIG, before and from driver R570 on.

    before R570     a process gets one MIG device, the first available, and no plain GPU beside it;
                    an integer counts the GPUs and means the first MIG device of its GPU
    from R570 on    one compute instance of each GPU instance, and plain GPUs too; at most 64 MIG
                    devices. What an integer counts, and the order of MIG devices and plain GPUs,
                    is not documented (dorado#1586)

Sources: NVIDIA MIG User Guide, "CUDA Device Enumeration"; runs on drivers before R570 in
pytorch#102715 and #115331.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from gputop.model.enumeration import Device, Enumeration, MigRule
from gputop.model.readings import Reading

MAX_INSTANCES = 64
ONE_DEVICE = "drivers before R570 give a process one MIG device and no GPU beside it"
_CHANGED = 570


def rules_for(devices: Sequence[Device], driver_version: str | None) -> tuple[MigRule, ...]:
    """Give the rule that holds; both where it depends on a driver version that is not known."""
    if not any(device.mig_enabled for device in devices):
        return ("none",)
    major = re.match(r"[0-9]{1,9}", driver_version or "")
    if major is None:
        return ("old", "new")
    return ("new" if int(major[0]) >= _CHANGED else "old",)


def with_mig(gpus: Enumeration, rule: MigRule, *, mixed: bool = False) -> Enumeration:
    """Give the enumeration of a machine whose GPUs are in the order of `gpus`.

    `mixed`: integers stand beside UUIDs. That is documented nowhere; the best guess is that they
    count GPUs, and it is marked so.
    """
    if rule == "none":
        return gpus
    parts = [device.parts() for device in gpus.devices]
    instances = tuple(d for part in parts for d in part if d.instance is not None)
    firsts = gpus.devices if rule == "new" else tuple(part[0] for part in parts)
    rule = "old" if mixed else rule
    return msgspec.structs.replace(gpus, devices=firsts, mig=rule, instances=instances)


def beside(
    reading: Reading, taken: Sequence[int], named: Sequence[Device], rule: MigRule
) -> Reading:
    """Judge an entry that names `named[reading.rank]` after those of `taken`."""
    if reading.rank is None or not taken:
        return reading
    device, before = named[reading.rank], [named[rank] for rank in taken]
    if rule == "old":
        return _beside_old(reading, device, before)
    if device.instance is None:
        return reading
    if len(taken) >= MAX_INSTANCES:
        problem = f"is more than the {MAX_INSTANCES} MIG devices that CUDA enumerates"
        return Reading(None, "mig_limit", problem, documented=False)
    if any(_gpu_instance(device) == _gpu_instance(other) for other in before):
        problem = "is in the GPU instance of an entry before it, of which CUDA uses one only"
        return Reading(None, "mig_one_ci_per_gi", problem, documented=False)
    # Whether the list's order or the enumeration's counts is documented for plain GPUs only.
    in_order = reading.rank > taken[-1]
    return msgspec.structs.replace(reading, documented=reading.documented and in_order)


def _beside_old(reading: Reading, device: Device, before: Sequence[Device]) -> Reading:
    if before[0].instance is not None:
        return Reading(None, "mig_single_instance", f"is a second device: {ONE_DEVICE}")
    if device.instance is None:
        return reading
    problem = "is a MIG device after a plain GPU: which of them stays is not documented"
    return Reading(None, "mig", problem, documented=False)


def _gpu_instance(device: Device) -> tuple[int, int | None]:
    return device.index, device.instance.gi if device.instance else None


def unset_devices(cuda: Enumeration) -> tuple[tuple[Device, ...] | None, int | None, bool]:
    """Give what CUDA shows on a MIG machine when the variable is unset.

    That is the devices (None where they cannot be told), their number, and whether the k-th of
    them is cuda:k.
    """
    if any(device.mig_enabled and device.mig is None for device in cuda.devices):
        return None, None, False
    plain = tuple(device for device in cuda.devices if not device.mig_enabled)
    if not cuda.instances:
        return plain, len(plain), cuda.ordered
    if cuda.mig == "old":
        first = cuda.instances[:1]
        known = cuda.ordered or all(d.index == first[0].index for d in cuda.instances)
        return (first if known else None), 1, known
    groups = {_gpu_instance(device) for device in cuda.instances}
    count = min(len(groups), MAX_INSTANCES) + len(plain)
    if len(groups) < len(cuda.instances) or len(groups) > MAX_INSTANCES:
        return None, count, False
    return (*cuda.instances, *plain), count, count == 1
