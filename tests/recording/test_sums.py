"""The sums that `gputop usage` has of days: the same figures, without reading the samples again."""

from __future__ import annotations

import math
import os
import random
import shutil
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations, islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gputop.export.usage import usage_json
from gputop.model.machine.frame import Frame, Process
from gputop.model.machine.gpu import MigDevice
from gputop.model.machine.origin import Origin
from gputop.model.machine.sections import Power
from gputop.model.usage.count import count_frames
from gputop.model.usage.grouping import GROUPINGS
from gputop.model.usage.totals import UsageTotals
from gputop.recording import sums as stored
from gputop.recording.counting import RecordedUsage, make_sums
from gputop.recording.datafile import SUMS
from gputop.recording.entries import Entries
from gputop.recording.reader import Recording
from gputop.recording.writer import Limits, RecordingWriter
from tests.builders import GIB, frame, gpu, process
from tests.conftest import rest_long
from tests.recording.made import Clock, index_of

EVERY = 900.0
HOUR, DAY = 3600.0, 86400.0
MIDNIGHT = 20415 * DAY
"""2025-11-23 00:00 UTC."""
BEGIN = MIDNIGHT - 3 * HOUR
LATER = MIDNIGHT + 30 * DAY
FOREIGN = 4711
"""A uid of nobody's."""
MIG = (MigDevice(gi=1, ci=0, memory_total=30 * GIB), MigDevice(gi=2, ci=0, memory_total=70 * GIB))


def processes(chance: random.Random) -> Iterator[Process]:
    """Some on each of three GPUs, more than one of some users; a few with jobs and accounts."""
    for pid in range(1, chance.randrange(8)):
        job = chance.choice([None, "17", "18"])
        origin = Origin(slurm_job=job, slurm_account=job and chance.choice(["lab", None]))
        yield process(
            pid, chance.randrange(3), user=chance.choice(["alice", "bob", None]), origin=origin,
            command=f"python run{chance.randrange(3)}.py", gpu_memory=chance.randrange(9) * GIB,
            sm_utilization=chance.choice([None, 0.0, 0.1, 0.7]), gpu_instance=pid % 2 + 1,
            compute_instance=0,
        )  # fmt: skip


def frames(host: str, since: float, until: float) -> Iterator[Frame]:
    """A frame every fifteen minutes and a bit, without some, of whom no two are alike."""
    chance, when, energy = random.Random(host), since + 3.7, 0.0
    while when < until:
        when += EVERY + chance.random()
        energy = 0.0 if chance.random() < 0.1 else energy + chance.random() * 1e6
        cards = [
            gpu(0, power=chance.random() * 700, power_more=Power(energy=energy)),
            gpu(1, power=None, stale_for=9.0 if chance.random() < 0.1 else None),
            gpu(2, power=123.4, mig_mode=True, mig=MIG),
        ]
        if chance.random() > 0.1:
            yield frame(cards, list(processes(chance)), when)


def record(folder: Path, host: str, each: Iterable[Frame]) -> None:
    clock = Clock()
    writer = RecordingWriter(f"{folder}/", EVERY, clock=clock)
    for one in each:
        clock.now = one.time
        writer.append(host, one)
    writer.close()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of three days of a host and one day of another, without sums."""
    folder = tmp_path_factory.mktemp("recorded")
    record(folder / "a", "a", frames("a", BEGIN, MIDNIGHT + 28 * HOUR))
    record(folder / "b", "b", frames("b", MIDNIGHT, MIDNIGHT + 4 * HOUR))
    return folder


@pytest.fixture(scope="module")
def summed(plain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with sums, in which no sample after the first hour can be read any more."""
    folder = tmp_path_factory.mktemp("copy") / "recorded"
    shutil.copytree(plain, folder)
    make(folder)
    for path in folder.glob("*/*.gputop"):
        spoil(path, BEGIN + HOUR)
    return folder


def make(folder: Path, now: float = LATER) -> None:
    """Make all sums of what is there."""
    deque(islice(make_sums(folder, Clock(now)), 1000))


def spoil(path: Path, after: float) -> None:
    """Damage the samples after a time; the file keeps its size, its time and its beginning."""
    entries, data, about = Entries(index_of(path).read_bytes()), path.read_bytes(), path.stat()
    for entry in (entries[number] for number in range(len(entries))):
        if entry.time > after:
            data = data[: entry.offset] + b"?" + data[entry.offset + 1 :]
    path.write_bytes(data)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def usage(
    path: Path, by: str = "user", since: float = 0.0, until: float = LATER, now: float = LATER
) -> UsageTotals:
    totals = UsageTotals(by, since, until)
    RecordedUsage(path, now).add_to(totals)
    return totals


def read(path: Path, by: str, since: float, until: float) -> UsageTotals:
    """The same, from all samples in one go."""
    totals, recording = UsageTotals(by, since, until), Recording(path)
    for host in recording.hosts:
        totals.add(host, [count_frames(recording.frames(host, since, until))])
    totals.losses = dict.fromkeys(recording.losses)
    return totals


BYS = [",".join(words) for n in range(1, 4) for words in combinations(GROUPINGS, n)]
WHOLE = st.sampled_from([0, 3600, 1800, 1]).flatmap(
    lambda unit: st.floats(-4 * HOUR, 29 * HOUR).map(lambda t: t // unit * unit if unit else t)
)


@settings(max_examples=15, deadline=None)
@given(by=st.sampled_from(BYS), one=WHOLE, other=WHOLE)
def test_the_same_as_from_all_samples(plain: Path, by: str, one: float, other: float) -> None:
    """For every span of time, and every --by."""
    since, until = sorted((MIDNIGHT + one, MIDNIGHT + other))
    folder = plain.parent / "with"
    if not folder.exists():
        shutil.copytree(plain, folder)
        make(folder)
        assert len(list(folder.glob(f"*/*{SUMS}"))) == 4
    totals = usage(plain, by, since, until, now=0.0)
    whole = read(plain, by, since, until)
    assert usage_json(totals) == usage_json(whole)
    assert totals.rows == whole.rows  # to the last bit
    assert usage_json(totals) == usage_json(usage(folder, by, since, until))


@rest_long("by", *BYS[::-1])
def test_no_sample_is_read(plain: Path, summed: Path, by: str) -> None:
    totals = usage(summed, by)
    assert usage_json(totals) == usage_json(usage(plain, by, now=0.0))
    assert totals.rows
    assert not totals.losses


@pytest.mark.parametrize("since", [0.0, 0.5 * HOUR])
def test_of_a_part_of_a_day_only_parts_of_hours_are_read(
    plain: Path, summed: Path, since: float
) -> None:
    right = usage(plain, "job,gpu", BEGIN + since, now=0.0)
    assert usage_json(usage(summed, "job,gpu", BEGIN + since)) == usage_json(right)


# What is believed


@pytest.fixture
def day(tmp_path: Path) -> Path:
    """The data file of a day with sums, the second of its folder."""
    record(tmp_path, "a", frames("a", MIDNIGHT - 2 * HOUR, MIDNIGHT + 3 * HOUR))
    make(tmp_path)
    return tmp_path / "2025-11-23.gputop"


def beside(path: Path) -> Path:
    return path.with_name(path.name + SUMS)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def rename(path: Path) -> None:
    """Have the checksum alone tell that it is not the same host."""
    data = path.read_bytes()
    path.write_bytes(data.replace(b"\xa1a", b"\xa1b", 1))
    assert path.read_bytes() != data


def foreign(path: Path) -> None:
    forge(lies)(path)
    os.chown(path, FOREIGN, FOREIGN)


def link(path: Path) -> None:
    forge(lies)(path)
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def forge(change: Callable[[stored.Sums], object]) -> Callable[[Path], None]:
    """Sums that are whole, and say what is not so."""

    def write(path: Path) -> None:
        data = path.with_name(path.name.removesuffix(SUMS))
        _, sums = stored.read_sums(data)
        assert sums
        change(sums)
        stored.write_sums(data, sums)

    return write


def lies(sums: stored.Sums) -> None:
    count = stored.unpack(sums.whole)
    assert count
    count.unheld += HOUR
    sums.whole = stored.pack(count)


def other_rows(sums: stored.Sums) -> None:
    count = stored.unpack(sums.whole)
    assert count
    count.alone = dict.fromkeys([("short",)], next(iter(count.alone.values())))
    sums.whole = stored.pack(count)


def endless(sums: stored.Sums) -> None:
    count = stored.unpack(sums.whole)
    assert count
    count.unheld = math.inf
    sums.whole = stored.pack(count)


def bomb(sums: stored.Sums) -> None:
    sums.whole = zlib.compress(bytes(64 << 20))


def body(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """Sums with another body than `write_sums` makes."""

    def write(path: Path) -> None:
        data, begin = path.read_bytes(), len(stored._HEAD)
        changed = change(data[begin + 4 :])
        check = zlib.crc32(changed).to_bytes(4, "little")
        path.write_bytes(data[:begin] + check + changed)

    return write


NESTED = b"\x91" * 100_000 + b"\xc0"
"""Lists in lists, in msgpack."""
unspelled = body(lambda data: data.replace(b"\xa1a", b"\xa1\xff", 1))
"""The host has a name that is not UTF-8."""
nested = body(lambda data: bytes([data[0] + 1]) + data[1:] + NESTED)
"""With a field more than is known."""


def unspelled_count(sums: stored.Sums) -> None:
    count = stored.unpack(sums.whole)
    assert count
    count.losses = ["????"]
    sums.whole = zlib.compress(zlib.decompress(stored.pack(count)).replace(b"????", b"\xff" * 4))


@rest_long(
    "damage",

        flip, link, pipe, lambda path: path.write_bytes(b""), lambda path: os.truncate(path, 60),
        lambda path: path.write_bytes(b"x" * (8 << 20)), forge(other_rows), forge(endless),
        forge(bomb), foreign, rename, unspelled, nested, forge(unspelled_count),
    ids=["flip", "link", "pipe", "empty", "cut", "large", "rows", "endless", "bomb", "foreign",
         "rename", "unspelled", "nested", "count"],
)  # fmt: skip
def test_sums_that_are_not_believed(
    day: Path, damage: Callable[[Path], None], request: pytest.FixtureRequest
) -> None:
    """The samples are read, as if there were none."""
    if "foreign" in request.node.name and os.geteuid() != 0:
        pytest.skip("needs root")
    right = usage_json(usage(day.parent))
    damage(beside(day))
    assert usage_json(usage(day.parent)) == right
    if not beside(day).is_symlink() and beside(day).is_file():
        assert stored.read_sums(day)[1] or beside(day).stat().st_uid == FOREIGN


def test_texts_of_sums_are_made_harmless(day: Path) -> None:
    """Whoever makes a recording for others may make its sums, too."""

    def change(sums: stored.Sums) -> None:
        count = stored.unpack(sums.whole)
        assert count
        key, row = count.alone.popitem()
        other = (*key[:3], "\x1b[2J", *key[4:])
        count.alone[other] = row
        count.losses = ["\x1b[3J"]
        sums.losses = ["\x1b[4J"]
        sums.whole = stored.pack(count)

    forge(change)(beside(day))
    totals = usage(day.parent)
    assert ("\ufffd[2J",) in totals.rows
    assert list(totals.losses) == ["\ufffd[4J", "\ufffd[3J"]


def test_a_recording_that_has_changed_is_read_anew(day: Path) -> None:
    right = usage(day.parent)
    data = day.read_bytes()
    day.write_bytes(data[: len(data) // 2])
    totals = usage(day.parent)
    assert totals.total.held < right.total.held
    assert any("cut off" in loss for loss in totals.losses)
    assert usage_json(usage(day.parent)) == usage_json(totals)  # what is lost is told from the sums


def test_a_longer_recording_of_the_same_times_is_read_anew(day: Path) -> None:
    others = [replace(each, processes=()) for each in Recording(day).frames("a")]
    size = day.stat().st_size
    for path in (day, index_of(day)):
        path.unlink()
    record(day.parent, "a", others)
    os.truncate(day, max(size + 1, day.stat().st_size))
    assert usage_json(usage(day.parent)) == usage_json(read(day.parent, "user", 0.0, LATER))


def test_damage_is_told_from_the_sums(day: Path) -> None:
    beside(day).unlink()
    spoil(day, MIDNIGHT + 2 * HOUR)
    totals = usage(day.parent)
    assert len(totals.losses) == 1
    make(day.parent)
    spoil(day, MIDNIGHT)
    assert usage_json(usage(day.parent)) == usage_json(totals)


def test_a_day_that_grows(tmp_path: Path) -> None:
    """Its hours that are over are not read again, unless something was added to them."""
    whole = list(frames("a", MIDNIGHT, MIDNIGHT + 6 * HOUR))
    past = [each for each in whole if each.time < MIDNIGHT + 4.5 * HOUR]
    record(tmp_path, "a", past)
    path, now = tmp_path / "2025-11-23.gputop", MIDNIGHT + 4.5 * HOUR
    clock = Clock(now)
    making = make_sums(tmp_path, clock)
    deque(islice(making, 100))
    _, sums = stored.read_sums(path)
    assert sums
    assert sums.end == MIDNIGHT + 4 * HOUR
    assert usage_json(usage(tmp_path, now=now)) == usage_json(read(tmp_path, "user", 0.0, LATER))
    record(tmp_path, "a", whole[len(past) :])
    deque(islice(making, 100))
    _, same = stored.read_sums(path)
    assert same
    assert list(same.hours) == list(sums.hours)
    clock.now = LATER
    deque(islice(making, 100))
    _, grown = stored.read_sums(path)
    assert grown
    assert grown.is_complete
    assert [grown.hours[hour] for hour in sums.hours] == list(sums.hours.values())
    right = usage_json(read(tmp_path, "user", 0.0, LATER))
    assert usage_json(usage(tmp_path)) == right
    early = replace(whole[0], time=whole[0].time + 400, processes=(process(1, user="carol"),))
    record(tmp_path, "a", [early])  # the clock was set back
    assert stored.read_sums(path)[1]
    assert usage_json(usage(tmp_path)) == usage_json(read(tmp_path, "user", 0.0, LATER)) != right


def test_when_a_day_before_is_deleted_or_comes_back(day: Path, tmp_path: Path) -> None:
    """The first sample of a day stands for the time since the last one of the day before."""
    right, before = usage(tmp_path), tmp_path / "2025-11-22.gputop"
    data = before.read_bytes()
    before.unlink()
    alone, whole = read(tmp_path, "user", 0.0, LATER), day.read_bytes()
    spoil(day, MIDNIGHT + HOUR)
    assert usage_json(usage(tmp_path)) == usage_json(usage(day)) == usage_json(alone)
    day.write_bytes(whole)
    make(tmp_path)
    before.write_bytes(data)
    assert usage_json(usage(tmp_path)) == usage_json(right)
    make(tmp_path)
    spoil(day, MIDNIGHT)
    assert usage_json(usage(tmp_path)) == usage_json(right)


def test_nothing_is_kept_without_the_day_before(day: Path) -> None:
    beside(day).unlink()
    usage(day)
    usage(day.parent, since=MIDNIGHT)
    assert not beside(day).exists()
    usage(day.parent)
    assert beside(day).exists()


def test_files_whose_samples_mix_are_read(tmp_path: Path) -> None:
    whole = list(frames("a", MIDNIGHT, MIDNIGHT + 3 * HOUR))
    record(tmp_path / "one", "a", whole[::2])
    record(tmp_path / "other", "a", whole[1::2])
    right = usage_json(read(tmp_path, "job", 0.0, LATER))
    assert usage_json(usage(tmp_path, "job")) == right
    make(tmp_path)
    assert usage_json(usage(tmp_path, "job")) == right


@pytest.mark.parametrize("is_open", [False, True])
def test_where_sums_are_kept(tmp_path: Path, is_open: bool) -> None:
    """Beside the files of days with one host, in a folder that only we may write to."""
    record(tmp_path, "a", frames("a", MIDNIGHT, MIDNIGHT + 2 * HOUR))
    record(tmp_path, "a", frames("a", MIDNIGHT + DAY, MIDNIGHT + DAY + 2 * HOUR))
    record(tmp_path, "b", frames("b", MIDNIGHT + DAY, MIDNIGHT + DAY + 2 * HOUR))
    (tmp_path / "2025-11-23.gputop").rename(tmp_path / "night.gputop")
    record(tmp_path, "a", frames("a", MIDNIGHT + 2 * DAY, MIDNIGHT + 2 * DAY + 2 * HOUR))
    tmp_path.chmod(0o777 if is_open else 0o755)
    usage(tmp_path)
    make(tmp_path)
    kept = [] if is_open else ["2025-11-25.gputop.sums"]
    assert [path.name for path in tmp_path.iterdir() if path.suffix == SUMS] == kept
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob(f"*{SUMS}")} <= {0o600}


def test_sums_go_with_their_day(day: Path) -> None:
    clock = Clock(MIDNIGHT + DAY)
    limits = Limits(size=day.stat().st_size / 2)
    writer = RecordingWriter(f"{day.parent}/", EVERY, limits, clock=clock)
    writer.close()
    assert not list(day.parent.glob(f"*{SUMS}"))
    assert not day.exists()
