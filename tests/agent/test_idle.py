"""For how long a process has held its memory without work."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gputop.agent.gpu.lists import Utilization
from gputop.agent.idle import IdleTimes
from gputop.model.machine.process_id import ProcessId
from tests.agent.driving import Agent, Json
from tests.conftest import MachineFactory
from tests.patience import until

NOBODY = 4194305
KEY = (0, ProcessId(7, 1))


def sample(sm: float = 0.0, decoder: float = 0.0) -> dict[int, Utilization]:
    return {7: Utilization(sm, 1, 0.0, 0.0, decoder)}


def test_it_counts_from_the_last_work_or_the_first_look() -> None:
    idle = IdleTimes()
    told = []
    for at, samples in (
        (10.0, {}),
        (12.0, {}),
        (13.0, sample(sm=0.5)),
        (15.0, sample()),
        (16.0, {}),
    ):
        told.append(idle.of_process(KEY, samples, 0.0, at))
        idle.end_cycle()
    assert told == [0.0, 2.0, 0.0, 2.0, 3.0]


def test_a_decoder_at_work_is_no_idle_process() -> None:
    idle = IdleTimes()
    idle.of_process(KEY, sample(), 0.0, 1.0)
    idle.end_cycle()
    assert idle.of_process(KEY, sample(decoder=0.3), 0.0, 9.0) == 0.0


def test_without_samples_nothing_is_known() -> None:
    assert IdleTimes().of_process(KEY, None, 0.0, 1.0) is None
    assert IdleTimes().of_gpu(0, None, 1.0) is None


def test_where_nobody_ever_had_a_sample_the_gpu_speaks() -> None:
    idle = IdleTimes()
    for at, utilization, expected in ((1.0, 0.5, 0.0), (5.0, 0.5, 0.0), (7.0, 0.0, 2.0)):
        assert idle.of_process(KEY, {}, utilization, at) == expected
        idle.end_cycle()


def test_time_that_nobody_observed_is_not_idle() -> None:
    """The driver hung, or the agent was stopped; a minute between two frames is observed."""
    idle, told = IdleTimes(), []
    for at, samples, utilization in (
        (100.0, sample(sm=0.5), 0.5), (160.0, {}, 0.0), (7300.0, {}, 0.0), (7301.0, {}, 0.0)
    ):  # fmt: skip
        told.append((idle.of_gpu(0, utilization, at), idle.of_process(KEY, samples, 0.0, at)))
        idle.end_cycle()
    assert told == [(0.0, 0.0), (60.0, 60.0), (0.0, 0.0), (1.0, 1.0)]


def test_who_left_begins_anew() -> None:
    idle = IdleTimes()
    idle.of_process(KEY, {}, 0.0, 1.0)
    idle.end_cycle()
    idle.end_cycle()
    assert idle.of_process(KEY, {}, 0.0, 9.0) == 0.0


def scenario(*compute: Json, **gpu: Any) -> Json:
    busy = {"gpu": 50, "memory": 1}
    return {"gpu": {"uuid": "GPU-{i}", "utilization": busy, "compute": list(compute), **gpu}}


@pytest.mark.system
def test_one_holds_and_the_other_works(machine: MachineFactory) -> None:
    here = machine(scenario({"pid": NOBODY, "used": 1}, {"pid": NOBODY + 1, "used": 1, "sm": 5}))
    with Agent(here, interval=0.1) as agent:
        while times(frame := agent.line())[0] < 1.2:
            assert frame["gpus"][0]["idle_for"] == 0.0
        assert times(frame)[1] < 0.8  # samples are not taken as often as that
        here.change(gpu=0, utilization={"gpu": 0})
        until(lambda: agent.line()["gpus"][0]["idle_for"] > 0.2)


def times(frame: Json) -> list[Any]:
    return [process["idle_for"] for process in frame["processes"]]


@pytest.mark.system
def test_a_driver_without_samples(machine: MachineFactory) -> None:
    here = machine(scenario({"pid": NOBODY, "used": 1}, samples=None))
    with Agent(here) as agent:
        agent.line()
        assert times(agent.refresh()) == [None]


@pytest.mark.system
def test_nothing_grows_while_the_gpu_does_not_answer(machine: MachineFactory) -> None:
    here = machine(scenario({"pid": NOBODY, "used": 1}, {"pid": NOBODY + 1, "used": 1, "sm": 5}))
    with Agent(here, interval=0.2) as agent:
        agent.line()
        here.hang()
        until(lambda: agent.line()["gpus"][0]["stale_for"] is not None)
        before, started = times(agent.line()), time.monotonic()
        until(lambda: agent.line() and time.monotonic() > started + 0.5)
        assert times(agent.line()) == before
