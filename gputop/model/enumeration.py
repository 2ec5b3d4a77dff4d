"""The order in which CUDA counts the GPUs of a machine, before CUDA_VISIBLE_DEVICES hides any.

Three numberings exist and are never mixed here: the NVML index (what nvidia-smi shows), the CUDA
enumeration index (what an integer in CUDA_VISIBLE_DEVICES counts, after CUDA_DEVICE_ORDER), and
the logical index (cuda:k, after CUDA_VISIBLE_DEVICES).

Source: NVIDIA CUDA Programming Guide 13.x, 5.2.1.2. It defines PCI_BUS_ID; the heuristic behind
FASTEST_FIRST, the default, is published nowhere. More cores first fits every clean report since
driver 410; compute capability first does not (pytorch#80876, vllm#53834).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import msgspec

Certainty = Literal["exact", "expected", "predicted", "unknown"]
"""How far the order of the GPUs can be trusted (that of the text is `documented`).

exact      documented, or the driver itself said so, or no order is needed
expected   observed always, promised nowhere: equal GPUs are counted by PCI bus id
predicted  follows from a rule that fits the published reports
unknown    nothing can be claimed
"""

PCI_BUS_ID = "PCI_BUS_ID"
FASTEST_FIRST = "FASTEST_FIRST"

_BUS_ID = re.compile(
    r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([01]?[0-9a-fA-F])(?:\.[0-7])?", re.ASCII
)


Place = tuple[int, int | None, int | None]
"""NVML's index, and of a MIG device its GPU instance and compute instance."""


class MigInstance(msgspec.Struct, frozen=True):
    """A compute instance of a GPU in MIG mode."""

    uuid: str | None
    """As `nvidia-smi -L` prints it from R470 on: MIG-c788539f-c1ea-5a36-8b4d-9b07d024b1bb."""
    gi: int
    ci: int
    profile: str | None = None
    """As 2g.10gb."""


class Device(msgspec.Struct, frozen=True):
    """What the meaning of CUDA_VISIBLE_DEVICES depends on, of one GPU or one MIG device of it."""

    index: int
    """NVML's index, the number nvidia-smi shows."""
    uuid: str | None
    """As `nvidia-smi -L` prints it: GPU-8932f937-d72c-4106-c12f-20bd9faed9f6."""
    pci_bus_id: str | None
    name: str | None
    mig_enabled: bool = False
    """MIG mode is on: CUDA then counts MIG instances in place of this GPU."""
    mig: tuple[MigInstance, ...] | None = None
    """In NVML's order; None: not known."""
    instance: MigInstance | None = None
    """Where this is a MIG device; all other fields are then those of its GPU."""
    cores: int | None = None
    sms: int | None = None
    sm_clock: int | None = None
    """The highest, in hertz."""
    minor: int | None = None
    """The N of /dev/nvidiaN."""

    @property
    def mig_uuid(self) -> str | None:
        """The MIG device's own UUID; `uuid` is its GPU's."""
        return self.instance.uuid if self.instance else None

    @property
    def label(self) -> str:
        """Its name in a sentence: `GPU 1`, `MIG 2g.10gb (GI 3, CI 0) of GPU 0`."""
        if self.instance is None:
            return f"GPU {self.index}"
        profile = f" {self.instance.profile}" if self.instance.profile else ""
        place = f"GI {self.instance.gi}, CI {self.instance.ci}"
        return f"MIG{profile} ({place}) of GPU {self.index}"

    @property
    def place(self) -> Place:
        """Which device of the machine it is, whatever else is known of it."""
        if self.instance is None:
            return self.index, None, None
        return self.index, self.instance.gi, self.instance.ci

    def parts(self) -> tuple[Device, ...]:
        """Give its MIG devices; itself where it has none, or they are not known."""
        if not self.mig_enabled or not self.mig:
            return (self,)
        return tuple(msgspec.structs.replace(self, instance=instance) for instance in self.mig)


MigRule = Literal["none", "old", "new"]
"""How CUDA counts: no GPU is in MIG mode; as before R570; as from R570 on."""


class Enumeration(msgspec.Struct, frozen=True):
    """The GPUs that CUDA counts; `devices` is in CUDA's order unless `certainty` is unknown.

    On machines with MIG: `gputop.model.mig`.
    """

    devices: tuple[Device, ...]
    certainty: Certainty
    because: str
    """One sentence for people: what the certainty rests on."""
    documented: bool = True
    mig: MigRule = "none"
    instances: tuple[Device, ...] = ()
    """The MIG devices, GPU by GPU."""

    @property
    def ordered(self) -> bool:
        """Whether the i-th of `devices` is CUDA's device i."""
        return self.certainty != "unknown"

    @property
    def has_mig(self) -> bool:
        """Whether CUDA counts MIG instances beside or in place of the GPUs."""
        return self.mig != "none"


def normalize_bus_id(text: str | None) -> tuple[int, int, int] | None:
    """Give (domain, bus, device) of a PCI bus id, sortable and comparable; None for garbage.

    NVML prints an 8-digit domain, CUDA and TensorFlow a 4-digit one, lspci none, in either case.
    """
    match = _BUS_ID.fullmatch(text or "")
    if match is None:
        return None
    domain, bus, device = match.groups(default="0")
    return int(domain, 16), int(bus, 16), int(device, 16)


def enumerate_devices(
    devices: Sequence[Device], order: str | None, cuda_order: Sequence[int] | None = None
) -> Enumeration:
    """Put the GPUs into CUDA's order as far as it can be known without asking the driver.

    `order` is CUDA_DEVICE_ORDER (None: unset). `cuda_order` is the driver's own answer under that
    `order`, as NVML indices; GPUs that it does not list are not counted by CUDA.
    """
    found = tuple(devices)
    if cuda_order is not None:
        return _probed(found, cuda_order)
    if len(found) <= 1:
        return Enumeration(found, "exact", "there is one GPU" if found else "there is no GPU")
    if order not in (None, FASTEST_FIRST, PCI_BUS_ID):
        because = (
            f"CUDA_DEVICE_ORDER={shown(order)} is neither PCI_BUS_ID nor FASTEST_FIRST,"
            " and what CUDA makes of it is not documented"
        )
        return Enumeration(found, "unknown", because, documented=False)
    return _ranked(found, by_bus_id=order == PCI_BUS_ID)


def shown(text: str) -> str:
    """Quote foreign text for a message: short, on one line, without control characters."""
    return repr(text) if len(text) <= 48 else f"{text[:40]!r}..."


def _probed(found: tuple[Device, ...], cuda_order: Sequence[int]) -> Enumeration:
    by_index = {device.index: device for device in found}
    if len(set(cuda_order)) < len(cuda_order) or not by_index.keys() >= set(cuda_order):
        return Enumeration(found, "unknown", "the CUDA driver's order does not fit these GPUs")
    counted = tuple(by_index[index] for index in cuda_order)
    return Enumeration(counted, "exact", "the CUDA driver itself gave this order")


def _ranked(found: tuple[Device, ...], *, by_bus_id: bool) -> Enumeration:
    """Rank by PCI bus id, never by NVML index: NVML promises no relation to CUDA's order."""
    names = {device.name for device in found}
    mixed = not by_bus_id and (len(names) > 1 or None in names)
    speeds = _speeds(found) if mixed else {}
    if mixed and not speeds:
        because = (
            "CUDA puts the fastest GPU first, by a rule it does not publish:"
            " set CUDA_DEVICE_ORDER=PCI_BUS_ID or use UUIDs"
        )
        return Enumeration(found, "unknown", because)
    places = {normalize_bus_id(device.pci_bus_id): device for device in found}
    if None in places or len(places) < len(found):
        return Enumeration(found, "unknown", "the PCI bus ids of these GPUs are not all known")
    ranked = tuple(device for _, device in sorted((p, d) for p, d in places.items() if p))
    if by_bus_id:
        because = "CUDA_DEVICE_ORDER=PCI_BUS_ID counts the GPUs by PCI bus id"
        return Enumeration(ranked, "exact", because)
    if mixed:
        because = "CUDA puts the fastest GPU first; cores, SMs and clocks all rank these alike"
        by_speed = tuple(sorted(ranked, key=lambda device: speeds[device.index], reverse=True))
        return Enumeration(by_speed, "predicted", because)
    because = "the GPUs are all the same model, and CUDA counts such GPUs by PCI bus id"
    return Enumeration(ranked, "expected", because)


def _speeds(found: Sequence[Device]) -> dict[int, tuple[int, int, int]]:
    """Give cores, SMs and cores x clock by NVML index; empty unless all three rank models alike."""
    speeds: dict[int, tuple[int, int, int]] = {}
    for device in found:
        if None in (device.name, device.cores, device.sms, device.sm_clock):
            return {}
        cores, clock = device.cores or 0, device.sm_clock or 0
        speeds[device.index] = (cores, device.sms or 0, cores * clock)
    ladder = sorted(set(speeds.values()))
    alike = all(a < b for low, high in pairwise(ladder) for a, b in zip(low, high, strict=True))
    # Two models that tie may come in either order; one model with two clocks is no ranking at all.
    models = len({device.name for device in found})
    return speeds if alike and models == len(ladder) else {}
