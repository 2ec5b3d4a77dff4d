"""The order in which CUDA counts the GPUs of a machine, before CUDA_VISIBLE_DEVICES hides any.

Three numberings exist and are never mixed here: the NVML index (what nvidia-smi shows), the CUDA
enumeration index (what an integer in CUDA_VISIBLE_DEVICES counts, after CUDA_DEVICE_ORDER), and
the ordinal (the k of cuda:k, after CUDA_VISIBLE_DEVICES).

Source: NVIDIA CUDA Programming Guide 13.x, 5.2.1.2. It defines PCI_BUS_ID; the heuristic behind
FASTEST_FIRST, the default, is published nowhere. More cores first fits every clean report since
driver 410; compute capability first does not (pytorch#80876, vllm#53834).

A GPU in MIG mode is not a CUDA device, but its MIG devices are:

    before R570     a process gets one MIG device, the first available, and no plain GPU beside it;
                    an integer counts GPUs and means the first MIG device of the GPU
    from R570 on    one compute instance of each GPU instance, and plain GPUs too; at most 64 MIG
                    devices. What an integer counts, and the order of MIG devices and plain GPUs,
                    is not documented (dorado#1586)

Sources: NVIDIA MIG User Guide, "CUDA Device Enumeration"; runs on drivers before R570 in
pytorch#102715 and #115331.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from gputop.model.machine.gpu import MigDevice, mig_number

Certainty = Literal["exact", "expected", "predicted", "unknown"]
"""How far the order of the GPUs can be trusted (how the value is read: `documented`).

exact      documented, or the driver itself said so, or no order is needed
expected   always observed, promised nowhere: equal GPUs are counted by PCI bus id
predicted  follows from a rule that fits the published reports
unknown    nothing can be claimed
"""
CERTAINTY_WORDS: dict[Certainty, str] = {
    "exact": "exact", "expected": "likely", "predicted": "uncertain", "unknown": "unknown",
}  # fmt: skip
"""The word for each certainty that people read."""

PCI_BUS_ID = "PCI_BUS_ID"
FASTEST_FIRST = "FASTEST_FIRST"
ORDERS = (None, PCI_BUS_ID, FASTEST_FIRST)
"""What CUDA_DEVICE_ORDER may be. With anything else, an empty text too, cuInit fails with error
101: seen on an H200 and an H100 with driver 580.159.04."""
MAX_INSTANCES = 64
ONE_DEVICE = "drivers before R570 give a process one MIG device and no GPU beside it"
_CHANGED = 570

_BUS_ID = re.compile(
    r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([01]?[0-9a-fA-F])(?:\.[0-7])?", re.ASCII
)


DeviceId = tuple[int, int | None, int | None]
"""The NVML index; for a MIG device also its GPU instance and compute instance."""


class CudaDevice(msgspec.Struct, frozen=True):
    """A GPU or MIG device: the facts on which the meaning of CUDA_VISIBLE_DEVICES depends."""

    index: int
    """NVML's index, the number nvidia-smi shows."""
    uuid: str | None
    """As `nvidia-smi -L` prints it: GPU-8932f937-d72c-4106-c12f-20bd9faed9f6."""
    pci_bus_id: str | None
    name: str | None
    mig_enabled: bool = False
    """MIG mode is on: CUDA then counts MIG instances in place of this GPU."""
    mig: tuple[MigDevice, ...] | None = None
    """In NVML's order, without what changes from frame to frame; None: not known."""
    instance: MigDevice | None = None
    """Set if this is a MIG device; all other fields are then those of its GPU."""
    cores: int | None = None
    sms: int | None = None
    sm_clock: int | None = None
    """The highest SM clock, in hertz."""
    minor: int | None = None
    """The N of /dev/nvidiaN."""

    @property
    def mig_uuid(self) -> str | None:
        """The MIG device's own UUID; `uuid` is its GPU's."""
        return self.instance.uuid if self.instance else None

    @property
    def own_uuid(self) -> str | None:
        """The UUID that names the device in a list; for a MIG device not its GPU's."""
        return self.instance.uuid if self.instance else self.uuid

    @property
    def label(self) -> str:
        """The device's name in a sentence: `GPU 1`, `GPU 0:3 MIG 2g.10gb`."""
        if self.instance is None:
            return f"GPU {self.index}"
        number = mig_number(self.index, *self.instance.instance_ids)
        return f"GPU {number} MIG {self.instance.profile or ''}".rstrip()

    @property
    def id(self) -> DeviceId:
        """The identity of the device on its machine, independent of all other fields."""
        if self.instance is None:
            return self.index, None, None
        return self.index, *self.instance.instance_ids

    @property
    def gpu_instance(self) -> tuple[int, int | None]:
        """The GPU instance of the device. CUDA counts one of the devices that share it."""
        return self.id[:2]

    def parts(self) -> tuple[CudaDevice, ...]:
        """Return the GPU's MIG devices, or the GPU itself if it has none or they are not known."""
        if not self.mig_enabled or not self.mig:
            return (self,)
        return tuple(msgspec.structs.replace(self, instance=instance) for instance in self.mig)


MigRule = Literal["none", "old", "new"]
"""How CUDA counts: no GPU is in MIG mode, as before R570, or as from R570 on."""


class Enumeration(msgspec.Struct, frozen=True):
    """The GPUs that CUDA counts; `devices` is in CUDA's order unless `certainty` is unknown."""

    devices: tuple[CudaDevice, ...]
    certainty: Certainty
    because: str
    """A sentence for people: what the certainty rests on."""
    mig: MigRule = "none"
    instances: tuple[CudaDevice, ...] = ()
    """The MIG devices, GPU by GPU."""

    @property
    def ordered(self) -> bool:
        """Whether the i-th of `devices` is CUDA's device i."""
        return self.certainty != "unknown"

    def targets(self, mig: bool) -> tuple[CudaDevice, ...]:
        """Return the devices that a list, of MIG UUIDs or not, can name; ranks count in these."""
        return self.instances if mig else self.devices


def normalize_bus_id(text: str | None) -> tuple[int, int, int] | None:
    """Return (domain, bus, device) of a PCI bus id, sortable and comparable; None for garbage.

    NVML prints 8 digits of domain, CUDA and TensorFlow 4, lspci none; letter case does not matter.
    """
    match = _BUS_ID.fullmatch(text or "")
    if match is None:
        return None
    domain, bus, device = match.groups(default="0")
    return int(domain, 16), int(bus, 16), int(device, 16)


def shown(text: str) -> str:
    """Quote foreign text for a message: short, on one line, without control characters."""
    return repr(text) if len(text) <= 48 else f"{text[:40]!r}..."


# --- the order of the GPUs -----------------------------------------------------------------------


def enumerate_devices(
    devices: Sequence[CudaDevice], order: str | None, cuda_order: Sequence[int] | None = None
) -> Enumeration:
    """Put the GPUs into CUDA's order as far as it can be known without asking the driver.

    `order` is CUDA_DEVICE_ORDER (None: unset). `cuda_order` is the driver's own answer under that
    `order`, as NVML indices; CUDA does not count GPUs that are not in it.
    """
    gpus = tuple(devices)
    if cuda_order is not None:
        by_index = {gpu.index: gpu for gpu in gpus}
        if len(set(cuda_order)) < len(cuda_order) or not by_index.keys() >= set(cuda_order):
            return Enumeration(gpus, "unknown", "the CUDA driver's order does not fit these GPUs")
        counted = tuple(by_index[index] for index in cuda_order)
        return Enumeration(counted, "exact", "the CUDA driver itself gave this order")
    if len(gpus) <= 1:
        return Enumeration(gpus, "exact", "there is one GPU" if gpus else "there is no GPU")
    return _ranked(gpus, by_bus_id=order == PCI_BUS_ID)


def _ranked(gpus: tuple[CudaDevice, ...], *, by_bus_id: bool) -> Enumeration:
    """Rank by PCI bus id, never by NVML index: NVML promises no relation to CUDA's order."""
    names = {gpu.name for gpu in gpus}
    mixed = not by_bus_id and (len(names) > 1 or None in names)
    speeds = _speeds(gpus) if mixed else {}
    if mixed and not speeds:
        because = (
            "CUDA puts the fastest GPU first, by a rule it does not publish:"
            " set CUDA_DEVICE_ORDER=PCI_BUS_ID or use UUIDs"
        )
        return Enumeration(gpus, "unknown", because)
    bus_ids = {normalize_bus_id(gpu.pci_bus_id): gpu for gpu in gpus}
    if None in bus_ids or len(bus_ids) < len(gpus):
        return Enumeration(gpus, "unknown", "the PCI bus ids of these GPUs are not all known")
    ranked = tuple(
        gpu for _, gpu in sorted((bus_id, gpu) for bus_id, gpu in bus_ids.items() if bus_id)
    )
    if by_bus_id:
        because = "CUDA_DEVICE_ORDER=PCI_BUS_ID counts the GPUs by PCI bus id"
        return Enumeration(ranked, "exact", because)
    if mixed:
        because = "CUDA puts the fastest GPU first; cores, SMs and clocks all rank these alike"
        by_speed = tuple(sorted(ranked, key=lambda gpu: speeds[gpu.index], reverse=True))
        return Enumeration(by_speed, "predicted", because)
    because = "the GPUs are all the same model, and CUDA counts such GPUs by PCI bus id"
    return Enumeration(ranked, "expected", because)


def _speeds(gpus: Sequence[CudaDevice]) -> dict[int, tuple[int, int, int]]:
    speeds: dict[int, tuple[int, int, int]] = {}
    for gpu in gpus:
        if gpu.name is None or gpu.cores is None or gpu.sms is None or gpu.sm_clock is None:
            return {}
        speeds[gpu.index] = (gpu.cores, gpu.sms, gpu.cores * gpu.sm_clock)
    ladder = sorted(set(speeds.values()))
    alike = all(a < b for low, high in pairwise(ladder) for a, b in zip(low, high, strict=True))
    # Two models that tie may come in either order; one model with two clocks is no ranking at all.
    models = len({gpu.name for gpu in gpus})
    return speeds if alike and models == len(ladder) else {}


# --- MIG -----------------------------------------------------------------------------------------


def rules_for(devices: Sequence[CudaDevice], driver_version: str | None) -> tuple[MigRule, ...]:
    """Return the rule that holds, or both if that depends on an unknown driver version."""
    if not any(device.mig_enabled for device in devices):
        return ("none",)
    major = re.match(r"[0-9]{1,9}", driver_version or "")
    if major is None:
        return ("old", "new")
    return ("new" if int(major[0]) >= _CHANGED else "old",)


def with_mig(gpus: Enumeration, rule: MigRule, *, mixed: bool = False) -> Enumeration:
    """Return the enumeration of a machine whose GPUs are in the order of `gpus`.

    `mixed`: the list has integers and UUIDs. No source covers that. The best guess is that the
    integers count GPUs, and `resolve` marks it as not documented.
    """
    if rule == "none":
        return gpus
    parts = [device.parts() for device in gpus.devices]
    instances = tuple(d for part in parts for d in part if d.instance is not None)
    firsts = gpus.devices if rule == "new" else tuple(part[0] for part in parts)
    rule = "old" if mixed else rule
    return msgspec.structs.replace(gpus, devices=firsts, mig=rule, instances=instances)


def unset_devices(cuda: Enumeration) -> tuple[tuple[CudaDevice, ...] | None, int | None, bool]:
    """Return what CUDA shows when the variable is unset.

    That is the devices and their number (None: not known), and whether the k-th device is cuda:k.
    """
    if any(device.mig_enabled and device.mig is None for device in cuda.devices):
        return None, None, False
    plain = tuple(device for device in cuda.devices if not device.mig_enabled)
    if not cuda.instances:
        return plain, len(plain), cuda.ordered
    if cuda.mig == "old":
        first = cuda.instances[:1]
        certain = cuda.ordered or len({device.index for device in cuda.instances}) == 1
        return (first if certain else None), 1, certain
    groups = {device.gpu_instance for device in cuda.instances}
    count = min(len(groups), MAX_INSTANCES) + len(plain)
    if len(groups) < len(cuda.instances) or len(groups) > MAX_INSTANCES:
        return None, count, False
    return (*cuda.instances, *plain), count, count == 1
