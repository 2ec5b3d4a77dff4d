"""Makes Frames of messages, for a reader that trusts nothing an agent sends.

Any input becomes frames and replies that can be drawn, or one SourceError: types are those of the
messages, texts and numbers are made harmless, and what is kept is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import copy
from itertools import compress, repeat
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import asdict, astuple, fields, replace

from gputop.errors import SourceError
from gputop.model.machine.frame import Frame, Process, ProcessFacts
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.text import printable
from gputop.protocol.codec import decode_line, fail, reason
from gputop.protocol.columns import Columns, DeclaredColumn, declared
from gputop.protocol.harmless import check_topology, harmless
from gputop.protocol.messages import (
    AgentMessage,
    Hello,
    InventoryUpdate,
    MachineFacts,
    Preview,
    Reply,
    Sample,
)
from gputop.protocol.split import GPU_NUMBERS, GPU_SECTIONS
from gputop.protocol.versions import SPOKEN, Versions

MAX_GPUS = 1024
MAX_PROCESSES = 1 << 16
"""Rows of a machine: a bound on what an agent makes a reader keep."""
MAX_INVENTORY = 128 << 20
"""Approximate bytes of memory of either: room for thousands of processes with the longest of
texts."""
MAX_PARTS = 1 << 18
"""Lists, objects and texts in a line: short ones take 20 times the memory of their bytes."""
_PART = 48
"""Bytes of memory of a part, beyond its own bytes."""
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
"""A text, also one without its end: each byte is looked at once, whatever the line is."""

_GPU_COLUMNS = declared([
    *((field.name, field, False) for field in fields(Gpu) if field.name in GPU_NUMBERS),
    *(
        (f"{name}.{field.name}", field, True)
        for name, kind in GPU_SECTIONS.items()
        for field in fields(kind)
    ),
])  # fmt: skip
_PROCESS_COLUMNS = declared(
    (field.name, field, False) for field in fields(Process) if field.name in Process.__annotations__
)
_AT = {name: at for at, name in enumerate(Gpu.__struct_fields__)}
_NUMBERS_AT = [_AT[name] for name in _GPU_COLUMNS if name in GPU_NUMBERS]


class _SectionColumns(NamedTuple):
    """A section of GPUs, and where its columns are among all columns of a Sample's GPUs."""

    at: int
    """The field of Gpu that the section is."""
    kind: Any
    places: range
    never_none: dict[str, int]
    """Which of its columns have a value in every GPU that has the section, by their names."""


def _columns_of(name: str, kind: type[msgspec.Struct]) -> _SectionColumns:
    names = [f"{name}.{field}" for field in kind.__struct_fields__]
    begin = _GPU_COLUMNS[names[0]].at
    filled = {
        column: n for n, column in enumerate(names) if _GPU_COLUMNS[column].default is not None
    }
    return _SectionColumns(_AT[name], kind, range(begin, begin + len(names)), filled)


_SECTIONS = [_columns_of(name, kind) for name, kind in GPU_SECTIONS.items()]

R = TypeVar("R", Gpu, ProcessFacts)


class _Rows(Generic[R]):
    """The GPUs or the processes of a machine, by id, and their newest numbers."""

    def __init__(self, kind: type[R], most: int, declared: Mapping[str, DeclaredColumn]) -> None:
        self.facts: dict[int, R] = {}
        self._kind: type[R] = kind
        self._most = most
        self.numbers = Columns(declared)
        self._columns: Sequence[Sequence[Any]] | None = None
        """The fields of `facts`, once they are needed."""
        self.sections: dict[int, list[Any]] = {}
        """Fields of GPUs that were made of `facts` and `numbers`."""
        self._sizes: dict[int, int] = {}
        """Approximate bytes of memory of each row."""
        self._size = 0
        """Their sum."""

    def learn(self, rows: Mapping[int, R], size: int) -> None:
        """Keep rows that took `size` bytes, in place of those with the same ids."""
        if not rows:
            return
        self.facts.update(rows)
        self._columns = None
        before, sizes = self._sizes, dict.fromkeys(rows, size // len(rows))
        self._size += sum(sizes.values()) - sum(before[id_] for id_ in rows if id_ in before)
        before.update(sizes)
        if len(self.facts) > self._most:
            fail("reported more GPUs or processes than a machine can have")
        if self._size > MAX_INVENTORY:
            fail(f"reported more than {MAX_INVENTORY >> 20} MiB of GPUs or processes")

    def columns(self) -> Sequence[Sequence[Any]]:
        """Return the facts of the rows that have numbers, in their order, a column for each field,
        and forget the other rows. While the rows stay the same, so do the columns."""
        ids = self.numbers.values[-1]
        if not isinstance(ids, list | tuple):
            fail("sent numbers without the ids of their rows")
        if list(ids) != list(self.facts):
            self.facts, self._columns = self._present(ids), None
            self._sizes = {id_: self._sizes[id_] for id_ in self.facts}
            self._size = sum(self._sizes.values())
        if self._columns is None:
            rows = [astuple(row) for row in self.facts.values()]
            none: list[tuple[Any, ...]] = [()] * len(self._kind.__struct_fields__)
            self._columns, self.sections = tuple(zip(*rows, strict=True)) or none, {}
        return self._columns

    def _present(self, ids: Sequence[int]) -> dict[int, R]:
        try:
            present = {id_: self.facts[id_] for id_ in ids}
        except (KeyError, TypeError):
            fail("sent numbers of what is not in its inventory")
        if len(present) != len(ids):
            fail("sent numbers of the same twice")
        return present

    def fork(self) -> _Rows[R]:
        """Return an independent copy with the same knowledge, in as little memory as it takes."""
        fork = copy(self)
        fork.facts, fork._sizes = dict(self.facts), dict(self._sizes)
        fork.numbers, fork._columns = Columns(self.numbers.declared), None
        return fork


class Assembler:
    """Makes Frames of the lines of one agent; SourceError for a stream that cannot be followed."""

    def __init__(self, spoken: Versions = SPOKEN, requested_name: str | None = None) -> None:
        """`requested_name`: the name by which the machine was asked for."""
        self._requested_name = requested_name
        self.hello: Hello | None = None
        """None until it has arrived."""
        self._spoken = spoken
        self._number = 0
        self._machine: MachineFacts | None = None
        self._gpus = _Rows[Gpu](Gpu, MAX_GPUS, _GPU_COLUMNS)
        self._processes = _Rows[ProcessFacts](ProcessFacts, MAX_PROCESSES, _PROCESS_COLUMNS)

    def read(self, line: bytes) -> Frame | Reply | None:
        """Return what a line completes: a Frame, a Reply, or nothing yet."""
        if not line.endswith(b"\n"):
            fail("ended in the middle of a line")
        number, message = _decode(line)
        if number != self._number:
            fail(f"sent line {number} in place of line {self._number}")
        self._number += 1
        if isinstance(message, Hello) is not (self.hello is None):
            fail("did not begin with a greeting" if number == 0 else "started again")
        if isinstance(message, Reply):
            return message
        if isinstance(message, Hello):
            self._greet(message)
            return None
        return self._handle(message, line)

    def _handle(self, message: InventoryUpdate | Sample, line: bytes) -> Frame | None:
        if isinstance(message, Sample):
            return self._frame(message)
        self._machine = message.machine or self._machine
        size = len(line) + _PART * _parts(line)
        self._gpus.learn(message.gpus, size)
        self._processes.learn(message.processes, size)
        return None

    @property
    def rows(self) -> int:
        """How many GPUs and processes it knows."""
        return len(self._gpus.facts) + len(self._processes.facts)

    def fork(self) -> Assembler:
        """Return an independent copy with the same knowledge."""
        fork = copy(self)
        fork._gpus, fork._processes = self._gpus.fork(), self._processes.fork()
        return fork

    def read_again(self, line: bytes) -> Frame | None:
        """Return the Frame of the last line or a later one; others may be left out."""
        _, message = _decode(line)
        assert isinstance(message, InventoryUpdate | Sample)
        return self._handle(message, line)

    def skip(self) -> None:
        """Skip a line with a Sample: the next one has all numbers again."""
        self._number += 1

    def _greet(self, hello: Hello) -> None:
        theirs = Versions(hello.oldest, hello.newest)
        if not self._spoken.includes(hello.protocol):
            version = printable(hello.version, 32)
            raise SourceError(
                f"the agent (gputop {version}) speaks protocol {theirs}, this gputop "
                f"{self._spoken}: install the same version on both sides"
            )
        self.hello = hello

    def _frame(self, sample: Sample) -> Frame:
        machine = self._machine
        if machine is None:
            fail("sent numbers before the machine's inventory")
        make = Preview if sample.processes is None else Frame
        numbers = {"time": sample.time, "interval": sample.interval, "problem": sample.problem}
        of_host = harmless({"cpu": sample.cpu, "memory_used": sample.memory_used})
        host = replace(machine.host, requested_name=self._requested_name, **of_host)
        return make(
            **{**asdict(machine), **harmless(numbers), "host": host},
            gpus=self._assemble_gpus(sample.gpus),
            processes=self._assemble_processes(sample.processes or {}),
        )

    def _assemble_gpus(self, columns: dict[str, msgspec.Raw]) -> tuple[Gpu, ...]:
        changed, values = self._gpus.numbers.read(columns), self._gpus.numbers.values
        gpus, count = list(self._gpus.columns()), len(self._gpus.facts)
        for at, column in zip(_NUMBERS_AT, _filled(values[: len(_NUMBERS_AT)], count), strict=True):
            gpus[at] = column
        _filled([values[at] for at in changed], count)  # those that nothing uses, too
        made = self._gpus.sections
        for section in _SECTIONS:
            if any(gpus[section.at]):
                if section.at not in made or not changed.isdisjoint(section.places):
                    of_section = [values[at] for at in section.places]
                    made[section.at] = _made(section, gpus[section.at], of_section)
                gpus[section.at] = made[section.at]
        return tuple(map(Gpu, *gpus))

    def _assemble_processes(self, columns: dict[str, msgspec.Raw]) -> tuple[Process, ...]:
        self._processes.numbers.read(columns)
        facts, count = self._processes.columns(), len(self._processes.facts)
        return tuple(map(Process, *facts, *_filled(self._processes.numbers.values[:-1], count)))


def _decode(line: bytes) -> tuple[int, AgentMessage]:
    """Return the number and the message of a line."""
    if len(line) > MAX_PARTS and _parts(line) > MAX_PARTS:  # a part has at least a byte
        fail(f"sent a line of more than {MAX_PARTS} parts")
    number, message = decode_line(line)
    try:
        if not isinstance(message, Sample):  # what that has is made harmless where it is used
            message = harmless(message)
        if isinstance(message, InventoryUpdate):
            _check(message)
    except (ValueError, RecursionError) as error:
        fail(f"sent what cannot be shown: {reason(error)}")
    return number, message


def _parts(line: bytes) -> int:
    """Return about how many lists, objects and texts a line has. Only if there seem to be too many,
    texts are left out before brackets are counted: users write brackets into their commands."""
    parts = line.count(b"{") + line.count(b"[") + line.count(b'"') // 2
    if parts > MAX_PARTS:
        parts = sum(map(_TEXT.sub(b'"', line).count, (b"{", b"[", b'"')))
    return parts


def _check(inventory: InventoryUpdate) -> None:
    """Raise ValueError for rows or tables of the right types that no machine has."""
    if not all(0 <= gpu.index < MAX_GPUS for gpu in inventory.gpus.values()):
        raise ValueError("a GPU of an index that no driver has")
    if inventory.machine is not None:
        check_topology(inventory.machine.links, inventory.machine.topology)


def _filled(columns: Sequence[Any], count: int) -> list[Any]:
    """Return columns with a value for each row, to be gone through once."""
    filled: list[Any] = []
    for column in columns:
        if not isinstance(column, list):
            column = repeat(column, count)
        elif len(column) != count:
            fail(f"sent {len(column)} numbers for {count} rows")
        filled.append(column)
    return filled


def _made(section: _SectionColumns, empty: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """Return a section of each GPU; None for one without it, which is so in `empty`, too."""
    has_all = None not in empty
    for name, at in section.never_none.items():
        column = values[at] if isinstance(values[at], list) else [values[at]] * len(empty)
        if None in (column if has_all else compress(column, empty)):
            fail(f"sent numbers that are none: {name}")
    made = list(map(section.kind, *_filled(values, len(empty))))
    if has_all:
        return made
    return [full if before is not None else None for full, before in zip(made, empty, strict=True)]
