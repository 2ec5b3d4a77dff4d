"""Who has a GPU open, whether the driver lists it or not."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from gputop.agent.process.processes import UserNames, real_uid, started
from gputop.agent.process.walk import Seen, command_of
from gputop.model.gpu import Opener, Reason

_KERNEL_THREADS = 2
_REAPERS = ("systemd", "init", "tini", "dumb-init", "catatonit")
"""Names of those that processes are given to when their parent ends."""
_MONITORS = re.compile(
    r"nvidia-persiste|nvidia-fabricma|nv-fabricmanage|nv-hostengine|dcgm|nvidia-smi|nvtop|nvitop"
    r"|nvidia_gpu_expo|gputop|btop|node_exporter|telegraf|netdata|go\.d\.plugin"
)
"""Of names as the kernel cuts them off."""
_WORK = ("/dev/nvidia-uvm", "/dev/nvidia-modeset", "/dev/dri/")
"""Beginnings of what is open, too, in who computes (cuInit fails without nvidia-uvm) or draws; who
has none of it only asks the driver, as every monitor does."""
_ORDER: tuple[Reason, ...] = ("zombie_child", "orphan", "other_namespace", "open", "monitor")
_MOST = 16
"""Openers of one GPU that are told."""


class Openers:
    """Looks for them; the names of their users take a thread of their own."""

    def __init__(self) -> None:
        self._users = UserNames()

    def look(
        self, minors: Iterable[int], table: Mapping[int, Seen], without: frozenset[int]
    ) -> dict[int, tuple[Opener, ...]]:
        """By N of /dev/nvidiaN, those of `table` that have it open, without some pids and the
        agent itself."""
        wanted = {f"/dev/nvidia{minor}": minor for minor in minors}
        others = table.keys() - without - {os.getpid()}
        files = {
            pid: found
            for pid in others
            if table[pid].parent != _KERNEL_THREADS and (found := open_files(pid)) & wanted.keys()
        }
        uids = {pid: real_uid(pid) for pid in files}
        self._users.prepare(uid for uid in uids.values() if uid is not None)
        openers = [self._opener(pid, uids[pid], files[pid], table) for pid in files]
        openers.sort(key=lambda one: (_ORDER.index(one.reason), one.pid))
        return {
            minor: tuple(one for one in openers if node in files[one.pid])[:_MOST]
            for node, minor in wanted.items()
        }

    def _opener(
        self, pid: int, uid: int | None, files: set[str], table: Mapping[int, Seen]
    ) -> Opener:
        seen = table[pid]
        works = any(file.startswith(_WORK) for file in files)
        return Opener(
            pid=pid,
            start_time=started(seen.start_ticks),
            user=None if uid is None else self._users.name(uid),
            command=command_of(pid, seen),
            reason=reason(pid, table) if works else "monitor",
        )


def reason(pid: int, table: Mapping[int, Seen]) -> Reason:
    """Why a process of the table has a GPU open, unlisted."""
    seen = table[pid]
    parent, leader = table.get(seen.parent), table.get(seen.group)
    if _MONITORS.match(seen.name):
        return "monitor"
    if any(one is not None and one.state == "Z" for one in (parent, leader)):
        return "zombie_child"
    given = seen.parent <= 1 or (parent is not None and parent.name.startswith(_REAPERS))
    if seen.group != pid and (leader is None or (given and seen.group != seen.parent)):
        return "orphan"
    if _namespace(pid) not in (None, _namespace(os.getpid())):
        return "other_namespace"
    return "open"


def open_files(pid: int) -> set[str]:
    """The files that a process has open; empty where that cannot be seen."""
    directory = f"/proc/{pid}/fd"
    try:
        links = {_link(f"{directory}/{name}") for name in os.listdir(directory)}
    except OSError:
        return set()
    return {link.removesuffix(" (deleted)") for link in links}


def _namespace(pid: int) -> str | None:
    return _link(f"/proc/{pid}/ns/pid") or None


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
