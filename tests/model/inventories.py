"""Small machines for the tests of CUDA_VISIBLE_DEVICES."""

from gputop.model.cuda.enumeration import CudaDevice


def indices(devices: tuple[CudaDevice, ...] | None) -> list[int] | None:
    return None if devices is None else [device.index for device in devices]


def h100(count: int) -> list[CudaDevice]:
    """Equal GPUs whose UUIDs start with different digits, in PCI order."""
    return [
        CudaDevice(
            i, f"GPU-{i:x}942190a-aa31-4ff1-4aa9-c388d80f85f1", f"00000000:{i + 1:02X}:00.0", "H"
        )
        for i in range(count)
    ]


def mixed() -> list[CudaDevice]:
    """Three GPUs of two models, whose default order CUDA does not publish."""
    names = ("GTX 1660 SUPER", "RTX 3090", "RTX 3090")
    return [
        CudaDevice(device.index, device.uuid, device.pci_bus_id, name)
        for device, name in zip(h100(3), names, strict=True)
    ]
