"""Splits Frames into messages: what the reader does not know yet, then the numbers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Any, get_args

from msgspec import Struct
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
GPU_SECTIONS: dict[str, type[Struct]] = {
    name: get_args(Gpu.__annotations__[name])[0]
    for name in (
        "bar1", "engines", "clocks", "power_more", "thermal", "throttle", "pcie", "nvlink",
        "activity",
    )
}  # fmt: skip
"""Sections of a Gpu whose fields are in every Sample; the InventoryUpdate has them empty."""

_WITHOUT_VALUES = {name: getattr(Gpu(index=0), name) for name in GPU_NUMBERS}
_SECTION_COLUMNS = [
    f"{name}.{value}" for name, kind in GPU_SECTIONS.items() for value in kind.__struct_fields__
]
_PROCESS_NUMBERS = tuple(Process.__annotations__)
_IDENTITY = ProcessFacts.__struct_fields__.index("compute_instance") + 1
"""The facts that identify a process on a GPU come first."""
_ROWS = 256
"""Processes in one InventoryUpdate, so that a line stays far below the reader's limit."""

_gpu_values = attrgetter(*GPU_NUMBERS)


class _RowSplitter(Struct):
    """The GPUs or the processes of Samples: their ids, and the facts that were sent under them."""

    columns: Sequence[str]
    facts_of: Callable[[Any], Any]
    key_of: Callable[[Any], Hashable]
    """Returns what identifies a row, from its facts."""
    numbers_of: Callable[[Any], Sequence[Any]]
    """Returns what a row has in the columns."""
    sent: dict[Hashable, tuple[int, Any]] = {}
    last_id: int = 0

    def split(self, rows: Iterable[Any]) -> tuple[dict[int, Any], dict[str, Any]]:
        """Return facts that are new, by id, and the columns. What the Sample before did not have is
        forgotten."""
        changed, ids, numbers = {}, [], []
        sent: dict[Hashable, tuple[int, Any]] = {}
        before, self.sent = self.sent, sent
        for row in rows:
            facts = self.facts_of(row)
            key = self.key_of(facts)
            while key in sent:  # a driver may give two GPUs one UUID
                key = (key, "again")
            entry = before.get(key)
            if entry is None:
                self.last_id += 1
            if entry is None or entry[1] != facts:
                entry = (self.last_id if entry is None else entry[0], facts)
                changed[entry[0]] = facts
            sent[key] = entry
            ids.append(entry[0])
            numbers.append(self.numbers_of(row))
        columns = dict(zip(self.columns, map(list, zip(*numbers, strict=True)), strict=False))
        return changed, {"id": ids, **_without_repetition(columns)}


class Splitter:
    """Makes the messages of one stream, frame by frame."""

    def __init__(self) -> None:
        self._machine: MachineFacts | None = None
        self._gpus = _RowSplitter(
            (*GPU_NUMBERS, *_SECTION_COLUMNS), _gpu_facts, attrgetter("index", "uuid"), _gpu_numbers
        )
        self._processes = _RowSplitter(
            _PROCESS_NUMBERS,
            attrgetter(*ProcessFacts.__struct_fields__),
            itemgetter(slice(_IDENTITY)),
            attrgetter(*_PROCESS_NUMBERS),
        )

    def split(self, frame: Frame) -> Iterator[InventoryUpdate | Sample]:
        """Yield what has changed, then the Sample."""
        machine = _machine_facts(frame)
        gpus, gpu_columns = self._gpus.split(frame.gpus)
        processes, process_columns = self._processes.split(frame.processes)
        if machine != self._machine or gpus:
            changed = None if machine == self._machine else machine
            yield InventoryUpdate(machine=changed, gpus=gpus)
        self._machine = machine
        new = iter(processes.items())
        while some := list(islice(new, _ROWS)):
            yield InventoryUpdate(processes={id_: ProcessFacts(*facts) for id_, facts in some})
        yield Sample(
            time=frame.time,
            interval=frame.interval,
            cpu=frame.host.cpu,
            memory_used=frame.host.memory_used,
            problem=frame.problem,
            gpus=gpu_columns,
            processes=None if isinstance(frame, Preview) else process_columns,
        )


def _machine_facts(frame: Frame) -> MachineFacts:
    facts = {name: getattr(frame, name) for name in MachineFacts.__struct_fields__}
    return MachineFacts(**{**facts, "host": replace(frame.host, cpu=None, memory_used=None)})


def _gpu_facts(gpu: Gpu) -> Gpu:
    sections = {name: getattr(gpu, name) and kind() for name, kind in GPU_SECTIONS.items()}
    return replace(gpu, **_WITHOUT_VALUES, **sections)


def _gpu_numbers(gpu: Gpu) -> list[Any]:
    numbers = list(_gpu_values(gpu))
    for name, kind in GPU_SECTIONS.items():
        section = getattr(gpu, name)
        numbers += [None] * len(kind.__struct_fields__) if section is None else astuple(section)
    return numbers


def _without_repetition(columns: dict[str, list[Any]]) -> dict[str, Any]:
    """Return the columns, those of equal values as one value, those of None not at all."""
    short: dict[str, Any] = {}
    for name, values in columns.items():
        first = values[0]
        alike = not isinstance(first, (list, tuple)) and values.count(first) == len(values)
        if not (alike and first is None):
            short[name] = first if alike else values
    return short
