"""What the CUDA driver answered when it was asked; `model.cuda.probe` says what that means."""

from __future__ import annotations

import msgspec


class ProbedDevice(msgspec.Struct, frozen=True):
    """A device as the driver reports it."""

    uuid: str
    """As 8932f937-d72c-4106-c12f-20bd9faed9f6; before R470 a MIG device has its GPU's."""
    pci_bus_id: str
    name: str


class Probed(msgspec.Struct, frozen=True):
    """The driver's answer, for the container and cgroup that it was asked in."""

    devices: tuple[ProbedDevice, ...] | None = None
    """The k-th is cuda:k; None: the driver did not list them, and `problem` is why."""
    problem: str | None = None
    value: str | None = None
    """The CUDA_VISIBLE_DEVICES that it was asked about; None: unset."""
    order: str | None = None
    """CUDA_DEVICE_ORDER, likewise."""
