"""GPU-hours of a made-up day against a calculation by hand, and what nobody knows of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from msgspec.structs import replace

from gputop.model.machine.frame import Frame, Problem, Process
from gputop.model.machine.gpu import Gpu, MigDevice
from gputop.model.machine.origin import Container, Origin
from gputop.model.machine.sections import Power
from gputop.model.usage.count import MAX_KEYS, UsageRow, count_frames
from gputop.model.usage.grouping import GROUPINGS, NO_JOB, OTHERS
from gputop.model.usage.spans import Coverage
from gputop.model.usage.totals import MAX_ROWS, UsageTotals
from tests.builders import GIB, frame, gpu, process

HOUR = 3600.0
EVERY = 600.0
DAY = 24 * HOUR

# The day: a frame every ten minutes, from 0:00 to 24:00. A process that is on a GPU from 4 to 8 is
# in the frames from 4:10 to 8:00, so that 24 frames of ten minutes each stand for it.
#
# Nothing is recorded between 6:00 and 7:00, and from 23:30 on the driver cannot be read: of each
# GPU 22.5 hours are left.
#
#   GPU 0  draws 400 W and has no energy counter
#     0..8    alice  train.py, SM 75 %              8 h - 1 h gap = 7 h held, 5.25 worked
#     4..12   bob    eval.py, SM 25 %               8 h - 1 h gap = 7 h held, 1.75 worked
#     0..24   root   Xorg, which only draws         holds nothing
#     energy: 0..4 alice alone 1600 Wh; 4..8 3 h of both, 3:1 by SM: 900 and 300 Wh; 8..12 bob 1600
#   GPU 1  100 W by its counter, 500 W from 12 to 14; the counter begins anew at 20:00;
#          no answer from 22 to 23: 1 h unknown
#     0..24   carol  a notebook that does nothing   22.5 h - 1 h = 21.5 h held and idle
#     12..14  bob    eval.py, the same process, SM 100 %   2 h held, 2 worked, all of 1000 Wh
#     16..18  dave   PID 100 once more, SM 50 %     2 h held, 1 worked, all of 200 Wh
#     energy of carol: the other 17.5 h at 100 W
#   GPU 2  MIG, 200 W: 1/0 has half of the memory; 2/0 and 2/1 share a quarter
#     0..4    erin   on 1/0                         4 h / 2 = 2 h, work unknown, 400 Wh
#     0..8    frank  on 2/0                         7 h / 8 = 0.875 h, work unknown, 175 Wh
#     20..21  grace  on an instance that is not known      1 h unknown
#   GPU 3  its processes are not listed, and its power is not known
#     10..12  somebody whose user is not known      2 h held, work and energy unknown
#     the other 20.5 h are unknown
_WORK = {"memory_utilization": 0.0, "idle_for": 0.0}
_PROCESSES: list[tuple[float, float, Process]] = [
    (0, 8, process(100, 0, sm_utilization=0.75, gpu_memory=30 * GIB, **_WORK)),
    (4, 12, process(200, 0, user="bob", command="python -u /home/bob/eval.py 7",
                    sm_utilization=0.25, gpu_memory=20 * GIB, **_WORK)),
    (0, 24, process(50, 0, user="root", command="Xorg", type="G", gpu_memory=GIB)),
    (0, 24, process(300, 1, user="carol", command="python -m ipykernel_launcher",
                    idle_for=9000.0, gpu_memory=40 * GIB)),
    (12, 14, process(200, 1, user="bob", command="python -u /home/bob/eval.py 7",
                     sm_utilization=1.0, gpu_memory=50 * GIB, **_WORK)),
    (16, 18, process(100, 1, user="dave", start_time=57000.0, sm_utilization=0.5, **_WORK)),
    (0, 4, process(500, 2, user="erin", gpu_instance=1, compute_instance=0)),
    (0, 8, process(600, 2, user="frank", gpu_instance=2, compute_instance=0, gpu_memory=GIB)),
    (20, 21, process(700, 2, user="grace")),
    (10, 12, process(900, 3, user=None, command=None)),
]  # fmt: skip
_MIG = (
    MigDevice(gi=1, ci=0, memory_total=70 * GIB),
    MigDevice(gi=2, ci=0, memory_total=35 * GIB),
    MigDevice(gi=2, ci=1, memory_total=35 * GIB),
)


def _counter(hour: float) -> float:
    """Joules of GPU 1 since gputop first looked, which it did again just before 20:00."""
    seconds = round(hour * HOUR)
    if hour >= 20:
        return (seconds - 20 * HOUR) * 100
    return 100 * seconds + 400 * min(max(seconds - 12 * HOUR, 0), 2 * HOUR)


def _gpus(hour: float) -> list[Gpu]:
    known = {"listed": "all"}
    return [
        gpu(0, power=400.0, **known),
        gpu(1, power=100.0, power_more=Power(energy=_counter(hour)),
            stale_for=9.0 if 22 < hour <= 23 else None, **known),
        gpu(2, power=200.0, mig_mode=True, mig=_MIG, **known),
        gpu(3, listed="none"),
    ]  # fmt: skip


def _day() -> Iterator[Frame]:
    for number in range(145):
        hour = number / 6
        if 6 < hour < 7:
            continue
        here = [each for begin, end, each in _PROCESSES if begin < hour <= end]
        if hour == 3:  # one step of alice takes more memory than the others
            here[0] = replace(here[0], gpu_memory=60 * GIB)
        whole = replace(frame(_gpus(hour), here, time=number * EVERY), interval=EVERY)
        yield _unread(whole) if hour > 23.5 else whole


def _unread(whole: Frame) -> Frame:
    problem = Problem(code="not_answering", text="m", advice="a")
    return replace(whole, gpus=(), processes=(), problem=problem)


def usage(by: str, **frames: Iterable[Frame]) -> UsageTotals:
    """The rows of hosts; without any, of the day."""
    totals = UsageTotals(by, 0.0, DAY)
    for host, each in (frames or {"node": _day()}).items():
        totals.add(host, [count_frames(each)])
    return totals


def row(
    held: float, worked: float = 0, idle: float = 0, unknown: float = 0,
    memory: int | None = None, energy: float = 0, energy_unknown: float = 0,
) -> UsageRow:  # fmt: skip
    """A row by hours, GiB and Wh."""
    times = {"held": held, "worked": worked, "idle": idle, "work_unknown": unknown}
    seconds = {name: hours * HOUR for name, hours in times.items()}
    return UsageRow(**seconds, peak_memory=memory and memory * GIB, energy=energy * HOUR,
                    energy_unknown=energy_unknown * HOUR)  # fmt: skip


def test_a_day_by_user() -> None:
    count = usage("user")
    coverage = count.coverages["node"]
    assert count.rows == {
        ("alice",): row(7, 5.25, memory=60, energy=1600 + 900),
        ("bob",): row(7 + 2, 1.75 + 2, memory=50, energy=300 + 1600 + 1000),
        ("carol",): row(21.5, idle=21.5, memory=40, energy=1750),
        ("dave",): row(2, 1, energy=200),
        ("erin",): row(2, unknown=2, energy=400),
        ("frank",): row(0.875, unknown=0.875, memory=1, energy=175),
        (None,): row(2, unknown=2, energy_unknown=2),
    }
    # Each GPU once: GPU 0 for 11 h, GPU 1 for 21.5 h (of which 17.5 idle), and the rest as above.
    # The most memory at one time: 60 of alice, 40 of carol and 1 of frank.
    energy = 1600 + 1200 + 1600 + 1750 + 1000 + 200 + 400 + 175
    assert count.total == row(37.375, 7 + 3, 17.5, 2.875 + 2, 101, energy, energy_unknown=2)
    # GPU 0 from 12 to 23:30; GPU 2 22.5 h - 1 h unknown - 2.875 h held.
    assert count.unheld == (11.5 + 18.625) * HOUR
    assert count.unheld_energy == (11.5 * 400 + 18.625 * 200) * HOUR
    assert count.unknown == {"silent": HOUR, "instance": HOUR, "unlisted": 20.5 * HOUR}
    assert coverage == Coverage(23 * HOUR, HOUR, 1, 0.5 * HOUR)
    known = count.total.held + count.unheld + sum(count.unknown.values())
    assert known == 4 * (coverage.recorded - coverage.unread)


@pytest.mark.parametrize("by", GROUPINGS)
def test_the_total_is_the_same_whatever_the_rows_are(by: str) -> None:
    count = usage(by)
    assert count.total == usage("user").total
    assert sum(each.energy for each in count.rows.values()) == count.total.energy


def test_a_day_by_gpu_and_host() -> None:
    count = usage("gpu")
    held = {key: each.held / HOUR for key, each in count.rows.items()}
    assert held == {
        ("node", "0", "H200", "GPU-0"): 11,
        ("node", "1", "H200", "GPU-1"): 21.5,
        ("node", "2", "H200", "GPU-2"): 2.875,
        ("node", "3", "H200", "GPU-3"): 2,
    }
    by_host = usage("host")
    assert by_host.rows == {("node",): by_host.total}


def test_commands_are_told_apart_by_their_script() -> None:
    count = usage("command")
    held = {key: each.held / HOUR for key, each in count.rows.items()}
    assert held == {
        ("train.py",): 7 + 2 + 2 + 0.875,
        ("eval.py",): 9,
        ("ipykernel_launcher",): 21.5,
        (None,): 2,
    }


def test_jobs() -> None:
    origins = [
        Origin(slurm_job="17", slurm_step="0", slurm_account="lab", pod="p"),
        Origin(slurm_job="17", slurm_step="1"),
        Origin(pod="p"), Origin(container=Container(id="0" * 64, name="c")),
        Origin(unit="session-3.scope"), Origin(), Origin(slurm_step="0", unit="slurmstepd.scope"),
        None,
    ]  # fmt: skip
    gpus = [gpu(index, listed="all") for index in range(len(origins))]
    here = [process(1, index, origin=origin) for index, origin in enumerate(origins)]
    frames = [frame(gpus, here, time=time) for time in (0.0, 10.0)]
    count = usage("job", node=frames)
    assert {key: each.held for key, each in count.rows.items()} == {
        ("slurm 17", "alice"): 20, ("pod p", "alice"): 10, ("container c", "alice"): 10,
        (NO_JOB, "alice"): 10, (None, "alice"): 30,
    }  # fmt: skip
    count = usage("account", node=frames)
    assert {key: each.held for key, each in count.rows.items()} == {
        ("lab",): 10, (NO_JOB,): 10, (None,): 60
    }  # fmt: skip


def test_a_job_counts_with_its_user() -> None:
    """Whoever makes a control group of his own named as another user's job has a row of his own."""
    origin = Origin(slurm_job="4711")
    here = [process(1, 0, origin=origin), process(2, 1, origin=origin, user="mallory")]
    gpus = [gpu(index, listed="all") for index in range(2)]
    frames = (frame(gpus, here, time=time) for time in (0.0, 10.0))
    count = usage("job", node=frames)
    assert {key: each.held for key, each in count.rows.items()} == {
        ("slurm 4711", "alice"): 10, ("slurm 4711", "mallory"): 10,
    }  # fmt: skip


def test_names_without_end_are_one_row() -> None:
    """Of one host the commands are lost first, then the users; then the rows of all hosts."""

    def frames(user: str = "alice", command: str = "run") -> Iterator[Frame]:
        for step in range(4):
            numbers = range(1000 * step, 1000 * step + 1000)
            here = [process(n, user=user.format(n), command=command.format(n)) for n in numbers]
            yield frame([gpu(listed="all")], here, time=10.0 * step)

    commands = usage("command,user", node=frames(command="run{}"))
    assert len(commands.rows) == MAX_KEYS + 1
    assert commands.rows[(OTHERS, "alice")].held == 20
    users = usage("user", node=frames(user="user{}"))
    assert len(users.rows) == 2 * MAX_KEYS + 1
    assert users.rows[(OTHERS,)].held == 10
    assert users.total.held == 30
    hosts = UsageTotals("user,host", 0.0, DAY)
    one = count_frames(frames(user="user{}"))
    for number in range(MAX_ROWS // (2 * MAX_KEYS) + 1):
        hosts.add(f"node{number}", [one])
    assert len(hosts.rows) == MAX_ROWS + 1
    assert hosts.total.held == 11 * 30


def test_work_of_several_processes_is_no_more_than_one_gpu() -> None:
    here = [process(pid, sm_utilization=0.75, memory_utilization=0.0) for pid in (1, 2)]
    frames = (frame([gpu(listed="all")], here, time=time) for time in (0.0, 10.0))
    count = usage("user", node=frames)
    assert count.rows[("alice",)].worked == 10


def test_a_decoder_at_work_is_not_idle() -> None:
    here = [process(1, sm_utilization=0.0, decoder_utilization=0.5)]
    frames = (frame([gpu(listed="all")], here, time=time) for time in (0.0, 10.0))
    count = usage("user", node=frames)
    assert (count.rows[("alice",)].worked, count.rows[("alice",)].idle) == (0, 0)


def test_a_process_on_a_busy_gpu_that_had_no_sample_yet_is_not_idle() -> None:
    """Where a driver has no samples at all the idle time stays 0; otherwise it is 0 once."""
    for utilization, time in ((0.9, "work_unknown"), (0.0, "idle"), (None, "idle")):
        card, here = gpu(listed="all", utilization=utilization), [process(1, idle_for=0.0)]
        count = usage("user", node=[frame([card], here, time=time) for time in (0.0, 10.0)])
        assert getattr(count.rows[("alice",)], time) == 10


def test_hosts_add_up_and_their_counters_are_not_mixed() -> None:
    def frames(joules: float) -> Iterator[Frame]:
        for time, energy in ((0.0, 0.0), (10.0, joules)):
            card = gpu(listed="all", power_more=Power(energy=energy))
            yield frame([card], [process(1)], time)

    count = usage("user", a=frames(7.0), b=frames(5000.0))
    assert (count.total.held, count.total.energy) == (20, 5007)


# What is recorded


def _coverage(*times: float, interval: float | None = 10.0, until: float = 100.0) -> Coverage:
    totals = UsageTotals("host", 0.0, until)
    frames = (replace(frame(time=time), interval=interval) for time in times)
    totals.add("node", [count_frames(frames)])
    return totals.coverages["node"]


def test_gaps_at_the_edges_and_between() -> None:
    whole = _coverage(5, 15, 25, 35, 60, 85, 95)
    assert (whole.recorded, whole.missing, whole.gaps) == (90, 0, 0)
    cut = _coverage(40, 50)
    assert (cut.recorded, cut.missing, cut.gaps) == (10, 40 + 50, 2)
    torn = _coverage(0, 10, 50, 60, until=65)
    assert (torn.recorded, torn.missing, torn.gaps) == (20, 40, 1)


def test_nothing_recorded_at_all() -> None:
    nothing = _coverage()
    assert (nothing.recorded, nothing.missing, nothing.gaps) == (0, 100, 1)


def test_a_clock_that_is_set_back_stands_for_no_time() -> None:
    stepped = _coverage(0, 10, 20, 5, 15, until=20)
    assert (stepped.recorded, stepped.gaps) == (30, 0)


def test_frames_that_do_not_tell_when_the_next_one_comes() -> None:
    assert _coverage(0, 25, until=30, interval=None).gaps == 0
    assert _coverage(0, 31, until=31, interval=None).gaps == 1
