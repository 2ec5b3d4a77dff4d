"""Which processes are signalled only after a person has confirmed it: those of other users,
namespaces and containers, and those that gputop depends on.

Root in a container has the uid of root, and a user namespace can show any uid as ours. So a
process counts as ours only if it is seen to share our PID and user namespaces, and the container
that its control group names.

Links in /proc are read, never followed: their target belongs to the process, and may hang.
"""

from __future__ import annotations

import os

from gputop.agent.process.procfs import read_cgroup, read_link
from gputop.agent.process.stat import ancestors
from gputop.agent.process.users import real_uid
from gputop.agent.signals.handle import ProcessHandle
from gputop.model.machine.signals import Caution, Verdict


def caution_of(process: ProcessHandle) -> Caution | None:
    """Return what needs a confirmation now, if anything: a process can change its user and enter
    namespaces."""
    if process.pid == 1:
        return "first"
    if process.pid in ancestors(os.getpid()):
        return "ancestor"
    others = _of_others(process.pid)
    if others == "container":
        return others
    return "foreign" if real_uid(process.pid) != os.getuid() else others


def cautious(verdict: Verdict) -> str:
    """Return the caution of a verdict in words; empty without one."""
    if verdict.caution == "first":
        return "it is process 1, and everything here ends with it"
    if verdict.caution == "ancestor":
        return "gputop runs under it"
    whose = f"it is {verdict.user or 'somebody'}'s"
    if verdict.caution == "container":
        return f"{whose}, in a container"
    if verdict.caution == "unreadable":
        return f"{whose}, and whether it is in a container, or has a GPU open, cannot be read"
    return whose if verdict.caution else ""


def _of_others(pid: int) -> Caution | None:
    """Return why a process counts as another user's whatever its uid; None if nothing says so."""
    for kind in ("pid", "user"):
        namespace = read_link(pid, f"ns/{kind}")
        if namespace is None:
            return "unreadable"
        if namespace != read_link(os.getpid(), f"ns/{kind}"):
            return "container"
    # A container may share our namespaces (docker run --pid=host).
    theirs, ours = read_cgroup(pid), read_cgroup("self")
    if theirs is None:
        return None if ours is None else "unreadable"
    container = theirs.container and theirs.container.id
    own = ours and ours.container and ours.container.id
    return "container" if container is not None and container != own else None
