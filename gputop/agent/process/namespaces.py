"""Whether a pid that the driver names is a process of our own /proc.

The driver counts in the machine's first PID namespace. Inside a container that is not ours: the
number may be nobody's here, or that of a process that has nothing to do with a GPU.
"""

from __future__ import annotations

import os
import re

_INITIAL = 0xEFFFFFFC
"""Inode of the first PID namespace: PROC_PID_INIT_INO of include/linux/proc_ns.h."""
_NODE = re.compile(r"/dev/nvidia[0-9]+(?: \(deleted\))?\Z", re.ASCII)


def local_process(pid: int) -> bool | None:
    """Whether the process on a GPU is the one that has this number here.

    In the first namespace whoever is there is the one; elsewhere it has to hold a GPU open, by a
    descriptor or a mapping. False: it is another one, or none. None: it cannot be looked at.
    """
    if not os.path.exists(f"/proc/{pid}"):
        return False
    return in_first_namespace() or holds_gpu(pid)


def in_first_namespace() -> bool:
    """Whether our PIDs are those that the driver tells."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _INITIAL
    except OSError:
        return False


def holds_gpu(pid: int) -> bool | None:
    """Whether a process has a /dev/nvidiaN open or mapped; None where that cannot be seen.

    nvidiactl and nvidia-uvm do not count: who only asks the driver has them open too.
    """
    descriptors = f"/proc/{pid}/fd"
    try:
        names = os.listdir(descriptors)
    except PermissionError:
        return None
    except OSError:
        return False
    return any(_is_gpu(f"{descriptors}/{name}") for name in names) or _maps_gpu(pid)


def _is_gpu(link: str) -> bool:
    try:
        return _NODE.match(os.readlink(link)) is not None
    except OSError:  # closed meanwhile
        return False


def _maps_gpu(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            return any(_NODE.search(line.rstrip("\n")) for line in file)
    except OSError:
        return False
