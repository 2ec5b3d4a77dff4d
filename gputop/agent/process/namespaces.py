"""Whose PIDs the driver tells, and whether one of them is a process of our own /proc.

In the machine's first PID namespace all of them are ours. In one below, as a container has, that
depends on the driver (open-gpu-kernel-modules by tag, `os_find_ns_pid`):

    before 535.113.01   lists and utilization samples have everybody's, by the host's numbers
    535.113.01          lists have our own processes alone, by our numbers, with no memory; samples
                        have everybody's, by the host's numbers; closed modules may list nobody
    565.57              lists have their memory
    570.86              samples have our own by our numbers, and others by the host's

A host's number may be nobody's here, or that of a process that has nothing to do with a GPU. So the
version is a hint that can only rule out: of a driver that tells the host's numbers no number is
ours, and of any other one a process has to be seen to hold a GPU.
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
"""Seconds that a driver of that kind goes on to list a process that is not here, which so is of
another namespace: one that is ending is listed for less."""


class Numbering:
    """What is known of the PIDs that the driver tells in a namespace below the first."""

    def __init__(self) -> None:
        self.opened(None)

    def opened(self, version: str | None) -> None:
        """Begin anew with the driver of that version."""
        words = re.findall("[0-9]+", version or "", re.ASCII)
        self._version = tuple(int(word[:9]) for word in words[:3])
        self._missing: dict[int, float] = {}
        self._never_ours = False
        self.everybodys = False
        """Whether a PID of another namespace was in a list: then all of them are in the lists."""

    def observe(self, missing: Set[int], now: float) -> None:
        """Take notice of listed PIDs that are no process on a GPU here; `now` is monotonic."""
        self._missing = {pid: self._missing.get(pid, now) for pid in missing}
        lasting = 0.0 if self._version < _LISTS_OURS else _LASTING
        if any(now - since >= lasting for since in self._missing.values()):
            self.everybodys = True
        self._never_ours = self._never_ours or not was_given_out(max(missing, default=0))

    @property
    def hosts(self) -> bool:
        """Whether lists are known to have the host's numbers, by the driver's version or because
        one was never given out here: then a process here that has such a number is another one.
        """
        return self._never_ours or self._version < _LISTS_OURS

    @property
    def lists_ours(self) -> bool:
        """Whether lists are of our own processes, as far as is known."""
        return not self.everybodys and self._version >= _LISTS_OURS

    @property
    def believed(self) -> bool:
        """Whether a listed PID that is here is believed to be ours unless something speaks against
        it: enough to show a process, and not to send it a signal.
        """
        return self.lists_ours and not self.hosts

    @property
    def samples_differ(self) -> bool:
        """Whether samples have other numbers than the lists, even where they look the same."""
        return self.lists_ours and self._version < _SAMPLES_OURS

    @property
    def samples_ours(self) -> bool:
        """Whether a sample of a listed PID is of that process, whoever else has samples."""
        return self.everybodys or self._version >= _SAMPLES_OURS


NUMBERING = Numbering()
"""Of the one driver that a program has open."""


def local_process(pid: int) -> bool | None:
    """Whether the process on a GPU is the one that has this number here.

    In the first namespace whoever is there is the one. Elsewhere it has to be seen to hold a GPU,
    and the driver must not be one that tells the host's numbers: such a number would be that of
    another process that holds one. False: it is another one, or none. None: it cannot be told.
    """
    if not os.path.exists(f"/proc/{pid}"):
        return False
    if in_first_namespace():
        return True
    held = holds_gpu(pid) if _is_our_proc() else None
    return None if held and NUMBERING.hosts else held


def shown_process(pid: int) -> bool | None:
    """Return whether the process that has this number is shown as the one on a GPU.

    As `local_process`; one that cannot be looked at, as another user's or a zombie, is shown
    where the driver is believed to tell our numbers.
    """
    if not (NUMBERING.believed and _is_our_proc() and os.path.exists(f"/proc/{pid}")):
        return local_process(pid)
    holding = look_for_gpu(pid)
    return None if holding is Holding.NOTHING else holding is not Holding.NO


def why_not_local(pid: int) -> str:
    """Say why the process that has this number is not known to be the one on a GPU."""
    if not (os.path.exists(f"/proc/{pid}") and _is_our_proc()):
        return "nobody has this PID here"
    if not may_be_looked_at(pid):
        return "what the process that has this PID here has open may not be seen by you"
    if NUMBERING.hosts:
        return "the driver tells the PIDs of the host"
    return "the process that has this PID here is not seen to have a GPU open"


def was_given_out(pid: int) -> bool:
    """Return whether a process of our namespace can have had a PID, as far as can be seen.

    Not beyond the last one, proc_loadavg(5), unless numbers have begun anew since: then greater
    ones live on.
    """
    words = read_short("/proc/loadavg").split()
    if len(words) < 5 or pid <= int(words[4]):
        return True
    return any(int(name) >= pid for name in os.listdir("/proc") if name.isdecimal())


@lru_cache(maxsize=1)
def in_first_namespace() -> bool:
    """Whether our PID namespace is the machine's first one."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _INITIAL
    except OSError:
        return False


@lru_cache(maxsize=1)
def _is_our_proc() -> bool:
    """Whether /proc has the numbers of our namespace, and not those of the one above."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False
