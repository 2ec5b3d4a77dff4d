"""Which processes are signalled only when a person has confirmed it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from gputop.agent.process.stat import read_stat
from gputop.agent.process.users import real_uid
from gputop.agent.signals.handle import ProcessHandle
from gputop.agent.signals.ownership import of_others
from gputop.model.machine.signals import Caution, Verdict


def caution_of(process: ProcessHandle) -> Caution | None:
    """What has to be confirmed now, if anything has: a process can change its user and enter
    namespaces."""
    if process.pid == 1:
        return "first"
    if process.pid in _ancestors():
        return "ancestor"
    others = of_others(process.pid)
    if others == "container":
        return others
    return "foreign" if real_uid(process.pid) != os.getuid() else others


def cautious(verdict: Verdict) -> str:
    """The caution of a verdict in words; empty without one."""
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


def _ancestors() -> Iterator[int]:
    """Under which this runs: gputop, the shell, tmux, sshd."""
    pid = os.getpid()
    while (stat := read_stat(pid)) and (pid := stat.parent):
        yield pid
