"""The last minutes of a stream: what was read can be read again, and only that."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterable, Sequence

import pytest
from msgspec import Raw
from msgspec.structs import replace

from gputop.model.machine.frame import Frame, ProcessFacts
from gputop.model.machine.gpu import Gpu
from gputop.protocol.assemble import Assembler
from gputop.protocol.codec import encode, encode_line
from gputop.protocol.messages import AgentMessage, InventoryUpdate, Sample
from gputop.protocol.recent import RecentFrames
from gputop.protocol.split import Splitter
from tests.protocol.streams import EARLY, FRAME, HELLO, IDLER, REPLIES, TRAIN

BEGIN = FRAME.time


def minute(count: int = 100) -> list[Frame]:
    """A frame a second, in which processes come, go and are renamed."""
    return [
        replace(
            FRAME,
            time=BEGIN + second,
            gpus=tuple(replace(gpu, utilization=second / 100) for gpu in FRAME.gpus),
            processes=(
                replace(TRAIN, command=f"train.py {second // 40}", cpu=second / 10),
                *(replace(IDLER, pid=pid) for pid in range(40, 90) if pid <= second < pid + 7),
            ),
        )
        for second in range(count)
    ]


def remembered(frames: Sequence[Frame], recent: RecentFrames | None = None) -> RecentFrames:
    """What is kept of a stream of these frames, which has a preview and replies, too."""
    splitter, recent = Splitter(), recent or RecentFrames()
    messages: list[AgentMessage] = [HELLO, *splitter.split(EARLY)]
    for frame in frames:
        messages += [*splitter.split(frame), REPLIES[2]]
    remember(recent, Assembler(), (encode_line(*pair) for pair in enumerate(messages)))
    return recent


def remember(recent: RecentFrames, assembler: Assembler, lines: Iterable[bytes]) -> None:
    for line in lines:
        recent.add(line, assembler.read(line), assembler)


def test_every_frame_comes_again_as_it_was() -> None:
    frames = minute()
    recent = remembered(frames)
    assert recent.times == [frame.time for frame in frames]
    assert list(recent.frames(0, 1e12)) == frames
    assert [recent.at(frame.time + 0.5) for frame in reversed(frames)] == frames[::-1]
    assert list(recent.frames(BEGIN + 30, BEGIN + 70)) == frames[30:71]
    assert (recent.at(BEGIN - 1), list(recent.frames(0, BEGIN - 1))) == (None, [])


def test_a_carriage_return_ends_no_line() -> None:
    """JSON has it as white space, which an agent in another language may write."""
    frames = minute(3)
    recent, splitter = RecentFrames(), Splitter()
    messages = [HELLO, *(message for frame in frames for message in splitter.split(frame))]
    lines = (encode_line(*pair).replace(b",", b",\r", 1) for pair in enumerate(messages))
    remember(recent, Assembler(), lines)
    assert list(recent.frames(0, 1e12)) == frames


def test_replies_are_not_kept() -> None:
    """They have environments in them."""
    recent, line = RecentFrames(), encode_line(0, REPLIES[2])
    remembered(minute(3), recent)
    assert all(line[3:20] not in kept for kept in _lines(recent))


def _lines(recent: RecentFrames) -> list[bytes]:
    import zlib

    return [zlib.decompressobj().decompress(b"".join(batch.parts)) for batch in recent._batches]


def test_it_begins_in_the_middle_of_a_stream() -> None:
    frames, splitter, assembler = minute(50), Splitter(), Assembler()
    messages = [HELLO, *(message for frame in frames for message in splitter.split(frame))]
    lines = [encode_line(*pair) for pair in enumerate(messages)]
    recent = RecentFrames()
    for line in lines[:30]:
        assembler.read(line)
    remember(recent, assembler, lines[30:])
    kept = list(recent.frames(0, 1e12))
    assert 20 < len(kept) < 50
    assert kept == frames[-len(kept) :]


def test_time_and_bytes_have_a_bound() -> None:
    times = remembered(minute(), RecentFrames(seconds=20)).times
    assert 20 <= len(times) <= 20 + 2 * 32
    recent = remembered(minute(), RecentFrames(most=1000))
    assert recent.size < 4000
    assert recent.times[-1] == BEGIN + 99


def grown(recent: RecentFrames, messages: Iterable[AgentMessage]) -> int:
    """The bytes of memory that messages of a host leave behind, at their peak."""
    assembler = Assembler()
    begin = list(enumerate([HELLO, *Splitter().split(FRAME)]))
    remember(recent, assembler, (encode_line(*pair) for pair in begin))
    lines = [encode_line(*pair) for pair in enumerate(messages, len(begin))]
    tracemalloc.start()
    remember(recent, assembler, lines)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.long
def test_facts_without_frames_do_not_grow() -> None:
    """And a step back does not unpack them all: an open screen grew by 2.6 MB/s."""
    texts = [random.Random(n).randbytes(2000).hex() for n in range(25)]
    rows: dict[int, ProcessFacts] = {
        n: replace(TRAIN, command=text) for n, text in enumerate(texts)
    }
    recent = RecentFrames()
    assert grown(recent, [InventoryUpdate(processes=rows)] * 400) < 12 << 20
    assert sum(batch.unpacked for batch in recent._batches) < 9 << 20


@pytest.mark.long
def test_facts_that_change_without_end_do_not_grow() -> None:
    """They are few bytes, compressed, but each reader of a batch keeps its own."""
    rows = {n: ProcessFacts(n) for n in range(1, 1001)}
    sample = Sample(time=FRAME.time + 1, processes={"id": Raw(encode(list(rows)))})
    recent = RecentFrames(most=1 << 20)
    messages: list[AgentMessage] = [InventoryUpdate(processes=rows), *[sample] * 32] * 20
    assert grown(recent, messages) < 7 << 20
    assert recent.at(sample.time) is not None


def test_a_step_back_costs_few_rows() -> None:
    gpus = tuple(Gpu(index=n, uuid=f"GPU-{n}") for n in range(1024))
    frames = [replace(FRAME, time=BEGIN + n, gpus=gpus, processes=()) for n in range(9)]
    recent = remembered(frames)
    assert list(recent.frames(0, 1e12)) == frames
    assert max(len(batch.times) for batch in recent._batches) <= 2


def test_a_clock_that_was_put_back_begins_anew() -> None:
    frames = [*minute(5), *minute(3)]
    recent = remembered(frames)
    assert list(recent.frames(0, 1e12)) == frames[5:]
