"""Whether CUDA has been started in this process. It reads CUDA_VISIBLE_DEVICES when it starts, in
cuInit, and never again (CUDA Programming Guide, 5.2.1.1)."""

from __future__ import annotations

import ctypes
import os
import sys

_SUCCESS, _NO_DEVICE = 0, 100


def cuda_started() -> str | None:
    """Return what shows that it has been started, in words; None if nothing does. The library is
    asked only where it is loaded already, and never loaded for this."""
    torch = getattr(sys.modules.get("torch"), "cuda", None)
    if torch is not None and torch.is_initialized():
        return "torch.cuda.is_initialized()"
    try:
        library = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD)
    except OSError:
        return None
    count = ctypes.c_int()
    answer = library.cuDeviceGetCount(ctypes.byref(count))
    if answer not in (_SUCCESS, _NO_DEVICE):  # before cuInit it is CUDA_ERROR_NOT_INITIALIZED
        return None
    names = [f"cuda:{k}" for k in range(count.value) if _has_context(library, k)]
    return f"it has a context on {', '.join(names)}" if names else "cuInit has been called"


def _has_context(library: ctypes.CDLL, ordinal: int) -> bool:
    device, flags, active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    library.cuDeviceGet(ctypes.byref(device), ordinal)
    library.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
    return bool(active.value)
