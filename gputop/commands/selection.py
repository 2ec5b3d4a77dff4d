"""Which processes `gputop kill` means."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from gputop.agent.process.walk import every_process
from gputop.agent.signalling.pinned import target_of
from gputop.errors import GputopError, UsageError
from gputop.model.frame import Frame, Process
from gputop.model.gpu import Gpu
from gputop.model.process_metrics import ProcessRow
from gputop.model.query import matching, rows
from gputop.model.signals import Target
from gputop.model.text import printable


class Selection(NamedTuple):
    """What was asked for; all of it has to fit."""

    words: Sequence[str]
    gpus: Sequence[str]
    user: str | None
    descendants: bool


def selected(frame: Frame, selection: Selection) -> tuple[Target, ...]:
    """The processes in the order of GPUs and pids, each once. UsageError for what is none or cannot
    be meant, GputopError if nothing fits."""
    if not (selection.words or selection.gpus or selection.user):
        raise UsageError("which processes? Give PIDs, words of the filter, --gpu or --user")
    found = rows(msgspec.structs.replace(frame, processes=tuple(_busiest(frame))))
    if selection.gpus:
        wanted = _gpus(frame, selection.gpus)
        found = [row for row in found if row.process.gpu_uuid in wanted]
    if selection.user is not None:
        names = _names(selection.user, frame)
        found = [row for row in found if row.process.user in names]
    pids = _pids(selection.words)
    if pids:
        return _by_pid(found, pids, selection.descendants)
    text = " ".join(selection.words)
    found = matching(found, text)
    if not found:
        hint = "; for how long one is idle is known while a gputop of yours runs"
        hint = hint if "idle" in text else ""
        raise GputopError(f"no process on a GPU fits{hint}: gputop --once shows who is there")
    return _targets(found)


def _busiest(frame: Frame) -> Iterator[Process]:
    """Those on several GPUs with their work on the one where they do most: a signal ends them on
    all. Without samples they may be all that works there."""
    load = {gpu.uuid: gpu.utilization or 0.0 for gpu in frame.gpus}
    of: dict[tuple[int, float | None], list[Process]] = {}
    for one in frame.processes:
        of.setdefault((one.pid, one.start_time), []).append(one)
    for one in frame.processes:
        same = of[one.pid, one.start_time]
        if len(same) == 1:
            yield one
            continue
        shares = [row.sm_utilization for row in same if row.sm_utilization is not None]
        times = [row.idle_for for row in same if row.idle_for is not None]
        most = max(load.get(row.gpu_uuid, 0.0) for row in same) or None
        yield msgspec.structs.replace(
            one,
            sm_utilization=max(shares, default=most),
            idle_for=min(times) if len(times) == len(same) else None,
        )


def _targets(found: Sequence[ProcessRow]) -> tuple[Target, ...]:
    """A process on several GPUs is one."""
    keys = dict.fromkeys((row.process.pid, row.process.start_time) for row in found)
    return tuple(Target(*key) for key in keys)


def _pids(words: Sequence[str]) -> tuple[int, ...]:
    """The PIDs, if the words are PIDs; then all have to be."""
    numbers = [word for word in words if word.removeprefix("-").isdecimal() and word.isascii()]
    if not numbers:
        return ()
    if len(numbers) < len(words):
        raise UsageError("PIDs or words of the filter, not both")
    for number in numbers:
        if int(number) <= 0:
            raise UsageError(f"{number} is a group of processes, no PID: give each PID")
        if int(number) > 2**31 - 1:
            raise UsageError(f"{printable(number, 40)} is no PID")
    return tuple(dict.fromkeys(map(int, numbers)))


def _by_pid(
    found: Sequence[ProcessRow], pids: Sequence[int], descendants: bool
) -> tuple[Target, ...]:
    """With `descendants`, also those that are on no GPU, and started one that is."""
    known = {target.pid: target for target in _targets(found)}
    above = _ancestors(known) if descendants else set()
    targets = []
    for pid in pids:
        target = known.get(pid) or (target_of(pid) if pid in above else None)
        if target is None:
            nor = ", nor is one that it started" if descendants else ""
            raise GputopError(f"process {pid} is on no GPU{nor}, or on another one than asked for")
        targets.append(target)
    return tuple(targets)


def _ancestors(pids: Iterable[int]) -> set[int]:
    above, tree = set[int](), every_process()
    for pid in pids:
        while pid in tree and (pid := tree[pid].parent) not in above:
            above.add(pid)
    return above


def _gpus(frame: Frame, asked: Sequence[str]) -> set[str | None]:
    words = [word.strip() for text in asked for word in text.split(",")]
    return {_gpu(frame, word).uuid for word in words}


def _gpu(frame: Frame, word: str) -> Gpu:
    if word.isascii() and word.isdecimal():
        found = [gpu for gpu in frame.gpus if str(gpu.index) == (word.lstrip("0") or "0")]
    else:
        start = word.casefold()
        uuids = [gpu for gpu in frame.gpus if gpu.uuid and len(word) > len("GPU-")]
        found = [gpu for gpu in uuids if (gpu.uuid or "").casefold().startswith(start)]
    if len(found) != 1:
        what = "several GPUs" if found else "no GPU here"
        raise UsageError(f"{printable(word, 60)!r} is {what}: give an index or more of its UUID")
    return found[0]


def _names(user: str, frame: Frame) -> set[str | None]:
    """The name and the number of a user, since frames have either."""
    try:
        uid = os.getuid() if user == "me" else pwd.getpwnam(user).pw_uid
    except KeyError:
        if any(process.user == user for process in frame.processes):
            return {user}
        raise UsageError(f"no user {printable(user, 60)} on this machine") from None
    try:
        return {pwd.getpwuid(uid).pw_name, str(uid)}
    except KeyError:
        return {str(uid)}
