"""Which PIDs the driver reports, and whether one of them is a process in our own /proc.

In the machine's first PID namespace all of them are. In a nested one, as in a container, that
depends on the driver (open-gpu-kernel-modules by tag, `os_find_ns_pid`):

    before 535.113.01   lists and utilization samples have all processes, with the host's PIDs
    535.113.01          lists have only our own processes, with our PIDs, without memory; samples
                        have all, with the host's PIDs; closed modules may list no process
    565.57              lists have the memory of our processes
    570.86              samples have our own processes with our PIDs, and others with the host's

A host's PID may be free here, or belong to a process that has nothing to do with a GPU. So the
driver's version is a hint that can only rule out: if a driver reports the host's PIDs, none of them
is ours; with any other driver, a process must also be seen to hold a GPU.
"""

from __future__ import annotations

import os
import re
from collections.abc import Set
from functools import lru_cache

from gputop.agent.process.holding import Holding, holds_gpu, look_for_gpu, may_be_looked_at
from gputop.agent.process.procfs import read_short

_INITIAL = 0xEFFFFFFC
"""Inode of the first PID namespace: PROC_PID_INIT_INO of include/linux/proc_ns.h."""
_LISTS_OURS, _SAMPLES_OURS = (535, 113, 1), (570, 86)
_LASTING = 1.0
"""If such a driver lists a process that is not here for this many seconds, the process belongs to
another namespace: a process that is ending is listed for less."""


class Numbering:
    """What is known about the PIDs that the driver reports in a nested PID namespace."""

    def __init__(self) -> None:
        self.opened(None)

    def opened(self, version: str | None) -> None:
        """Forget everything: a driver of that version has been opened."""
        words = re.findall("[0-9]+", version or "", re.ASCII)
        self._version = tuple(int(word[:9]) for word in words[:3])
        self._missing: dict[int, float] = {}
        self._never_ours = False
        self.is_initial_namespace = False
        """Whether a list had a PID of another namespace: then lists have all processes."""

    def observe(self, missing: Set[int], now: float) -> None:
        """Learn from listed PIDs that are not processes on a GPU here; `now` is monotonic."""
        self._missing = {pid: self._missing.get(pid, now) for pid in missing}
        lasting = 0.0 if self._version < _LISTS_OURS else _LASTING
        if any(now - since >= lasting for since in self._missing.values()):
            self.is_initial_namespace = True
        self._never_ours = self._never_ours or not was_given_out(max(missing, default=0))

    @property
    def hosts(self) -> bool:
        """Whether lists are known to have the host's PIDs, from the driver's version or because one
        of them was never given out here: then a process here with such a PID is another one.
        """
        return self._never_ours or self._version < _LISTS_OURS

    @property
    def lists_ours(self) -> bool:
        """Whether lists have only our own processes, as far as is known."""
        return not self.is_initial_namespace and self._version >= _LISTS_OURS

    @property
    def pids_match(self) -> bool:
        """Whether a listed PID that exists here is taken for our process unless something speaks
        against it: enough to show the process, not enough to send it a signal.
        """
        return self.lists_ours and not self.hosts

    @property
    def samples_differ(self) -> bool:
        """Whether samples have other PIDs than the lists, even if the numbers match."""
        return self.lists_ours and self._version < _SAMPLES_OURS

    @property
    def samples_ours(self) -> bool:
        """Whether a sample with a listed PID is of that process, whatever others have samples."""
        return self.is_initial_namespace or self._version >= _SAMPLES_OURS


NUMBERING = Numbering()
"""The numbering of the one driver that a program has open."""


def local_process(pid: int) -> bool | None:
    """Return whether the process on a GPU is the one that has this PID here.

    In the first namespace it is, if it exists. Elsewhere it must be seen to hold a GPU, and the
    driver must not report the host's PIDs: otherwise it may be another process that holds a GPU.
    False if it is another process, or none; None if it is not known.
    """
    if not os.path.exists(f"/proc/{pid}"):
        return False
    if in_first_namespace():
        return True
    held = holds_gpu(pid) if _is_our_proc() else None
    return None if held and NUMBERING.hosts else held


def shown_process(pid: int) -> bool | None:
    """Return whether the process that has this PID is shown as the one on a GPU.

    Like `local_process`, but a process that cannot be inspected, as another user's or a zombie, is
    shown if the driver is believed to report our PIDs.
    """
    if not (NUMBERING.pids_match and _is_our_proc() and os.path.exists(f"/proc/{pid}")):
        return local_process(pid)
    holding = look_for_gpu(pid)
    return None if holding is Holding.NOTHING else holding is not Holding.NO


def why_not_local(pid: int) -> str:
    """Return why the process that has this PID is not known to be the one on a GPU."""
    if not (os.path.exists(f"/proc/{pid}") and _is_our_proc()):
        return "no process here has this PID"
    if not may_be_looked_at(pid):
        return "you may not see what the process with this PID has open here"
    if NUMBERING.hosts:
        return "the driver reports the host's PIDs"
    return "the process with this PID here has no GPU open, as far as can be seen"


def was_given_out(pid: int) -> bool:
    """Return whether our namespace can have given out a PID.

    It has not if the PID is greater than the last one (proc_loadavg(5)), unless PIDs have wrapped
    around since: then processes with greater ones still run.
    """
    words = read_short("/proc/loadavg").split()
    if len(words) < 5 or pid <= int(words[4]):
        return True
    return any(int(name) >= pid for name in os.listdir("/proc") if name.isdecimal())


@lru_cache(maxsize=1)
def in_first_namespace() -> bool:
    """Return whether our PID namespace is the machine's first one."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _INITIAL
    except OSError:
        return False


@lru_cache(maxsize=1)
def _is_our_proc() -> bool:
    """Return whether /proc has the PIDs of our namespace, not those of the one above."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False
