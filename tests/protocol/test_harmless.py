"""A remote is not believed: whatever comes through a pipe is what can be drawn, or one error."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gputop.errors import SourceError
from gputop.export.json import frame_json
from gputop.export.table import table
from gputop.export.topology import topology_text
from gputop.model.machine.environment import Environ
from gputop.model.machine.frame import Frame, Process
from gputop.model.machine.gpu import DeviceHolder
from gputop.model.machine.probed import Probed
from gputop.model.machine.topology import Topology
from gputop.protocol.assemble import MAX_INVENTORY, Assembler
from gputop.protocol.codec import encode_line
from gputop.protocol.harmless import MAX_NUMBER, MAX_TEXT, harmless, is_harmless
from gputop.protocol.messages import Reply
from gputop.protocol.split import Splitter
from gputop.sources.demo.source import demo_frame
from tests.protocol.streams import FRAME, GPU, HELLO, TRAIN, lines_of, read, stream
from tests.protocol.test_stream import _leaves, error_of

HOSTILE = "\x1b[2J\x9b31m\u202e\u200b\ue000\n"
NUMBERS = (0, -1, 1, 1.5, -2.5, 2**31, 10**15, -(10**18), 10**30, 10**400, 1e308, -1e308, None)
TEXTS = ("", HOSTILE * 9, "x" * 5000, "0", "-5", None)
MISSING: tuple[Any, ...] = (0, -1, 10**15, 1e308, HOSTILE, True, [], {}, None)
DEMO = lines_of([HELLO, *Splitter().split(demo_frame(1.7e9))])


def bent(value: Any, choose: random.Random) -> Any:
    """Another value, most often one of the same type: it gets further."""
    if isinstance(value, bool):
        return choose.choice((True, False, None))
    if isinstance(value, int | float):
        return choose.choice(NUMBERS)
    if isinstance(value, str):
        return choose.choice(TEXTS)
    if isinstance(value, list):
        return choose.choice(([], value[:1], value + value, value[:-1], value[::-1], [[]] * 9))
    return choose.choice(MISSING)


def bend(lines: list[bytes], choose: random.Random) -> list[bytes]:
    """Lines in which a few values are others."""
    messages = [json.loads(line) for line in lines]
    found = [place for message in messages for place in _leaves(message)]
    for inside, key in choose.choices(found, k=choose.choice((1, 1, 2, 5))):
        inside[key] = bent(inside[key], choose)
    return [json.dumps(message).encode() + b"\n" for message in messages]


def torn(lines: list[bytes], choose: random.Random) -> list[bytes]:
    """Lines in which bytes are others, or missing."""
    data = bytearray(b"".join(lines))
    for _ in range(choose.choice((1, 3))):
        at = choose.randrange(len(data))
        data[at : at + choose.randrange(2)] = choose.randbytes(choose.randrange(3))
    return bytes(data).splitlines(keepends=True)


def through_a_pipe(lines: list[bytes]) -> Iterator[bytes]:
    """Lines as a reader of an agent gets them, until it has enough."""
    reading, writing = os.pipe()

    def write() -> None:
        try:
            with open(writing, "wb") as pipe:
                pipe.writelines(lines)
        except BrokenPipeError:
            return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with open(reading, "rb") as pipe:
            yield from pipe
    finally:
        writer.join()


def draw(frame: Frame) -> str:
    """All that is printed of a frame; more is in tests/tui."""
    return table(frame, 300.0) + topology_text(frame) + frame_json(frame)


def heard(lines: list[bytes]) -> tuple[str, SourceError | None]:
    """What is printed of lines that come through a pipe, and how they end."""
    assembler, said = Assembler(), ""
    try:
        for line in through_a_pipe(lines):
            message = assembler.read(line)
            said += draw(message) if isinstance(message, Frame) else ""
    except SourceError as error:
        return said, error
    return said, None


@pytest.mark.parametrize("harm", [bend, torn])
@pytest.mark.parametrize("lines", [lines_of(stream()), DEMO], ids=["small", "demo"])
def test_whatever_comes_can_be_drawn_or_is_one_error(
    lines: list[bytes], harm: Callable[[list[bytes], random.Random], list[bytes]]
) -> None:
    errors = set()
    for seed in range(100):
        said, error = heard(harm(lines, random.Random(seed)))
        assert said.replace("\n", "").isprintable()
        errors.add(error and str(error))
    assert None in errors
    assert len(errors) > 5
    assert all(error.isprintable() and len(error) < 400 for error in errors if error)


def test_texts_are_cleaned_wherever_they_are() -> None:
    hostile = replace(TRAIN, command=HOSTILE, user=HOSTILE, state=HOSTILE)
    openers = (DeviceHolder(pid=1, start_ticks=7, start_time=1.0, command=HOSTILE, reason="open"),)
    frame = replace(
        FRAME,
        host=replace(FRAME.host, name=HOSTILE),
        gpus=(replace(GPU, name=HOSTILE, holders=openers),),
        processes=(hostile,),
        driver_version="9" * 5000,
        links=None,
        topology=None,
    )
    [clean] = read(lines_of([HELLO, *Splitter().split(frame)]))
    assert isinstance(clean, Frame)
    [gpu], [process] = clean.gpus, clean.processes
    texts = (clean.host.name, gpu.name, gpu.holders[0].command, process.command, process.user,
             process.state)  # fmt: skip
    assert set(texts) == {"�[2J�31m����"}
    assert len(clean.driver_version or "") == MAX_TEXT
    assert process.cuda_context == TRAIN.cuda_context


def test_what_means_what_it_says_stays_so_and_has_a_bound() -> None:
    for verbatim in (Environ({"CUDA_VISIBLE_DEVICES": HOSTILE}), Probed(value=HOSTILE)):
        assert harmless(verbatim) is verbatim
    misspelt = Environ({"CUDA_VISIBLE_\u202eDEVICE": HOSTILE, "X" * 4000: "1"})
    assert harmless(misspelt).variables == {
        "CUDA_VISIBLE_\ufffdDEVICE": HOSTILE,
        "X" * 63 + "…": "1",
    }
    endless = Reply(request="p1", probed=(Probed(value="0," * 9999),))
    assert "a text of more than 8192 characters" in error_of(lines_of([HELLO, endless]))


def test_what_is_as_it_should_be_stays_so() -> None:
    for message in stream():
        assert harmless(message) == message


def test_a_line_that_is_harmless_by_its_bytes_would_not_be_changed() -> None:
    seen = set()
    for seed in range(200):
        for line in bend(lines_of(stream()), random.Random(seed)):
            message = msgspec.json.decode(line)
            is_clean = is_harmless(line)
            seen.add(is_clean)
            assert not is_clean or harmless(message) == message
    assert seen == {True, False}


@pytest.mark.parametrize(
    "value",
    [2**53 + 1, -(10**16), 1e16, 1e300, "\x7f", "\\", "é", "\u202e", "x" * (MAX_TEXT + 1), [9e99]],
)
def test_bytes_that_may_have_to_be_changed(value: Any) -> None:
    for inside in (value, [0, value], {"name": value}):
        assert not is_harmless(json.dumps(inside, ensure_ascii=False).encode())
    assert is_harmless(json.dumps([-(10**14), 0.25, "x" * 4000, None, {"a": True}]).encode())


def test_numbers_that_no_clock_takes() -> None:
    frame = replace(FRAME, time=1e300, processes=(replace(TRAIN, start_time=-1e300, rss=10**99),))
    [clean] = read(lines_of([HELLO, *Splitter().split(frame)]))
    assert isinstance(clean, Frame)
    [process] = clean.processes
    assert (clean.time, process.start_time, process.rss) == (MAX_NUMBER, -MAX_NUMBER, MAX_NUMBER)
    assert draw(clean)


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"links": (("X", "SYS"), ("SYS",))}, "a table of GPUs that is not square"),
        ({"topology": Topology(p2p=((False,), (True,)))}, "a table of GPUs that is not square"),
        ({"topology": Topology(usable_cpus=("0; reboot",))}, "CPUs that are no list of numbers"),
        ({"gpus": (replace(GPU, index=-1),)}, "an index that no driver has"),
    ],
)
def test_machines_that_cannot_be(values: dict[str, Any], error: str) -> None:
    assert error in error_of(lines_of([HELLO, *Splitter().split(replace(FRAME, **values))]))


def test_a_line_of_nothing_but_brackets() -> None:
    """A few megabytes of them would take a hundred times as much."""
    line = b'[0,{"kind":"hello","x":[' + b"{}," * (1 << 18) + b"{}]}]\n"
    assert "parts: its stream" in error_of([line])


@pytest.mark.parametrize("end", [b'"' + b"a" * 60, b'"' + b'\\"' * 60 + b"\\", b'","' * (1 << 18)])
def test_a_text_without_its_end(end: bytes) -> None:
    """To look for its end in every way there is would take days."""
    assert "its stream" in error_of([b"[" * ((1 << 18) + 1) + end + b"\n"])


@pytest.mark.long
def test_facts_have_a_bound_whatever_they_are_of() -> None:
    """Told again they count once."""
    assembler = Assembler()
    assembler.read(encode_line(0, HELLO))
    long = b'[%d,{"kind":"inventory","gpus":{"%d":{"index":0' + b" " * (15 << 20) + b"}}}]\n"
    lines = (long % (number, max(9, number)) for number in count(1))
    with pytest.raises(SourceError, match="more than 128 MiB of GPUs or processes"):
        all(assembler.read(line) is None for line in lines)
    assert assembler._number == 9 + MAX_INVENTORY // (15 << 20) + 1


def test_rows_that_have_left_do_not_count() -> None:
    assembler, splitter = Assembler(), Splitter()
    assembler.read(encode_line(0, HELLO))
    number = 1
    for turn in range(200):
        process = Process(pid=turn, command="x" * MAX_TEXT, user="y" * MAX_TEXT)
        for message in splitter.split(replace(FRAME, processes=(process,))):
            assembler.read(encode_line(number, message))
            number += 1
    assert len(assembler._processes._sizes) <= 2
