"""The device nodes of GPUs that a process sees and the root that it sees them under; ours, too."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from gputop.agent.process.mounts import read_mounts
from gputop.agent.process.namespaces import in_first_namespace
from gputop.agent.process.paths import MountCache, Sight, view_of
from gputop.agent.process.procfs import read_cgroup
from gputop.agent.stall import CallGuard
from gputop.model.machine.environment import Standpoint, job_gpus, job_of
from gputop.model.machine.text import printable

_NODE = re.compile(r"nvidia([0-9]+)\Z", re.ASCII)
_OTHER = re.compile(r"dxg\Z|nvmap\Z|nvhost-")
"""Nodes of GPUs that have no /dev/nvidiaN: under WSL, and on a Jetson."""
_MOST = 1 << 16
"""Names of /dev that are looked through."""
_MARKS = ("/.dockerenv", "/run/.containerenv", "/.singularity.d")
"""What docker, podman and Apptainer put into every container."""
_INIT = 1


def visible_minors(pid: int, mounts: MountCache) -> frozenset[int] | None:
    """Return the N of the /dev/nvidiaN that a process may have a GPU by.

    None where these are those that gputop has itself, and where they say nothing.
    A control group may forbid a node that is there: version 2 cannot be asked what it forbids.
    """
    own = os.getpid()
    minors, ours = mounts.ask(device_minors, pid), mounts.ask(device_minors, own)
    if minors is None or minors != ours or mounts.ask(in_container, pid):
        return minors
    same = minors or mounts.ask(_dev, pid) == mounts.ask(_dev, own)
    return None if same else minors


def device_minors(sight: Sight) -> frozenset[int] | None:
    """Return the N of the /dev/nvidiaN that a process sees in its own mount namespace.

    None where GPUs have other nodes. OSError where that cannot be looked at.
    """
    try:
        return _minors(sight.names("/dev", _MOST))
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()


def in_container(sight: Sight) -> bool:
    """Return whether a process has another root than ours. OSError.

    By what is mounted there; the root itself may be of a file system that does not answer.
    """
    if os.stat(f"/proc/{sight.pid}/ns/mnt").st_ino == os.stat("/proc/self/ns/mnt").st_ino:
        return os.readlink(f"/proc/{sight.pid}/root") != os.readlink("/proc/self/root")
    theirs, ours = sight.mounts.root, read_mounts(os.getpid()).root
    if theirs is None or ours is None:
        return theirs is not ours
    return (theirs.device, theirs.root) != (ours.device, ours.root)


def alike(pid: int, other: int) -> bool:
    """Return whether two processes see the same files, and so the same nodes."""
    view = view_of(pid)
    return view is not None and view == view_of(other)


def standpoint() -> Standpoint:
    """Return where gputop itself is: in a container, in a batch job, with which device nodes."""
    try:
        minors = _minors(os.listdir("/dev"))
    except OSError:
        minors = None
    job, gpus = job_of(os.environ) or _adopted(), job_gpus(os.environ)
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


def _adopted() -> str | None:
    """The Slurm job of our control group: who comes by ssh has no variables of it
    (pam_slurm_adopt)."""
    origin = read_cgroup("self")
    return f"Slurm {origin.slurm_job}" if origin and origin.slurm_job else None


def _minors(names: Iterable[str]) -> frozenset[int] | None:
    names = list(names)
    if any(map(_OTHER.match, names)):
        return None
    return frozenset(int(match[1]) for name in names if (match := _NODE.match(name)))


def _dev(sight: Sight) -> tuple[int, int]:
    with sight.find("/dev") as folder:
        status = os.fstat(folder)
    return status.st_dev, status.st_ino
