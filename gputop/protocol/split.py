"""Splits Frames into messages: what the reader does not know yet, then the numbers."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache
from itertools import count, islice
from operator import attrgetter
from typing import Any, Generic, TypeVar

from msgspec.structs import astuple, replace

from gputop.model.machine.frame import Frame, Process, ProcessFacts
from gputop.model.machine.gpu import Gpu
from gputop.protocol.messages import InventoryUpdate, MachineFacts, Preview, Sample

GPU_NUMBERS = (
    "memory_used", "memory_free", "memory_unaccounted", "utilization", "memory_utilization",
    "temperature", "power", "sm_clock", "memory_clock", "fan", "pstate", "mig", "idle_for",
    "state", "stale_for",
)  # fmt: skip
"""Fields of a Gpu that are in every Sample; the others are in the InventoryUpdate."""
GPU_SECTIONS = (
    "bar1", "engines", "clocks", "power_more", "thermal", "throttle", "pcie", "nvlink", "activity"
)  # fmt: skip
"""Sections of a Gpu whose fields are in every Sample; the InventoryUpdate has them empty."""

_WITHOUT_VALUES = {name: getattr(Gpu(index=0), name) for name in GPU_NUMBERS}
_PROCESS_NUMBERS = tuple(Process.__annotations__)
_IDENTITY = ProcessFacts.__struct_fields__.index("compute_instance") + 1
"""The facts that identify a process on a GPU come first."""
_ROWS = 256
"""Processes in one InventoryUpdate, so that a line stays far below the reader's limit."""

_facts_of = attrgetter(*ProcessFacts.__struct_fields__)
_numbers_of = attrgetter(*_PROCESS_NUMBERS)
F = TypeVar("F")


class _Ids(Generic[F]):
    """The ids of GPUs or of processes, and the facts that were sent under them."""

    def __init__(self) -> None:
        self._next = count(1)
        self._sent: dict[Hashable, tuple[int, F]] = {}
        self._present: dict[Hashable, tuple[int, F]] = {}

    def begin(self) -> None:
        """Begin another Sample, and forget what the one before it did not have."""
        self._sent, self._present = self._present, {}

    def id_of(self, key: Hashable, facts: F) -> tuple[int, bool]:
        """Return the id, and whether to send the facts."""
        while key in self._present:  # a driver may give two GPUs one UUID
            key = (key, "again")
        entry = self._sent.get(key)
        is_new = entry is None or entry[1] != facts
        if entry is None or is_new:
            entry = (next(self._next) if entry is None else entry[0], facts)
        self._present[key] = entry
        return entry[0], is_new


class Splitter:
    """Makes the messages of one stream, frame by frame."""

    def __init__(self) -> None:
        self._machine: MachineFacts | None = None
        self._gpus: _Ids[Gpu] = _Ids()
        self._processes: _Ids[tuple[Any, ...]] = _Ids()

    def split(self, frame: Frame) -> Iterator[InventoryUpdate | Sample]:
        """Yield what has changed, then the Sample."""
        machine = _machine_facts(frame)
        gpus, gpu_columns = self._split_gpus(frame.gpus)
        processes, process_columns = self._split_processes(frame.processes)
        if machine != self._machine or gpus:
            changed = None if machine == self._machine else machine
            yield InventoryUpdate(machine=changed, gpus=gpus)
        self._machine = machine
        new = iter(processes.items())
        while rows := dict(islice(new, _ROWS)):
            yield InventoryUpdate(processes=rows)
        yield Sample(
            time=frame.time,
            interval=frame.interval,
            cpu=frame.host.cpu,
            memory_used=frame.host.memory_used,
            problem=frame.problem,
            gpus=gpu_columns,
            processes=None if isinstance(frame, Preview) else process_columns,
        )

    def _split_gpus(self, gpus: Sequence[Gpu]) -> tuple[dict[int, Gpu], dict[str, Any]]:
        changed, rows = {}, []
        self._gpus.begin()
        for gpu in gpus:
            facts = _gpu_facts(gpu)
            id_, is_new = self._gpus.id_of((gpu.index, gpu.uuid), facts)
            if is_new:
                changed[id_] = facts
            rows.append({"id": id_, **_gpu_numbers(gpu)})
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: [row.get(name) for row in rows] for name in names}
        ids = {"id": columns.pop("id", [])}
        return changed, {**ids, **_without_repetition(columns)}

    def _split_processes(
        self, processes: Sequence[Process]
    ) -> tuple[dict[int, ProcessFacts], dict[str, Any]]:
        changed, ids, numbers = {}, [], []
        self._processes.begin()
        for process in processes:
            facts = _facts_of(process)
            id_, is_new = self._processes.id_of(facts[:_IDENTITY], facts)
            if is_new:
                changed[id_] = ProcessFacts(*facts)
            ids.append(id_)
            numbers.append(_numbers_of(process))
        columns = dict(zip(_PROCESS_NUMBERS, map(list, zip(*numbers, strict=True)), strict=False))
        return changed, {"id": ids, **_without_repetition(columns)}


def _machine_facts(frame: Frame) -> MachineFacts:
    return MachineFacts(
        host=replace(frame.host, cpu=None, memory_used=None),
        driver_version=frame.driver_version,
        cuda_version=frame.cuda_version,
        links=frame.links,
        topology=frame.topology,
        demo=frame.demo,
    )


def _gpu_facts(gpu: Gpu) -> Gpu:
    sections = {name: section and type(section)() for name, section in _sections(gpu)}
    return replace(gpu, **_WITHOUT_VALUES, **sections)


def _gpu_numbers(gpu: Gpu) -> dict[str, Any]:
    numbers = {name: getattr(gpu, name) for name in GPU_NUMBERS}
    for name, section in _sections(gpu):
        if section is not None:
            columns = _columns(name, section.__struct_fields__)
            numbers.update(zip(columns, astuple(section), strict=True))
    return numbers


@lru_cache(maxsize=64)
def _columns(name: str, fields: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the columns of a section."""
    return tuple(f"{name}.{field}" for field in fields)


def _sections(gpu: Gpu) -> Iterator[tuple[str, Any]]:
    return ((name, getattr(gpu, name)) for name in GPU_SECTIONS)


def _without_repetition(columns: dict[str, list[Any]]) -> dict[str, Any]:
    """Return the columns, those of equal values as one value, those of None not at all."""
    short: dict[str, Any] = {}
    for name, values in columns.items():
        first = values[0]
        alike = not isinstance(first, (list, tuple)) and values.count(first) == len(values)
        if not (alike and first is None):
            short[name] = first if alike else values
    return short
