"""What GPUs and their MIG devices do and use: GPM, memory of parts, the driver's refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.agent.driving import Agent, Json
from tests.conftest import MachineFactory
from tests.driver import Machine
from tests.patience import until

pytestmark = pytest.mark.system

MIB = 2**20
GPM: Json = {
    "graphics": 97, "sm": 91, "occupancy": 33, "tensor": 44, "fp64": 1, "fp32": 7, "fp16": 5,
    "dram": 58, "pcie_tx": 300, "pcie_rx": 900, "nvlink_tx": 40000, "nvlink_rx": 50000,
}  # fmt: skip
RATES = ("pcie_tx", "pcie_rx", "nvlink_tx", "nvlink_rx")


def part(gi: int, ci: int = 0, **more: Any) -> Json:
    memory = {"total": 10_000 * MIB, "used": (100 * gi + ci) * MIB}
    return {"uuid": f"MIG-{gi}-{ci}", "gi": gi, "ci": ci, "memory": memory, **more}


def divided(*parts: Json | None) -> Json:
    return {
        "gpu": {"uuid": "GPU-0", "mig": {"mode": 1, "pending": 1, "max": 7, "devices": list(parts)}}
    }


def values(**gpm: Any) -> Json:
    """As a frame has them."""
    return {
        name: value * MIB if name in RATES else value / 100
        for name, value in {**GPM, **gpm}.items()
    }


def measured(activity: Json | None) -> Json | None:
    """Without `doing`."""
    return activity and {name: value for name, value in activity.items() if name != "doing"}


def wait_for(agent: Agent, condition: Callable[[Json], object], gpu: int = 0) -> Json:
    """A GPU in the first frame in which it is so; samples are a second apart."""
    found: list[Json] = []

    def look() -> bool:
        found[:] = [agent.refresh()["gpus"][gpu]]
        return bool(condition(found[0]))

    until(look)
    return found[0]


def is_measured(gpu: Json) -> bool:
    return bool(gpu["activity"] and gpu["activity"]["sm"] is not None)


def doing_of(gpu: Json) -> str | None:
    doing: str | None = (gpu["activity"] or {}).get("doing")
    return doing


# Values


def test_values_are_those_between_two_samples(machine: MachineFactory) -> None:
    with Agent(machine({"gpu": {"gpm": GPM}})) as agent:
        assert agent.line()["gpus"][0]["activity"] is None
        activity = wait_for(agent, is_measured)["activity"]
    assert measured(activity) == pytest.approx(values())
    assert activity["doing"] is None


def test_a_metric_that_is_refused_or_no_number_is_unknown(machine: MachineFactory) -> None:
    odd = {"tensor": "nan", "fp64": {"error": "NOT_SUPPORTED"}, "dram": 111, "nvlink_tx": 2**60}
    with Agent(machine({"gpu": {"gpm": {**GPM, **odd}}})) as agent:
        activity = wait_for(agent, is_measured)["activity"]
    assert {name for name, value in activity.items() if value is None} == {*odd, "doing"}
    assert activity["sm"] == 0.91


def test_doing_after_three_looks(machine: MachineFactory) -> None:
    with Agent(machine({"gpu": {"gpm": GPM}})) as agent:
        agent.line()
        gpu = wait_for(agent, doing_of)
    assert gpu["activity"]["doing"] == "compute-bound"
    assert gpu["activity"]["graphics"] == 0.97  # it was not asked for every time


@pytest.mark.parametrize("era", [535, 450])
def test_without_gpm_doing_by_utilization(era: int, machine: MachineFactory) -> None:
    """A GPU before Hopper; a driver that has no such functions."""
    here = machine({"era": era, "gpu": {"utilization": {"gpu": 90, "memory": 5}}}, log=True)
    with Agent(here) as agent:
        agent.line()
        gpu = wait_for(agent, lambda gpu: gpu["activity"])
    assert gpu["activity"].pop("doing") == "busy (by UTIL)"
    assert set(gpu["activity"].values()) == {None}
    calls = Counter(function for function, _ in here.calls() if "Gpm" in function)
    assert calls == ({"nvmlGpmQueryDeviceSupport": 1} if era == 535 else {})


def test_a_machine_that_tells_nothing_has_no_activity(machine: MachineFactory) -> None:
    with Agent(machine({"gpu": {"temperature": 50}})) as agent:
        frames = [agent.line(), *(agent.refresh() for _ in range(4))]
    assert [frame["gpus"][0]["activity"] for frame in frames] == [None] * 5


# Calls


def test_samples_are_a_second_apart_and_five_for_graphics(machine: MachineFactory) -> None:
    here = machine({"gpu": {"gpm": GPM}}, log=True)
    with Agent(here) as agent:
        agent.line()
        for _ in range(5):
            agent.refresh()
        calls = Counter(function for function, _ in here.calls())
        assert (calls["nvmlGpmSampleGet"], calls["nvmlGpmMetricsGet"]) == (2, 0)
        wait_for(agent, doing_of)
    calls = Counter(function for function, _ in here.calls())
    assert calls["nvmlGpmSampleGet"] == 4 + 2
    assert calls["nvmlGpmMetricsGet"] == 3 + 1
    assert calls["nvmlGpmSampleAlloc"] == 2 + 2
    assert calls["nvmlGpmQueryDeviceSupport"] == 1


@pytest.mark.parametrize(("error", "again"), [("NOT_SUPPORTED", False), ("NO_PERMISSION", True)])
def test_refused_samples(error: str, again: bool, machine: MachineFactory) -> None:
    here = machine({"gpu": {"gpm": GPM, "utilization": {"gpu": 0, "memory": 0}}}, log=True)
    here.fail("nvmlGpmSampleGet", error)
    with Agent(here) as agent:
        agent.line()
        gpu = wait_for(agent, lambda gpu: gpu["activity"])
    assert (gpu["activity"]["doing"], gpu["error"]) == ("idle (by UTIL)", None)
    calls = Counter(function for function, _ in here.calls())
    assert calls["nvmlGpmSampleGet"] == (6 if again else 2)


def samples(here: Machine) -> int:
    """How many are allocated."""
    calls = Counter(function for function, _ in here.calls())
    return calls["nvmlGpmSampleAlloc"] - calls["nvmlGpmSampleFree"]


def test_samples_are_freed(machine: MachineFactory) -> None:
    """Of instances that are gone, and of a GPU that is lost."""
    here = machine(divided(part(1, gpm=GPM), part(2, gpm=GPM)), log=True)
    with Agent(here) as agent:
        agent.line()
        wait_for(agent, lambda gpu: gpu["mig"][1]["activity"])
        assert samples(here) == 4
        here.change(gpu=0, mig={"devices": [part(1, gpm=GPM)]})
        wait_for(agent, lambda gpu: len(gpu["mig"]) == 1)
        assert samples(here) == 2
        here.fail("nvmlDevice*", "GPU_IS_LOST", gpu=0)
        wait_for(agent, lambda gpu: gpu["error"])
        assert samples(here) == 0
        here.heal()
        gpu = wait_for(agent, lambda gpu: gpu["mig"] and gpu["mig"][0]["activity"])
        assert measured(gpu["mig"][0]["activity"]) == pytest.approx(values())


# MIG devices


def test_instances_have_values_of_their_own(machine: MachineFactory) -> None:
    light = {**GPM, "sm": 12, "pcie_rx": 1}
    parts = part(3, gpm=GPM), None, part(5, 0, gpm=light), part(5, 1, gpm=light), part(7)
    here = machine(divided(*parts), log=True)
    with Agent(here) as agent:
        agent.line()
        gpu = wait_for(agent, lambda gpu: gpu["mig"][0]["activity"])
    assert gpu["activity"] is None
    whole, small, same, none = (measured(device["activity"]) for device in gpu["mig"])
    assert whole == pytest.approx(values())
    assert small == same == pytest.approx(values(sm=12, pcie_rx=1))
    assert none is None
    calls = Counter(function for function, _ in here.calls())
    assert calls["nvmlGpmMigSampleGet"] == 5  # two of each that has them, one of the other


def test_memory_of_instances_is_that_of_now(machine: MachineFactory) -> None:
    here = machine(divided(part(1), part(2, memory=None)), log=True)
    with Agent(here) as agent:
        first, second = agent.line()["gpus"][0]["mig"]
        assert (first["memory_total"], first["memory_used"]) == (10_000 * MIB, 100 * MIB)
        assert (second["memory_total"], second["memory_used"]) == (None, None)
        here.change(gpu=0, mig={"devices": [part(1, memory={"total": 1000, "used": 700})]})
        here.forget_calls()
        first = agent.refresh()["gpus"][0]["mig"][0]
    assert (first["memory_total"], first["memory_used"]) == (1000, 700)
    assert "nvmlDeviceGetMigDeviceHandleByIndex" not in dict(here.calls())


def test_one_that_stops_answering_is_looked_for_at_once(machine: MachineFactory) -> None:
    here = machine(divided(part(1), part(2)))
    with Agent(here) as agent:
        assert len(agent.line()["gpus"][0]["mig"]) == 2
        here.change(gpu=0, mig={"devices": [None, part(2)]})
        agent.refresh()
        assert [gpu["gi"] for gpu in agent.refresh()["gpus"][0]["mig"]] == [2]


def test_refused_memory_is_asked_for_seldom(machine: MachineFactory) -> None:
    here = machine(divided(part(1)), log=True)
    here.fail("nvmlDeviceGetMemoryInfo*", "NO_PERMISSION")
    with Agent(here) as agent:
        agent.line()
        here.forget_calls()
        for _ in range(3):
            gpu = agent.refresh()["gpus"][0]
    assert (gpu["mig"][0]["memory_used"], gpu["error"]) == (None, None)
    calls = Counter(function for function, _ in here.calls())
    assert calls["nvmlDeviceGetMemoryInfo"] == 3  # of the GPU itself
    assert calls["nvmlDeviceGetMigDeviceHandleByIndex"] == 0


def test_the_scenarios_show_all_that_gpus_do(machine: MachineFactory) -> None:
    with Agent(machine({"base": "h200-gpm", "processes": None, "frozen_at": 3})) as agent:
        agent.line()
        gpus = [wait_for(agent, doing_of, index) for index in range(8)]
    doing = list(map(doing_of, gpus))
    assert doing == [
        "compute-bound", "idle", "idle", "memory-bound", "tensor unused", "waiting for input",
        "idle", "idle",
    ]  # fmt: skip
