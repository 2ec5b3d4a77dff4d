"""The device nodes of GPUs that a process sees, and the root that it sees them under."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from gputop.agent.process.mount_cache import MountCache, view_of
from gputop.agent.process.mounts import read_mounts
from gputop.agent.process.paths import Sight

_NODE = re.compile(r"nvidia([0-9]+)\Z", re.ASCII)
_OTHER = re.compile(r"dxg\Z|nvmap\Z|nvhost-")
"""Nodes of GPUs that have no /dev/nvidiaN: under WSL, and on a Jetson."""
_MOST = 1 << 16
"""Names of /dev that are looked through."""


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


def own_minors() -> frozenset[int] | None:
    """Return those that gputop itself sees; None where they say nothing."""
    try:
        return _minors(os.listdir("/dev"))
    except OSError:
        return None


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


def _minors(names: Iterable[str]) -> frozenset[int] | None:
    names = list(names)
    if any(map(_OTHER.match, names)):
        return None
    return frozenset(int(match[1]) for name in names if (match := _NODE.match(name)))


def _dev(sight: Sight) -> tuple[int, int]:
    with sight.find("/dev") as folder:
        status = os.fstat(folder)
    return status.st_dev, status.st_ino
