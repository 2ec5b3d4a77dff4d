"""`gputop --once`: what of the GPUs needs a person stands under them."""

from __future__ import annotations

import sys

import pytest

from tests.conftest import MachineFactory

pytestmark = pytest.mark.system

ONCE = [sys.executable, "-m", "gputop", "--once"]


def test_findings_stand_under_the_gpus(machine: MachineFactory) -> None:
    done = machine({"base": "sick", "processes": None, "frozen_at": 2.5}).run(ONCE)
    assert (done.returncode, done.stderr) == (0, "")
    _, gpus, found, *_ = done.stdout.split("\n\n")
    assert gpus.startswith("GPU  NAME")
    head, *lines = found.splitlines()
    assert head.split() == ["GPU", "HEALTH", "WHAT", "WHAT", "TO", "DO"]
    told = [line.split()[:2] for line in lines]
    assert {("3", "error"), ("4", "error"), ("7", "warning")} <= {(a, b) for a, b in told}
    [link] = [line for line in lines if "NVLink" in line]
    assert "1 of 18 NVLinks is down" in link
    assert link.endswith("check switch, bridge and seat: nvidia-smi nvlink --status")


def test_nothing_stands_there_where_all_is_well(machine: MachineFactory) -> None:
    done = machine({"base": "h200x8", "processes": None}).run(ONCE)
    assert "HEALTH" not in done.stdout
