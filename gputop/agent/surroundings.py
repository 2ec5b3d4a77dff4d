"""What decides which GPUs a process sees: its variables, its device nodes, what it has loaded."""

from __future__ import annotations

import os
import re
import time
from typing import Any

import msgspec

from gputop.agent.descendants import Descendants
from gputop.agent.environ import read_environ
from gputop.agent.worker import Worker
from gputop.model.environ import Surroundings

Key = tuple[int, float]
"""pid and start time."""

_NODE = re.compile(r"nvidia([0-9]+)\Z", re.ASCII)
_LOOK_AGAIN = 120
"""Looks between two at the variables of a process: it may execute another program."""
_MAPS_SECONDS = 0.005
"""Of a look; a list of mapped files can take as long."""

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


class Surveyor:
    """Keeps the surroundings of processes, read in a thread of its own: they never delay a tick."""

    def __init__(self) -> None:
        self._known: dict[Key, Surroundings] = {}
        self._loaded: set[Key] = set()
        self._descendants = Descendants()
        self._wanted: frozenset[Key] = frozenset()
        self._looks = 0
        self._worker = Worker("surroundings", self._look)

    def read(self, wanted: frozenset[Key], patience: float) -> dict[Key, Surroundings]:
        """What is known of those processes after at most `patience` seconds."""
        if not self._worker.busy:
            self._wanted = wanted
            self._worker.ask()
        self._worker.wait(time.monotonic() + patience)
        return self._worker.latest or {}

    def _look(self) -> dict[Key, Surroundings]:
        """In the thread. Who is not wanted any more is forgotten."""
        self._looks += 1
        self._known = {key: self._of(key) for key in self._wanted}
        self._loaded &= self._known.keys()
        self._load()
        found = self._descendants.look({pid: one.environ for (pid, _), one in self._known.items()})
        if found is not None:
            for key in self._wanted:
                self._change(key, descendant=found.get(key[0]))
        return self._known

    def _of(self, key: Key) -> Surroundings:
        known, pid = self._known.get(key), key[0]
        if known is None:
            return look_at(pid)
        if (self._looks + pid) % _LOOK_AGAIN:
            return known
        environ = read_environ(pid)
        if environ.missing in ("overwritten", "gone"):
            return known  # read before the process wrote over it, it holds still
        return msgspec.structs.replace(known, environ=environ)

    def _load(self) -> None:
        """See which frameworks are loaded, of as many processes as the time allows."""
        end = time.monotonic() + _MAPS_SECONDS
        for key in self._known.keys() - self._loaded:
            self._change(key, frameworks=loaded_frameworks(key[0]))
            self._loaded.add(key)
            if time.monotonic() >= end:
                break

    def _change(self, key: Key, **facts: Any) -> None:
        if any(getattr(self._known[key], name) != fact for name, fact in facts.items()):
            self._known[key] = msgspec.structs.replace(self._known[key], **facts)


def look_at(pid: int) -> Surroundings:
    """Look at one process; its frameworks and descendants apart."""
    minors, inside = device_minors(pid), in_container(pid)
    if minors is not None and not inside and minors == device_minors(os.getpid()):
        minors = None  # it sees what we see
    return Surroundings(
        environ=read_environ(pid),
        minors=None if minors is None else tuple(sorted(minors)),
        in_container=inside,
    )


def look_closely(pid: int) -> Surroundings:
    """Look at one process, its frameworks and descendants too."""
    found = look_at(pid)
    below = Descendants().look({pid: found.environ}) or {}
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
