"""Messages into Frames, at the reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, NoReturn

import msgspec
from msgspec.structs import replace

from gputop.errors import SourceError
from gputop.model.machine.frame import Frame, Process
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.text import printable
from gputop.protocol.codec import decode_line, reason
from gputop.protocol.messages import (
    Hello,
    InventoryUpdate,
    MachineFacts,
    Preview,
    ProcessNumbers,
    Reply,
    Sample,
)
from gputop.protocol.split import GPU_NUMBERS, GPU_SECTIONS, PROCESS_NUMBERS
from gputop.protocol.versions import SPOKEN, Versions

MAX_GPUS = 1024
MAX_PROCESSES = 1 << 16
"""Rows of a machine: what an agent makes a reader keep has an end."""


class Assembler:
    """Makes Frames of the lines of one agent; SourceError for a stream that cannot be followed."""

    def __init__(self, spoken: Versions = SPOKEN, asked: str | None = None) -> None:
        """`asked`: the name by which the machine was asked for."""
        self._asked = asked
        self.hello: Hello | None = None
        """None until it has come."""
        self._spoken = spoken
        self._number = 0
        self._machine: MachineFacts | None = None
        self._gpus: dict[int, Gpu] = {}
        self._processes: dict[int, Process] = {}

    def read(self, line: bytes) -> Frame | Reply | None:
        """Return what a line makes known: a Frame, a Reply, or nothing yet."""
        if not line.endswith(b"\n"):
            _fail("ended in the middle of a line")
        number, message = decode_line(line)
        if number != self._number:
            _fail(f"sent line {number} in place of line {self._number}")
        self._number += 1
        if isinstance(message, Hello) is not (self.hello is None):
            _fail("did not begin with a greeting" if number == 0 else "began anew")
        if isinstance(message, Sample):
            return self._frame(message)
        if isinstance(message, Reply):
            return message
        if isinstance(message, Hello):
            self._greet(message)
        else:
            self._learn(message)
        return None

    def _greet(self, hello: Hello) -> None:
        theirs = Versions(hello.oldest, hello.newest)
        if not self._spoken.oldest <= hello.protocol <= self._spoken.newest:
            version = printable(hello.version, 32)
            raise SourceError(
                f"the agent (gputop {version}) speaks protocol {theirs}, this gputop "
                f"{self._spoken}: install the same version on both sides"
            )
        self.hello = hello

    def _learn(self, inventory: InventoryUpdate) -> None:
        self._machine = inventory.machine or self._machine
        self._gpus.update(inventory.gpus)
        self._processes.update(inventory.processes)
        if len(self._gpus) > MAX_GPUS or len(self._processes) > MAX_PROCESSES:
            _fail("told of more GPUs or processes than a machine has")

    def _frame(self, sample: Sample) -> Frame:
        machine = self._machine
        if machine is None:
            _fail("sent numbers before the machine's inventory")
        columns, make = sample.processes, Frame
        if columns is None:
            columns, make = ProcessNumbers(), Preview
        return make(
            host=replace(
                machine.host, asked=self._asked, cpu=sample.cpu, memory_used=sample.memory_used
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
        ids = columns.pop("id", [])
        if not isinstance(ids, list):
            _fail("sent numbers of GPUs without their ids")
        self._gpus = _present(self._gpus, ids)
        rows = zip(*(_values(column, len(ids)) for column in columns.values()), strict=True)
        numbers = rows if columns else repeat((), len(ids))
        return tuple(
            _gpu(facts, zip(columns, values, strict=True))
            for facts, values in zip(self._gpus.values(), numbers, strict=True)
        )

    def _assemble_processes(self, columns: ProcessNumbers) -> tuple[Process, ...]:
        ids = columns.id
        self._processes = _present(self._processes, ids)
        numbers = (_values(getattr(columns, name), len(ids)) for name in PROCESS_NUMBERS)
        rows = zip(self._processes.values(), *numbers, strict=True)
        return tuple(_process(*row) for row in rows)


def _process(
    facts: Process,
    memory: Any,
    sm: Any,
    copying: Any,
    encoder: Any,
    decoder: Any,
    idle: Any,
    cpu: Any,
    rss: Any,
    state: Any,
    threads: Any,
    read: Any,
    written: Any,
) -> Process:
    """Return a process with its numbers. Written out: given as `**numbers`, a thousand of them
    take 6 ms in place of 1."""
    return replace(
        facts,
        gpu_memory=memory,
        sm_utilization=sm,
        memory_utilization=copying,
        encoder_utilization=encoder,
        decoder_utilization=decoder,
        idle_for=idle,
        cpu=cpu,
        rss=rss,
        state=state,
        threads=threads,
        io_read=read,
        io_write=written,
    )  # fmt: skip


def _present(facts: dict[int, Any], ids: Sequence[int]) -> dict[int, Any]:
    """Return the facts of those that a Sample has, in its order; the others are gone."""
    try:
        present = {id_: facts[id_] for id_ in ids}
    except (KeyError, TypeError):
        _fail("sent numbers of what is not in its inventory")
    if len(present) != len(ids):
        _fail("sent numbers of the same twice")
    return present


def _values(column: Any, count: int) -> Sequence[Any]:
    """Return a value for each row."""
    if not isinstance(column, list):
        return [column] * count
    if len(column) != count:
        _fail(f"sent {len(column)} numbers for {count} rows")
    return column


def _gpu(facts: Gpu, numbers: Iterator[tuple[str, Any]]) -> Gpu:
    """Return a GPU with its numbers."""
    values: dict[str, Any] = {"index": facts.index}
    sections: dict[str, dict[str, Any]] = {name: {} for name in GPU_SECTIONS}
    for name, value in numbers:
        section, _, field = name.partition(".")
        if field and section in sections:
            sections[section][field] = value
        elif name in GPU_NUMBERS:
            values[name] = value
    there = [name for name in GPU_SECTIONS if getattr(facts, name) is not None]
    try:
        gpu = msgspec.convert({**values, **{name: sections[name] for name in there}}, Gpu)
    except msgspec.ValidationError as error:
        _fail(f"sent numbers that are none: {reason(error)}")
    return replace(facts, **{name: getattr(gpu, name) for name in (*GPU_NUMBERS, *there)})


def _fail(what: str) -> NoReturn:
    raise SourceError(f"the agent {what}: its stream cannot be followed; start it again")
