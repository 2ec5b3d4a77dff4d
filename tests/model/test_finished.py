"""Processes that have ended stay for a minute."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.model.machine.frame import Host, Process
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.signals import Verdict
from gputop.model.processes import process_rows
from gputop.model.processes.ended import MOST, RecentlyEnded
from tests.builders import frame, gpu, id_of, process

GPUS = (gpu(0), gpu(1))


def after(
    *frames: tuple[float, Sequence[Process]],
    finished: RecentlyEnded | None = None,
    gpus: Sequence[Gpu] = GPUS,
    **values: Any,
) -> RecentlyEnded:
    """What has ended after frames at these times."""
    finished = finished or RecentlyEnded()
    for time, processes in frames:
        here = replace(frame(gpus, processes, time), **values)
        rows = process_rows.rows(here)
        finished.handle(here, rows, process_rows.row_keys(here, rows))
    return finished


def told(finished: RecentlyEnded) -> list[tuple[int, int | None, float | None]]:
    return [
        (ended.row.process.pid, ended.row.process.gpu_memory, ended.row.age)
        for ended in finished.ended
    ]


def test_it_stays_for_a_minute_with_its_peak_and_run_time() -> None:
    finished = after(
        (2000, [process(1, gpu_memory=5)]),
        (2001, [process(1, gpu_memory=9)]),
        (2002, [process(1, gpu_memory=7), process(2)]),
    )
    assert told(finished) == []
    after((2003, [process(2)]), finished=finished)
    assert told(finished) == [(1, 9, 1002.0)]
    after((2063, []), finished=finished)
    assert told(finished) == [(1, 9, 1002.0), (2, None, 1003.0)]
    after((2063.5, []), finished=finished)
    assert told(finished) == [(2, None, 1003.0)]


def test_the_newest_stay_of_more_than_a_machine_has() -> None:
    crowds = [[process(pid) for pid in range(first, first + 3000)] for first in (1, 10_001)]
    finished = after((2000, crowds[0]), (2001, crowds[1]), (2002, []))
    assert len(finished.ended) == MOST
    assert finished.ended[-1].row.process.pid == 13_000


def test_nothing_is_said_of_now() -> None:
    numbers: dict[str, Any] = {**dict.fromkeys(Process.__annotations__, 1), "state": "R"}
    finished = after((2000, [process(1, **numbers)]), (2001, []))
    last = finished.ended[0].row.process
    known = {name for name in numbers if getattr(last, name) is not None}
    assert known == {"gpu_memory"}
    assert (last.user, last.command) == ("alice", "python train.py")


def test_the_same_frame_again_changes_nothing() -> None:
    finished = after((2000, [process(1)]), (2001, []), (2001, []))
    assert len(finished.ended) == 1


@pytest.mark.parametrize(
    "silence", [{"stale_for": 3.0}, {"error": "lost"}, {"listed": "none"}, {"state": "asleep"}]
)
def test_a_gpu_that_does_not_answer_ends_nothing(silence: dict[str, Any]) -> None:
    silent = (gpu(0, **silence), gpu(1))
    both = [process(1, on=0), process(2, on=1)]
    finished = after((2000, both))
    after((2001, []), finished=finished, gpus=silent)
    assert [pid for pid, *_ in told(finished)] == [2]
    after((2002, []), finished=finished)
    assert sorted(pid for pid, *_ in told(finished)) == [1, 2]


def test_in_a_container_a_process_that_is_not_listed_any_more_has_ended() -> None:
    ours = (gpu(0, listed="ours"), gpu(1))
    finished = after((2000, [process(1, on=0)]))
    after((2001, []), finished=finished, gpus=ours)
    assert [pid for pid, *_ in told(finished)] == [1]


def test_what_comes_back_has_not_ended() -> None:
    finished = after((2000, [process(1)]), (2001, []), (2002, [process(1)]))
    assert told(finished) == []
    after((2003, [process(1, start_time=1999.0)]), finished=finished)
    assert [pid for pid, *_ in told(finished)] == [1]


def test_a_process_ends_when_it_has_left_all_gpus() -> None:
    finished = after((2000, [process(1, on=0), process(1, on=1)]), (2001, [process(1, on=1)]))
    assert told(finished) == []
    after((2002, []), finished=finished)
    assert len(finished.ended) == 2


def test_a_start_time_that_is_late_or_missing_for_a_moment_ends_nothing() -> None:
    finished = after(
        (2000, [process(1, start_time=None)]),
        (2001, [process(1)]),
        (2002, [process(1, start_time=None)]),
    )
    assert told(finished) == []
    after((2003, [process(1)]), finished=finished)
    assert told(finished) == []
    after((2004, []), finished=finished)
    assert len(finished.ended) == 1


def test_another_machine_or_boot_ends_nothing() -> None:
    finished = after((2000, [process(1)]))
    after((2001, []), finished=finished, host=Host(name="node", boot_id="another"))
    after((2002, [process(1)]), finished=finished)
    after((2003, []), finished=finished, demo=True)
    assert told(finished) == []


@pytest.mark.parametrize(
    ("values", "how"),
    [
        ({}, "TERM"),
        ({"signal": signal.SIGKILL}, "KILL"),
        ({"signal": 50}, "RTMIN+16"),
        ({"outcome": "gone"}, ""),
        ({"outcome": "ignored"}, ""),
        ({"process": id_of(1, 7.0)}, ""),
        ({"process": id_of(2)}, ""),
    ],
)
def test_how_it_ended_where_that_is_known(values: dict[str, Any], how: str) -> None:
    verdict = Verdict(
        **{
            "request_id": "1",
            "process": id_of(1),
            "signal": 15,
            "outcome": "exited",
            **values,
        }
    )
    finished = after((2000, [process(1)]), (2001, []))
    assert finished.ended[0].how == ""
    after((2002, []), finished=finished)
    finished.handle_verdicts([verdict])
    after((2003, []), finished=finished)
    assert finished.ended[0].how == how


def test_who_ignored_one_signal_and_ended_of_another() -> None:
    """Told in any order, and again when nothing of it is new."""
    usual: dict[str, Any] = {"process": id_of(1)}
    term = Verdict(request_id="1", signal=15, outcome="ignored", **usual)
    kill = Verdict(request_id="2", signal=9, outcome="exited", **usual)
    both = "KILL, not TERM"
    for verdicts, how in (([term, kill], both), ([kill, term], both), ([term], ""),
                          ([kill], "KILL")):  # fmt: skip
        finished = after((2000, [process(1)]), (2001, []))
        for verdict in (*verdicts, *verdicts):
            finished.handle_verdicts([verdict])
        assert [ended.how for ended in finished.ended] == [how]
