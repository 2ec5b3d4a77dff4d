"""What decides which GPUs a process sees: its variables, its device nodes, what it has loaded."""

from __future__ import annotations

import os
import re

import msgspec

from gputop.agent.process.descendants import telling
from gputop.agent.process.environ import read_environ
from gputop.agent.process.views import Views
from gputop.agent.process.walk import every_process
from gputop.model.environ import Surroundings

_NODE = re.compile(r"nvidia([0-9]+)\Z", re.ASCII)

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


def look_at(pid: int, views: Views) -> Surroundings:
    """Look at one process; its frameworks and descendants apart."""
    minors, inside = views.ask(device_minors, pid), views.ask(in_container, pid)
    if minors is not None and not inside and minors == views.ask(device_minors, os.getpid()):
        minors = None  # it sees what we see
    return Surroundings(
        environ=read_environ(pid),
        minors=None if minors is None else tuple(sorted(minors)),
        in_container=inside,
    )


def look_closely(pid: int) -> Surroundings:
    """Look at one process, its frameworks and descendants too."""
    found = look_at(pid, Views())
    below = telling({pid: found.environ}, every_process())
    return msgspec.structs.replace(
        found, frameworks=loaded_frameworks(pid), descendant=below.get(pid)
    )


def device_minors(pid: int) -> frozenset[int] | None:
    """The N of the /dev/nvidiaN that a process sees in its own mount namespace.

    None where that cannot be looked at, and where there are no such nodes at all, as under WSL:
    then nodes say nothing. A cgroup may forbid a node that is there.
    """
    try:
        names = os.listdir(f"/proc/{pid}/root/dev")
    except OSError:
        return None
    minors = frozenset(int(match[1]) for name in names if (match := _NODE.match(name)))
    return minors or None


def in_container(pid: int) -> bool:
    """Whether a process has another root than ours; False where that cannot be seen."""
    try:
        theirs, ours = os.stat(f"/proc/{pid}/root/"), os.stat("/")
    except OSError:
        return False
    return (theirs.st_dev, theirs.st_ino) != (ours.st_dev, ours.st_ino)


def loaded_frameworks(pid: int) -> tuple[str, ...]:
    """Ids of the frameworks whose libraries a process maps; empty where that cannot be read."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            maps = file.read()
    except OSError:
        return ()
    return tuple(dict.fromkeys(id_ for part, id_ in _LIBRARIES if part in maps))
