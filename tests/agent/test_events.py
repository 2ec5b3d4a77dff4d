"""XIDs: heard as they come, by whatever driver, and never in the way of anything else."""

from __future__ import annotations

import json
import sys
import time

import pytest

from tests.agent.driving import Agent, Json, gone
from tests.conftest import MachineFactory
from tests.driver import Machine
from tests.patience import until

pytestmark = pytest.mark.system

QUIET: Json = {"base": "h200x8", "gpus": 3, "processes": None}


def numbers(frame: Json) -> list[list[int] | None]:
    """The XIDs of each GPU."""
    xids = [(gpu["health"] or {}).get("xids") for gpu in frame["gpus"]]
    return [told and [xid["number"] for xid in told] for told in xids]


def report(here: Machine, gpu: int, *xids: int) -> None:
    """Let XIDs happen now, after those that have happened."""
    told = [*here.gpu(gpu)["xids"], *([here.elapsed, number] for number in xids)]
    here.change(gpu, xids=told)


def listening(agent: Agent) -> Json:
    """The first frame with XIDs; for an agent that has just been started."""
    frame = agent.line()
    while numbers(frame)[0] is None:
        frame = agent.refresh()
    return frame


def test_an_xid_is_in_one_of_the_next_two_frames(machine: MachineFactory) -> None:
    here = machine({**QUIET, "gpus": [{}, {"xids": [[3, 74], [3, 31]]}, {}]})
    with Agent(here, interval=0.5) as agent:
        while numbers(frame := agent.line())[1] != [74, 31]:
            assert here.elapsed < 4.2
        assert numbers(frame) == [[], [74, 31], []]
        assert frame["gpus"][1]["health"]["xids"][0]["time"] == pytest.approx(time.time(), abs=2)


def test_what_happened_before_is_not_told(machine: MachineFactory) -> None:
    here = machine({**QUIET, "gpus": [{"xids": [[0, 79], [0, 48]]}]})
    with Agent(here) as agent:
        assert numbers(listening(agent)) == [[]]


def test_the_last_twenty_are_kept(machine: MachineFactory) -> None:
    here = machine(QUIET)
    with Agent(here) as agent:
        listening(agent)
        report(here, 2, *range(1, 36))
        until(lambda: (numbers(agent.refresh())[2] or [0])[-1] == 35)
        assert numbers(agent.refresh()) == [[], [], list(range(16, 36))]


def test_a_gpu_that_falls_off_the_bus_keeps_its_xid(machine: MachineFactory) -> None:
    here = machine(QUIET)
    with Agent(here) as agent:
        listening(agent)
        report(here, 1, 79)
        here.fail("*", "GPU_IS_LOST", gpu=1)
        here.fail("nvmlEventSetWait*", "GPU_IS_LOST")
        until(lambda: agent.refresh()["gpus"][1]["error"])
        here.heal()
        until(lambda: numbers(agent.refresh())[1] == [79], within=8)
        here.fail("*", "GPU_IS_LOST", gpu=1)
        frame = agent.refresh()
        assert (frame["gpus"][1]["error"], numbers(frame)[1]) == ("GPU is lost", [79])


def test_a_gpu_that_answers_late_reports_from_then_on(machine: MachineFactory) -> None:
    """As one without persistence mode, which starts up when it is first asked."""
    here = machine({"base": "topo", "gpus": 2, "processes": None, "gpu": {"xids": []}})
    here.hang("nvmlDeviceGetHandleByIndex*", gpu=1)
    with Agent(here) as agent:
        while (frame := agent.refresh())["links"] is None or frame["topology"] is None:
            pass
        until(lambda: numbers(agent.refresh()) == [[], None])
        assert (frame["links"][0][1], frame["topology"]["p2p"][1][0]) == (None, None)
        here.heal()
        until(lambda: numbers(agent.refresh()) == [[], []])
        report(here, 1, 79)
        until(lambda: numbers(agent.refresh()) == [[], [79]])
        until(lambda: agent.refresh()["links"][0][1] == "NV18")
        until(lambda: agent.refresh()["topology"]["p2p"][1][0] is True)


def test_the_only_gpu_answers_late(machine: MachineFactory) -> None:
    here = machine({**QUIET, "gpus": 1})
    here.hang("nvmlDeviceGetHandleByIndex*", gpu=0)
    with Agent(here) as agent:
        assert agent.line()["gpus"][0]["stale_for"] is not None
        here.heal()
        until(lambda: numbers(agent.refresh()) == [[]])


def test_a_gpu_that_comes_back_from_being_lost_reports_again(machine: MachineFactory) -> None:
    here = machine(QUIET)
    here.fail("*", "GPU_IS_LOST", gpu=1)
    with Agent(here) as agent:
        until(lambda: numbers(agent.refresh()) == [[], None, []])
        here.heal()
        until(lambda: numbers(agent.refresh()) == [[], [], []])


def test_an_xid_has_the_sections_read_at_once(machine: MachineFactory) -> None:
    here = machine(QUIET)
    with Agent(here) as agent:
        listening(agent)
        here.change(0, remapped={"pending": 1})
        assert agent.refresh()["gpus"][0]["ecc"]["remap_pending"] is False
        report(here, 0, 63)
        until(lambda: numbers(agent.refresh())[0] == [63])
        assert agent.refresh()["gpus"][0]["ecc"]["remap_pending"] is True


def test_an_xid_during_a_reading_has_it_read_again(machine: MachineFactory) -> None:
    """What was read before the XID came is old, and would be for ten seconds."""
    here = machine(QUIET)
    with Agent(here) as agent:
        before = listening(agent)["gpus"][0]["persistence_mode"]
        here.hang("nvmlDeviceGetTotalEccErrors", gpu=0)
        while agent.refresh()["gpus"][0]["stale_for"] is None:
            pass
        here.change(0, persistence_mode=int(not before))
        report(here, 0, 63)
        until(lambda: numbers(agent.refresh())[0] == [63])
        here.heal()
        while agent.refresh()["gpus"][0]["stale_for"] is not None:
            pass
        assert agent.refresh()["gpus"][0]["persistence_mode"] is (not before)


@pytest.mark.parametrize(
    "function",
    ["nvmlEventSetCreate", "nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents",
     "nvmlEventSetWait_v2"],
)  # fmt: skip
@pytest.mark.parametrize("error", ["NOT_SUPPORTED", "NO_PERMISSION", "UNKNOWN"])
def test_a_driver_that_refuses(function: str, error: str, machine: MachineFactory) -> None:
    here = machine(QUIET, log=True)
    here.fail(function, error)
    with Agent(here) as agent:
        agent.line()
        until(lambda: any(called == function for called, _ in here.calls()))
        until(lambda: numbers(agent.refresh()) == [None] * 3)
        frame = agent.refresh()
        assert frame["gpus"][0]["health"]["recovery_action"] == "none"
        agent.process.terminate()
        assert agent.process.stderr
        assert agent.process.stderr.read() == b""


def test_one_gpu_that_refuses_does_not_silence_the_others(machine: MachineFactory) -> None:
    here = machine(QUIET)
    here.fail("nvmlDeviceRegisterEvents", "NOT_SUPPORTED", gpu=0)
    with Agent(here) as agent:
        agent.line()
        until(lambda: numbers(agent.refresh()) == [None, [], []])


def test_old_drivers_do_not_report(machine: MachineFactory) -> None:
    with Agent(machine({**QUIET, "era": 390})) as agent:
        agent.line()
        until(lambda: numbers(agent.refresh()) == [None] * 3)


@pytest.mark.parametrize("function", ["nvmlEventSetWait_v2", "nvmlDeviceRegisterEvents"])
def test_a_driver_that_hangs_there_delays_nothing(function: str, machine: MachineFactory) -> None:
    here = machine(QUIET, log=True)
    here.hang(function, wakes=False)
    with Agent(here) as agent:
        agent.line()
        until(lambda: any(called == function for called, _ in here.calls()))
        assert {gpu["stale_for"] for gpu in agent.refresh(within=2)["gpus"]} == {None}
        agent.close_stdin()
        until(lambda: gone(agent.process.pid), within=2)


def test_the_driver_goes_and_comes_back(machine: MachineFactory) -> None:
    here = machine(QUIET)
    with Agent(here) as agent:
        listening(agent)
        here.fail("nvmlDevice*", "DRIVER_NOT_LOADED")
        assert agent.refresh()["problem"]
        here.heal()
        until(lambda: numbers(agent.refresh()) == [[], [], []])
        report(here, 0, 48)
        until(lambda: numbers(agent.refresh())[0] == [48])


def test_a_single_look_does_not_listen(machine: MachineFactory) -> None:
    here = machine(QUIET, log=True)
    done = here.run([sys.executable, "-m", "gputop", "--json"])
    assert numbers(json.loads(done.stdout)) == [None] * 3
    assert not any(function.startswith("nvmlEvent") for function, _ in here.calls())
