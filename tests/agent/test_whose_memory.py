"""GPUs whose memory the operating system manages: NUMA nodes of their own (GH200, GB200), and
integrated ones that use the machine's RAM (GB10)."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.agent.driving import Agent, Json
from tests.conftest import MachineFactory, needs_everybody, rest_long
from tests.driver import Machine
from tests.patience import until

pytestmark = pytest.mark.system

GIB = 2**30
SPARK: list[Json] = [
    {"memory": None},
    {"memory": {"total": 121 * GIB, "used": 40 * GIB, "reserved": 0}},
    {"memory": {"total": 121 * GIB, "used": 0, "reserved": 0}},
    {"memory": {"total": 0, "used": 0, "reserved": 0}},
]
"""What drivers answer of a GB10's memory: nothing, or the machine's."""


def gputop(here: Machine, *arguments: str) -> subprocess.CompletedProcess[str]:
    return here.run([sys.executable, "-m", "gputop", *arguments])


def look(here: Machine) -> list[Json]:
    done = gputop(here, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    gpus: list[Json] = json.loads(done.stdout)["gpus"]
    return gpus


def test_memory_of_a_numa_node_is_never_unaccounted(machine: MachineFactory) -> None:
    """Pages stay after their process has ended (nvidia-smi's manual, FB Memory Usage)."""
    idle, busy = look(machine("gh200"))
    assert (idle["numa_node"], busy["numa_node"]) == (4, 12)
    assert idle["memory_used"] == busy["memory_used"] == 60 * GIB
    assert idle["memory_unaccounted"] is busy["memory_unaccounted"] is None
    assert (idle["holders"], busy["holders"]) == ([], [])


@needs_everybody
def test_a_numa_node_is_free_by_its_processes(machine: MachineFactory) -> None:
    text = gputop(machine("gh200"), "--once").stdout
    assert "2 GPUs, 1 free" in text
    assert "UNACCOUNTED" not in text
    assert "GPU 0: NUMA node 4: the system manages the GPU's memory" in text


@needs_everybody
@pytest.mark.parametrize("arguments", [(), ("--min-free", "90GiB")])
def test_free_offers_a_numa_node(arguments: tuple[str, ...], machine: MachineFactory) -> None:
    here = machine("gh200")
    done = gputop(here, "free", "--window", "0.2", *arguments)
    assert (done.returncode, done.stdout) == (0, "0\n")


@needs_everybody
def test_what_processes_hold_there_is_not_free(machine: MachineFactory) -> None:
    done = gputop(machine("gh200"), "free", "--window", "0.2", "--shared", "-n", "2",
                  "--min-free", "80GiB")  # fmt: skip
    assert done.returncode == 1
    assert "75.6G of its memory unused" in done.stderr


def test_nothing_is_free_there_before_its_processes_are_known(machine: MachineFactory) -> None:
    """The first picture comes before the lists; nor is it where the driver does not list them."""
    here = machine({"base": "gh200", "gpu": {"compute": None, "graphics": None, "mps": None},
                    "processes": {"llama": None}})  # fmt: skip
    assert "  2 GPUs  " in gputop(here, "--once").stdout  # how many are free is not known


@pytest.mark.parametrize("node", [-1, 4294967295, 5000, None, {"error": "NOT_SUPPORTED"}])
def test_no_node_is_none(node: Any, machine: MachineFactory) -> None:
    base = {"base": "h200x8", "gpus": 1, "processes": None}
    [gpu] = look(machine({**base, "gpu": {"gpu_numa": node, "memory": {"used": 5 * GIB}}}))
    assert gpu["numa_node"] is None
    assert gpu["memory_unaccounted"] == 5 * GIB


@needs_everybody
@rest_long("answers", *SPARK)
@rest_long("processes", None, {})
def test_unified_memory_looks_the_same_with_every_driver(
    answers: Json, processes: Json | None, machine: MachineFactory
) -> None:
    idle = {"utilization": {"gpu": 0}} if processes is None else {}
    here = machine({"base": "gb10", "gpu": {**answers, **idle}, "processes": processes})
    [gpu] = look(here)
    for field in ("total", "used", "free", "reserved", "unaccounted"):
        assert gpu[f"memory_{field}"] is None
    text = gputop(here, "--once").stdout
    assert "GPU 0: unified memory: the GPU uses the machine's RAM, " in text
    assert "UNACCOUNTED" not in text
    assert f"1 GPU, {0 if processes == {} else 1} free" in text


def test_unified_memory_stays_so_frame_after_frame(machine: MachineFactory) -> None:
    here = machine({"base": "gb10", "gpu": SPARK[1], "processes": None})
    with Agent(here) as agent:
        first = agent.line()["gpus"][0]
        until(lambda: agent.refresh()["gpus"][0]["identity"])
        assert first["memory_used"] is agent.refresh()["gpus"][0]["memory_used"] is None
