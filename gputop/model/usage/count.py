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
decoder. If the driver takes no samples of some process (MIG, WSL), work is **unknown**, and idle,
too.

Peak memory is the most that its processes had on one host in one frame, on all GPUs together.

A GPU's **energy** is divided among the processes on it by their SM utilization if that is known for
all of them and not 0, otherwise evenly; a MIG device gets its share of the GPU's energy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from gputop.model.machine.frame import Frame, Process
from gputop.model.machine.gpu import Gpu, MigDevice
from gputop.model.usage.grouping import OTHERS, Grouping, UsageKey

MAX_ROWS = 20_000
"""Further rows are added up in one: others choose the names, and may choose any number."""

_MAX_KEY_CHARS = 256
"""Characters of a cell of a row."""

UnknownReason = Literal["silent", "unlisted", "instance"]
"""
silent    the GPU did not answer, or was asleep and not asked
unlisted  the driver did not list its processes, or not all of them, and none was seen
instance  a MIG device is in use, and it is not known which, or how large it is
"""


class UsageRow(msgspec.Struct):
    """What one user, GPU, job, command or host had. Times are GPU-seconds."""

    held: float = 0.0
    worked: float = 0.0
    idle: float = 0.0
    work_unknown: float = 0.0
    """The part of `held` in which the work of some process was not known."""
    peak_memory: int | None = None
    """Bytes; None if it was known of no process."""
    energy: float = 0.0
    """Joules."""
    energy_unknown: float = 0.0
    """The part of `held` in which the energy was not known."""

    def add_span(self, time: float, member: _Member, joules: float | None) -> None:
        """Add `time` GPU-seconds and their joules; None if those are not known."""
        self.held += time
        self.worked += min(1.0, member.work) * time
        if not member.is_known:
            self.work_unknown += time
        elif not member.is_busy:
            self.idle += time
        if joules is None:
            self.energy_unknown += time
        else:
            self.energy += joules

    def add_memory(self, size: int) -> None:
        """Take the memory of one instant into the peak."""
        self.peak_memory = max(size, self.peak_memory or 0)


class _Member(msgspec.Struct):
    """The processes of one row, or of all, on one part of a GPU, in one frame."""

    count: int = 0
    work: float = 0.0
    is_known: bool = True
    is_busy: bool = False
    memory: int | None = None

    def add(self, process: Process) -> None:
        self.count += 1
        work = process.sm_utilization
        is_coding = process.encoder_utilization or process.decoder_utilization
        if work is None and process.idle_for is None:
            self.is_known = False
        elif work or process.memory_utilization or is_coding:
            self.work += work or 0.0
            self.is_busy = True
        if process.gpu_memory is not None:
            self.memory = (self.memory or 0) + process.gpu_memory


class UsageCount:
    """Rows that grow with each frame. The frames of a host must come in the order of time, and
    those of several hosts one host after the other."""

    def __init__(self, grouping: Grouping) -> None:
        self.rows: dict[UsageKey, UsageRow] = {}
        self.total = UsageRow()
        """All rows together, but each GPU counts once."""
        self.unheld = 0.0
        """GPU-seconds in which a GPU, or a part of one, was not held."""
        self.unheld_energy = 0.0
        """Joules of that time, as far as known."""
        self.unknown: dict[UnknownReason, float] = {}
        """GPU-seconds in which it is not known whether the GPU was held, by reason."""
        self._key = grouping.key
        self._others = (OTHERS,) * len(grouping.columns)
        self._counters: dict[str, float] = {}
        """The energy counters of all GPUs in the frame before."""

    def add(self, host: str, spans: Iterable[tuple[Frame, float]]) -> None:
        """Add the frames of a host, each with the seconds that it stands for."""
        for frame, seconds in spans:
            memory: dict[UsageKey, int] = {}
            before, self._counters = self._counters, {}
            for gpu in frame.gpus:
                joules = self._joules(gpu, seconds, before.get(gpu.key))
                if seconds:
                    self._add_gpu(host, frame, gpu, seconds, joules, memory)
            for key, size in memory.items():
                self.rows[key].add_memory(size)
            if memory:
                self.total.add_memory(sum(memory.values()))

    def _joules(self, gpu: Gpu, seconds: float, before: float | None) -> float | None:
        """Return the joules that a GPU used in the last `seconds`; None if that is not known.

        From its energy counter, `before` of which was in the frame before, or if that is missing or
        has restarted, from its power now.
        """
        counter = gpu.power_more.energy if gpu.power_more else None
        if counter is not None and gpu.state == "answers":
            self._counters[gpu.key] = counter
            if before is not None and counter >= before:
                return counter - before
        return None if gpu.power is None else gpu.power * seconds

    def _add_gpu(
        self,
        host: str,
        frame: Frame,
        gpu: Gpu,
        seconds: float,
        joules: float | None,
        memory: dict[UsageKey, int],
    ) -> None:
        parts = held_parts(frame, gpu)
        if isinstance(parts, str):
            self.unknown[parts] = self.unknown.get(parts, 0.0) + seconds
            return
        for part in parts:
            members = self._members(host, gpu, part.processes)
            self._add_part(part, members, seconds, joules)
            for key, member in members.items():
                if member.memory is not None:
                    memory[key] = memory.get(key, 0) + member.memory
        left = max(0.0, 1.0 - sum(part.share for part in parts))
        self.unheld += left * seconds
        self.unheld_energy += left * (joules or 0.0)

    def _members(
        self, host: str, gpu: Gpu, processes: Iterable[Process]
    ) -> dict[UsageKey, _Member]:
        """Return the processes on a part of a GPU by their rows."""
        members: dict[UsageKey, _Member] = {}
        for process in processes:
            key = tuple(cell and cell[:_MAX_KEY_CHARS] for cell in self._key(host, gpu, process))
            if key not in members:
                if len(self.rows) >= MAX_ROWS and key not in self.rows:
                    key = self._others
                members.setdefault(key, _Member())
            members[key].add(process)
        return members

    def _add_part(
        self, part: HeldPart, members: dict[UsageKey, _Member], seconds: float, joules: float | None
    ) -> None:
        """Add a part of a GPU that was held for `seconds`; the whole GPU used `joules`."""
        time, joules = part.share * seconds, _times(joules, part.share)
        everybody = _Member()
        for process in part.processes:
            everybody.add(process)
        by_work = everybody.is_known and everybody.work > 0
        for key, member in members.items():
            portion = member.work / everybody.work if by_work else member.count / everybody.count
            row = self.rows.setdefault(key, UsageRow())
            row.add_span(time, member, _times(joules, portion))
        self.total.add_span(time, everybody, joules)


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
    parts = list(_devices(gpu, processes))
    return "instance" if None in parts else [part for part in parts if part is not None]


def _devices(gpu: Gpu, processes: Sequence[Process]) -> Iterator[HeldPart | None]:
    """Yield the MIG devices that are held; None for one that is not fully known."""
    here: dict[tuple[int | None, int | None], list[Process]] = {}
    for process in processes:
        here.setdefault((process.gpu_instance, process.compute_instance), []).append(process)
    siblings = Counter(device.gi for device in gpu.mig or ())
    devices: dict[tuple[int | None, int | None], MigDevice]
    devices = {device.instance_ids: device for device in gpu.mig or ()}
    for ids, members in here.items():
        device = devices.get(ids)
        if device is None or not device.memory_total or not gpu.memory_total:
            yield None
        else:
            share = device.memory_total / gpu.memory_total / siblings[device.gi]
            yield HeldPart(min(1.0, share), members)


def _times(joules: float | None, portion: float) -> float | None:
    return None if joules is None else joules * portion
