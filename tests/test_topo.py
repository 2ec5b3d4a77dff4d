"""`gputop topo` on simulated machines, and what a frame tells of where GPUs stand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gputop.agent.gpu.topology import PlacedGpu, read_topology
from gputop.model.machine.topology import cpu_list
from tests.agent.driving import Agent
from tests.conftest import MachineFactory
from tests.driver import Machine

pytestmark = pytest.mark.system

TWO: list[dict[str, Any]] = [
    {"name": "A", "uuid": f"GPU-{i}", "pci": {"bus_id": f"00000000:F{i}:00.0"}} for i in range(2)
]


def topo(machine: Machine, *arguments: str) -> subprocess.CompletedProcess[str]:
    return machine.run([sys.executable, "-m", "gputop", "topo", *arguments])


def told(machine: Machine) -> Any:
    """Of `gputop topo --json`."""
    done = topo(machine, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_text_in_80_columns_of_ascii(machine: MachineFactory) -> None:
    here = machine("topo")
    here.env.update(LANG="C", LC_ALL="C", PYTHONIOENCODING="ascii:strict")
    done = topo(here)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, lines)) <= 80
    assert lines[2] == "0:     X  NV18  NV18  NV18  NV18  NV18  NV18  NV18"
    assert "1:  Y  X  Y  Y  Y  Y  Y  Y" in lines  # a GPU reaches its own memory without P2P
    assert "  4  H200  00000000:87:00.0     1  56-111,168-223" in lines


def test_json_has_the_scenarios_values(machine: MachineFactory) -> None:
    found = told(machine("topo"))
    assert list(found) == ["gpus", "links", "p2p"]
    assert [gpu["numa"] for gpu in found["gpus"]] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert found["gpus"][3]["cpus"] == "0-55,112-167"
    assert found["gpus"][3]["pci_bus_id"] == "00000000:44:00.0"
    assert found["links"][0][:2] == ["X", "NV18"]
    assert found["p2p"][7] == [True] * 7 + [False]


def test_only_cpus_that_we_may_use_are_suggested(machine: MachineFactory) -> None:
    mine = os.sched_getaffinity(0)
    one, beyond = min(mine), max(mine) + 1
    gpus = [{**TWO[0], "cpus": f"{one},{beyond}"}, {**TWO[1], "cpus": f"{beyond}-{beyond + 1}"}]
    here = machine({"gpus": gpus})
    assert [gpu["usable_cpus"] for gpu in told(here)["gpus"]] == [str(one), None]
    text = topo(here).stdout
    assert f"taskset -c {one} python train.py   # GPU 0\n" in text
    assert "none of the CPUs near GPU 1 is yours to use\n" in text
    assert "GPU 0, 1" not in text


def test_the_cpus_suggested_are_taken_by_taskset(machine: MachineFactory) -> None:
    last = max(os.sched_getaffinity(0))
    found = told(machine({"gpus": [{**TWO[0], "cpus": f"0-{last}"}]}))
    list_ = found["gpus"][0]["usable_cpus"]
    assert list_ == cpu_list(os.sched_getaffinity(0))
    show = "import os; print(sorted(os.sched_getaffinity(0)))"
    done = subprocess.run(
        ["taskset", "-c", list_, sys.executable, "-c", show], capture_output=True, text=True
    )
    assert done.stdout == f"{sorted(os.sched_getaffinity(0))}\n"


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ({"p2p": 0}, True),
        ({"p2p": {"1": 3}}, False),  # the chipset's topology is not supported
        ({"p2p": 0, "p2p_write": 5}, False),
        ({"p2p": 6}, None),  # unknown
        ({}, None),
    ],
)
def test_peer_to_peer_is_reading_and_writing(
    statuses: dict[str, Any], expected: bool | None, machine: MachineFactory
) -> None:
    found = told(machine({"gpus": [{**TWO[0], **statuses}, TWO[1]]}))
    assert found["p2p"] == [[False, expected], [None, False]]


def test_a_gpu_that_is_a_numa_node_itself(machine: MachineFactory) -> None:
    here = machine({"gpus": [{**TWO[0], "numa": 0, "gpu_numa": 2}]})
    gpu = told(here)["gpus"][0]
    assert (gpu["numa"], gpu["gpu_numa"]) == (0, 2)
    assert "the memory of GPU 0 is NUMA node 2\n" in topo(here).stdout


def test_without_an_answer_of_the_driver_the_pci_bus_is_asked(tmp_path: Path) -> None:
    for place, node, cpus in (("0000:0a:00.0", "1", "8-15,40-47"), ("0000:0b:00.0", "-1", "")):
        card = tmp_path / "bus/pci/devices" / place
        card.mkdir(parents=True)
        (card / "numa_node").write_text(node + "\n")
        (card / "local_cpulist").write_text(cpus + "\n")
    places = ["00000000:0A:00.0", "00000000:0B:00.0", "00000000:0C:00.0", None]
    found = read_topology([PlacedGpu(None, place) for place in places], tmp_path)
    assert found.cpus == ("8-15,40-47", None, None, None)
    assert found.numa == (1, None, None, None)
    assert found.p2p == ((None,) * 4,) * 4


def test_a_driver_that_hangs_there_is_said_and_delays_no_frame(machine: MachineFactory) -> None:
    here = machine("topo")
    here.hang("nvmlDeviceGetP2PStatus", wakes=False)
    with Agent(here) as agent:
        frames = [agent.line(), agent.refresh()]
    assert [frame["topology"] for frame in frames] == [None, None]
    assert frames[1]["gpus"][7]["stale_for"] is None
    done = topo(here)
    assert done.returncode == 0
    assert "not known: the driver did not answer" in done.stdout
    assert "NV18" in done.stdout


def test_a_gpu_that_wakes_up_late_is_waited_for(machine: MachineFactory) -> None:
    here = machine("topo")
    here.hang(gpu=2)
    with Agent(here) as agent:
        assert agent.line()["gpus"][2]["stale_for"] is not None
        here.heal()
        while (frame := agent.refresh())["topology"] is None or frame["links"] is None:
            pass
    assert frame["links"][2][:3] == ["NV18", "NV18", "X"]
    assert frame["topology"]["numa"][2] == 0


def test_a_gpu_that_never_answers_keeps_nothing_from_the_others(machine: MachineFactory) -> None:
    here = machine("topo")
    here.hang(gpu=2, wakes=False)
    found = told(here)
    assert found["links"][0][:3] == ["X", "NV18", None]
    assert found["p2p"][2] == [None] * 8
    assert found["p2p"][0][:4] == [False, True, None, True]


def test_a_driver_that_comes_back_is_asked_again(machine: MachineFactory) -> None:
    here = machine("topo")
    with Agent(here) as agent:
        while agent.refresh()["topology"] is None:
            pass
        here.fail("*", "UNINITIALIZED")
        while (frame := agent.refresh())["problem"] is None:
            pass
        assert frame["topology"] is None


def test_old_drivers(machine: MachineFactory) -> None:
    here = machine({"era": 390, "gpus": [{**TWO[0], "cpus": "4-7", "numa": 1}]})
    gpu = told(here)["gpus"][0]
    assert (gpu["cpus"], gpu["numa"]) == ("4-7", None)


@pytest.mark.parametrize("scenario", ["no-driver", "mismatch", "no-permission", "no-gpu"])
def test_without_a_driver_it_is_one_line(scenario: str, machine: MachineFactory) -> None:
    done = topo(machine(scenario))
    assert (done.returncode, done.stdout) == (3, "")
    assert len(done.stderr.splitlines()) == 1


def test_bad_arguments(machine: MachineFactory) -> None:
    done = topo(machine("topo"), "3")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


def test_hostile_names(machine: MachineFactory) -> None:
    here = machine({"gpus": [{**TWO[0], "name": "\x1b[2J\u202ecard\n"}]})
    assert "\x1b" not in topo(here).stdout
    assert "\u202e" not in topo(here).stdout
