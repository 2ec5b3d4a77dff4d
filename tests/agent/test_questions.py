"""The agent asks the CUDA driver for its reader, and what becomes of the frames meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress

import psutil
import pytest

from gputop.model.protocol import Pause, Probe
from gputop.sources.demo import DemoSource
from tests.agent.driving import Agent, Json, gone, until
from tests.conftest import MachineFactory
from tests.driver import Machine

BOX: Json = {
    "gpu": {
        "name": "NVIDIA H200",
        "uuid": "GPU-5e00000{i}-0000-4000-8000-00000000000{i}",
        "pci": {"bus_id": "00000000:0{i}:00.0"},
        "temperature": 40,
    },
    "gpus": 3,
    "cuda_order": [2, 0, 1],
}


def order(answer: Json) -> list[int]:
    """NVML's indices of the devices of an answer."""
    return [int(device["uuid"][7]) for device in answer["devices"]]


def until_probed(agent: Agent, enough: Callable[[list[Json]], bool]) -> list[Json]:
    """The answers of the first frame that comes by itself with enough of them."""
    answers: list[Json] = []
    while not enough(answers):
        answers = agent.line()["probed"]
    return answers


def test_the_answer_comes_in_a_frame_of_its_own(machine: MachineFactory) -> None:
    """With the order of all GPUs; the next frame is due in a minute."""
    with Agent(machine(BOX)) as agent:
        assert agent.line()["probed"] == []
        agent.ask("probe", value="1,0", order=None)
        value, unset = until_probed(agent, lambda answers: len(answers) == 2)
        assert (value["value"], value["order"], value["problem"]) == ("1,0", None, None)
        assert (unset["value"], unset["order"], unset["problem"]) == (None, None, None)
        assert (order(value), order(unset)) == ([0, 2], [2, 0, 1])
        assert agent.refresh()["probed"] == [value, unset]
        agent.ask("probe", value=None, order="PCI_BUS_ID")
        last = until_probed(agent, lambda answers: len(answers) == 3)[-1]
        assert (last["value"], last["order"], order(last)) == (None, "PCI_BUS_ID", [0, 1, 2])


def test_while_paused(machine: MachineFactory) -> None:
    with Agent(machine(BOX), interval=0.1) as agent:
        agent.line()
        agent.ask("pause", paused=True)
        with suppress(TimeoutError):
            while True:
                agent.line(within=0.4)
        agent.ask("probe", value=None, order=None)
        [answer] = until_probed(agent, bool)
        assert order(answer) == [2, 0, 1]
        with pytest.raises(TimeoutError):
            agent.line(within=0.4)


def test_a_failure_is_told_and_asked_again(machine: MachineFactory) -> None:
    here = machine(BOX)
    here.fail("cuInit", 999)
    with Agent(here) as agent:
        agent.line()
        agent.ask("probe", value=None, order=None)
        [answer] = until_probed(agent, bool)
        assert answer["devices"] is None
        assert answer["problem"] == "cuInit failed with CUDA error 999"
        here.heal()
        agent.ask("probe", value=None, order=None)
        [answer] = until_probed(
            agent, lambda answers: answers != [] and answers[0]["devices"] is not None
        )
        assert answer["problem"] is None


def test_frames_go_on_while_the_driver_hangs(machine: MachineFactory) -> None:
    here = machine(BOX, log=True)
    here.hang("cuInit")
    with Agent(here) as agent:
        agent.line()
        agent.ask("probe", value="0", order=None)
        until(lambda: ("cuInit", None) in here.calls())
        for temperature in (50, 60):
            here.change(gpu=0, temperature=temperature)
            frame = agent.refresh(within=5)
            assert (frame["gpus"][0]["temperature"], frame["probed"]) == (temperature, [])
        here.heal()
        answers = until_probed(agent, lambda answers: len(answers) == 2)
    assert [order(answer) for answer in answers] == [[2], [2, 0, 1]]


def test_what_is_asked_already_is_not_asked_again(machine: MachineFactory) -> None:
    """Of a driver that takes its time and then fails, so that nothing is remembered."""
    here = machine(BOX, log=True)
    here.override("cuInit", ms=300, error=999)
    with Agent(here) as agent:
        agent.line()
        for _ in range(3):
            agent.ask("probe", value="0", order=None)
        until_probed(agent, lambda answers: len(answers) == 2)
        with pytest.raises(TimeoutError):
            agent.line(within=1.0)
    assert here.calls().count(("cuInit", None)) == 2


def test_answers_go_with_the_driver(machine: MachineFactory) -> None:
    here = machine(BOX)
    with Agent(here) as agent:
        agent.line()
        agent.ask("probe", value=None, order=None)
        until_probed(agent, bool)
        here.fail("nvmlDevice*", "DRIVER_NOT_LOADED")
        lost = agent.refresh()
        assert (lost["problem"]["kind"], lost["probed"]) == ("driver_not_loaded", [])
        here.heal()
        back = agent.refresh()
        assert (back["problem"], back["probed"]) == (None, [])


def test_answers_go_with_the_inventory(machine: MachineFactory) -> None:
    here = machine({"base": "mig", "processes": None})
    with Agent(here) as agent:
        agent.line()
        agent.ask("probe", value=None, order=None)
        until_probed(agent, bool)
        assert [len(agent.refresh()["probed"]) for _ in range(10)] == [1] * 10
        here.change(gpu=3, mig={"devices": []})
        frames = [agent.refresh() for _ in range(11)]
    assert frames[-1]["gpus"][3]["mig"] == []
    assert all(bool(frame["probed"]) == bool(frame["gpus"][3]["mig"]) for frame in frames)


@pytest.mark.parametrize("end", ["kill", "stop", "close"])
def test_no_process_stays_behind_an_agent_that_ends(end: str, machine: MachineFactory) -> None:
    here = machine(BOX, log=True)
    here.hang("cuInit", wakes=False)
    with Agent(here) as agent:
        agent.line()
        agent.ask("probe", value="0", order=None)
        [child] = _children_that_ask(agent, here)
        if end == "kill":
            agent.process.kill()
        elif end == "stop":
            agent.ask("stop")
        else:
            agent.close_stdin()
        agent.process.wait(5)
        until(lambda: gone(child.pid))


def _children_that_ask(agent: Agent, here: Machine) -> list[psutil.Process]:
    until(lambda: ("cuInit", None) in here.calls())
    return psutil.Process(agent.process.pid).children()


def test_the_demo_has_none() -> None:
    with closing(DemoSource(60.0)) as source:
        frames = source.frames()
        assert next(frames).probed == ()
        source.request(Pause(paused=True))
        next(frames)
        source.request(Probe("0", "PCI_BUS_ID"))
        [answer] = next(frames).probed
    assert (answer.devices, answer.problem) == (None, "the demo has no CUDA driver")
    assert (answer.value, answer.order) == ("0", "PCI_BUS_ID")
