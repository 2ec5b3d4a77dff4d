"""Frames in chunks, in memory; what a hostile recording makes of its reader."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.errors import SourceError
from gputop.model.machine.text import printable
from gputop.protocol.codec import encode_line
from gputop.protocol.messages import Reply
from gputop.protocol.split import Splitter
from gputop.recording.chunks import MAX_FRAME, ChunkReader, ChunkWriter, hello_of
from gputop.recording.entries import MAGIC, SIZE, IndexEntry, stream_of
from gputop.recording.reader import Recording
from tests.protocol.streams import FRAME, HELLO, TRAIN, lines_of
from tests.recording.made import HOST, START, frames_from, index_of, read, write


def test_a_chunk_begins_with_all_and_goes_on_with_little() -> None:
    chunk, reader = ChunkWriter(HOST), ChunkReader()
    frames = frames_from(START, 60)
    payloads = [chunk.add(frame) or b"" for frame in frames]
    assert chunk.is_full
    assert sum(map(len, payloads[1:])) / 59 < len(payloads[0]) / 5
    for payload in payloads[:40]:
        reader.skip(payload)
    assert [reader.read(payload) for payload in payloads[40:]] == frames[40:]
    hello = hello_of(payloads[0])
    assert hello is not None
    assert hello.host == HOST


def packed(*lines: bytes) -> bytes:
    packer = zlib.compressobj()
    return packer.compress(b"".join(lines)) + packer.flush(zlib.Z_SYNC_FLUSH)


HELLO_LINE = encode_line(0, HELLO)
REPLY = Reply(request="x")
NUMBERLESS = b'[1,{"kind":"sample","time":1e999}]\n'
HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "nothing": (lambda: b"", "is empty"),
    "no zlib": (lambda: b"no zlib", "cannot be unpacked"),
    "no lines": (lambda: packed(), "is empty"),
    "many lines": (lambda: packed(b"\n" * 100_000), "too large"),
    "no sample": (lambda: packed(HELLO_LINE), "without its numbers"),
    "a reply": (
        lambda: packed(HELLO_LINE, encode_line(1, Reply(request="x"))),
        "without its numbers",
    ),
    "a wrong number": (
        lambda: packed(HELLO_LINE, encode_line(5, Reply(request="x"))),
        "sent line 5",
    ),
    "no number": (
        lambda: packed(HELLO_LINE, b'[1,{"kind":"sample","time":1e999}]\n'),
        "not a message",
    ),
    "nested": (lambda: packed(HELLO_LINE, b"[" * 100_000, b"\n"), "not a message"),
    "a bomb": (lambda: packed(bytes(MAX_FRAME.size + 1)), "too large"),
    "many parts": (lambda: packed(b"[" * (MAX_FRAME.parts + 1)), "too large"),
    "many values": (lambda: packed(b"," * (MAX_FRAME.values + 1)), "too large"),
    "no end": (lambda: packed(bytes(MAX_FRAME.size - 1)), "in the middle of a line"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_payload_that_is_none(name: str, tmp_path: Path) -> None:
    make, words = HOSTILE[name]
    payload = make()
    with pytest.raises(SourceError, match=words):
        ChunkReader().read(payload)
    path = tmp_path / "hostile"
    put(path, payload)
    recording = Recording(path)
    for host in recording.hosts:
        assert recording.at(host, START) is None
        assert list(recording.frames(host)) == []
    assert len(recording.losses) == 1


def put(path: Path, payload: bytes, **fields: float) -> None:
    """Write a recording of one record, whose checksums fit."""
    entry = IndexEntry(stream_of(HOST), START, SIZE, len(payload), zlib.crc32(payload), 0)
    entry = entry._replace(**fields)  # type: ignore[arg-type]
    path.write_bytes(entry.pack() + payload)
    index_of(path).write_bytes(entry.pack())


@pytest.mark.parametrize(
    "fields",
    [
        {"time": float("nan")}, {"time": -1.0}, {"time": 1e300},
        {"length": 1 << 31}, {"offset": 1 << 63}, {"position": 7},
        {"offset": 0},
    ],
)  # fmt: skip
def test_an_index_that_lies(fields: dict[str, float], tmp_path: Path) -> None:
    path = tmp_path / "lies"
    put(path, ChunkWriter(HOST).add(FRAME) or b"", **fields)
    recording = Recording(path)
    for host in recording.hosts:
        assert list(recording.frames(host)) == []
    assert recording.losses != ()


def test_texts_of_a_recording_are_made_harmless(tmp_path: Path) -> None:
    path = tmp_path / "evil"
    hello = replace(HELLO, host="node\x1b]0;owned\x07\u202e" * 100)
    evil = replace(FRAME, processes=(replace(TRAIN, command="rm\x1b[2J\n" * 2000),))
    lines = lines_of([hello, *Splitter().split(evil)])
    put(path, packed(*lines), stream=stream_of(printable(hello.host, 255)))
    recording = Recording(path)
    [host] = recording.hosts
    [frame] = recording.frames(host)
    texts = [host, frame.host.requested_name, frame.processes[0].command]
    assert all(text and text.isprintable() for text in texts)
    assert len(host) == 255


@pytest.mark.long
def test_magic_words_all_over(tmp_path: Path) -> None:
    path = tmp_path / "magic"
    write(path, frames_from(START, 3))
    index_of(path).unlink()
    data = path.read_bytes()
    lie = struct.pack("<4s44s", MAGIC, bytes(44))
    path.write_bytes(MAGIC * 100_000 + data)
    assert read(path)[0] == []  # their places are not those that they tell
    path.write_bytes(data + MAGIC * 100_000 + lie * 1000)
    frames, [loss] = read(path)
    assert frames == frames_from(START, 3)
    assert loss.startswith(f"{100_000 * 4 + 1000 * 48} bytes")
