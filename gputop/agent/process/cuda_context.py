"""What decides which GPUs a process sees: its variables, its device nodes, the libraries it has
loaded. Also where gputop itself runs."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

import msgspec

from gputop.agent.process.environment import ancestor_env, descendant_env, read_environ
from gputop.agent.process.mounts import read_mounts
from gputop.agent.process.namespaces import in_first_namespace
from gputop.agent.process.paths import MountCache, Sight, view_of
from gputop.agent.process.procfs import MAPS, read_bounded, read_cgroup
from gputop.agent.process.reader import killable
from gputop.agent.process.stat import every_process
from gputop.agent.stall import CallGuard, StalledError
from gputop.model.machine.environment import CudaContext, Environ, Standpoint, job_gpus, job_of
from gputop.model.machine.text import printable

_TRIES = 3
"""Each try leaves out the file systems that did not answer in the one before."""

_MAPS_SECONDS = 0.03
"""Seconds to read the mappings of one process; the most it may have, 65,530, take longer."""

# Parts of file names that only processes using the framework have mapped.
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

_NODE = re.compile(r"nvidia([0-9]+)\Z", re.ASCII)
_OTHER = re.compile(r"dxg\Z|nvmap\Z|nvhost-")
"""Nodes of GPUs that have no /dev/nvidiaN: under WSL, and on a Jetson."""
_MOST = 1 << 16
"""Names in /dev that are read at most."""
_MARKS = ("/.dockerenv", "/run/.containerenv", "/.singularity.d")
"""Paths that docker, podman and Apptainer create in every container."""
_INIT = 1


def read_context(pid: int, environ: Environ, mounts: MountCache) -> CudaContext:
    """Read the context of one process, without its frameworks and descendants."""
    minors = visible_minors(pid, mounts)
    return CudaContext(
        environ=environ,
        minors=None if minors is None else tuple(sorted(minors)),
        in_container=mounts.ask(in_container, pid) or False,
        ancestor=ancestor_env(pid, environ),
    )


def read_whole_context(pid: int) -> CudaContext:
    """Read the context of one process, with its frameworks and descendants."""
    guard = CallGuard()
    environ = read_environ(pid)
    context = CudaContext(environ=environ)
    for _ in range(_TRIES):
        mounts = MountCache(guard)
        with suppress(StalledError):
            context = guard.ask(mounts.step, partial(read_context, pid, environ, mounts))
            break
    below = descendant_env({pid: environ}, every_process())
    return msgspec.structs.replace(
        context, frameworks=loaded_frameworks(pid), descendant=below.get(pid)
    )


@killable(())
def loaded_frameworks(pid: int) -> tuple[str, ...]:
    """Return ids of the frameworks that a process has mapped; none if that cannot be read."""
    try:
        maps, _ = read_bounded(f"/proc/{pid}/maps", MAPS, time.monotonic() + _MAPS_SECONDS)
    except (OSError, MemoryError):
        return ()
    return tuple(dict.fromkeys(id_ for part, id_ in _LIBRARIES if part in maps))


def visible_minors(pid: int, mounts: MountCache) -> frozenset[int] | None:
    """Return the N of each /dev/nvidiaN through which a process may have a GPU.

    None if they are the same as gputop's own, or if they say nothing.
    A control group may forbid a node that exists; version 2 has no way to ask what it forbids.
    """
    own = os.getpid()
    minors, ours = mounts.ask(device_minors, pid), mounts.ask(device_minors, own)
    if minors is None or minors != ours or mounts.ask(in_container, pid):
        return minors
    same = minors or mounts.ask(_dev, pid) == mounts.ask(_dev, own)
    return None if same else minors


def device_minors(sight: Sight) -> frozenset[int] | None:
    """Return the N of each /dev/nvidiaN that a process sees in its own mount namespace.

    None if GPUs have other nodes. OSError if /dev cannot be read.
    """
    try:
        return _minors(sight.names("/dev", _MOST))
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()


def in_container(sight: Sight) -> bool:
    """Return whether a process has another root than gputop. OSError.

    Mounts are compared: the root itself may be on a file system that does not answer.
    """
    view, own = view_of(sight.pid), view_of(os.getpid())
    if view is None or own is None:
        raise OSError("its root cannot be read")
    if view[0] == own[0]:
        return view != own
    theirs, ours = sight.mounts.root, read_mounts(os.getpid()).root
    if theirs is None or ours is None:
        return theirs is not ours
    return (theirs.device, theirs.root) != (ours.device, ours.root)


def standpoint() -> Standpoint:
    """Return where gputop itself runs: in a container, in a batch job, with which device nodes."""
    try:
        minors = _minors(os.listdir("/dev"))
    except OSError:
        minors = None
    job, gpus = job_of(os.environ), job_gpus(os.environ)
    if job is None and (origin := read_cgroup("self")) and origin.slurm_job:
        job = f"Slurm {origin.slurm_job}"  # an ssh session has no variables (pam_slurm_adopt)
    return Standpoint(
        minors=tuple(sorted(minors)) if minors else None,
        container=_contained(),
        job=job and printable(job, 64),
        job_gpus=gpus and printable(gpus, 256),
    )


def _contained() -> bool:
    marked = "KUBERNETES_SERVICE_HOST" in os.environ or any(map(os.path.exists, _MARKS))
    return (
        marked or not in_first_namespace() or bool(MountCache(CallGuard()).ask(in_container, _INIT))
    )


def _minors(names: Iterable[str]) -> frozenset[int] | None:
    names = list(names)
    if any(map(_OTHER.match, names)):
        return None
    return frozenset(int(match[1]) for name in names if (match := _NODE.match(name)))


def _dev(sight: Sight) -> tuple[int, int]:
    with sight.find("/dev") as folder:
        status = os.fstat(folder)
    return status.st_dev, status.st_ino
