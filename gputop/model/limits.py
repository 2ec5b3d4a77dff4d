"""What a driver does not tell where the GPU is no card of its own, and why."""

from __future__ import annotations

from gputop.model.frame import Frame
from gputop.model.gpu import Gpu
from gputop.model.text import size

_INTEGRATED = frozenset({"5.3", "6.2", "7.2", "8.7", "10.1", "11.0", "12.1"})
"""Compute capabilities of Jetson (TX1, TX2, Xavier, Orin, Thor) and GB10, as NVIDIA's list of CUDA
GPUs has them."""


def is_unified(gpu: Gpu) -> bool:
    """Whether it has no memory of its own; NVML then tells of none."""
    identity = gpu.identity
    if gpu.error is not None or gpu.memory_total is not None or identity is None:
        return False
    return identity.compute_capability in _INTEGRATED


def limits(frame: Frame, gpu: Gpu) -> tuple[str, ...]:
    """A sentence for each, its subject before a colon."""
    found = []
    if is_unified(gpu):
        used, total = size(frame.host.memory_used), size(frame.host.memory_total)
        found.append(f"unified memory: the GPU uses the machine's RAM, {used} of {total} in use")
    if frame.host.wsl and gpu.processes_known is False:
        found.append("WSL: Windows runs the driver, which lists no processes here")
    if gpu.identity is not None and gpu.identity.virtualization == "vgpu":
        found.append("vGPU: a share of a card; only its host knows power, temperature and clocks")
    return tuple(found)
