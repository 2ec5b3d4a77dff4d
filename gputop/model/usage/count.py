"""GPU-hours held, worked and idle, peak memory and energy, added up from frames.

A row **holds** a GPU while at least one of its processes computes on it; processes that only draw
hold nothing. A GPU that two rows share counts in full for both of them, and once in the total.

A MIG device counts as its share of the GPU's memory, which no one else can use meanwhile: 3g.71gb
of an H200 is half a GPU. Compute instances of one GPU instance share it evenly.

It **worked** the sum of its processes' SM utilization, at most 1, times that time: half an hour at
50 % is a quarter of an hour of work. The driver's newest sample in a frame stands for the whole
time of the frame, so this is right over hours and not over a minute. A process without a sample
while the driver takes samples of it did nothing.

It was **idle** while none of its processes there had a sample of work on SMs, memory, encoder or
decoder. If the driver takes no samples of some process (MIG, WSL), or had none yet while its GPU
worked, work is **unknown**, and idle, too.

Peak memory is the most that its processes had on one host in one frame, on all GPUs together.

A GPU's **energy** is divided among the processes on it by their SM utilization if that is known for
all of them and not 0, otherwise evenly; a MIG device gets its share of the GPU's energy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Literal, NamedTuple

import msgspec

from gputop.model.machine.frame import Frame, Process
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.grouped import grouped
from gputop.model.usage.grouping import COLUMNS, OTHERS, VIEWS, UsageKey, key_of, rows_of
from gputop.model.usage.spans import Amount, Coverage, FrameTime, whole_energy, whole_time

MAX_KEYS = 1000
"""Kinds of processes in one count that are told apart. Further ones are told apart by their user
alone, and those beyond twice as many are one: others choose the names, and any number of them."""
UnknownReason = Literal["silent", "unlisted", "instance"]
"""
silent    the GPU did not answer, or was asleep and not asked
unlisted  the driver did not list its processes, or not all of them, and none was seen
instance  a MIG device is in use, and it is not known which, or how large it is
"""


class UsageRow(msgspec.Struct, array_like=True):
    """What one user, GPU, job, account, command or host had. Times are GPU-seconds."""

    held: Amount = 0.0
    worked: Amount = 0.0
    idle: Amount = 0.0
    work_unknown: Amount = 0.0
    """The part of `held` in which the work of some process was not known."""
    peak_memory: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Bytes; None if it was known of no process."""
    energy: Amount = 0.0
    """Joules."""
    energy_unknown: Amount = 0.0
    """The part of `held` in which the energy was not known."""

    def add_span(self, time: float, member: _Member, joules: float | None) -> None:
        """Add `time` GPU-seconds and their joules; None if those are not known."""
        self.held += time
        self.worked += whole_time(min(1.0, member.work) * time)
        if not member.is_known:
            self.work_unknown += time
        elif not member.is_busy:
            self.idle += time
        if joules is None:
            self.energy_unknown += time
        else:
            self.energy += whole_energy(joules)

    def add_memory(self, size: int) -> None:
        """Take the memory of one instant into the peak."""
        self.peak_memory = max(size, self.peak_memory or 0)

    def merge(self, other: UsageRow) -> None:
        """Add what the row had at another time, or on another host."""
        self.held += other.held
        self.worked += other.worked
        self.idle += other.idle
        self.work_unknown += other.work_unknown
        self.energy += other.energy
        self.energy_unknown += other.energy_unknown
        if other.peak_memory is not None:
            self.add_memory(other.peak_memory)


UsageRows = dict[UsageKey, UsageRow]


def add_rows(rows: UsageRows, others: Mapping[UsageKey, UsageRow]) -> None:
    for key, row in others.items():
        rows.setdefault(key, UsageRow()).merge(row)


class UsageCount(msgspec.Struct):
    """What is counted of one host in a span of time, from which the rows of every --by follow."""

    before: FrameTime | None = None
    """The frame before the first one, if that counts; None: the first stands for no time."""
    first: FrameTime | None = None
    """Its own frames; None if it has none."""
    last: FrameTime | None = None
    alone: UsageRows = msgspec.field(default_factory=dict)
    """Parts of GPUs with one kind of process, by COLUMNS; without peaks."""
    shared: list[UsageRows] = msgspec.field(default_factory=lambda: [{} for _ in VIEWS])
    """All other parts of GPUs, and the peaks of all; for each of the VIEWS."""
    unheld: Amount = 0.0
    """GPU-seconds in which a GPU, or a part of one, was not held."""
    unheld_energy: Amount = 0.0
    """Joules of that time, as far as known."""
    unknown: dict[UnknownReason, Amount] = {}
    """GPU-seconds in which it is not known whether the GPU was held, by reason."""
    coverage: Coverage = msgspec.field(default_factory=Coverage)
    losses: list[str] = []
    """What could not be read, in words."""

    def rows(self, view: tuple[str, ...]) -> UsageRows:
        """Return the rows of one of the VIEWS."""
        rows: UsageRows = {}
        add_rows(rows, self.shared[VIEWS.index(view)])
        columns = tuple(map(COLUMNS.index, view))
        for key, row in self.alone.items():
            rows.setdefault(tuple([key[column] for column in columns]), UsageRow()).merge(row)
        return rows

    def merge(self, later: UsageCount) -> None:
        """Add what is counted from where this count ends."""
        self.first = self.first or later.first
        self.last = later.last or self.last
        add_rows(self.alone, later.alone)
        for rows, others in zip(self.shared, later.shared, strict=True):
            add_rows(rows, others)
        self.unheld += later.unheld
        self.unheld_energy += later.unheld_energy
        for reason, seconds in later.unknown.items():
            self.unknown[reason] = self.unknown.get(reason, 0.0) + seconds
        self.coverage.merge(later.coverage)
        self.losses += later.losses


class _Member(msgspec.Struct):
    """Processes of one row, or of all, on one part of a GPU, in one frame."""

    count: int = 0
    work: float = 0.0
    is_known: bool = True
    is_busy: bool = False

    def add(self, process: Process, gpu: Gpu) -> None:
        self.count += 1
        work = process.sm_utilization
        is_coding = process.encoder_utilization or process.decoder_utilization
        is_unseen = process.idle_for is None or (gpu.utilization and not process.idle_for)
        if work is None and is_unseen:
            self.is_known = False
        elif work or process.memory_utilization or is_coding:
            self.work += work or 0.0
            self.is_busy = True

    def portion(self, everybody: _Member) -> float:
        """Return its part of the energy that everybody used."""
        if everybody.is_known and everybody.work > 0:
            return self.work / everybody.work
        return self.count / everybody.count

    def join(self, other: _Member) -> None:
        self.count += other.count
        self.work += other.work
        self.is_known &= other.is_known
        self.is_busy |= other.is_busy


class _JointRow(msgspec.Struct):
    """Kinds of processes on one part of a GPU that are together in some row."""

    kinds: list[int]
    """Which of the kinds."""
    rows: list[tuple[int, UsageKey]] = []
    """The rows, each with the number of its view."""
    row: UsageRow = msgspec.field(default_factory=UsageRow)
    """What is to be added to each of them."""


class UsageCounter:
    """Counts frames of one host, in the order of time."""

    def __init__(self, before: FrameTime | None = None) -> None:
        """`before`: the frame before the first one, if that counts."""
        self._count = UsageCount(before=before)
        self._rows: dict[UsageKey, tuple[UsageKey, ...]] = {}
        """The rows of each kind of process in the VIEWS."""
        self._memory: dict[UsageKey, int] = {}
        """Bytes of each kind of process when the peaks were last looked at."""
        self._joint: dict[tuple[UsageKey, ...], list[_JointRow]] = {}
        """What is counted of several kinds on one part, by these."""

    def count(self) -> UsageCount:
        """Return what is counted so far."""
        self._share_out()
        return self._count

    def add(self, frame: Frame) -> None:
        count = self._count
        before = count.last or count.before
        seconds = 0.0
        if before is not None:
            seconds = count.coverage.add_time(before, frame.time, frame.problem is None)
        old: dict[str, float] = {} if before is None else before.counters
        new: dict[str, float] = {}
        memory: dict[UsageKey, int] = {}
        for gpu in frame.gpus:
            joules = _joules(gpu, seconds, old.get(gpu.key), new)
            if seconds:
                self._add_gpu(frame, gpu, seconds, joules, memory)
        if any(size > self._memory.get(key, -1) for key, size in memory.items()):
            self._add_memory(memory)  # otherwise no sum of them is a new peak
        count.last = FrameTime.of(frame, new)
        count.first = count.first or count.last

    def _add_gpu(
        self,
        frame: Frame,
        gpu: Gpu,
        seconds: float,
        joules: float | None,
        memory: dict[UsageKey, int],
    ) -> None:
        parts, count = held_parts(frame, gpu), self._count
        if isinstance(parts, str):
            count.unknown[parts] = count.unknown.get(parts, 0.0) + seconds
            return
        for part in parts:
            members: dict[UsageKey, _Member] = {}
            for process in part.processes:
                key = self._key(gpu, process)
                members.setdefault(key, _Member()).add(process, gpu)
                if process.gpu_memory is not None:
                    memory[key] = memory.get(key, 0) + process.gpu_memory
            self._add_part(part, members, seconds, joules)
        left = max(0.0, 1.0 - sum(part.share for part in parts))
        count.unheld += whole_time(left * seconds)
        count.unheld_energy += whole_energy(left * (joules or 0.0))

    def _key(self, gpu: Gpu, process: Process) -> UsageKey:
        """Return the kind of a process, as COLUMNS."""
        key = key_of(gpu, process)
        if key not in self._rows:
            if len(self._rows) >= MAX_KEYS:
                key = (*key[:4], OTHERS, OTHERS, OTHERS)
            if len(self._rows) >= 2 * MAX_KEYS and key not in self._rows:
                key = (OTHERS,) * len(COLUMNS)
            self._rows.setdefault(key, rows_of(key))
        return key

    def _add_part(
        self, part: HeldPart, members: dict[UsageKey, _Member], seconds: float, joules: float | None
    ) -> None:
        """Add a part of a GPU that was held for `seconds`; the whole GPU used `joules`."""
        time, joules = whole_time(part.share * seconds), _times(joules, part.share)
        if len(members) == 1:
            [(key, member)] = members.items()
            self._count.alone.setdefault(key, UsageRow()).add_span(time, member, joules)
            return
        here, everybody = list(members.values()), _Member()
        for member in here:
            everybody.join(member)
        for joint in self._joint_rows(tuple(members)):
            joined = _Member()
            for kind in joint.kinds:
                joined.join(here[kind])
            joint.row.add_span(time, joined, _times(joules, joined.portion(everybody)))

    def _joint_rows(self, keys: tuple[UsageKey, ...]) -> list[_JointRow]:
        """Return which kinds of processes on a part of a GPU are together in some row."""
        if keys not in self._joint:
            if sum(map(len, self._joint)) > MAX_KEYS:
                self._share_out()
            joints: dict[tuple[int, ...], _JointRow] = {}
            for number in range(len(VIEWS)):
                together: dict[UsageKey, list[int]] = {}
                for kind, key in enumerate(keys):
                    together.setdefault(self._rows[key][number], []).append(kind)
                for row, kinds in together.items():
                    joint = joints.setdefault(tuple(kinds), _JointRow(kinds))
                    joint.rows.append((number, row))
            self._joint[keys] = list(joints.values())
        return self._joint[keys]

    def _share_out(self) -> None:
        """Add to the rows what was counted of several kinds together."""
        for joints in self._joint.values():
            for joint in joints:
                for number, key in joint.rows:
                    self._count.shared[number].setdefault(key, UsageRow()).merge(joint.row)
        self._joint.clear()

    def _add_memory(self, memory: dict[UsageKey, int]) -> None:
        """Take the memory of one instant into the peaks."""
        self._memory = memory
        for number, rows in enumerate(self._count.shared):
            sizes: dict[UsageKey, int] = {}
            for key, size in memory.items():
                row = self._rows[key][number]
                sizes[row] = sizes.get(row, 0) + size
            for row, size in sizes.items():
                rows.setdefault(row, UsageRow()).add_memory(size)


def count_frames(frames: Iterable[Frame], before: FrameTime | None = None) -> UsageCount:
    """Count frames of one host, in the order of time; `before` as in UsageCount."""
    counter = UsageCounter(before)
    for frame in frames:
        counter.add(frame)
    return counter.count()


class HeldPart(NamedTuple):
    """A part of a GPU with processes that compute on it."""

    share: float
    """The share of the whole GPU."""
    processes: Sequence[Process]


def held_parts(frame: Frame, gpu: Gpu) -> list[HeldPart] | UnknownReason:
    if gpu.state != "answers" or gpu.uuid is None:
        return "silent"
    processes = frame.compute_processes.get(gpu.uuid, [])
    if not processes:
        return [] if gpu.listed == "all" else "unlisted"
    if not gpu.mig_mode:
        return [HeldPart(1.0, processes)]
    return _held_devices(gpu, processes)


def _held_devices(gpu: Gpu, processes: Sequence[Process]) -> list[HeldPart] | UnknownReason:
    siblings = Counter(device.gi for device in gpu.mig or ())
    devices = {device.instance_ids: device for device in gpu.mig or ()}
    here = grouped(processes, attrgetter("gpu_instance", "compute_instance"))
    parts = []
    for ids, members in here.items():
        device = devices.get(ids)
        if device is None or not device.memory_total or not gpu.memory_total:
            return "instance"
        share = device.memory_total / gpu.memory_total / siblings[device.gi]
        parts.append(HeldPart(min(1.0, share), members))
    return parts


def _joules(
    gpu: Gpu, seconds: float, before: float | None, counters: dict[str, float]
) -> float | None:
    """Return the joules that a GPU used in the last `seconds`; None if that is not known.

    From its energy counter, which was at `before` in the frame before and is noted in `counters`,
    or if that is missing or has restarted, from its power now.
    """
    counter = gpu.power_more.energy if gpu.power_more else None
    if counter is not None and gpu.state == "answers":
        counters[gpu.key] = counter
        if before is not None and counter >= before:
            return counter - before
    return None if gpu.power is None else gpu.power * seconds


def _times(joules: float | None, portion: float) -> float | None:
    return None if joules is None else joules * portion
