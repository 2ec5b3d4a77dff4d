"""`gputop --once`: what of the GPUs needs a person stands under them."""

from __future__ import annotations

import sys

import pytest

from tests.conftest import NESTED, MachineFactory

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
    quiet = {"base": "h200x8", "gpu": {"memory": {"used": 2**29}}, "processes": None}
    assert "HEALTH" not in machine(quiet).run(ONCE).stdout


def test_memory_that_no_process_holds(machine: MachineFactory) -> None:
    done = machine({"base": "h200x8", "gpus": 1, "processes": None}).run(ONCE)
    assert "0  info    97.7G of its memory is held by no process that is listed" in done.stdout
    assert ("Look from the host" if NESTED else "Try: sudo fuser -v /dev/nvidia0") in done.stdout
