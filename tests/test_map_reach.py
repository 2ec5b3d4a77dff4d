"""`gputop map --pid` of processes that reach some GPUs, or none: real namespaces and nodes."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MachineFactory, rest_long
from tests.driver import Machine
from tests.views import contained, living, sees, words

pytestmark = pytest.mark.system

N = "CUDA_VISIBLE_DEVICES"
PCI = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
FOUR = {"base": "h200x8", "gpus": 4, "processes": None}


def ask(
    machine: Machine, pid: int, *prefix: str, env: dict[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    """Exit status and JSON of `gputop map --pid`, asked by a gputop that `prefix` starts."""
    command = [*prefix, "env", *words(env or {}), sys.executable, "-m", "gputop", "map", "--json"]
    done = machine.run([*command, "--pid", str(pid)])
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, found


def told(machine: Machine, pid: int, *prefix: str) -> str:
    """The same for people."""
    done = machine.run([*prefix, sys.executable, "-m", "gputop", "map", "--pid", str(pid)])
    assert done.stderr == ""
    return done.stdout


def gpus(found: dict[str, Any]) -> list[int] | None:
    return None if found["devices"] is None else [device["gpu"] for device in found["devices"]]


def on(machine: Machine, pid: int, *indices: int) -> None:
    """Let the driver list a process with memory on these GPUs."""
    for index in indices:
        machine.change(gpu=index, compute=[{"pid": pid, "used": 2**30}])


HOST = (0, 1, 2, 3)
OWN = [{N: "0", **PCI}, PCI, {}, {N: "2,3", **PCI}, {N: "9"}, {"NVIDIA_VISIBLE_DEVICES": "all"}]


KINDS = ["dev", "root", "no-dev", "pid"]
VIEWS = [
    (kind, host, OWN[(2 * place + other) % len(OWN)])
    for place, kind in enumerate(KINDS)
    for other, host in enumerate((None, HOST))
]
"""Each kind for a gputop that sees the nodes of the host and for one that sees its own, and all
variables among them: what they say does not matter where there is no node."""


@rest_long(("kind", "host", "variables"), *VIEWS, ids=str)
def test_without_device_nodes_there_is_no_gpu(
    machine: MachineFactory, tmp_path: Path, kind: str, host: Sequence[int] | None,
    variables: dict[str, str],
) -> None:  # fmt: skip
    here = machine(FOUR)
    prefix = {
        "dev": lambda: sees(),
        "root": lambda: contained(tmp_path / "root"),
        "no-dev": lambda: contained(tmp_path / "root", dev=False),
        "pid": lambda: contained(tmp_path / "root", pid=True),
    }[kind]()
    with living(prefix, variables) as pid:
        status, found = ask(here, pid, *(sees(*host) if host else ()))
        text = told(here, pid, *sees(*HOST)) if host and kind == "root" else "no GPU is visible"
    assert (status, gpus(found)) == (1, [])
    assert found["process"]["reach"]["gpus"] == []
    assert "no GPU is visible" in text
    assert "unset" not in [line.partition(" ")[0] for line in text.splitlines()]
    assert not [
        line for line in text.splitlines() if line.startswith("export") and "-1" not in line
    ]
    assert "Use a UUID" not in text


@rest_long(
    ("kind", "variables", "minors", "devices", "certainty"),
    ("dev", {N: "1", **PCI}, (1, 3), [3], "exact"),
    ("root", {N: "1", **PCI}, (1, 3), [3], "exact"),
    ("root", {N: "1"}, (1, 3), [3], "expected"),
    ("dev", PCI, (1, 3), [1, 3], "exact"),
    ("root", {N: "0"}, (2,), [2], "exact"),
    ("dev", {N: "2"}, (2,), [], "exact"),
    ("root", {N: ""}, (1, 3), [], "exact"),
    ("dev", {N: "3,1", **PCI}, HOST, [3, 1], "exact"),
)
def test_nodes_are_facts(
    machine: MachineFactory, tmp_path: Path, kind: str, variables: dict[str, str],
    minors: tuple[int, ...], devices: list[int], certainty: str,
) -> None:  # fmt: skip
    here = machine(FOUR)
    prefix = sees(*minors) if kind == "dev" else contained(tmp_path / "root", *minors)
    wrong = {"NVIDIA_VISIBLE_DEVICES": "0"}  # what the nodes contradict
    with living(prefix, {**variables, **wrong}) as pid:
        _, found = ask(here, pid, *sees(*HOST))
    assert (gpus(found), found["certainty"]) == (devices, certainty)


def test_who_is_on_a_gpu_without_a_node_is_not_claimed_to_have_none(
    machine: MachineFactory,
) -> None:
    """It opened the GPU before it went where it is."""
    here = machine(FOUR)
    with living(sees(), {N: "0", **PCI}) as pid:
        on(here, pid, 2)
        _, found = ask(here, pid, *sees(*HOST))
    assert (gpus(found), found["certainty"]) == (None, "unknown")
    assert found["process"]["evidence"] == "contradicted"
    assert "its variables hide" not in json.dumps(found)
    assert "which it should not reach" in json.dumps(found)


@pytest.mark.parametrize("node", ["dxg", "nvmap", "nvhost-gpu"])
def test_gpus_that_have_other_nodes(machine: MachineFactory, node: str) -> None:
    """Under WSL and on a Jetson nothing follows from there being no /dev/nvidia0."""
    here = machine({"base": "h200x8", "gpus": 1, "processes": None})
    with living(sees(others=[node]), {N: "0"}) as pid:
        _, found = ask(here, pid)
    assert gpus(found) == [0]


def test_a_gpu_of_another_number_in_the_container(machine: MachineFactory, tmp_path: Path) -> None:
    here = machine(FOUR)
    with living(contained(tmp_path / "root", 1, 3), {N: "3"}) as pid:
        text = told(here, pid, *sees(*HOST))
    assert "GPU 3 of the machine has another number in the container" in text
    with living(contained(tmp_path / "root", 1, 3), {N: "2"}) as pid:
        text = told(here, pid, *sees(*HOST))
    assert "GPU 2 of the machine is not in the container, which has GPU 1, GPU 3" in text
    assert "Use a UUID" not in text


def test_who_is_in_the_container_himself(machine: MachineFactory, tmp_path: Path) -> None:
    """NVIDIA_VISIBLE_DEVICES is no mistake there: the image or the runtime has set it."""
    here = machine({"base": "h200x8", "gpus": 2, "processes": None})
    root = contained(tmp_path / "root", 0, 1, pid=True)
    program = (
        "import os, subprocess, sys\n"
        "env = {'PATH': os.environ['PATH'], 'NVIDIA_VISIBLE_DEVICES': '1'}\n"
        "pipe = subprocess.PIPE\n"
        "child = subprocess.Popen(['cat'], stdin=pipe, env=env)\n"
        "command = [sys.executable, '-m', 'gputop', 'map', '--pid', str(child.pid)]\n"
        "sys.exit(subprocess.run(command).returncode)\n"
    )
    done = here.run([*root, sys.executable, "-c", program])
    assert (done.returncode, done.stderr) == (0, "")
    assert "CUDA ignores it" not in done.stdout
    assert "cuda:1" in done.stdout
