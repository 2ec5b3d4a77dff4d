"""What a hostile recording costs its reader: bytes, items and work have bounds."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from gputop.errors import GputopError
from gputop.model.machine.frame import Frame
from gputop.model.machine.sections import Power
from gputop.model.usage.count import count_frames
from gputop.model.usage.grouping import COLUMNS
from gputop.protocol.codec import encode_line
from gputop.protocol.messages import AgentMessage, Hello
from gputop.protocol.split import Splitter
from gputop.recording import reader
from gputop.recording.chunks import ChunkWriter
from gputop.recording.contents import recorded
from gputop.recording.datafile import MAX_HOSTS
from gputop.recording.entries import MAGIC, SIZE, IndexEntry, stream_of
from gputop.recording.reader import Recording
from tests.conftest import rest_long
from tests.limits import MIB, trouble_within
from tests.protocol.streams import FRAME, GPU, HELLO, TRAIN, lines_of
from tests.recording.made import EVERY, HOST, START, frames_from, index_of, read, write

pytestmark = pytest.mark.system


def record(payload: bytes, at: int, host: str = HOST, **fields: float) -> bytes:
    """A record at an offset, whose checksums fit unless `fields` say otherwise."""
    sizes = len(payload), zlib.crc32(payload)
    entry = IndexEntry(stream_of(host), START, at + SIZE, *sizes, 0)
    return entry._replace(**fields).pack() + payload  # type: ignore[arg-type]


def chunk(messages: Iterable[AgentMessage]) -> bytes:
    packer = zlib.compressobj(9)
    return packer.compress(b"".join(lines_of(messages))) + packer.flush(zlib.Z_SYNC_FLUSH)


@rest_long(("count", "chunks"), (16_000, 3), (1_500, 3))
def test_what_is_small_and_unpacks_to_much(count: int, chunks: int, tmp_path: Path) -> None:
    """Wide letters: four bytes in memory for one in the file. The second is no larger than any."""
    path, command = tmp_path / "bomb", "x" * 4000 + "\U0001f600"
    rows = [replace(TRAIN, pid=number, command=command) for number in range(1, count)]
    payload = chunk([HELLO, *Splitter().split(replace(FRAME, processes=tuple(rows)))])
    with path.open("wb") as file:
        for _ in range(chunks):
            file.write(record(payload, file.tell(), HELLO.host))
    assert path.stat().st_size < 4 * MIB

    def add_up() -> None:
        recording = Recording(path)
        frames = sum(1 for host in recording.hosts for _ in recording.frames(host))
        assert frames == (chunks if count < 2000 else 0)
        assert bool(recording.losses) == (count > 2000)

    assert trouble_within(add_up, 200 * MIB) == ""


def test_a_search_that_finds_nothing_ends(tmp_path: Path) -> None:
    """Checksums over megabytes for 48 bytes each; 10 GB of zeros; whole records far apart."""
    vain = b"".join(record(b"", n * SIZE, length=7 << 20, crc=1) for n in range(30_000))
    paths = [tmp_path / name for name in ("vain", "zeros", "apart")]
    paths[0].write_bytes(vain + bytes(8 << 20))
    paths[1].write_bytes(MAGIC)
    with paths[2].open("wb") as file:
        for at in range(0, 1000 << 24, 1 << 24):
            file.seek(at)
            file.write(record(b"", at))
    for path, size in zip(paths[1:], (10 << 30, 20 << 30), strict=True):
        os.truncate(path, size)
    for path in paths:

        def look(path: Path = path) -> None:
            assert "are damaged or cut off" in Recording(path).losses[-1]

        assert trouble_within(look, 200 * MIB, seconds=8) == ""


def test_what_follows_little_damage_is_found(tmp_path: Path) -> None:
    path, frames = tmp_path / "damaged", frames_from(START, 40)
    write(path, frames[:20])
    with path.open("ab") as file:
        file.write(MAGIC * 5000 + bytes(1 << 20))
    write(path, frames[20:])
    index_of(path).unlink()
    kept, [loss] = read(path)
    assert kept == frames
    assert loss == f"{5000 * 4 + (1 << 20)} bytes of damaged are damaged or cut off"


@pytest.mark.long
def test_what_starts_again_and_again_under_long_names_leaves_a_month() -> None:
    """Sixty processes of somebody, new in every sample, in the 2 GiB of --max-size."""
    writer, chance, size = ChunkWriter(HOST), Random(1), 0
    for frame in frames_from(START, 10):
        names = ["_".join(str(chance.random()) for _ in range(200)) for _ in range(60)]
        rows = [replace(TRAIN, pid=n + 1, user="bob", command=name, start_time=frame.time + n)
                for n, name in enumerate(names)]  # fmt: skip
        kept = recorded(replace(frame, processes=tuple(rows)), "script", "alice")
        size += len(writer.add(kept) or b"") + 2 * SIZE
    assert size / 10 * (30 * 86400 / EVERY) < 2 << 30


def test_more_hosts_than_anybody_has(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    with path.open("wb") as file:
        for number in range(MAX_HOSTS + 500):
            hello = Hello(oldest=2, newest=2, protocol=2, version="1", host=f"node{number}")
            payload = zlib.compressobj(1)
            data = payload.compress(encode_line(0, hello)) + payload.flush(zlib.Z_SYNC_FLUSH)
            file.write(record(data, file.tell(), hello.host))
    recording = Recording(path)
    assert len(recording.hosts) == MAX_HOSTS
    assert recording.losses == ("500 samples of hosts are of no known host",)


def test_more_files_than_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MOST_FILES", 2)
    for number in range(4):
        write(tmp_path / f"{number}.gputop", frames_from(START + 60 * number, 2))
    recording = Recording(tmp_path)
    assert len(recording.times(HOST)) == 4
    words = f"{tmp_path} has too much to be read at once: the oldest files are left out"
    assert recording.losses == (words,)


@pytest.mark.parametrize("protocol", [1, 9])
def test_what_another_version_recorded_is_refused_in_a_line(protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "other"
    hello = replace(HELLO, protocol=protocol, version="0.9\x1b")
    path.write_bytes(record(chunk([hello, *Splitter().split(FRAME)]), 0, HOST))
    words = f"{path} was recorded by gputop 0.9\ufffd in protocol {protocol}; this gputop reads 2-2"
    with pytest.raises(GputopError, match=re.escape(words)):
        Recording(path)
    write(path, frames_from(START, 3))  # what this gputop has appended is read
    assert read(path)[0] == frames_from(START, 3)


def test_a_name_that_is_not_its_streams_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "lies"
    write(path, frames_from(START, 3))
    data = path.read_bytes()
    payload = chunk([replace(HELLO, host="third"), *Splitter().split(FRAME)])
    path.write_bytes(data + record(payload, len(data), "other"))
    recording = Recording(path)
    assert recording.hosts == (HOST,)
    assert len(recording.times(HOST)) == 3
    assert recording.losses == ("1 sample of lies is of no known host",)


def test_what_is_said_of_damage_has_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "damaged"
    whole = chunk([replace(HELLO, host=HOST), *Splitter().split(FRAME)])
    data = record(whole, 0)
    path.write_bytes(data + b"".join(record(b"?", len(data) + n * (SIZE + 1)) for n in range(3000)))
    recording = Recording(path)
    assert len(list(recording.frames(HOST))) == 1
    assert len(recording.losses) == 1001
    assert recording.losses[-1] == "further samples cannot be read"


@pytest.mark.long
def test_names_that_change_with_every_frame_are_not_added_up_for_ever() -> None:
    """GPUs that come and go, as a recording may have them: a thousand in each frame."""

    def frames() -> Iterator[Frame]:
        for number in range(400):
            gpus = [
                replace(GPU, uuid=f"{number}-{n}" + "x" * 4000, power_more=Power(energy=1.0))
                for n in range(100)
            ]
            here = tuple(replace(TRAIN, pid=1, gpu_uuid=each.uuid) for each in gpus)
            frame = replace(FRAME, gpus=tuple(gpus), processes=here)
            yield replace(frame, time=EVERY * number, interval=EVERY)

    assert trouble_within(lambda: count_frames(frames()), 64 * MIB) == ""


def test_a_row_has_a_short_name() -> None:
    rows = (replace(TRAIN, user="u" * 4000), replace(TRAIN, pid=2, user="u" * 3000))
    frames = (
        replace(FRAME, processes=rows, time=9.0 * number, interval=9.0) for number in range(2)
    )
    [key] = count_frames(frames).alone
    assert key[COLUMNS.index("user")] == "u" * 256
