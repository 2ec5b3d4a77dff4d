"""The recent past of each GPU: gaps stay gaps."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.sections import Activity
from gputop.model.metrics.gpu import GPU
from gputop.model.metrics.history import KEPT, MOST_PROCESSES, RECENT, SLOTS, History
from tests.builders import frame, gpu, process

EMPTY = float("-inf")


def at(seconds: float, *gpus: Gpu, interval: float | None = 1.0, **fields: Any) -> Frame:
    plain = frame(gpus, time=2000.0 + seconds, **fields)
    return Frame(host=plain.host, time=plain.time, gpus=plain.gpus, processes=plain.processes,
                 interval=interval)  # fmt: skip


def past(history: History, of: Gpu, id_: str = "utilization") -> list[Any]:
    values = history.values(of.key, id_)[-RECENT:]
    return [None if value == EMPTY else round(value, 4) for value in values]


def filled(*frames: Frame) -> History:
    history = History()
    for shown in frames:
        history.append(shown)
    return history


def test_oldest_first() -> None:
    history = filled(*(at(n, gpu(0, utilization=value), gpu(1, utilization=1.0))
                       for n, value in enumerate((0.1, 0.2, 0.0))))  # fmt: skip
    assert past(history, gpu(0)) == [0.1, 0.2, 0.0]
    assert past(history, gpu(1)) == [1.0] * 3
    assert list(history.times) == [2000.0, 2001.0, 2002.0]


def test_no_value_and_an_old_value_are_gaps() -> None:
    history = filled(
        at(0, gpu(utilization=0.5)),
        at(1, gpu(utilization=None)),
        at(2, gpu(utilization=0.5, stale_for=3.0)),
        at(3, gpu(utilization=None, error="GPU is lost")),
        at(4, gpu(utilization=0.6)),
    )
    assert past(history, gpu()) == [0.5, None, None, None, 0.6]


def test_where_frames_were_missing_is_one_gap_however_long() -> None:
    history = filled(*(at(n, gpu(utilization=0.5)) for n in (0, 1, 100, 101)))
    assert past(history, gpu()) == [0.5, 0.5, None, 0.5, 0.5]
    assert list(history.times) == [2000.0, 2001.0, 2002.0, 2100.0, 2101.0]


def test_a_copy_does_not_go_on_with_the_other() -> None:
    card, other = gpu(utilization=0.5), process(1, gpu_memory=5, gpu_uuid=gpu().uuid)
    history = filled(at(0, card, processes=(other,)))
    twin = history.copy()
    for second in range(1, SLOTS + 2):
        history.append(at(second, gpu(utilization=1.0), processes=(other,)))
    assert list(twin.times) == [2000.0]
    assert past(twin, card) == [0.5]
    assert twin.of_process(other).memory == [5]
    twin.append(at(1, gpu(utilization=0.0)))
    assert past(twin, card) == [0.5, 0.0]
    assert past(history, card) == [1.0] * RECENT


def test_a_longer_interval_is_no_gap() -> None:
    history = filled(*(at(n, gpu(utilization=0.5), interval=10.0) for n in (0, 10, 21, 30)))
    assert past(history, gpu()) == [0.5] * 4


def test_frames_of_one_second_share_a_slot_and_their_peak_is_kept() -> None:
    values = [(0.0, 0.1), (0.2, 0.9), (0.4, None), (0.8, 0.2), (1.0, 0.3), (1.1, 0.2)]
    history = filled(*(at(n, gpu(utilization=value), interval=0.1) for n, value in values))
    assert past(history, gpu()) == [0.9, 0.3]


@pytest.mark.parametrize("interval", [0.1, 0.5, 1.0, 60.0])
def test_fifteen_minutes_are_kept_at_any_interval(interval: float) -> None:
    history = History()
    count = int(1.2 * SLOTS * max(1.0, 0.9 / interval))
    for n in range(count):
        history.append(at(n * interval, gpu(utilization=n / count), interval=interval))
    times = list(history.times)
    assert len(times) == SLOTS
    assert times == sorted(times)
    assert times[-1] - times[0] >= 900
    values = list(history.values("GPU-0", "utilization"))
    assert len(values) == SLOTS
    assert values == sorted(values)


def test_a_clock_that_is_put_back_begins_anew() -> None:
    history = filled(*(at(n, gpu(utilization=0.5)) for n in (0, 1, -3600, -3599)))
    assert list(history.times) == [2000.0 - 3600, 2000.0 - 3599]
    assert past(history, gpu()) == [0.5, 0.5]


def test_what_comes_later_is_in_step_with_the_rest() -> None:
    """A metric that begins later, and one that had a gap as long as the ring."""
    history = History()
    for n in range(SLOTS + 10):
        known = Activity(sm=0.25) if n > SLOTS else None
        history.append(at(n, gpu(utilization=0.5 if n in (0, SLOTS + 9) else None, activity=known)))
    assert list(history.values("GPU-0", "activity.sm")) == [0.25] * 9
    values = list(history.values("GPU-0", "utilization"))
    assert len(values) == SLOTS
    assert values == [EMPTY] * (SLOTS - 1) + [0.5]
    assert history.knows("GPU-0", "activity.sm")
    assert not history.knows("GPU-0", "fan")
    assert history.values("GPU-0", "fan") == ()


def test_every_kept_metric_is_a_number() -> None:
    assert {GPU[id_].unit for id_ in KEPT} == {"0..1", "bytes", "W", "Celsius", "Hz", "B/s"}


def test_gpus_are_told_apart_by_uuid_not_by_place() -> None:
    history = filled(
        at(0, gpu(0, uuid="GPU-a", utilization=0.1), gpu(1, uuid="GPU-b")),
        at(1, gpu(0, uuid="GPU-b", utilization=0.2)),
    )
    assert past(history, gpu(0, uuid="GPU-b")) == [0.0, 0.2]
    assert past(history, gpu(0, uuid="GPU-a")) == []


def test_a_gpu_that_never_answered_has_its_place_for_a_name() -> None:
    history = filled(at(0, gpu(0, uuid=None, utilization=None), gpu(1, uuid=None, utilization=0.3)))
    assert past(history, gpu(1, uuid=None)) == [0.3]
    assert past(history, gpu(2)) == []


def test_a_process_has_a_short_past_of_its_own() -> None:
    history = History()
    for n in range(RECENT + 5):
        stale = 3.0 if n == RECENT else None
        card = process(7, gpu_memory=n, sm_utilization=None if n % 2 else 0.5)
        history.append(at(n, gpu(stale_for=stale), processes=[card]))
    its = history.of_process(process(7))
    assert len(its.memory) == RECENT
    assert its.memory[-6:] == [RECENT - 1.0, EMPTY, RECENT + 1.0, RECENT + 2.0, RECENT + 3.0,
                               RECENT + 4.0]  # fmt: skip
    assert its.sm[-4:] == [EMPTY, 0.5, EMPTY, 0.5]
    assert history.of_process(process(8)).memory == []


def test_of_too_many_processes_there_is_no_past() -> None:
    crowd = [process(pid, gpu_memory=1) for pid in range(1, MOST_PROCESSES + 2)]
    history = filled(at(0, gpu(), processes=crowd))
    assert history.of_process(crowd[-2]).memory == [1.0]
    assert history.of_process(crowd[-1]).memory == []


@pytest.mark.parametrize("count", [50, SLOTS + 50])
def test_as_it_was_at_a_time(count: int) -> None:
    """Also where the ring has gone round, and of a process that was not there yet."""
    frames = [
        at(n, gpu(utilization=n % 10 / 10),
           processes=[process(1, gpu_memory=n), *([process(2)] if n > count - 20 else [])])
        for n in range(count)
    ]  # fmt: skip
    whole, before = filled(*frames), filled(*frames[:-30])
    then = whole.copy(until=2000.5 + count - 31)
    assert list(then.times) == list(before.times)[-len(then.times) :]
    assert len(then.times) == min(count, SLOTS) - 30
    assert past(then, gpu()) == past(before, gpu())[-len(then.times) :]
    memory = before.of_process(process(1)).memory
    assert then.of_process(process(1)).memory == memory[-len(then.times) :]
    assert then.of_process(process(2)).memory == []
    then.append(at(count, gpu(utilization=0.45)))
    assert past(then, gpu())[-1] == 0.45
    assert past(whole, gpu())[-1] == (count - 1) % 10 / 10
    assert list(whole.copy(until=0).times) == []
