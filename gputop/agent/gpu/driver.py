"""Opens, asks and closes the driver."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
import pynvml

from gputop.agent.gpu import validate

T = TypeVar("T")

DRIVER_GONE = {pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED}
GPU_GONE = {
    pynvml.NVML_ERROR_GPU_IS_LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED,
    pynvml.NVML_ERROR_GPU_NOT_FOUND,
}


class Driver(msgspec.Struct, frozen=True):
    """An initialised NVML."""

    version: str | None = None
    cuda_version: str | None = None
    count: int = 0


_MPS_VIEW = "NVML_MPS_DEVICE_ENUMERATION"
"""If it is set, NVML (R615) lists the devices of an MPS server in place of the GPUs, without their
processes and health (NVML API Reference, MPS Locality Domain Device Enumeration)."""


def open_driver() -> Driver:
    """Call nvmlInit; return facts of the whole machine. NVMLError if it fails. May hang."""
    os.environ.pop(_MPS_VIEW, None)
    pynvml.nvmlInit()
    return Driver(
        version=validate.text(ask_driver(pynvml.nvmlSystemGetDriverVersion)),
        cuda_version=_cuda_version(),
        count=pynvml.nvmlDeviceGetCount(),
    )


def close_driver() -> None:
    """Call nvmlShutdown; if it fails, NVML is down already."""
    with suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()


def ask_driver(call: Callable[..., T], *arguments: Any) -> T | None:
    """Return NVML's answer; None if it has none, or if there is no handle yet to ask with."""
    if None in arguments:
        return None
    try:
        return call(*arguments)
    except (pynvml.NVMLError, UnicodeDecodeError):
        return None


def _cuda_version() -> str | None:
    """Return `13.0` for NVML's 13000; drivers before R410 have no such call."""
    version = ask_driver(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    version = version or ask_driver(pynvml.nvmlSystemGetCudaDriverVersion)
    return f"{version // 1000}.{version % 1000 // 10}" if version else None
