"""What decides which GPUs a process sees: its variables, its device nodes, what it has loaded."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial

import msgspec

from gputop.agent.process.environment import descendant_env, read_environ
from gputop.agent.process.nodes import in_container, visible_minors
from gputop.agent.process.paths import MountCache
from gputop.agent.process.procfs import MAPS, read_bounded
from gputop.agent.process.stat import every_process
from gputop.agent.stall import CallGuard, StalledError
from gputop.model.machine.environment import CudaContext

_TRIES = 3
"""What does not answer in one is left out of the next."""

_MAPS_SECONDS = 0.03
"""Of one process: with 65,530 mappings, as many as it may have, to read them takes longer."""

# Parts of the names of files that only those map who use the framework.
_LIBRARIES = (
    (b"libtorch_cuda", "pytorch"),
    (b"libtensorflow_framework", "tensorflow"),
    (b"libtensorflow_cc", "tensorflow"),
    (b"_pywrap_tensorflow", "tensorflow"),
    (b"xla_cuda_plugin", "jax"),
    (b"/jaxlib/", "jax"),
    (b"/cupy/", "cupy"),
    (b"/numba/", "numba"),
    (b"libonnxruntime_providers_cuda", "onnxruntime"),
    (b"libggml-cuda", "llama_cpp"),
)


def read_context(pid: int, mounts: MountCache) -> CudaContext:
    """Read one process without its frameworks and descendants."""
    minors = visible_minors(pid, mounts)
    return CudaContext(
        environ=read_environ(pid),
        minors=None if minors is None else tuple(sorted(minors)),
        in_container=mounts.ask(in_container, pid) or False,
    )


def read_whole_context(pid: int) -> CudaContext:
    """Read one process, its frameworks and descendants too."""
    guard = CallGuard()
    context = CudaContext(environ=read_environ(pid))
    for _ in range(_TRIES):
        mounts = MountCache(guard)
        with suppress(StalledError):
            context = guard.ask(mounts.step, partial(read_context, pid, mounts))
            break
    below = descendant_env({pid: context.environ}, every_process())
    return msgspec.structs.replace(
        context, frameworks=loaded_frameworks(pid), descendant=below.get(pid)
    )


def loaded_frameworks(pid: int) -> tuple[str, ...]:
    """Return ids of the frameworks whose libraries a process maps; none where it cannot be read."""
    try:
        maps = read_bounded(f"/proc/{pid}/maps", MAPS, time.monotonic() + _MAPS_SECONDS).data
    except (OSError, MemoryError):
        return ()
    return tuple(dict.fromkeys(id_ for part, id_ in _LIBRARIES if part in maps))
