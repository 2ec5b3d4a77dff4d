"""What a recorder writes, where, and what it deletes."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import resource
import signal
import threading
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.errors import GputopError
from gputop.model.machine.frame import Frame
from gputop.model.machine.text import size
from gputop.recording.days import day_file
from gputop.recording.reader import Recording
from gputop.recording.writer import Limits, RecordingWriter, host_writers
from tests.conftest import in_child, needs_root, rest_long
from tests.protocol.streams import FRAME, TRAIN
from tests.recording.made import (
    EVERY,
    HOST,
    START,
    Clock,
    frame_at,
    frames_from,
    index_of,
    read,
    write,
)

DAY = 86400.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "new" / "recordings"


def record_days(folder: Path, days: int, limits: Limits, samples: int = 3) -> list[str]:
    """Record a few samples a day; the files that are there at the end."""
    clock = Clock()
    writer = RecordingWriter(f"{folder}/", EVERY, limits, clock=clock, uptime=clock)
    for day in range(days):
        for frame in frames_from(START + DAY * day, samples):
            clock.now = frame.time
            writer.append(HOST, frame)
    writer.close()
    return sorted(path.name for path in folder.iterdir())


def test_a_file_a_day_for_its_user_alone(folder: Path) -> None:
    names = record_days(folder, 3, Limits())
    assert names == [f"2026-11-{day}.gputop{end}" for day in (22, 23, 24) for end in ("", ".index")]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in (folder, folder.parent)} == {0o700}
    recording = Recording(folder)
    assert recording.span(HOST) == (START, START + 2 * DAY + 2 * EVERY)
    assert list(recording.times(HOST)) == [
        START + day * DAY + sample * EVERY for day in range(3) for sample in range(3)
    ]
    assert list(recording.frames(HOST, START + DAY, START + DAY + EVERY)) == frames_from(
        START + DAY, 2
    )


def test_old_days_are_deleted_and_nothing_else(folder: Path) -> None:
    folder.mkdir(parents=True, mode=0o700)
    others = {"notes.gputop": b"mine", "2020-01-01.gputop": b"not one", "2020-01-02.txt": b"gpR1"}
    for name, data in others.items():
        (folder / name).write_bytes(data)
    (folder / "2020-01-03.gputop").symlink_to("notes.gputop")
    kept = record_days(folder, 5, Limits(keep=2 * DAY))
    days = {name for name in kept if name.endswith(".gputop") and name.startswith("2026")}
    assert days == {f"2026-11-{day}.gputop" for day in (23, 24, 25, 26)} - {"2026-11-23.gputop"}
    assert {*others, "2020-01-03.gputop"} < set(kept)


def recorder(
    folder: Path, clock: Clock, uptime: Clock, limits: Limits, said: list[str]
) -> RecordingWriter:
    return RecordingWriter(f"{folder}/", EVERY, limits, said.append, clock, uptime=uptime)


def record_at(writer: RecordingWriter, clock: Clock, uptime: Clock, *times: float) -> None:
    """Append a frame at each time of the clock, which runs as the machine does."""
    for when in times:
        uptime.now += when - clock.now
        clock.now = when
        writer.append(HOST, frame_at(when))


def days_of(folder: Path) -> list[str]:
    return sorted(path.name[5:10] for path in folder.iterdir() if path.suffix == ".gputop")


def test_a_clock_that_is_ahead_deletes_nothing(folder: Path) -> None:
    record_days(folder, 3, Limits())
    limits, said = Limits(keep=10 * DAY), list[str]()
    clock, uptime = Clock(START + 400 * DAY), Clock(0)
    writer = recorder(folder, clock, uptime, limits, said)
    record_at(writer, clock, uptime, *(clock.now + hour * 3600 for hour in range(30)))
    assert len(days_of(folder)) == 5
    assert {"11-22", "11-23", "11-24"} < set(days_of(folder))
    assert said == []
    clock.now = START + 3 * DAY  # the clock is mended
    writer.append(HOST, frame_at(clock.now))
    assert {"11-22", "11-23", "11-24", "11-25"} < set(days_of(folder))
    writer.close()


@pytest.mark.parametrize("is_set", [False, True])
def test_nothing_is_deleted_in_the_hour_after_a_start_or_a_jump(is_set: bool, folder: Path) -> None:
    record_days(folder, 6, Limits())
    said = list[str]()
    clock, uptime = Clock(START + 6 * DAY), Clock(0)
    writer = recorder(folder, clock, uptime, Limits(keep=2 * DAY), said)
    record_at(writer, clock, uptime, *(clock.now + minute * 60 for minute in range(59)))
    if is_set:
        clock.now += 300
        record_at(writer, clock, uptime, *(clock.now + minute * 60 for minute in range(59)))
    assert (len(days_of(folder)), said) == (7, [])
    record_at(writer, clock, uptime, clock.now + 120)
    assert days_of(folder) == ["11-26", "11-27", "11-28"]
    assert said == [f"deleted 4 days of {folder}, 2026-11-22 to 2026-11-25 (--keep 2d)"]
    writer.close()


def test_a_suspend_is_no_jump(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record_days(folder, 6, Limits())
    clock = Clock(START + 6 * DAY)
    monkeypatch.setattr(time, "clock_gettime", lambda _: clock.now)
    writer = RecordingWriter(f"{folder}/", EVERY, Limits(keep=2 * DAY), clock=clock)
    for seconds in (0, 7200):
        clock.now += seconds
        writer.append(HOST, frame_at(clock.now))
    assert days_of(folder) == ["11-26", "11-27", "11-28"]
    writer.close()


def test_the_oldest_days_go_for_their_size(folder: Path) -> None:
    most = 3 * 3000
    names = record_days(folder, 6, Limits(size=most), samples=12)
    sizes = sum((folder / name).stat().st_size for name in names)
    assert sizes <= most + 300  # a sample
    assert names[-1] == "2026-11-27.gputop.index"
    assert 2 < len(names) < 12


def test_a_size_that_does_not_hold_what_is_to_be_kept_is_said_once(folder: Path) -> None:
    record_days(folder, 2, Limits(), samples=12)
    each = sum(path.stat().st_size for path in folder.iterdir()) / 2
    clock, uptime, said = Clock(START + 2 * DAY), Clock(0), list[str]()
    limits = Limits(keep=30 * DAY, size=4.5 * each)
    writer = recorder(folder, clock, uptime, limits, said)
    record_at(writer, clock, uptime, *(clock.now + day * DAY for day in range(2)))
    text = f"--max-size {size(int(limits.size))} holds about 4 days of {folder}, not --keep 30d"
    assert said == [text]
    writer.close()


def test_where_today_alone_is_too_much_it_waits_for_tomorrow(folder: Path) -> None:
    said: list[str] = []
    clock = Clock()
    writer = RecordingWriter(f"{folder}/", EVERY, Limits(size=4096), said.append, clock)
    for frame in [*frames_from(START, 40), frame_at(START + DAY)]:
        clock.now = frame.time
        writer.append(HOST, frame)
    assert said == [
        f"{folder} has reached --max-size 4K; nothing is recorded until tomorrow",
        f"deleted 1 day of {folder}, 2026-11-22 (--max-size 4K)",
        f"writing to {folder} again",
    ]
    assert list(Recording(folder).times(HOST))[-1] == START + DAY


def test_one_file_ends_where_it_is_full(tmp_path: Path) -> None:
    writer = RecordingWriter(str(tmp_path / "x"), EVERY, Limits(size=4096))
    with pytest.raises(GputopError, match="x has reached --max-size 4K: give another file"):
        append_all(writer, 40)
    assert len(Recording(tmp_path / "x").times(HOST)) > 5
    writer.close()
    with pytest.raises(GputopError, match="x has reached --max-size 4K: give another file"):
        RecordingWriter(str(tmp_path / "x"), EVERY, Limits(size=4096))


def append_all(writer: RecordingWriter, count: int) -> None:
    for frame in frames_from(START, count):
        writer.append(HOST, frame)


def test_several_hosts_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "two"
    writer = RecordingWriter(str(path), EVERY)
    for frame in frames_from(START, 70):
        writer.append("node1", frame)
        writer.append("node2", replace(frame, time=frame.time + 1))
    recording = Recording(path)
    assert recording.hosts == ("node1", "node2")
    for host, start in (("node1", START), ("node2", START + 1)):
        frames = list(recording.frames(host))
        assert [frame.time for frame in frames] == [start + EVERY * k for k in range(70)]
        assert {frame.host.requested_name for frame in frames} == {host}
        assert recording.at(host, start - 0.5) is None
        assert recording.at(host, start + 305) == frames[30]
        assert recording.at(host, start + 295) == frames[29]


def test_what_is_written_can_be_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "live"
    writer = RecordingWriter(str(path), EVERY)
    frames = frames_from(START, 65)
    for frame in frames:
        writer.append(HOST, frame)
        recording = Recording(path)
        assert recording.at(HOST, 1e10) == frame
        assert recording.losses == ()


def test_a_clock_that_is_set_back(tmp_path: Path) -> None:
    path, said = tmp_path / "clock", list[str]()
    before, after = frames_from(START, 20), frames_from(START - 95, 20)
    writer = RecordingWriter(str(path), EVERY, say=said.append)
    for frame in [*before, *after]:
        writer.append(HOST, frame)
    assert said == [f"the clock of {HOST} was set back by 4m45s: that time is there twice"]
    frames, losses = read(path)
    assert (frames, losses) == (sorted([*before, *after], key=lambda frame: frame.time), ())
    assert all(a.time <= b.time for a, b in pairwise(frames))


def test_a_time_that_is_none_is_that_of_the_recorder(tmp_path: Path) -> None:
    path = tmp_path / "odd"
    writer = RecordingWriter(str(path), EVERY, clock=Clock())
    for when in (-5.0, 1e15, float("nan")):
        writer.append(HOST, replace(frame_at(START), time=when))
    assert list(Recording(path).times(HOST)) == [START] * 3


def test_one_recorder_a_file(folder: Path, tmp_path: Path) -> None:
    for path in (f"{folder}/", str(tmp_path / "one")):
        first = RecordingWriter(path, EVERY)
        with pytest.raises(GputopError, match="another gputop records to"):
            RecordingWriter(path, EVERY)
        first.close()
        RecordingWriter(path, EVERY).close()


def test_a_reader_that_looks_at_the_lock_keeps_no_recorder_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputop.recording.output._LOCK_TIMEOUT", 60.0)  # who is busy unlocks late
    path = tmp_path / "one"
    write(path, frames_from(START, 1))
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        release = threading.Timer(0.05, fcntl.flock, (file, fcntl.LOCK_UN))
        release.start()
        write(path, frames_from(START + EVERY, 1))
        release.join()
    assert len(Recording(path).times(HOST)) == 2


def test_a_file_that_is_removed_is_begun_anew(folder: Path) -> None:
    clock = Clock()
    writer = RecordingWriter(f"{folder}/", EVERY, clock=clock)
    after = frames_from(START + 7000, 5)
    for frame in (frame_at(START, 40), frame_at(START + EVERY, 80)):
        writer.append(HOST, frame)
    (folder / day_file(START)).unlink()
    for frame in after:
        writer.append(HOST, frame)
    assert read(folder) == (after, ())


def test_a_file_that_cannot_be_closed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS says so at midnight that the quota is full, and the descriptor is free all the same."""
    clock, close, said, fails = Clock(), os.close, list[str](), list[str]()

    def close_and_fail(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        close(descriptor)
        if path in fails:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, "close", close_and_fail)
    writer = RecordingWriter(f"{folder}/", EVERY, say=said.append, clock=clock, uptime=clock)
    frames = [*frames_from(START, 2), *frames_from(START + DAY, 3)]
    for frame in frames:
        if clock.now < frame.time - 2 * EVERY:
            fails = [str(path) for path in folder.iterdir()]
        clock.now = frame.time
        writer.append(HOST, frame)
    writer.close()
    fails = []
    assert said == [f"cannot write to {folder}: Disk quota exceeded; still trying",
                    f"writing to {folder} again"]  # fmt: skip
    assert read(folder) == (frames[:2] + frames[3:], ())


@pytest.mark.system
def test_a_full_disk_is_said_once_and_waited_for(tmp_path: Path) -> None:
    path, said = tmp_path / "full", list[str]()
    frames = frames_from(START, 30)

    def fill() -> None:
        writer = RecordingWriter(str(path), EVERY, say=said.append)
        for number, frame in enumerate(frames):
            if number == 10:  # in the middle of a record
                size = path.stat().st_size + 60
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            if number == 20:
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            writer.append(HOST, frame)
        raise UserWarning(*said)

    words = in_child(fill, os.getuid())
    assert words == str(
        "UserWarning: "
        f"{(f'cannot write to {path}: File too large; still trying', f'writing to {path} again')}"
    )
    assert read(path) == (frames[:10] + frames[20:], ())


@pytest.mark.system
@rest_long("kills", 2, 10)
def test_a_killed_recorder_loses_nothing_that_it_has_written(kills: int, tmp_path: Path) -> None:
    path, chance = tmp_path / "killed", random.Random(4)
    written = 0
    for kill in range(kills):
        said, says = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                writer = RecordingWriter(str(path), EVERY)
                for frame in frames_from(START + 1e5 * kill, 10_000):
                    writer.append(HOST, frame)
                    os.write(says, b".")
            finally:  # it must not go on as pytest, and kill process 0: the whole group
                os._exit(1)
        os.close(says)
        os.read(said, 1)
        time.sleep(chance.random() / 100)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with open(said, "rb") as pipe:
            written += 1 + len(pipe.read())
    recording = Recording(path)
    assert written <= len(recording.times(HOST)) <= written + kills
    assert sum(1 for _ in recording.frames(HOST)) == len(recording.times(HOST))


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param("a link", marks=needs_root),
        "a FIFO",
        "no recording",
        "no folder",
        "open to all",
    ],
)
def test_where_it_does_not_write(wrong: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    if wrong == "a link":
        (tmp_path / "other").touch()
        path.symlink_to("other")
        os.chown(path, 1, 1, follow_symlinks=False)
    elif wrong == "a FIFO":
        os.mkfifo(path)
    elif wrong == "no recording":
        path.write_text("text of somebody")
    elif wrong == "no folder":
        path = path / "file"
    else:
        path.mkdir()
        path.chmod(0o777)
    with pytest.raises(GputopError, match=f"cannot record to {path}: ") as error:
        RecordingWriter(str(path), EVERY)
    assert "\n" not in str(error.value)
    assert not index_of(path).exists()


@pytest.mark.parametrize("wrong", ["text", "a second name", "of another", "a FIFO"])
def test_what_it_does_not_take_for_its_index(wrong: str, tmp_path: Path) -> None:
    """Whatever is called NAME.index is emptied with a new recording, so it must be one of ours."""
    path, secret = tmp_path / "x", tmp_path / "secret"
    index, data = index_of(path), b"gpR1 of somebody" if "name" in wrong else b"text of somebody"
    secret.write_bytes(data)
    if wrong == "a second name":
        os.link(secret, index)
    elif wrong == "a FIFO":
        os.mkfifo(index)
    else:
        index.write_bytes(b"gpR1" if wrong == "of another" else data)
    if wrong == "of another":
        if os.getuid() != 0:
            pytest.skip("only root can give a file to others")
        os.chown(index, 1, 1)
    with pytest.raises(GputopError, match=f"cannot record to {path}: .*x.index ") as error:
        RecordingWriter(str(path), EVERY)
    assert "\n" not in str(error.value)
    assert not path.exists()
    assert index.is_fifo() or index.read_bytes() in (data, b"gpR1")
    assert secret.read_bytes() == data


def test_a_data_file_with_a_second_name_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path / "x", frames_from(START, 1))
    os.link(tmp_path / "x", tmp_path / "y")
    before = (tmp_path / "x").read_bytes()
    with pytest.raises(GputopError, match="has a second name"):
        RecordingWriter(str(tmp_path / "y"), EVERY)
    assert (tmp_path / "x").read_bytes() == before
    assert not index_of(tmp_path / "y").exists()


def test_an_index_without_data_is_ours(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write(path, frames_from(START, 5))
    path.unlink()
    write(path, frames_from(START, 2))
    assert read(path) == (frames_from(START, 2), ())


def test_a_recording_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "again"
    frames = frames_from(START, 20)
    write(path, frames[:10])
    write(path, frames[10:])
    assert read(path) == (frames, ())


def flood(when: float) -> Frame:
    """A frame of which nothing is like the one before."""
    rows = [
        replace(TRAIN, pid=number, command=os.urandom(500).hex(), start_time=when)
        for number in range(1, 40)
    ]
    return replace(frame_at(when), processes=tuple(rows))


def test_a_host_that_floods_costs_the_others_no_day(folder: Path) -> None:
    clock, said = Clock(), list[str]()
    hosts = ("good", "evil", "../x")
    with ExitStack() as stack:
        limits = Limits(size=3 << 18)
        writers = host_writers(stack, str(folder), hosts, EVERY, limits, said.append, clock)
        for day in range(5):
            for frame in frames_from(START + DAY * day, 10):
                clock.now = frame.time
                writers["good"].append("good", frame)
                writers["evil"].append("evil", flood(frame.time))
    assert sorted(path.name for path in folder.iterdir()) == ["_.._x", "evil", "good"]
    assert sum(path.stat().st_size for path in (folder / "evil").iterdir()) < 1 << 18
    recording = Recording(folder)
    assert len(recording.times("good")) == 50
    assert 0 < len(recording.times("evil")) < 50
    assert recording.at("good", 1e10) == replace(
        frame_at(START + DAY * 4 + EVERY * 9), host=replace(FRAME.host, requested_name="good")
    )


def test_a_host_that_floods_costs_the_others_no_room_in_one_file(tmp_path: Path) -> None:
    path, said, times = str(tmp_path / "one"), list[str](), frames_from(START, 30)
    for part in (times[:15], times[15:]):  # a recorder that begins anew knows what was taken
        writer = RecordingWriter(path, EVERY, Limits(size=1 << 19), said.append, hosts=2)
        for frame in part:
            writer.append("evil", flood(frame.time))
            writer.append("good", frame)
        writer.close()
    assert said == ["evil has its part of --max-size: nothing more of it is recorded"] * 2
    recording = Recording(Path(path))
    assert len(recording.times("good")) == 30
    assert 0 < len(recording.times("evil")) < 15


def test_a_frame_larger_than_any_is_left_out(tmp_path: Path) -> None:
    path, said = tmp_path / "large", list[str]()
    many = tuple(replace(TRAIN, pid=number) for number in range(1, 40_000))
    writer = RecordingWriter(str(path), EVERY, say=said.append)
    before, after = frames_from(START, 2)
    for frame in (before, replace(frame_at(START + 5), processes=many), after):
        writer.append(HOST, frame)
    writer.close()
    assert said == [
        f"{HOST} reports more than is recorded at once: it is left out",
        f"writing to {path} again",
    ]
    assert read(path) == ([before, after], ())


def test_a_day_that_is_large_for_one_is_noticed(folder: Path) -> None:
    writer = RecordingWriter(f"{folder}/", EVERY, Limits(size=1 << 19), clock=Clock())
    writer.append(HOST, frame_at(START))
    assert not writer.is_swollen
    for frame in frames_from(START + EVERY, 4):
        writer.append(HOST, flood(frame.time))
    assert writer.is_swollen
