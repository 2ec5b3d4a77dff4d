"""The processes that have a GPU open, whether the driver lists them or not."""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gputop.agent.process.procfs import open_files, read_link
from gputop.agent.process.stat import command_of, started
from gputop.agent.process.users import UserNames, real_uid
from gputop.model.machine.gpu import DeviceHolder, HolderReason
from gputop.model.machine.proc_stat import ProcStat
from gputop.model.machine.process_id import ProcessId

_KERNEL_THREADS = 2
_REAPERS = ("systemd", "init", "tini", "dumb-init", "catatonit")
"""Beginnings of the names of processes that adopt orphans."""
_MONITORS = re.compile(
    r"nvidia-persiste|nvidia-fabricma|nv-fabricmanage|nv-hostengine|dcgm|nvidia-smi|nvtop|nvitop"
    r"|nvidia_gpu_expo|gputop|btop|node_exporter|telegraf|netdata|go\.d\.plugin"
)
"""Process names, cut to 15 characters as the kernel does."""
_WORK = ("/dev/nvidia-uvm", "/dev/nvidia-modeset", "/dev/dri/")
"""Beginnings of paths that a process which computes (cuInit fails without nvidia-uvm) or draws also
has open. A process with none of them only queries the driver, as every monitor does."""
_KEPT = ("/dev/nvidia", *_WORK)
_ORDER: tuple[HolderReason, ...] = ("zombie_child", "orphan", "other_namespace", "open", "monitor")
_MOST = 16
"""Holders of one GPU that are named at most."""
_PARTS = 4
"""One process gets at most 1/_PARTS of a search: it may have a million files open."""


class DeviceHolders(NamedTuple):
    """The known processes that have GPUs open."""

    by_minor: dict[int, tuple[DeviceHolder, ...]]
    """By the N of /dev/nvidiaN."""
    complete: bool
    """Whether every process was searched; if not, there may be more holders."""


class HolderFinder:
    """Finds device holders within a time limit; the next search continues where the last stopped.
    User names are looked up in a thread of their own."""

    def __init__(self) -> None:
        self._users = UserNames()
        self._waiting: deque[ProcessId] = deque()
        """Processes that this pass has not reached yet."""
        self._begun: dict[ProcessId, tuple[int, frozenset[str]]] = {}
        """For processes with very many files: the next descriptor, and the files before it."""
        self._files: dict[ProcessId, frozenset[str]] = {}
        """Files of the processes that were searched, in this pass or an earlier one."""

    def find(
        self,
        minors: Iterable[int],
        table: Mapping[int, ProcStat],
        without: frozenset[int],
        seconds: float,
    ) -> DeviceHolders:
        """Return the processes of `table` that have one of the minors open, except the pids in
        `without` and the agent, after about `seconds`. The next call continues the search."""
        others = table.keys() - without - {os.getpid()}
        keys = {
            ProcessId(pid, table[pid].start_ticks)
            for pid in others
            if table[pid].parent != _KERNEL_THREADS
        }
        self._drop_all_but(keys)
        self._search(keys, time.monotonic() + seconds)
        files = {key.pid: names for key, names in self._files.items() if names}
        files |= {key.pid: names for key, (_, names) in self._begun.items() if names}
        complete = self._files.keys() >= keys
        return DeviceHolders(self._holders(minors, table, files), complete)

    def _drop_all_but(self, keys: set[ProcessId]) -> None:
        for kept in (self._files, self._begun):
            for gone in kept.keys() - keys:
                del kept[gone]
        self._waiting = deque(key for key in self._waiting if key in keys)

    def _search(self, keys: set[ProcessId], end: float) -> None:
        """Search the processes until `end`: new ones first, each for a part of the time."""
        new = keys - self._files.keys() - set(self._waiting)
        self._waiting = deque([*new, *(self._waiting or keys - new)])
        now = time.monotonic()
        most = (end - now) / _PARTS
        while self._waiting and now < end:
            key = self._waiting.popleft()
            if not self._list_files(key, min(end, now + most)):
                self._waiting.append(key)
            now = time.monotonic()

    def _list_files(self, key: ProcessId, deadline: float) -> bool:
        """List the files of one process; return whether all were listed."""
        first, before = self._begun.pop(key, (0, frozenset()))
        try:
            names, later = open_files(key.pid, deadline, first)
        except OSError:  # ended, or another user's
            names, later = set(), None
        files = before.union(name for name in names if name.startswith(_KEPT))
        if later is None:
            self._files[key] = files
        else:
            self._begun[key] = later, files
        return later is None

    def _holders(
        self,
        minors: Iterable[int],
        table: Mapping[int, ProcStat],
        files: Mapping[int, frozenset[str]],
    ) -> dict[int, tuple[DeviceHolder, ...]]:
        wanted = {f"/dev/nvidia{minor}": minor for minor in minors}
        pids = [pid for pid in files if not files[pid].isdisjoint(wanted)]
        uids = {pid: real_uid(pid) for pid in pids}
        self._users.prepare(uids.values())
        holders = [self._holder(pid, uids[pid], files[pid], table) for pid in pids]
        holders.sort(key=lambda holder: (_ORDER.index(holder.reason), holder.pid))
        return {
            minor: tuple(holder for holder in holders if node in files[holder.pid])[:_MOST]
            for node, minor in wanted.items()
        }

    def _holder(
        self, pid: int, uid: int | None, files: frozenset[str], table: Mapping[int, ProcStat]
    ) -> DeviceHolder:
        works = any(file.startswith(_WORK) for file in files)
        return DeviceHolder(
            pid=pid,
            start_ticks=table[pid].start_ticks,
            start_time=started(table[pid].start_ticks),
            user=self._users.name(uid),
            command=command_of(pid, table[pid]),
            reason=reason(pid, table) if works else "monitor",
        )


def reason(pid: int, table: Mapping[int, ProcStat]) -> HolderReason:
    """Return why a process of the table has a GPU open although the driver does not list it."""
    stat = table[pid]
    parent, leader = table.get(stat.parent), table.get(stat.group)
    if _MONITORS.match(stat.name):
        return "monitor"
    if any(above is not None and above.state == "Z" for above in (parent, leader)):
        return "zombie_child"
    given = stat.parent <= 1 or (parent is not None and parent.name.startswith(_REAPERS))
    if stat.group != pid and (leader is None or (given and stat.group != stat.parent)):
        return "orphan"
    if read_link(pid, "ns/pid") not in (None, read_link(os.getpid(), "ns/pid")):
        return "other_namespace"
    return "open"
