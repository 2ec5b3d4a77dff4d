"""The agent asks the CUDA driver for its reader, and what becomes of the frames meanwhile."""

from __future__ import annotations

import signal
from contextlib import closing

import psutil
import pytest

from gputop.model.machine.signals import Target
from gputop.model.machine.text import GIB
from gputop.protocol.messages import Probe, Signal
from gputop.sources.ask import ask, frames_of, wait_for_frame
from gputop.sources.demo.source import DemoSource
from tests.agent.driving import Agent, Json, gone
from tests.conftest import MachineFactory
from tests.driver import Machine
from tests.patience import until

pytestmark = pytest.mark.system

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


def probed(agent: Agent, value: str | None, order: str | None) -> list[Json]:
    """What the reply tells."""
    agent.ask("probe", value=value, order=order, id="p")
    answers: list[Json] = agent.reply("p")["probed"]
    return answers


def test_the_answer_waits_for_no_frame_and_makes_none(machine: MachineFactory) -> None:
    """With the order of all GPUs; the next frame is due in a minute."""
    with Agent(machine(BOX)) as agent:
        agent.line()
        value, unset = probed(agent, "1,0", None)
        assert (value["value"], value["order"], value["problem"]) == ("1,0", None, None)
        assert (unset["value"], unset["order"], unset["problem"]) == (None, None, None)
        assert (order(value), order(unset)) == ([0, 2], [2, 0, 1])
        [last] = probed(agent, None, "PCI_BUS_ID")
        assert (last["value"], last["order"], order(last)) == (None, "PCI_BUS_ID", [0, 1, 2])
        with pytest.raises(TimeoutError):
            agent.line(within=0.4)


def test_a_failure_is_told_and_asked_again(machine: MachineFactory) -> None:
    here = machine(BOX)
    here.fail("cuInit", 999)
    with Agent(here) as agent:
        agent.line()
        [answer] = probed(agent, None, None)
        assert answer["devices"] is None
        assert answer["problem"] == "cuInit failed with CUDA error 999"
        here.heal()
        [answer] = probed(agent, None, None)
        assert answer["problem"] is None
        assert answer["devices"] is not None


def test_frames_go_on_while_the_driver_hangs(machine: MachineFactory) -> None:
    here = machine(BOX, log=True)
    here.hang("cuInit")
    with Agent(here) as agent:
        agent.line()
        agent.ask("probe", value="0", order=None, id="p")
        until(lambda: ("cuInit", None) in here.calls())
        for temperature in (50, 60):
            here.change(gpu=0, temperature=temperature)
            assert agent.refresh(within=5)["gpus"][0]["temperature"] == temperature
        here.heal()
        answers = agent.reply("p")["probed"]
    assert [order(answer) for answer in answers] == [[2], [2, 0, 1]]


def test_what_is_asked_already_is_not_asked_again(machine: MachineFactory) -> None:
    """Of a driver that takes its time and then fails, so that nothing is remembered."""
    here = machine(BOX, log=True)
    here.override("cuInit", ms=300, error=999)
    with Agent(here) as agent:
        agent.line()
        for id_ in "abc":
            agent.ask("probe", value="0", order=None, id=id_)
        answers = [agent.reply(id_)["probed"] for id_ in "abc"]
        assert [len(answer) for answer in answers] == [2, 2, 2]
    assert here.calls().count(("cuInit", None)) == 2


def test_too_many_questions_are_refused(machine: MachineFactory) -> None:
    here = machine(BOX, log=True)
    here.hang("cuInit")
    with Agent(here) as agent:
        agent.line()
        for number in range(66):
            agent.ask("probe", value=str(number), order=None, id=str(number))
        assert agent.reply()["error"] == "too many requests are pending: try again"
        here.heal()
        assert agent.reply("0")["probed"]


@pytest.mark.parametrize("end", ["kill", "close"])
def test_no_process_stays_behind_an_agent_that_ends(end: str, machine: MachineFactory) -> None:
    here = machine(BOX, log=True)
    here.hang("cuInit", wakes=False)
    with Agent(here) as agent:
        agent.line()
        agent.ask("probe", value="0", order=None)
        [child] = _children_that_ask(agent, here)
        if end == "kill":
            agent.process.kill()
        else:
            agent.close_stdin()
        agent.process.wait(60)
        until(lambda: gone(child.pid))


def _children_that_ask(agent: Agent, here: Machine) -> list[psutil.Process]:
    until(lambda: ("cuInit", None) in here.calls())
    own = psutil.Process(agent.process.pid)
    return [child for child in own.children() if child.cmdline() != own.cmdline()]


def test_the_demo_has_none() -> None:
    with closing(DemoSource(60.0)) as source:
        [answer] = ask(source, Probe("0", "PCI_BUS_ID"), 5.0).probed
    assert (answer.devices, answer.problem) == (None, "the demo has no CUDA driver")
    assert (answer.value, answer.order) == ("0", "PCI_BUS_ID")


def test_the_demo_plays_signals() -> None:
    """One ignores SIGTERM; after SIGKILL it is gone, and its memory back. Others stay."""
    with closing(DemoSource(0.05)) as source:
        frame = next(frames_of(source))
        jobs = {process.pid: process.id for process in frame.processes}
        stubborn, target = 30411, Target(jobs[30411])
        outcomes = []
        for number in (0, signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
            [verdict] = ask(source, Signal("s", (target,), number, 1.0), 5.0).verdicts
            outcomes.append(verdict.outcome)
        assert outcomes == ["alive", "ignored", "exited", "gone"]
        after = wait_for_frame(source, lambda frame: len(frame.processes) < len(jobs) + 1, 5.0)
        assert {process.pid for process in after.processes} == jobs.keys() - {stubborn}
        assert (after.gpus[2].memory_used or 0) < GIB < (frame.gpus[2].memory_used or 0)


def test_a_demo_that_begins_anew_ends_the_frames_of_before() -> None:
    """Two readers would share the replies."""
    with closing(DemoSource(60.0)) as source:
        before = source.frames()
        next(before)
        source.reconnect()
        assert list(before) == []
        ask(source, Probe("0", None), 5.0)
