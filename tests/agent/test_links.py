"""How GPUs are connected: what a frame tells of a driver that knows it, or knows a part."""

from __future__ import annotations

from typing import Any

import pytest

from tests.agent.driving import Agent, Json
from tests.conftest import MachineFactory
from tests.patience import until

pytestmark = pytest.mark.system


def listed(*gpus: Json) -> Json:
    """A scenario of GPUs that can be told apart."""
    own = (
        {"name": "A", "uuid": f"GPU-{i}", "pci": {"bus_id": f"00000000:0{i + 1}:00.0"}}
        for i, _ in enumerate(gpus)
    )
    return {"gpus": [named | gpu for named, gpu in zip(own, gpus, strict=True)]}


def linked(machine: MachineFactory, *gpus: Json) -> Any:
    """The links of the first frame that has them."""
    with Agent(machine(listed(*gpus))) as agent:
        frame = agent.line()
        while frame["links"] is None:
            frame = agent.refresh()
        return frame["links"]


def test_pcie(machine: MachineFactory) -> None:
    levels = [{"near": {"1": 10, "2": 20, "3": 30, "4": 40, "5": 50}}, *[{}] * 5]
    first, *rest = linked(machine, *levels)
    assert first == ["X", "PIX", "PXB", "PHB", "NODE", "SYS"]
    assert [row[0] for row in rest] == first[1:]
    assert rest[0][2] is None  # the driver does not say


def test_nvlink_between_pairs_and_pcie_for_the_others(machine: MachineFactory) -> None:
    near = {"near": {"1": 50, "2": 50}}
    rows = linked(machine, {"links": {"2": 4}, **near}, near, {"links": {"0": 4}})
    assert rows[0] == ["X", "SYS", "NV4"]
    assert rows[2][0] == "NV4"


def test_through_switches_as_many_as_the_weaker_has(machine: MachineFactory) -> None:
    rows = linked(machine, *({"links": {"switch": count}} for count in (18, 18, 6)))
    assert rows == [["X", "NV18", "NV6"], ["NV18", "X", "NV6"], ["NV6", "NV6", "X"]]


@pytest.mark.parametrize(
    "function", ["nvmlDeviceGetNvLink*", "nvmlDeviceGetTopologyCommonAncestor"]
)
def test_what_the_driver_refuses_is_not_known(function: str, machine: MachineFactory) -> None:
    here = machine("h200x8")
    here.fail(function, "NOT_SUPPORTED")
    with Agent(here) as agent:
        frame = agent.line()
        while frame["links"] is None:
            frame = agent.refresh()
    assert frame["links"][0][1] == (None if "NvLink" in function else "NV18")


def test_a_driver_that_hangs_there_delays_nothing(machine: MachineFactory) -> None:
    here = machine("h200x8")
    here.hang("nvmlDeviceGetNvLinkRemoteDeviceType", wakes=False)
    with Agent(here) as agent:
        frames = [agent.line(), agent.refresh()]
    assert [frame["links"] for frame in frames] == [None, None]
    assert all(gpu["stale_for"] is None for gpu in frames[1]["gpus"])


def test_links_are_read_again_once_others_are_up(machine: MachineFactory) -> None:
    """Not when a GPU has merely been away."""
    here = machine(listed({"links": {"1": 4}}, {"links": {"0": 4}}), log=True)

    def come_back() -> None:
        here.fail("*", "GPU_IS_LOST", gpu=0)
        assert agent.refresh()["gpus"][0]["error"]
        here.heal()
        assert not agent.refresh()["gpus"][0]["error"]

    with Agent(here) as agent:
        agent.line()
        until(lambda: agent.refresh()["links"] == [["X", "NV4"], ["NV4", "X"]])
        here.forget_calls()
        come_back()
        agent.refresh()
        assert "nvmlDeviceGetNvLinkRemotePciInfo_v2" not in dict(here.calls())
        here.change(gpu=0, links={"1": 2})
        come_back()
        until(lambda: agent.refresh()["links"] == [["X", "NV2"], ["NV2", "X"]])
