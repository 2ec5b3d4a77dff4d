"""Which processes are signalled only when a person has confirmed it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from gputop.agent.process.processes import read_stat
from gputop.agent.signalling.pinned import Pinned
from gputop.model.signals import Caution, Verdict


def caution_of(process: Pinned) -> Caution | None:
    """What has to be confirmed, if anything has."""
    if process.pid == 1:
        return "first"
    if process.pid in _ancestors():
        return "ancestor"
    return "foreign" if process.uid != os.getuid() else None


def cautious(verdict: Verdict) -> str:
    """The caution of a verdict in words; empty without one."""
    if verdict.caution == "first":
        return "it is process 1, and everything here ends with it"
    if verdict.caution == "ancestor":
        return "gputop runs under it"
    return f"it is {verdict.user or 'somebody'}'s" if verdict.caution else ""


def _ancestors() -> Iterator[int]:
    """Under which this runs: gputop, the shell, tmux, sshd."""
    pid = os.getpid()
    while (stat := read_stat(pid)) and (pid := int(stat[1][1])):
        yield pid
