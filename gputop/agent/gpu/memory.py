"""The memory of a GPU or a MIG device."""

from __future__ import annotations

from typing import Any

import pynvml

from gputop.agent.gpu import sanity
from gputop.agent.gpu.section import Ask


def read_memory(ask: Ask) -> dict[str, int | None]:
    """Of a GPU, bytes, as Gpu has them; empty where it does not tell.

    The v2 call tells what the driver reserves from what is used; v1 counts it as used.
    """
    info = ask(memory_v2)
    reserved = info.reserved if info else None
    info = info or ask(memory_v1)
    if info is None:
        return {}
    total = sanity.positive(sanity.memory(info.total))
    return {
        "memory_total": total,
        "memory_used": sanity.memory(info.used, total),
        "memory_free": sanity.memory(info.free, total),
        "memory_reserved": sanity.memory(reserved, total),
    }


def memory_v2(handle: Any) -> Any:
    """NVML's struct; NVMLError."""
    return pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)


def memory_v1(handle: Any) -> Any:
    """NVML's struct; NVMLError."""
    return pynvml.nvmlDeviceGetMemoryInfo(handle)
