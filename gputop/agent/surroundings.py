"""What a process was started with, and which GPUs it can reach: its variables, its device nodes."""

from __future__ import annotations

import os
import re

from gputop.model.environ import Environ, parse_environ

_NODE = re.compile(r"nvidia([0-9]+)\Z", re.ASCII)


def read_environ(pid: int) -> Environ:
    """The variables that a process was started with.

    Another user's are readable to root alone (PTRACE_MODE_READ, proc_pid_environ(5)).
    """
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return parse_environ(file.read())
    except PermissionError:
        return Environ({}, "unreadable")
    except OSError:  # gone before it was opened, or while it was read
        return Environ({}, "gone")


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
