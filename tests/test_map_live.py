"""`gputop map` on the live machine: what it makes of MIG devices and of different cards."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from gputop.model.machine.environment import NAME, ORDER
from tests.conftest import MachineFactory
from tests.driver import Machine

pytestmark = pytest.mark.system

FIRST, SECOND = (f"MIG-8f1d4c52-3b7e-5a90-9c1d-2e6f00a1b10{n}" for n in (2, 3))
"""Of one GPU instance."""
OTHER = "MIG-5ac03b9e-7d21-5f64-8e0b-61d200c3d401"


def ask(here: Machine, *arguments: str) -> dict[str, Any]:
    """The JSON of `gputop map`, without variables of our own."""
    unset = ["env", "-u", NAME, "-u", ORDER]
    done = here.run([*unset, sys.executable, "-m", "gputop", "map", "--json", *arguments])
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def named(found: dict[str, Any]) -> list[str | None]:
    return [device["mig_uuid"] for device in found["devices"]]


def test_a_mig_device_by_its_uuid(machine: MachineFactory) -> None:
    here = machine("mig")
    found = ask(here, FIRST)
    assert (found["certainty"], found["documented"]) == ("exact", True)
    [device] = found["devices"]
    assert (device["gpu"], device["mig_uuid"]) == (0, FIRST)
    assert device["uuid"] == here.gpu(0)["uuid"]
    assert named(ask(here, f"MIG-{here.gpu(0)['uuid']}/3/1")) == [SECOND]


def test_mig_devices_of_r570_and_before(machine: MachineFactory) -> None:
    here = machine("mig")
    assert named(ask(here, f"{FIRST},{OTHER}")) == [FIRST, OTHER]
    twice = ask(here, f"{FIRST},{SECOND}")
    assert twice["stopped_at"]["reason"] == "mig_one_ci_per_gi"
    assert twice["documented"] is False
    here.update(lambda scenario: scenario.update(driver_version="535.183.01"))
    assert named(ask(here, f"{FIRST},{OTHER}")) == [FIRST]


def test_a_mig_device_that_is_not_there(machine: MachineFactory) -> None:
    """It hides all; where the driver does not tell its devices, nothing can be said."""
    here = machine("mig")
    here.change(gpu=3, mig={"devices": []})
    found = ask(here, OTHER)
    assert (found["devices"], found["stopped_at"]["reason"]) == ([], "unknown_uuid")
    here.fail("nvmlDeviceGetMigDeviceHandleByIndex", "NO_PERMISSION", gpu=3)
    found = ask(here, OTHER)
    assert (found["devices"], found["certainty"]) == (None, "unknown")


def test_a_number_on_a_machine_with_mig(machine: MachineFactory) -> None:
    """From R570 on it is not documented what it counts; before, the GPUs."""
    here = machine("mig")
    found = ask(here, "0")
    assert (found["devices"], found["certainty"], found["documented"]) == (None, "unknown", False)
    here.update(lambda scenario: scenario.update(driver_version="535.183.01"))
    assert named(ask(here, "0")) == [here.gpu(0)["mig"]["devices"][0]["uuid"]]


def test_different_cards(machine: MachineFactory) -> None:
    """The fastest first; those that are alike by PCI bus id."""
    here = machine("mixed")
    found = ask(here, "0,1")
    assert found["certainty"] == "predicted"
    assert [device["gpu"] for device in found["devices"]] == [3, 1]
    assert [device["gpu"] for device in ask(here, "--unset")["devices"]] == [3, 1, 2, 0]
    exact = ask(here, "0,1", "--order", "PCI_BUS_ID")
    assert exact["certainty"] == "exact"
    assert [device["gpu"] for device in exact["devices"]] == [0, 1]


def test_different_cards_of_which_little_is_known(machine: MachineFactory) -> None:
    here = machine("mixed")
    here.fail("nvmlDeviceGetNumGpuCores", "NOT_SUPPORTED", gpu=2)
    found = ask(here, "0,1")
    assert (found["devices"], found["certainty"]) == (None, "unknown")


@pytest.mark.parametrize("value", [FIRST, f"{FIRST},{OTHER}", f"{FIRST},{SECOND}", f"{OTHER},0"])
@pytest.mark.parametrize("driver", ["580.95.05", "535.183.01"])
def test_the_driver_agrees(value: str, driver: str, machine: MachineFactory) -> None:
    here = machine({"base": "mig", "era": int(driver[:3]), "driver_version": driver})
    found = ask(here, value, "--verify")
    assert found["verified"] == {"ok": True, "reason": "verified by the driver"}


def test_the_driver_agrees_on_different_cards(machine: MachineFactory) -> None:
    here = machine("mixed")
    assert ask(here, "--unset", "--verify")["verified"]["ok"] is True
    here.update(lambda scenario: scenario.update(cuda_order=[1, 3, 2, 0]))
    found = ask(here, "--unset", "--verify")
    assert found["verified"]["ok"] is True
    assert "against expectation" in found["verified"]["reason"]
    assert [device["gpu"] for device in found["devices"]] == [1, 3, 2, 0]
