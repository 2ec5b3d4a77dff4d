"""MIG devices, cores and multiprocessors, on drivers that tell them, refuse, and lie."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.agent.driving import Agent, Json, plain
from tests.conftest import MachineFactory
from tests.driver import Machine

pytestmark = pytest.mark.system

NAME = "NVIDIA H100 80GB HBM3"


def device(gi: Any, ci: Any = 0, **more: Any) -> Json:
    return {"uuid": f"MIG-{gi}-{ci}", "gi": gi, "ci": ci, "profile": "1g.10gb", **more}


def divided(*devices: Json | None, **mig: Any) -> Json:
    mig = {"mode": 1, "pending": 1, "max": 7, "devices": list(devices), **mig}
    return {"gpu": {"name": NAME, "uuid": "GPU-{i}", "mig": mig}}


def mig_of(here: Machine) -> Json:
    with Agent(here) as agent:
        gpu = plain(agent.line()["gpus"][0])
    assert gpu["error"] is None
    assert gpu["name"] == NAME
    return gpu


# MIG devices


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ([], []),
        ([device(7), None, device(3), device(3, 1)], [device(7), device(3), device(3, 1)]),
        ([None, device(1, name="GRID 1g.10gb")], [device(1, profile=None)]),
        ([device(1, uuid={"error": "NO_PERMISSION"})], [device(1, uuid=None)]),
        ([device(1, uuid="\x1b[2J", profile="\x1b]0;")], [device(1, uuid="�[2J", profile="�]0;")]),
        # It was destroyed between two calls.
        ([device(1), device({"error": "NOT_FOUND"})], [device(1)]),
        # Which others there are cannot be known.
        ([device(1), device({"error": "UNKNOWN"})], None),
        ([device(1), device(2, {"error": "INVALID_ARGUMENT"})], None),
        ([device(1), device(2, {"error": "GPU_IS_LOST"})], None),
        ([device(1), device(2, 0xFFFFFFFF)], None),
        # A destroyed one that is listed on, under the handle of another (libcudacxx#224).
        ([device(1), device(1)], None),
    ],
)
def test_mig_devices(
    devices: list[Json | None], expected: list[Json] | None, machine: MachineFactory
) -> None:
    gpu = mig_of(machine(divided(*devices)))
    assert (gpu["mig_mode"], gpu["mig"]) == (True, expected)


@pytest.mark.parametrize("slots", [0, 65, 0xFFFFFFFF, {"error": "UNKNOWN"}])
def test_a_number_of_slots_that_cannot_be(slots: object, machine: MachineFactory) -> None:
    here = machine(divided(device(1), max=slots), log=True)
    assert mig_of(here)["mig"] is None
    assert ("nvmlDeviceGetMigDeviceHandleByIndex", 0) not in here.calls()


@pytest.mark.parametrize("error", ["NO_PERMISSION", "TIMEOUT", "NOT_SUPPORTED"])
def test_refused_slots(error: str, machine: MachineFactory) -> None:
    here = machine(divided(device(1)))
    here.fail("nvmlDeviceGetMigDeviceHandleByIndex", error)
    assert mig_of(here)["mig"] is None


def test_they_come_and_go(machine: MachineFactory) -> None:
    here = machine(divided(device(1)))
    with Agent(here) as agent:
        assert plain(agent.line()["gpus"][0])["mig"] == [device(1)]
        for devices in ([device(2), device(1)], [device(2, uuid="MIG-new")], []):
            here.change(gpu=0, mig={"devices": devices})
            frames = [plain(agent.refresh()["gpus"][0])["mig"] for _ in range(10)]
            assert frames[-1] == devices


def test_they_are_read_seldom(machine: MachineFactory) -> None:
    here = machine(divided(device(1)), log=True)
    with Agent(here) as agent:
        agent.line()
        here.forget_calls()
        for _ in range(9):
            agent.refresh()
        assert not any("Mig" in function for function, _ in here.calls())
        agent.refresh()
        calls = Counter(function for function, _ in here.calls())
    assert calls["nvmlDeviceGetMigDeviceHandleByIndex"] == 7
    assert calls["nvmlDeviceGetMigMode"] == calls["nvmlDeviceGetGpuInstanceId"] == 1


def test_mig_mode_is_switched(machine: MachineFactory) -> None:
    """With it come and go the devices, and what the driver tells of cores."""
    here = machine({"base": "mig", "processes": None, "frozen_at": 1})
    with Agent(here) as agent:
        states: list[Any] = [(1, None, None, []), (0, 16896, 132, None)]
        for mode, cores, sm, mig in states * 2:
            here.change(gpu=2, mig={"mode": mode}, cores=cores)
            gpu = [agent.refresh()["gpus"][2] for _ in range(11)][-1]
            assert gpu["mig_mode"] is (mode == 1)
            assert (gpu["cores"], gpu["sm"], gpu["mig"]) == (cores, sm, mig)


# Cores and multiprocessors


@pytest.mark.parametrize(
    ("gpu", "cores", "sm"),
    [
        ({"cores": 16896, "sm": 114, "compute_capability": [13, 0]}, 16896, 114),
        ({"cores": None, "sm": 132, "compute_capability": [9, 0]}, None, 132),
        ({"cores": 2880, "compute_capability": [3, 5]}, 2880, 15),
        ({"cores": 3072, "compute_capability": [5, 2]}, 3072, 24),
        ({"cores": 3584, "compute_capability": [6, 0]}, 3584, 56),
        ({"cores": 3584, "compute_capability": [6, 1]}, 3584, 28),
        ({"cores": 5120, "compute_capability": [7, 0]}, 5120, 80),
        ({"cores": 6912, "compute_capability": [8, 0]}, 6912, 108),
        ({"cores": 10752, "compute_capability": [8, 6]}, 10752, 84),
        ({"cores": 21760, "compute_capability": [12, 0]}, 21760, 170),
        # Of no table; of no such card.
        ({"cores": 16896, "compute_capability": [13, 0]}, 16896, None),
        ({"cores": 16896}, 16896, None),
        ({"cores": 100, "compute_capability": [9, 0]}, 100, None),
        # Sentinels.
        ({"cores": 0, "sm": 0, "compute_capability": [9, 0]}, None, None),
        ({"cores": 2**32 - 1, "sm": 2**32 - 1, "compute_capability": [9, 0]}, None, None),
        ({"cores": 16896, "sm": 2**32 - 1, "compute_capability": [9, 0]}, 16896, 132),
    ],
)
def test_cores(gpu: Json, cores: int | None, sm: int | None, machine: MachineFactory) -> None:
    with Agent(machine({"gpu": gpu})) as agent:
        [found] = agent.line()["gpus"]
    assert (found["cores"], found["sm"]) == (cores, sm)
