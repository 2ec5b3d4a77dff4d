"""Views of the processes: some of them, a line a user, or folded under their parents."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import structs

from gputop.model.health.unaccounted import remark, suspects_or_none, words
from gputop.model.machine.frame import Frame, Process
from gputop.model.machine.gpu import DeviceHolder, Gpu, mig_number
from gputop.model.machine.grouped import grouped
from gputop.model.machine.text import MISSING, counted, short_command
from gputop.model.metrics.process import COLUMNS, ProcessRow
from gputop.model.processes.process_rows import by_value

N = TypeVar("N", int, float)
T = TypeVar("T")

_DEEPEST = 8
"""Levels of a tree; deeper processes are shown on the last one."""


class ViewRow(msgspec.Struct, frozen=True, gc=False):
    """A line of the table."""

    row: ProcessRow
    """What it shows; for a group the totals of known values, with PID 0 if it is no process."""
    key: Hashable
    """Its identity, which stays while it moves."""
    members: tuple[ProcessRow, ...] = ()
    """What a group stands for; empty for a process."""
    note: str = ""
    """Text before the command."""
    depth: int = 0
    last: bool = False
    """It is the last of its depth in its group."""
    kind: Literal["process", "group", "ended", "unaccounted"] = "process"
    """`ended`: the process is gone. `unaccounted`: memory of no listed process. No action applies
    to these two."""


@dataclass(frozen=True, slots=True)
class View:
    """Which processes are shown, and how."""

    shape: Literal["flat", "tree", "users"] = "flat"
    whose: tuple[str | None, ...] = ()
    """One user (None: processes of unknown users); empty for all users."""
    gpu: str | None = None
    """The key of the only GPU, if there is one."""
    instance: tuple[int, int] | None = None
    """GPU instance and compute instance of the only MIG device of that GPU."""

    def holds(self, row: ProcessRow) -> bool:
        if self.whose and row.process.user not in self.whose:
            return False
        instance = (row.process.gpu_instance, row.process.compute_instance)
        if self.instance is not None and self.instance != instance:
            return False
        return self.gpu is None or (row.gpu is not None and row.gpu.key == self.gpu)

    def words(self, gpus: Iterable[Gpu]) -> str:
        """Return what it shows, as `of alice, on GPU 3, tree`; empty for all processes."""
        words = [f"of {user or 'unknown users'}" for user in self.whose]
        for gpu in gpus:
            if gpu.key == self.gpu:
                number = mig_number(gpu.index, *self.instance) if self.instance else gpu.index
                words.append(f"on GPU {number}")
        words += {"flat": [], "tree": ["tree"], "users": ["by user"]}[self.shape]
        return ", ".join(words)

    def order(self, metric_id: str, descending: bool) -> tuple[str, bool]:
        """Return the order of its lines when this one is asked for. Users are not on a single GPU
        or host, so they are ordered by memory instead."""
        if self.shape == "users" and metric_id in ("gpu", "host"):
            return "gpu_memory", True
        return metric_id, descending

    def with_unaccounted(
        self, lines: list[ViewRow], unaccounted: list[ViewRow], order: tuple[str, bool]
    ) -> list[ViewRow]:
        """Return lines with those of unaccounted memory: after the processes of their GPU if they
        are in the order of GPUs, otherwise at the end."""
        lines = lines + unaccounted
        if self.shape != "flat" or order[0] != "gpu":
            return lines
        return by_value(lines, [line.row.gpu and line.row.gpu.index for line in lines], order[1])

    def lines(
        self,
        entries: Sequence[ViewRow],
        order: tuple[str, bool],
        opened: Collection[Hashable] = (),
    ) -> list[ViewRow]:
        """Return the lines for entries; `order` is a metric, and whether it descends. A group that
        is not opened is one line."""
        if self.shape == "users":
            rows = [entry.row for entry in entries if entry.kind != "ended"]
            users = list(_by_user(rows))
            return _ordered(users, users, order)
        if self.shape == "tree":
            return _Forest(entries, order, opened).lines()
        return _ordered(entries, entries, order)


def _ordered(items: Sequence[T], heads: Sequence[ViewRow], order: tuple[str, bool]) -> list[T]:
    """Return items in the order of their heads; by GPU, those with most memory there come first,
    and a group is at its first GPU."""
    metric_id, descending = order
    if metric_id == "host":  # hosts keep the given order, each with its processes by GPU
        return list(reversed(items)) if descending else list(items)
    pairs = list(zip(items, heads, strict=True))
    if metric_id == "gpu":
        pairs = by_value(pairs, [head.row.process.gpu_memory for _, head in pairs], True)
        values = [_first_gpu(head) for _, head in pairs]
    else:
        values = [COLUMNS[metric_id].read(head.row) for _, head in pairs]
    return [item for item, _ in by_value(pairs, values, descending)]


def _first_gpu(entry: ViewRow) -> Any:
    read = COLUMNS["gpu"].read
    if not entry.members:
        return read(entry.row)
    return min((value for row in entry.members if (value := read(row)) is not None), default=None)


def _by_user(rows: Iterable[ProcessRow]) -> Iterable[ViewRow]:
    for user, members in grouped(rows, lambda row: row.process.user).items():
        command = _where(members) + counted(len(_distinct(members)), "process")
        total = _total(members, 0, command)
        yield ViewRow(total, ("user", user), tuple(members), kind="group")


def _where(members: Iterable[ProcessRow]) -> str:
    """Name the GPUs of a user; on several hosts, count both."""
    gpus = {(row.host, row.gpu.index) for row in members if row.gpu is not None}
    hosts = {host for host, _ in gpus}
    if not gpus or hosts == {None}:
        return f"GPU {','.join(str(index) for _, index in sorted(gpus))}: " if gpus else ""
    where = next(iter(hosts)) if len(hosts) == 1 else f"{len(hosts)} hosts"
    return f"{counted(len(gpus), 'GPU')} on {where}: "


class _Forest:
    """The entries of one frame under their parents, if these are on a GPU, too. Siblings of one
    launcher (same parent, user and script) are under a line for it."""

    def __init__(
        self, entries: Sequence[ViewRow], order: tuple[str, bool], opened: Collection[Hashable]
    ) -> None:
        self._order, self._opened = order, opened
        self._rest = [entry for entry in entries if entry.kind == "ended"]
        alive = [entry for entry in entries if entry.kind != "ended"]
        self._own = grouped(alive, lambda entry: entry.row.process.pid)
        self._children = grouped(self._own, self._parent)
        self._launched = grouped(self._children.pop(None, []), self._launcher)

    def lines(self) -> list[ViewRow]:
        blocks = [[entry] for entry in self._rest]
        for key, pids in self._launched.items():
            if len(pids) == 1:
                blocks += self._process(pids[0], 0)
            else:
                blocks.append(self._siblings(key, pids))
        return self._flat(blocks)

    def _siblings(self, key: Hashable, pids: list[int]) -> list[ViewRow]:
        members = [entry.row for pid in pids for entry in self._family(pid)]
        process = self._own[pids[0]][0].row.process
        script = short_command(process.command).split(" ")[0]
        command = f"{len(pids)} x {script}, children of this PID"
        total = _total(members, process.parent or 0, command)
        blocks = [block for pid in pids for block in self._process(pid, 1)]
        return self._group(ViewRow(total, key, tuple(members), kind="group"), blocks)

    def _process(self, pid: int, depth: int) -> list[list[ViewRow]]:
        """Return the rows of a process without children, or the group of one with children."""
        own = self._own[pid]
        children = self._children.get(pid)
        if not children:
            return [[structs.replace(entry, depth=depth)] for entry in own]
        family = self._family(pid)
        members = tuple(entry.row for entry in family)
        head = own[0].row.process
        total = _total(members, pid, head.command)
        group = ViewRow(total, ("family", head.id), members, depth=depth, kind="group")
        if depth + 1 >= _DEEPEST:
            return [
                self._group(group, [[structs.replace(entry, depth=depth + 1)] for entry in family])
            ]
        blocks = [[structs.replace(entry, depth=depth + 1)] for entry in own]
        for child in children:
            blocks += self._process(child, depth + 1)
        return [self._group(group, blocks)]

    def _group(self, group: ViewRow, blocks: list[list[ViewRow]]) -> list[ViewRow]:
        opened = group.key in self._opened
        group = structs.replace(group, note=f"[{'-' if opened else '+'}]")
        return [group, *self._flat(blocks)] if opened else [group]

    def _flat(self, blocks: list[list[ViewRow]]) -> list[ViewRow]:
        ordered = _ordered(blocks, [block[0] for block in blocks], self._order)
        for block in ordered[-1:]:
            block[0] = structs.replace(block[0], last=True)
        return [entry for block in ordered for entry in block]

    def _family(self, pid: int) -> list[ViewRow]:
        entries, left = [], [pid]
        while left:
            pid = left.pop()
            entries += self._own[pid]
            left += self._children.get(pid, ())
        return entries

    def _parent(self, pid: int) -> int | None:
        """Return the PID of a parent that is on a GPU, and that is older: PIDs are reused."""
        process = self._own[pid][0].row.process
        if process.parent not in self._own or process.start_ticks is None:
            return None
        parent = self._own[process.parent][0].row.process
        older = parent.start_ticks is not None and (
            (parent.start_ticks, parent.pid) < (process.start_ticks, process.pid)
        )
        return parent.pid if older else None

    def _launcher(self, pid: int) -> Hashable:
        """Return a key that siblings share, a unique one if nothing is known. PID 1 is no launcher:
        it adopts all orphans."""
        process = self._own[pid][0].row.process
        if process.command is None or process.parent is None or process.parent <= 1:
            return ("alone", pid)
        script = re.sub("[0-9]+", "", short_command(process.command).split(" ")[0])
        return ("launcher", process.parent, process.user, script)


def _distinct(rows: Iterable[ProcessRow]) -> list[Process]:
    """Return the processes of rows, one on two GPUs only once."""
    return list({(row.host, row.process.id): row.process for row in rows}.values())


def _total(rows: Sequence[ProcessRow], pid: int, command: str | None) -> ProcessRow:
    """Return sums of known values, and the greatest age; CPU and RAM of a process count once."""
    once = _distinct(rows)
    users, gpus = {process.user for process in once}, {row.gpu and row.gpu.key for row in rows}
    types = {row.process.type for row in rows}
    total = Process(
        pid=pid,
        type=types.pop() if len(types) == 1 else MISSING,
        gpu_memory=known_sum(row.process.gpu_memory for row in rows),
        sm_utilization=known_sum(row.process.sm_utilization for row in rows),
        cpu=known_sum(process.cpu for process in once),
        rss=known_sum(process.rss for process in once),
        user=users.pop() if len(users) == 1 else None,
        command=command,
    )
    age = max((row.age for row in rows if row.age is not None), default=None)
    gpu = rows[0].gpu if len(gpus) == 1 else None
    return ProcessRow(total, gpu, age, idle_memory=known_sum(row.idle_memory for row in rows))


def known_sum(values: Iterable[N | None]) -> N | None:
    """Return the sum of the values that are known; None if none is."""
    numbers = [value for value in values if value is not None]
    return sum(numbers[1:], numbers[0]) if numbers else None


def unaccounted_rows(frame: Frame) -> list[ViewRow]:
    """Return lines for unaccounted memory: one for each process that may hold it, with the amount
    on the first, or what to do if no process is suspect."""
    return [
        _suspect(frame, gpu, holder, not k)
        for gpu in frame.gpus
        for k, holder in enumerate(suspects_or_none(gpu))
    ]


def _suspect(frame: Frame, gpu: Gpu, holder: DeviceHolder | None, first: bool) -> ViewRow:
    row = Process(
        pid=holder.pid if holder else 0,
        start_ticks=holder.start_ticks if holder else None,
        start_time=holder.start_time if holder else None,
        gpu_uuid=gpu.uuid,
        type=MISSING,
        gpu_memory=gpu.memory_unaccounted if first else None,
        user=holder.user if holder else None,
        command=f"{words(holder)}; {holder.command or MISSING}" if holder
        else remark(gpu, nested=frame.host.nested),
    )  # fmt: skip
    age = max(0.0, frame.time - holder.start_time) if holder else None
    key = ("unaccounted", gpu.key, row.id)
    return ViewRow(ProcessRow(row, gpu, age), key, note="unaccounted", kind="unaccounted")
