"""Makes Frames of messages, for a reader that trusts nothing an agent sends.

Any input becomes frames and replies that can be drawn, or one SourceError: types are those of the
messages, texts and numbers are made harmless, and what is kept is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import lru_cache
from itertools import islice, repeat
from types import NoneType
from typing import Annotated, Any, Generic, NoReturn, TypeVar, get_args, get_origin

import msgspec
from msgspec.structs import astuple, fields, replace

from gputop.errors import SourceError
from gputop.model.machine.frame import Frame, Process, ProcessFacts
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.text import printable
from gputop.protocol.codec import decode_line, reason
from gputop.protocol.harmless import check_topology, harmless, is_harmless
from gputop.protocol.messages import (
    AgentMessage,
    Hello,
    InventoryUpdate,
    MachineFacts,
    Preview,
    Reply,
    Sample,
)
from gputop.protocol.recent import RecentFrames
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
_TEXT = re.compile(rb'"(?:[^"\\]+|\\.)*"')


def _is_array(kind: Any) -> bool:
    return get_origin(kind) is tuple or any(map(_is_array, get_args(kind)))


@lru_cache(maxsize=64)
def _column_of(kind: Any, value: Any) -> Any:
    return list[kind] if _is_array(value) else list[kind] | value


def _column_type(kind: Any, may_lack: bool) -> Any:
    """Return the type of a column of such values: a list, or one value for all rows. Values that
    are arrays themselves are always in a list. `may_lack`: some rows may have no such value."""
    value = kind.__origin__ if get_origin(kind) is Annotated else kind
    return _column_of(value | None if may_lack else value, value)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    is_made = field.default is msgspec.NODEFAULT
    return field.default_factory() if is_made else field.default


_SECTION_TYPES: dict[str, type[msgspec.Struct]] = {
    field.name: kind
    for field in fields(Gpu)
    for kind in get_args(field.type)
    if field.name in GPU_SECTIONS and kind is not NoneType
}
_GPU_FIELDS = [
    *(("", field) for field in fields(Gpu) if field.name in GPU_NUMBERS),
    *((name, field) for name, kind in _SECTION_TYPES.items() for field in fields(kind)),
]
"""The section, empty for the GPU itself, and the field of each column of a Sample's GPUs."""
_GPU_NUMBERS = [field.name for section, field in _GPU_FIELDS if not section]
_NEVER_NONE = [
    (section, field.name) for section, field in _GPU_FIELDS if section and field.default is not None
]
"""Fields of sections that have a value in every GPU that has the section."""
_GPU_COLUMNS = {f"{section}_{field.name}": (section, field) for section, field in _GPU_FIELDS}
_GpuNumbers = msgspec.defstruct(
    "_GpuNumbers",
    [
        (name, _column_type(field.type, bool(section)), _default(field))
        for name, (section, field) in _GPU_COLUMNS.items()
    ],
    rename={
        name: ".".join(filter(None, (section, field.name)))
        for name, (section, field) in _GPU_COLUMNS.items()
    },
)
_ProcessNumbers = msgspec.defstruct(
    "_ProcessNumbers",
    [(name, _column_type(kind, False), None) for name, kind in Process.__annotations__.items()],
)
for _known in (_GpuNumbers, _ProcessNumbers):  # before several threads use it, see `codec._making`
    msgspec.convert({}, _known)

R = TypeVar("R", Gpu, ProcessFacts)


class _Rows(Generic[R]):
    """The GPUs or the processes of a machine, by id, without their numbers. A copy of it learns
    independently."""

    def __init__(self, most: int) -> None:
        self.facts: dict[int, R] = {}
        self._most = most
        self._sizes: dict[int, int] = {}
        """Approximate bytes of memory, including those of some rows that are gone."""

    def learn(self, rows: Mapping[int, R], size: int) -> None:
        """Keep rows that took `size` bytes, in place of those with the same ids."""
        if not rows:
            return
        self.facts = {**self.facts, **rows}
        sizes = self._sizes | dict.fromkeys(rows, size // len(rows))
        self._sizes = {id_: sizes[id_] for id_ in self.facts}
        if len(self.facts) > self._most:
            _fail("reported more GPUs or processes than a machine can have")
        if sum(self._sizes.values()) > MAX_INVENTORY:
            _fail(f"reported more than {MAX_INVENTORY >> 20} MiB of GPUs or processes")

    def present(self, ids: Sequence[int]) -> Sequence[R]:
        """Return the rows with these ids, in their order, and forget the others."""
        if ids == list(self.facts):  # twins share what stays
            return tuple(self.facts.values())
        try:
            present = {id_: self.facts[id_] for id_ in ids}
        except (KeyError, TypeError):
            _fail("sent numbers of what is not in its inventory")
        if len(present) != len(ids):
            _fail("sent numbers of the same twice")
        self.facts = present
        return tuple(present.values())


class Assembler:
    """Makes Frames of the lines of one agent; SourceError for a stream that cannot be followed."""

    def __init__(self, spoken: Versions = SPOKEN, requested_name: str | None = None) -> None:
        """`requested_name`: the name by which the machine was asked for."""
        self._requested_name = requested_name
        self.hello: Hello | None = None
        """None until it has arrived."""
        self.recent: RecentFrames | None = None
        """Keeps lines to be read again; None: no lines are kept."""
        self._spoken = spoken
        self._number = 0
        self._machine: MachineFacts | None = None
        self._gpus = _Rows[Gpu](MAX_GPUS)
        self._processes = _Rows[ProcessFacts](MAX_PROCESSES)

    def read(self, line: bytes) -> Frame | Reply | None:
        """Return what a line completes: a Frame, a Reply, or nothing yet."""
        if not line.endswith(b"\n"):
            _fail("ended in the middle of a line")
        number, message, parts = _decode(line)
        if number != self._number:
            _fail(f"sent line {number} in place of line {self._number}")
        self._number += 1
        if isinstance(message, Hello) is not (self.hello is None):
            _fail("did not begin with a greeting" if number == 0 else "started again")
        if isinstance(message, Reply):
            return message
        if isinstance(message, Hello):
            self._greet(message)
            return None
        frame = self._handle(message, len(line) + _PART * parts)
        if self.recent is not None:
            self.recent.add(line, frame, self)
        return frame

    def _handle(self, message: InventoryUpdate | Sample, size: int) -> Frame | None:
        if isinstance(message, Sample):
            return self._frame(message)
        self._machine = message.machine or self._machine
        self._gpus.learn(message.gpus, size)
        self._processes.learn(message.processes, size)
        return None

    @property
    def rows(self) -> int:
        """How many GPUs and processes it knows."""
        return len(self._gpus.facts) + len(self._processes.facts)

    def fork(self) -> Assembler:
        """Return an independent copy with the same knowledge. It keeps no lines."""
        fork = copy(self)
        fork.recent = None
        fork._gpus, fork._processes = copy(self._gpus), copy(self._processes)
        return fork

    def read_again(self, line: bytes) -> Frame | None:
        """Return the Frame of the last line or a later one; others may be left out."""
        _, message, parts = _decode(line)
        assert isinstance(message, InventoryUpdate | Sample)
        return self._handle(message, len(line) + _PART * parts)

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
            _fail("sent numbers before the machine's inventory")
        columns, make = sample.processes, Frame
        if columns is None:
            columns, make = {}, Preview
        return make(
            host=replace(
                machine.host,
                requested_name=self._requested_name,
                cpu=sample.cpu,
                memory_used=sample.memory_used,
            ),
            time=sample.time,
            interval=sample.interval,
            driver_version=machine.driver_version,
            cuda_version=machine.cuda_version,
            gpus=self._assemble_gpus(sample.gpus),
            processes=self._assemble_processes(columns),
            problem=sample.problem,
            links=machine.links,
            topology=machine.topology,
            demo=machine.demo,
        )

    def _assemble_gpus(self, columns: dict[str, Any]) -> tuple[Gpu, ...]:
        ids = _ids(columns)
        gpus = self._gpus.present(ids)
        typed = astuple(_typed(columns, _GpuNumbers))
        table = iter([_filled(column, len(ids)) for column in typed])
        numbers = zip(*islice(table, len(GPU_NUMBERS)), strict=True)
        sections = zip(
            *(
                map(kind, *islice(table, len(kind.__struct_fields__)))
                for kind in _SECTION_TYPES.values()
            ),
            strict=True,
        )
        return tuple(map(_with_numbers, gpus, numbers, sections))

    def _assemble_processes(self, columns: dict[str, Any]) -> tuple[Process, ...]:
        processes = self._processes.present(_ids(columns))
        numbers = astuple(_typed(columns, _ProcessNumbers))
        rows = zip(*(_filled(column, len(processes)) for column in numbers), strict=True)
        return tuple(
            Process(*astuple(facts), *row) for facts, row in zip(processes, rows, strict=True)
        )


def _decode(line: bytes) -> tuple[int, AgentMessage, int]:
    """Return the number, the message and the parts of a line."""
    if (parts := _parts(line)) > MAX_PARTS:
        _fail(f"sent a line of more than {MAX_PARTS} parts")
    number, message = decode_line(line)
    try:
        if not (isinstance(message, Sample) and is_harmless(line)):
            message = harmless(message)
        if isinstance(message, InventoryUpdate):
            _check(message)
    except (ValueError, RecursionError) as error:
        _fail(f"sent what cannot be shown: {reason(error)}")
    return number, message, parts


def _parts(line: bytes) -> int:
    """Return about how many lists, objects and texts a line has. Only if there seem to be too many,
    texts are left out before brackets are counted: users write brackets into their commands."""
    parts = sum(map(line.count, (b"{", b"[", b'":', b'","')))
    if parts > MAX_PARTS:
        parts = sum(map(_TEXT.sub(b'"', line).count, (b"{", b"[", b'"')))
    return parts


def _check(inventory: InventoryUpdate) -> None:
    """Raise ValueError for rows or tables of the right types that no machine has."""
    if not all(0 <= gpu.index < MAX_GPUS for gpu in inventory.gpus.values()):
        raise ValueError("a GPU of an index that no driver has")
    if inventory.machine is not None:
        check_topology(inventory.machine.links, inventory.machine.topology)


def _ids(columns: dict[str, Any]) -> list[Any]:
    ids = columns.get("id", [])
    if not isinstance(ids, list):
        _fail("sent numbers without the ids of their rows")
    return ids


def _filled(column: Any, count: int) -> Iterable[Any]:
    """Return the values of a column in each row."""
    if not isinstance(column, list):
        return repeat(column, count)
    if len(column) != count:
        _fail(f"sent {len(column)} numbers for {count} rows")
    return column


def _with_numbers(gpu: Gpu, numbers: Sequence[Any], sections: Sequence[Any]) -> Gpu:
    """Return a GPU with its numbers, and with those of the sections that it has."""
    named = {
        name: section
        for name, section in zip(_SECTION_TYPES, sections, strict=True)
        if getattr(gpu, name) is not None
    }
    for name, field in _NEVER_NONE:
        if name in named and getattr(named[name], field) is None:
            _fail(f"sent numbers that are none: {name}.{field}")
    return replace(gpu, **dict(zip(_GPU_NUMBERS, numbers, strict=True)), **named)


def _typed(values: Any, kind: Any) -> Any:
    """Return values as a struct or a list of them, what that does not declare left out."""
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        _fail(f"sent numbers that are none: {reason(error)}")


def _fail(what: str) -> NoReturn:
    raise SourceError(f"the agent {what}: its stream cannot be followed; start it again")
