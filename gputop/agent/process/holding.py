"""Whether a process holds a GPU, which shows that a PID from the driver means this process.

A process that computes or draws on a GPU has its node /dev/nvidiaN open. If GPUs have no such
nodes, as under WSL, it has /dev/dxg open or NVIDIA's libcuda loaded, as every CUDA program has. A
process can fake all of these, but only for itself.
"""

from __future__ import annotations

import os
import re
import time
from enum import Enum

from gputop.agent.process.procfs import MAPS, open_files, read_bounded
from gputop.agent.process.reader import killable

SECONDS = 0.03
"""Seconds for the descriptors of a process, and again for its mappings: it may have very many."""
_NODE = re.compile(r"/dev/nvidia[0-9]+\Z", re.ASCII)
_MAPPED_NODE = re.compile(rb"/dev/nvidia[0-9]+(?: \(deleted\))?$", re.MULTILINE)
_WITHOUT_NODES = re.compile(
    rb"/dev/(?:nvidia[0-9]+|dxg)(?: \(deleted\))?$|/libcuda\.so[.0-9]*(?: \(deleted\))?$",
    re.MULTILINE,
)


class Holding(Enum):
    """Whether the files and mappings of a process show a GPU."""

    YES = "a GPU is open or mapped"
    NO = "no GPU is open, and all was seen"
    NOTHING = "no open GPU file was found; without device nodes this is no proof"
    UNSEEN = "not all of it could be seen"


@killable(Holding.UNSEEN)
def look_for_gpu(pid: int, seconds: float = SECONDS) -> Holding:
    """Return whether a process has a GPU open, by a descriptor or a mapping.

    UNSEEN for another user's process, for a zombie, which has nothing open any more, for a process
    that does not answer, and for one with more than can be read in `seconds`.

    nvidiactl and nvidia-uvm do not count: a process that only queries the driver has them open too.
    """
    try:
        files = open_files(pid, time.monotonic() + seconds)
    except PermissionError:
        return Holding.UNSEEN
    except OSError:
        return Holding.NO
    nodes = has_nodes()
    if any(map(_NODE.match, files.names)) or (not nodes and "/dev/dxg" in files.names):
        return Holding.YES
    mapped = _maps_gpu(pid, seconds, _MAPPED_NODE if nodes else _WITHOUT_NODES)
    if mapped:
        return Holding.YES
    if files.next is not None or mapped is None:
        return Holding.UNSEEN
    return Holding.NO if nodes else Holding.NOTHING


def holds_gpu(pid: int, seconds: float = SECONDS) -> bool | None:
    """Return whether a process has a GPU open; None if that is not known."""
    return {Holding.YES: True, Holding.NO: False}.get(look_for_gpu(pid, seconds))


def may_be_looked_at(pid: int) -> bool:
    """Return whether gputop may list what a process has open; it may be another user's."""
    try:
        os.scandir(f"/proc/{pid}/fd").close()
    except PermissionError:
        return False
    except OSError:  # it has ended
        return True
    return True


def has_nodes() -> bool:
    """Return whether GPUs have nodes /dev/nvidiaN on this machine."""
    try:
        names = os.listdir("/dev")
    except OSError:
        return False
    return any(name.startswith("nvidia") and name[6:].isdecimal() for name in names)


def _maps_gpu(pid: int, seconds: float, wanted: re.Pattern[bytes]) -> bool | None:
    """Return whether a mapping matches; None if there are no mappings or not all could be read."""
    try:
        maps, whole = read_bounded(f"/proc/{pid}/maps", MAPS, time.monotonic() + seconds)
    except PermissionError:
        return None
    except OSError:
        return False
    if wanted.search(maps):
        return True
    return False if whole and maps else None
