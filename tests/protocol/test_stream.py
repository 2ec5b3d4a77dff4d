"""Whatever an agent sends: frames, or one clear error; never a traceback or a growing memory."""

from __future__ import annotations

import json
import random
import sys
import tracemalloc
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.errors import SourceError
from gputop.model.machine.environment import CudaContext
from gputop.model.machine.frame import Frame, Process
from gputop.model.machine.gpu import Gpu
from gputop.protocol.assemble import Assembler
from gputop.protocol.codec import decode_request, encode_line
from gputop.protocol.messages import InventoryUpdate, Refresh, Reply
from gputop.protocol.split import Splitter
from gputop.sources.demo.source import demo_frame
from tests.protocol.streams import FRAME, HELLO, TRAIN, lines_of, read, stream

LINES = lines_of(stream())


def error_of(lines: list[bytes]) -> str:
    """What a reader says of lines; it is fit to print."""
    with pytest.raises(SourceError) as raised:
        read(lines)
    text = str(raised.value)
    assert text.isprintable()
    assert len(text) < 400
    return text


def test_a_line_that_is_cut() -> None:
    for number, line in enumerate(LINES):
        for end in (0, 1, len(line) // 2, len(line) - 2):
            assert "not a message" in error_of([*LINES[:number], line[:end] + b"\n"])
        assert "in the middle of a line" in error_of([*LINES[:number], line[:-1]])


def test_a_line_that_comes_twice() -> None:
    for number, line in enumerate(LINES):
        error = error_of([*LINES[: number + 1], line, *LINES[number + 1 :]])
        assert f"sent line {number} in place of line {number + 1}: its stream" in error


def test_a_line_that_is_missing_or_late() -> None:
    for number, line in enumerate(LINES[:-1]):
        rest = LINES[number + 1 :]
        assert f"in place of line {number}" in error_of([*LINES[:number], *rest])
        assert f"in place of line {number}" in error_of([*LINES[:number], rest[0], line, *rest[1:]])


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"hello\n",
        b"null\n",
        b"[]\n",
        b"[1]\n",
        b'{"schema":1,"version":"1.0"}\n',
        b'[0,{"kind":"sample","time":1}]\n',
        b'[0,{"kind":"reboot"}]\n',
        b'[0,{"kind":"hello"}]\n',
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        b'[0,{"kind":"hello","x":' + b"[" * 100_000 + b"\n",
        b"1" * 10_000 + b"\n",
        b"\0\x1b[2J\n",
    ],
    ids=lambda line: repr(line[:20]),
)
def test_a_first_line_that_is_no_greeting(line: bytes) -> None:
    error_of([line])


def test_what_cannot_be_follows_a_greeting() -> None:
    assert "before the machine's inventory" in error_of(lines_of([HELLO, stream()[-1]]))
    assert "started again" in error_of(lines_of([HELLO, HELLO]))


@pytest.mark.parametrize(
    ("where", "value", "error"),
    [
        (("gpus", "id"), [1], "sent 2 numbers for 1 rows"),
        (("gpus", "id"), [1, 1], "the same twice"),
        (("gpus", "id"), [1, 99], "not in its inventory"),
        (("gpus", "id"), [1, [2]], "not in its inventory"),
        (("gpus", "id"), 7, "without the ids of their rows"),
        (("gpus", "utilization"), [0.5, "much"], "numbers that are none"),
        (("gpus", "utilization"), [[0.5]] * 2, "numbers that are none"),
        (("gpus", "utilization"), [0.5] * 3, "sent 3 numbers for 2 rows"),
        (("gpus", "throttle.reasons"), [1, 2], "numbers that are none"),
        (("gpus", "nvlink.tx"), [0.5] * 3, "sent 3 numbers for 2 rows"),
        (("gpus", "temperature.x"), [1, 2], ""),
        (("gpus", "x.y.z"), {"a": []}, ""),
        (("gpus", "x"), None, ""),
        (("gpus", "state"), [None, "answers"], "numbers that are none"),
        (("gpus", "state"), None, "numbers that are none"),
        (("gpus", "state"), "gone", "numbers that are none"),
        (("gpus", "throttle.lasting"), None, "numbers that are none"),
        (("gpus", "throttle.lasting"), [None, None], "numbers that are none"),
        (("gpus", "throttle.lasting"), [[], None], ""),  # the second GPU has no such section
        (("gpus", "memory_used"), 0.5, "numbers that are none"),
        (("processes", "id"), [1, 2, 3], "not in its inventory"),
        (("processes", "cpu"), [0.5] * 3, "sent 3 numbers for 2 rows"),
        (("processes", "cpu"), "fast", "numbers that are none"),
        (("processes", "cpu"), [0.5, "fast"], "numbers that are none"),
        (("processes", "state"), 4, "numbers that are none"),
        (("processes", "id"), {"1": 2}, "without the ids of their rows"),
        (("processes", "id"), [1, "2"], "not in its inventory"),
        (("processes", "x"), [1], ""),
        (("time",), "now", "not a message"),
        (("time",), None, "not a message"),
    ],
)  # fmt: skip
def test_columns_that_cannot_be(where: tuple[str, ...], value: Any, error: str) -> None:
    """Those that are not known are ignored."""
    lines = lines_of([HELLO, *Splitter().split(FRAME)])
    number, sample = json.loads(lines[-1])
    inside = sample
    for name in where[:-1]:
        inside = inside[name]
    inside[where[-1]] = value
    lines[-1] = json.dumps([number, sample]).encode() + b"\n"
    if error:
        assert error in error_of(lines)
    else:
        assert read(lines) == [FRAME]


def test_columns_that_are_not_declared_take_nothing() -> None:
    """A line of 175 KB took 4 s and 140 MB: a value for each of 1,024 GPUs."""
    gpus = tuple(Gpu(index=n) for n in range(1024))
    lines = lines_of([HELLO, *Splitter().split(replace(FRAME, gpus=gpus, processes=()))])
    number, sample = json.loads(lines[-1])
    sample["gpus"] |= {f"x{n}": 0 for n in range(17_000)} | {"power_more.x": 0}
    lines[-1] = json.dumps([number, sample]).encode() + b"\n"
    assembler = Assembler()
    for line in lines[:-1]:
        assembler.read(line)
    tracemalloc.start()
    frame = assembler.read(lines[-1])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(frame, Frame)
    assert frame.gpus == gpus
    assert peak < 16 << 20


def test_brackets_in_texts_are_no_parts() -> None:
    """A user fills the commands of a few hundred processes with them."""
    texts = "[" * 4000, '{"' * 2000, "\\" * 999 + '"[{', '","' * 1300
    processes = tuple(replace(TRAIN, pid=n, command=texts[n % 4]) for n in range(1, 257))
    frame = replace(FRAME, processes=processes)
    assert read(lines_of([HELLO, *Splitter().split(frame)])) == [frame]


VALUES: tuple[Any, ...] = (
    None, True, -1, 10**30, 1e308, "", "\x1b[2J" * 99, [], [None], {}, {"x": [{}]}, [[[[]]]]
)  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_values_of_any_type_anywhere(seed: int) -> None:
    choose = random.Random(seed)
    for _ in range(50):
        lines = list(LINES)
        number = choose.randrange(len(lines))
        message = json.loads(lines[number])
        inside, key = choose.choice(list(_leaves(message)))
        inside[key] = choose.choice(VALUES)
        lines[number] = json.dumps(message).encode() + b"\n"
        try:
            said = "".join(map(_kind, read(lines)))
        except SourceError as error:
            said = str(error)
        assert said.isprintable()
        assert len(said) < 400


def _kind(told: Frame | Reply) -> str:
    return type(told).__name__


def _leaves(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a message, as what holds it and the key or index."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(entries):
        yield value, key
        if isinstance(inner, dict | list):
            yield from _leaves(inner)


@pytest.mark.long
def test_inventories_without_end_do_not_fill_the_memory() -> None:
    assembler = Assembler()
    assembler.read(encode_line(0, HELLO))
    lines = (
        encode_line(n, InventoryUpdate(processes={1000 * n + k: TRAIN for k in range(1000)}))
        for n in count(1)
    )
    tracemalloc.start()
    with pytest.raises(SourceError, match="reported more than 128 MiB of GPUs or processes"):
        any(map(assembler.read, lines))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 256 << 20


@pytest.mark.parametrize("comma", [b'","', b'" ,"'])  # JSON may have blanks
def test_facts_of_short_texts_have_a_bound_in_memory(comma: bytes) -> None:
    """64 MiB of them took 800."""
    assembler = Assembler()
    assembler.read(encode_line(0, HELLO))
    texts = ("ab",) * 250_000
    process = replace(TRAIN, cuda_context=CudaContext(frameworks=texts))
    lines = (encode_line(n, InventoryUpdate(processes={n: process})) for n in count(1))
    with pytest.raises(SourceError, match="reported more than 128 MiB"):
        any(assembler.read(line.replace(b'","', comma)) for line in lines)
    assert len(assembler._processes.facts) * len(texts) * sys.getsizeof("ab") < 256 << 20


def test_what_has_left_the_machine_is_forgotten() -> None:
    """By the agent and by the reader: it may come back, under another id."""
    splitter, assembler = Splitter(), Assembler()
    assembler.read(encode_line(0, HELLO))
    number = 1
    for turn in range(50):
        processes = tuple(replace(TRAIN, pid=turn * 100 + n) for n in range(100))
        for frame in (replace(FRAME, processes=processes), replace(FRAME, gpus=(), processes=())):
            for message in splitter.split(frame):
                made = assembler.read(encode_line(number, message))
                number += 1
            assert made == frame
    assert len(assembler._processes.facts) == len(splitter._processes.sent) == 0


def test_what_does_not_change_is_sent_once() -> None:
    splitter = Splitter()
    first, again = list(splitter.split(FRAME)), list(splitter.split(replace(FRAME, time=1.0)))
    assert [len(first), len(again)] == [3, 1]
    renamed = replace(FRAME, processes=(replace(TRAIN, command="renamed"), FRAME.processes[1]))
    inventory, _ = splitter.split(renamed)
    assert isinstance(inventory, InventoryUpdate)
    assert [process.command for process in inventory.processes.values()] == ["renamed"]
    assert (inventory.machine, inventory.gpus) == (None, {})


@pytest.mark.parametrize(("processes", "most"), [(200, 25_000), (1000, 90_000)])
def test_a_second_fits_into_the_budget(processes: int, most: int) -> None:
    """On 8 GPUs of which all say all, with numbers as long as they get."""
    dice = random.Random(0)

    def number() -> float:
        return round(dice.random() * 10, 4)

    def process(pid: int) -> Process:
        ratios = {name: number() for name in Process.__annotations__ if name != "state"}
        whole = {name: dice.randrange(10**11, 10**12) for name in ("gpu_memory", "rss")}
        return replace(TRAIN, pid=pid, **{**ratios, **whole, "threads": 4096, "state": "R"})

    splitter, demo = Splitter(), demo_frame(1.7e9)
    frame = replace(demo, processes=tuple(map(process, range(processes))))
    list(splitter.split(frame))
    [sample] = splitter.split(frame)
    assert len(encode_line(10**6, sample)) < most


def test_two_gpus_that_a_driver_gives_one_uuid() -> None:
    twin = replace(FRAME.gpus[0], index=1)
    frame = replace(FRAME, gpus=(FRAME.gpus[0], twin), processes=(TRAIN, TRAIN))
    assert read(lines_of([HELLO, *Splitter().split(frame)])) == [frame]


def test_unknown_fields_of_a_request_are_ignored() -> None:
    """A newer reader may send more."""
    assert decode_request(b'{"request":"refresh","why":"just so"}') == Refresh()
