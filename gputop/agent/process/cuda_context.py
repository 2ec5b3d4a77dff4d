"""What decides which GPUs a process sees: its variables, its device nodes, the libraries it has
loaded. Also where gputop itself runs."""

from __future__ import annotations

import os
import time

import msgspec

from gputop.agent.process.environment import ancestor_env, descendant_env, read_environ
from gputop.agent.process.mounts import device_nodes, in_container, minors_of, own_view, view_of
from gputop.agent.process.namespaces import in_first_namespace
from gputop.agent.process.procfs import MAPS, read_cgroup, read_if_any
from gputop.agent.process.reader import killable
from gputop.agent.process.stat import every_process
from gputop.model.machine.environment import (
    AgentSurroundings,
    CudaContext,
    Environ,
    job_gpus,
    job_of,
)
from gputop.model.machine.text import printable

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

_MARKS = ("/.dockerenv", "/run/.containerenv", "/.singularity.d")
"""Paths that docker, podman and Apptainer create in every container."""
_INIT = 1


def read_context(pid: int, environ: Environ) -> CudaContext:
    """Read the context of one process, without its frameworks and descendants."""
    view = view_of(pid)
    contained, minors = False, None
    if view is not None and view != own_view():
        contained = in_container(pid, view)
        minors = visible_minors(pid, contained)
    return CudaContext(
        environ=environ,
        minors=None if minors is None else tuple(sorted(minors)),
        in_container=contained,
        ancestor=ancestor_env(pid, environ),
    )


def read_whole_context(pid: int) -> CudaContext:
    """Read the context of one process, with its frameworks and descendants."""
    environ = read_environ(pid)
    below = descendant_env({pid: environ}, every_process())
    return msgspec.structs.replace(
        read_context(pid, environ), frameworks=loaded_frameworks(pid), descendant=below.get(pid)
    )


@killable(())
def loaded_frameworks(pid: int) -> tuple[str, ...]:
    """Return ids of the frameworks that a process has mapped; none if that cannot be read."""
    maps, _ = read_if_any(f"/proc/{pid}/maps", MAPS, time.monotonic() + _MAPS_SECONDS)
    return tuple(dict.fromkeys(id_ for part, id_ in _LIBRARIES if part in maps))


def visible_minors(pid: int, contained: bool) -> frozenset[int] | None:
    """Return the N of each /dev/nvidiaN through which a process that sees other files than gputop
    may have a GPU.

    None if they are the same as gputop's own, or if they say nothing.
    A control group may forbid a node that exists; version 2 has no way to ask what it forbids.
    """
    if (theirs := device_nodes(pid)) is None:
        return None
    ours = device_nodes(os.getpid())
    if contained or ours is None or theirs.minors != ours.minors:
        return theirs.minors
    same = theirs.minors or theirs.mounted == ours.mounted
    return None if same else theirs.minors


def surroundings() -> AgentSurroundings:
    """Return where gputop itself runs: in a container, in a batch job, with which device nodes."""
    try:
        minors = minors_of(os.listdir("/dev"))
    except OSError:
        minors = None
    job, gpus = job_of(os.environ), job_gpus(os.environ)
    if job is None and (origin := read_cgroup("self")) and origin.slurm_job:
        job = f"Slurm {origin.slurm_job}"  # an ssh session has no variables (pam_slurm_adopt)
    return AgentSurroundings(
        minors=tuple(sorted(minors)) if minors else None,
        container=_contained(),
        job=job,
        job_gpus=gpus and printable(gpus, 256),
    )


def _contained() -> bool:
    marked = "KUBERNETES_SERVICE_HOST" in os.environ or any(map(os.path.exists, _MARKS))
    view = view_of(_INIT)
    return marked or not in_first_namespace() or bool(view and in_container(_INIT, view))
