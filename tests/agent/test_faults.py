"""Drivers that are slow, hang, lose GPUs, go away and come back, or do not start."""

from __future__ import annotations

from itertools import pairwise

import psutil
import pytest

from gputop.model.machine.gpu import SILENT_AFTER
from tests.agent.driving import Agent, Json, plain
from tests.conftest import MachineFactory
from tests.driver import Machine
from tests.patience import until

pytestmark = pytest.mark.system

VALUES = (
    "memory_total",
    "memory_used",
    "temperature",
    "utilization",
    "power",
    "sm_clock",
)
QUICK: Json = {"base": "h200x8", "gpus": 4, "processes": None, "gpu": {"temperature": 40}}


def temperatures(frame: Json) -> list[float | None]:
    return [gpu["temperature"] for gpu in frame["gpus"]]


def warm(here: Machine, degrees: int) -> None:
    """New values on all GPUs at once."""

    def edit(scenario: Json) -> None:
        for gpu in scenario["gpus"]:
            gpu["temperature"] = degrees

    here.update(edit)


# Slow and hung GPUs


def test_slow_calls_slow_no_gpu_down(machine: MachineFactory) -> None:
    """20 ms a call, 20 calls a GPU, 16 GPUs: one after another they would take 6 seconds."""
    here = machine({"base": "x16", "processes": None, "latency_ms": 20, "frozen_at": 1})
    with Agent(here) as agent:
        for look in (agent.line, agent.refresh):
            gpus = look(within=5.0)["gpus"]
            assert len(gpus) == 16
            assert {gpu["stale_for"] for gpu in gpus} == {None}
            assert all(gpu[field] is not None for gpu in gpus for field in VALUES)


def test_calls_of_one_gpu_never_overlap(machine: MachineFactory) -> None:
    """A driver slower than the interval: each cycle's calls are made in order, once."""
    here = machine({**QUICK, "gpus": 2}, log=True)
    with Agent(here, interval=0.1) as agent:
        agent.line()
        agent.line()
        here.forget_calls()
        here.slow("nvmlDeviceGetUtilizationRates", 400)
        for _ in range(8):
            agent.line()
        calls = [function for function, gpu in here.calls() if gpu == 1]
    begins = [at for at, call in enumerate(calls) if call == "nvmlDeviceGetMemoryInfo_v2"]
    cycles = [calls[begin:end] for begin, end in pairwise(begins)]
    # Some are made now and then, at a pace of their own.
    always = {call for call in cycles[0] if all(cycle.count(call) == 1 for cycle in cycles)}
    assert {"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetUtilizationRates"} <= always
    assert len({tuple(call for call in cycle if call in always) for cycle in cycles}) == 1


def test_a_gpu_that_hangs_from_a_moment_on(machine: MachineFactory) -> None:
    here = machine(QUICK)
    with Agent(here, interval=0.3) as agent:
        before = agent.line()["gpus"][2]
        here.hang("nvmlDeviceGetUtilizationRates", gpu=2)
        warm(here, 70)
        while (frame := agent.line(5.0))["gpus"][2]["stale_for"] is None:
            before = frame["gpus"][2]  # it was read again before it hung
        assert temperatures(frame) == [70, 70, 40, 70]
        stale = [frame["gpus"][2]["stale_for"]]
        warm(here, 80)
        for _ in range(3):
            frame = agent.line(within=2)
            stale.append(frame["gpus"][2]["stale_for"])
            assert [gpu["stale_for"] for gpu in frame["gpus"] if gpu["index"] != 2] == [None] * 3
        assert temperatures(frame) == [80, 80, 40, 80]
        assert stale == sorted(stale)
        assert stale[-1] > max(0.6, stale[0])
        assert plain({**frame["gpus"][2], "stale_for": None, "state": "answers"}) == plain(before)
        here.heal()
        while (frame := agent.line(5.0))["gpus"][2]["stale_for"] is not None:
            pass
        assert temperatures(agent.line()) == [80] * 4


def test_a_hung_gpu_delays_one_frame_only(machine: MachineFactory) -> None:
    """Who was late is not waited for again."""
    here = machine(QUICK)
    with Agent(here, interval=60) as agent:
        agent.line()
        here.hang("nvmlDeviceGetUtilizationRates", gpu=2)
        assert agent.refresh(5.0)["gpus"][2]["stale_for"] is not None
        for _ in range(3):
            assert agent.refresh(1.0)["gpus"][2]["stale_for"] is not None


def test_a_gpu_that_hangs_from_the_start(machine: MachineFactory) -> None:
    here = machine(QUICK)
    here.hang("nvmlDeviceGetUUID", gpu=1)
    with Agent(here, interval=0.3) as agent:
        for _ in range(2):
            frame = agent.line(5.0)
            assert [gpu["index"] for gpu in frame["gpus"]] == [0, 1, 2, 3]
            assert temperatures(frame) == [40, None, 40, 40]
            hung = frame["gpus"][1]
            assert (hung.pop("holders"), hung.pop("listed")) == ([], "unknown")
            age, state = hung.pop("stale_for"), hung.pop("state")
            assert state == ("late" if age < SILENT_AFTER else "silent")
            assert {hung[field] for field in hung if field != "index"} == {None}
        here.heal()
        while (frame := agent.line(5.0))["gpus"][1]["stale_for"] is not None:
            pass
        assert frame["gpus"][1]["uuid"] == here.gpu(1)["uuid"]


def test_processes_of_a_hung_gpu_stay(machine: MachineFactory) -> None:
    train = {"command": ["python", "train.py"], "on": {"gpu": 1, "used": 2**20}}
    here = machine({"gpu": {"uuid": "GPU-{i}"}, "gpus": 2, "processes": {"train": train}})
    with Agent(here, interval=0.2) as agent:
        [before] = agent.line()["processes"]
        here.hang(gpu=1)
        while (frame := agent.line(5.0))["gpus"][1]["stale_for"] is None:
            pass
        [after] = frame["processes"]
    assert (after["pid"], after["gpu_memory"]) == (before["pid"], before["gpu_memory"])
    assert after["command"] == "python train.py"


def test_all_gpus_hang(machine: MachineFactory) -> None:
    here = machine(QUICK)
    with Agent(here, interval=0.2) as agent:
        agent.line()
        here.hang("nvmlDeviceGet*", gpu="all")
        for _ in range(4):
            frame = agent.line(5.0)
    assert temperatures(frame) == [40] * 4
    assert all(gpu["stale_for"] > 0 for gpu in frame["gpus"])
    assert frame["problem"] is None


def test_init_hangs(machine: MachineFactory) -> None:
    with Agent(machine("init-hang"), interval=1.0) as agent:
        problems = [agent.line(5.0)["problem"] for _ in range(2)]
    assert {problem["code"] for problem in problems} == {"not_answering"}
    assert [problem["text"] for problem in problems] == [
        "the NVIDIA driver has not answered for 1 s (nvmlInit)",
        "the NVIDIA driver has not answered for 2 s (nvmlInit)",
    ]


def test_init_hangs_for_a_while(machine: MachineFactory) -> None:
    here = machine(QUICK)
    here.hang("nvmlInit*")
    with Agent(here, interval=0.2) as agent:
        assert agent.line(5.0)["problem"]["code"] == "not_answering"
        here.heal()
        while (frame := agent.line(5.0))["problem"] is not None:
            assert frame["problem"]["code"] == "not_answering"
            assert frame["gpus"] == []
        assert temperatures(frame) == [40] * 4


# GPUs and drivers that go and come


@pytest.mark.parametrize("error", ["GPU_IS_LOST", "RESET_REQUIRED", "GPU_NOT_FOUND"])
def test_a_gpu_is_lost_and_comes_back(error: str, machine: MachineFactory) -> None:
    here = machine(QUICK)
    with Agent(here) as agent:
        agent.line()
        here.fail("*", error, gpu=1)
        frame = agent.refresh()
        lost = frame["gpus"][1]
        assert temperatures(frame) == [40, None, 40, 40]
        assert (lost["state"], bool(lost["error"])) == ("lost", True)
        assert lost["stale_for"] is None
        assert (lost["uuid"], lost["name"]) == (here.gpu(1)["uuid"], "NVIDIA H200")
        assert lost["memory_used"] is None
        here.heal()
        back = agent.refresh()["gpus"][1]
    assert (back["temperature"], back["error"]) == (40, None)


def test_what_a_lost_gpu_did_not_support_is_asked_when_it_is_back(machine: MachineFactory) -> None:
    here = machine({"gpu": {"fan": None, "graphics": None}, "gpus": 2})
    with Agent(here) as agent:
        assert agent.line()["gpus"][0]["fan"] is None
        here.change(gpu=0, fan=40, graphics=[{"pid": 4194305}])
        here.fail("*", "GPU_IS_LOST", gpu=0)
        assert agent.refresh()["gpus"][0]["error"]
        here.heal()
        frame = agent.refresh()
    assert frame["gpus"][0]["fan"] == 0.4
    assert [process["pid"] for process in frame["processes"]] == [4194305]


@pytest.mark.parametrize("error", ["DRIVER_NOT_LOADED", "UNINITIALIZED"])
def test_the_driver_is_unloaded_and_comes_back(error: str, machine: MachineFactory) -> None:
    here = machine({**QUICK, "gpu": {"temperature": 40, "utilization": {"gpu": 0}}}, log=True)
    with Agent(here) as agent:
        agent.line()
        until(lambda: agent.refresh()["gpus"][0]["idle_for"])
        here.fail("nvmlDevice*", error)
        gone = agent.refresh()
        assert gone["problem"]["code"] == "driver_not_loaded"
        assert (gone["gpus"], gone["processes"]) == ([], [])
        here.update(lambda scenario: scenario.update(driver_version="999.1"))
        here.heal()
        here.forget_calls()
        back = agent.refresh()
    assert back["problem"] is None
    assert back["driver_version"] == "999.1"
    assert temperatures(back) == [40] * 4
    assert back["gpus"][0]["idle_for"] == 0.0  # nobody knows what was done meanwhile
    assert ("nvmlInitWithFlags", None) in here.calls()


def test_a_driver_that_comes_and_goes_leaves_no_threads(machine: MachineFactory) -> None:
    here = machine(QUICK)
    with Agent(here) as agent:
        agent.line()
        threads = psutil.Process(agent.process.pid).num_threads
        until(lambda: None not in map(agent.refresh().get, ("links", "topology")))
        before = threads()
        for _ in range(5):
            here.fail("nvmlDevice*", "DRIVER_NOT_LOADED")
            assert agent.refresh()["problem"]
            here.heal()
            until(lambda: None not in map(agent.refresh().get, ("links", "topology")))
        until(lambda: threads() < before + 5)  # some call may have one just now


def test_the_driver_comes_back_with_fewer_gpus(machine: MachineFactory) -> None:
    here = machine(QUICK)
    with Agent(here) as agent:
        agent.line()
        here.fail("nvmlDevice*", "DRIVER_NOT_LOADED")
        assert agent.refresh()["problem"]
        here.heal()
        here.update(lambda scenario: scenario["gpus"].pop())
        assert temperatures(agent.refresh()) == [40] * 3


def test_a_gpu_without_permission_is_absent(machine: MachineFactory) -> None:
    """As in a container that was given some of the GPUs; the others keep their index."""
    here = machine(QUICK)
    here.fail("nvmlDeviceGetHandleByIndex*", "NO_PERMISSION", gpu=1)
    with Agent(here) as agent:
        for frame in (agent.line(), agent.refresh()):
            assert [gpu["index"] for gpu in frame["gpus"]] == [0, 2, 3]
            assert temperatures(frame) == [40] * 3


def test_no_permission_for_any_gpu(machine: MachineFactory) -> None:
    here = machine(QUICK)
    here.fail("nvmlDeviceGetHandleByIndex*", "NO_PERMISSION")
    with Agent(here) as agent:
        assert agent.line()["problem"]["code"] == "no_permission"


# Drivers that do not start


@pytest.mark.parametrize(
    ("scenario", "kind"),
    [
        ("no-driver", "driver_not_loaded"),
        ("mismatch", "version_mismatch"),
        ("no-permission", "no_permission"),
        ("no-gpu", "no_gpu"),
        ({"base": "h200x8", "init": {"error": "UNKNOWN"}}, "error"),
        ({"base": "h200x8", "init": {"error": "INSUFFICIENT_POWER"}}, "error"),
    ],
)
def test_what_keeps_the_driver_from_starting(
    scenario: str | Json, kind: str, machine: MachineFactory
) -> None:
    with Agent(machine(scenario)) as agent:
        frame = agent.line()
    assert frame["problem"]["code"] == kind
    assert frame["problem"]["text"]
    assert frame["problem"]["advice"]
    assert (kind == "version_mismatch") == ("start it again" in frame["problem"]["advice"])
    assert (frame["gpus"], frame["processes"]) == ([], [])
    assert frame["host"]["name"]


def test_without_the_library(machine: MachineFactory) -> None:
    """A file in its place that is no library: so the test holds where there is a driver, too."""
    here = machine({})
    assert here._directory
    (here._directory / "libnvidia-ml.so.1").write_text("not a library")
    with Agent(here, env={"LD_LIBRARY_PATH": str(here._directory)}) as agent:
        assert agent.line()["problem"]["code"] == "library_not_found"
