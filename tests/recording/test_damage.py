"""Recordings that were cut, or of which bytes were changed: what is there is read, what is not is
told."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gputop.errors import GputopError
from gputop.model.machine.frame import Frame
from gputop.model.machine.text import date_time
from gputop.recording.entries import SIZE, Entries
from gputop.recording.reader import Recording
from tests.conftest import rest_long
from tests.recording.made import START, frames_from, index_of, read, write

FRAMES = frames_from(START, 70)
"""More than a chunk has."""


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    path = tmp_path / "whole.gputop"
    write(path, FRAMES)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "part.gputop"


def test_nothing_is_lost_of_a_whole_one(whole: Path) -> None:
    assert read(whole) == (FRAMES, ())


@pytest.mark.long
def test_a_thousand_cuts(whole: Path, path: Path) -> None:
    data, index = whole.read_bytes(), index_of(whole).read_bytes()
    ends = [Entries(index)[n].offset + Entries(index)[n].length for n in range(len(FRAMES))]
    chance = random.Random(1)
    for cut in (0, 1, SIZE, ends[0], *(chance.randrange(len(data)) for _ in range(996))):
        readable = sum(end <= cut for end in ends)
        path.write_bytes(data[:cut])
        index_of(path).write_bytes(index)
        recording = Recording(path)
        count = len(recording.times("node-07")) if recording.hosts else 0
        assert count == readable, cut
        lost = "1 sample is" if readable == 69 else f"{70 - readable} samples are"
        assert recording.losses[-1] == f"{lost} cut off part.gputop"
        assert (len(recording.losses) == 2) == (cut not in {0, *ends}), cut
        if readable:
            assert recording.at("node-07", 1e10) == FRAMES[readable - 1]


def test_where_the_index_is_cut_nothing_is_lost(whole: Path) -> None:
    index = index_of(whole).read_bytes()
    for cut in range(0, len(index), 101):
        index_of(whole).write_bytes(index[:cut])
        assert list(Recording(whole).times("node-07")) == [frame.time for frame in FRAMES]
        assert Recording(whole).losses == ()
    index_of(whole).unlink()
    assert read(whole) == (FRAMES, ())


@rest_long(("has_index", "flips"), (True, 30), (True, 100), (False, 100))
def test_flipped_bytes_of_the_data(whole: Path, path: Path, has_index: bool, flips: int) -> None:
    """None is passed over but where the index tells the same as the data."""
    data, chance = whole.read_bytes(), random.Random(2)
    entries = map(Entries(index_of(whole).read_bytes()).__getitem__, range(len(FRAMES)))
    payload = {entry.offset + k for entry in entries for k in range(entry.length)}
    if has_index:
        index_of(path).write_bytes(index_of(whole).read_bytes())
    for _ in range(flips):
        at = chance.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ chance.randrange(1, 256)]) + data[at + 1 :])
        frames, losses = read(path)
        assert is_part_of(frames, FRAMES)
        assert bool(losses) or (frames == FRAMES and at not in payload)


def is_part_of(part: list[Frame], whole: list[Frame]) -> bool:
    rest = iter(whole)
    return all(frame in rest for frame in part)


def test_flipped_bytes_of_the_index(whole: Path) -> None:
    index, chance = index_of(whole).read_bytes(), random.Random(3)
    for _ in range(100):
        at = chance.randrange(len(index))
        index_of(whole).write_bytes(index[:at] + bytes([index[at] ^ 0x55]) + index[at + 1 :])
        recording = Recording(whole)
        assert (len(recording.times("node-07")), recording.losses) == (70, ())


def test_what_is_damaged_ends_with_its_chunk(whole: Path) -> None:
    data = bytearray(whole.read_bytes())
    entry = Entries(index_of(whole).read_bytes())[40]
    data[entry.offset + 3] ^= 1
    whole.write_bytes(data)
    frames, losses = read(whole)
    assert frames == FRAMES[:40] + FRAMES[60:]
    [loss] = losses
    assert loss.startswith(f"20 samples of node-07 from {date_time(FRAMES[40].time)} on")
    recording = Recording(whole)
    assert recording.at("node-07", FRAMES[55].time) == FRAMES[39]
    assert recording.losses == losses


@pytest.mark.parametrize("has_index", [True, False])
def test_a_recorder_goes_on_after_a_killed_one(path: Path, has_index: bool) -> None:
    write(path, FRAMES[:10])
    with path.open("rb+") as file, index_of(path).open("rb+") as index:
        file.truncate(path.stat().st_size - 5)
        index.truncate(index_of(path).stat().st_size - 5)
    write(path, FRAMES[10:])
    if not has_index:
        index_of(path).unlink()
    frames, [loss] = read(path)
    assert frames == FRAMES[:9] + FRAMES[10:]
    assert loss.endswith(" bytes of part.gputop are damaged or cut off")


def test_one_day_that_cannot_be_read_is_a_loss(whole: Path) -> None:
    (whole.parent / "pipe.gputop").symlink_to("/dev/zero")
    (whole.parent / "text.gputop").write_text("no recording")
    frames, losses = read(whole.parent)
    assert (frames, losses) == (
        FRAMES,
        (f"{whole.parent}/pipe.gputop cannot be read: no regular file",),
    )


def test_what_is_no_recording(tmp_path: Path, path: Path) -> None:
    path.write_text("GPU 0 was busy\n")
    for wrong in (path, tmp_path / "none", tmp_path, Path("/dev/zero")):
        with pytest.raises(GputopError) as error:
            Recording(wrong)
        assert str(wrong) in str(error.value)
        assert "\n" not in str(error.value)
