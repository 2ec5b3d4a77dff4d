"""`gputop map --pid` of processes in batch jobs and behind MPS servers, from outside and inside."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MachineFactory, rest_long
from tests.driver import Machine
from tests.test_map_reach import FOUR, HOST, PCI, N, ask, gpus, on, told
from tests.views import contained, living, sees

pytestmark = pytest.mark.system

JOB = {"SLURM_JOB_ID": "4711", **PCI}
TWO = {"base": "h200x8", "gpus": 2, "processes": None}
PIPE = "CUDA_MPS_PIPE_DIRECTORY"


@pytest.mark.parametrize(
    ("variables", "used", "devices", "certainty"),
    [
        ({"SLURM_JOB_GPUS": "2-3", N: "0,1"}, [2], [2, 3], "expected"),
        ({"SLURM_JOB_GPUS": "2,3", N: "1"}, [], None, "unknown"),
        ({"SLURM_JOB_GPUS": "0,1,2,3", "SLURM_STEP_GPUS": "3", N: "0"}, [3], [3], "expected"),
    ],
)  # tests/model/test_process_mapping.py has all
def test_slurm_from_outside(
    machine: MachineFactory, variables: dict[str, str], used: list[int],
    devices: list[int] | None, certainty: str,
) -> None:  # fmt: skip
    here = machine(FOUR)
    with living([], {**JOB, **variables}) as pid:
        on(here, pid, *used)
        _, found = ask(here, pid)
    assert (gpus(found), found["certainty"]) == (devices, certainty)
    if "SLURM_STEP_GPUS" in variables:  # the one that counts is the one that is named
        assert found["process"]["reach"]["because"] == "SLURM_STEP_GPUS='3'"


@pytest.mark.parametrize("name", ["PBS_JOBID", "LSB_JOBID", "_CONDOR_SLOT"])
def test_other_batch_systems(machine: MachineFactory, name: str) -> None:
    here = machine(FOUR)
    with living([], {name: "9", N: "1", **PCI}) as pid:
        assert ask(here, pid)[1]["certainty"] == "unknown"
        assert gpus(ask(here, pid, env={name: "9"})[1]) == [1]


@pytest.mark.parametrize(
    ("own", "variables", "devices"),
    [
        # NVML lists the job's GPUs, whatever numbers they have on the machine
        ({"SLURM_JOB_GPUS": "2,3"}, {"SLURM_JOB_GPUS": "2,3", N: "0,1"}, [0, 1]),
        ({"SLURM_JOB_GPUS": "2,3"}, {"SLURM_JOB_GPUS": "2,3", N: "1"}, [1]),
        ({"SLURM_JOB_GPUS": "2,3"}, {"SLURM_JOB_GPUS": "2,3"}, [0, 1]),
        ({"SLURM_JOB_GPUS": "2,3"}, {N: "1,0"}, [1, 0]),
        ({"SLURM_JOB_GPUS": "0,1"}, {"SLURM_JOB_GPUS": "0,1", N: "1"}, [1]),
        ({}, {"SLURM_JOB_GPUS": "2,3", N: "1"}, [1]),
        ({}, {N: "1"}, [1]),
        ({"SLURM_JOB_GPUS": "2,3"}, {"SLURM_JOB_GPUS": "2,3", "SLURM_STEP_GPUS": "3", N: "0"}, [1]),
        # Of another job, and of none, these numbers say nothing here
        ({"SLURM_JOB_GPUS": "2,3"}, {"SLURM_JOB_ID": "8", "SLURM_JOB_GPUS": "0,1", N: "0"}, None),
        ({"SLURM_JOB_GPUS": "2,3"}, {"SLURM_JOB_ID": "8", N: "0"}, None),
    ],
)
def test_gputop_inside_a_slurm_job(
    machine: MachineFactory, own: dict[str, str], variables: dict[str, str],
    devices: list[int] | None,
) -> None:  # fmt: skip
    here = machine(TWO)
    for minor in (0, 1):
        here.change(gpu=minor, minor=minor + 2)
    with living([], {**JOB, **variables}) as pid:
        _, found = ask(here, pid, env={"SLURM_JOB_ID": "4711", **own})
    assert gpus(found) == devices
    assert found["certainty"] == ("unknown" if devices is None else "exact" if variables.get(
        "SLURM_STEP_GPUS") is None else "expected")  # fmt: skip
    if "SLURM_STEP_GPUS" in variables:
        assert found["process"]["reach"]["because"] == "SLURM_STEP_GPUS='3'"


def test_a_process_outside_of_gputops_job_counts_other_gpus(machine: MachineFactory) -> None:
    """The nodes of the whole machine are there, and NVML lists two GPUs of four."""
    here = machine(TWO)
    for minor in (0, 1):
        here.change(gpu=minor, minor=minor + 2)
    with living(sees(*HOST), {N: "1", **PCI}) as pid:
        _, found = ask(here, pid, *sees(*HOST), env={**JOB, "SLURM_JOB_GPUS": "2,3"})
        assert (gpus(found), found["certainty"]) == (None, "unknown")
    with living(sees(*HOST), {**JOB, N: "1"}) as pid:
        _, found = ask(here, pid, *sees(*HOST), env={**JOB, "SLURM_JOB_GPUS": "2,3"})
        assert (gpus(found), found["certainty"]) == ([1], "exact")


def test_gputop_without_the_variables_of_the_job_it_is_in(machine: MachineFactory) -> None:
    """The driver sees the process on a GPU that gputop is shown, too."""
    here = machine(TWO)
    with living([], {**JOB, "SLURM_JOB_GPUS": "2,3", N: "1"}) as pid:
        assert ask(here, pid)[1]["certainty"] == "unknown"
        on(here, pid, 1)
        _, found = ask(here, pid)
        text = told(here, pid)
    assert (gpus(found), found["certainty"]) == ([1], "predicted")
    assert "which GPUs its batch job has is not known" in text
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID, or" not in text


def test_a_container_in_a_job(machine: MachineFactory, tmp_path: Path) -> None:
    here = machine(FOUR)
    variables = {**JOB, "SLURM_JOB_GPUS": "2,3", N: "1"}
    with living(contained(tmp_path / "root", 2, 3), variables) as pid:
        _, found = ask(here, pid, *sees(*HOST))
    assert (gpus(found), found["certainty"]) == ([3], "exact")
    with living(contained(tmp_path / "root", *HOST), {**variables, N: "0,1"}) as pid:
        _, found = ask(here, pid, *sees(*HOST))
    assert (gpus(found), found["certainty"]) == ([2, 3], "expected")


def test_gputop_in_a_container_sees_the_host(machine: MachineFactory, tmp_path: Path) -> None:
    """Integers of a process with more GPUs than gputop's count what it is not shown."""
    here = machine(TWO)
    with living(sees(*HOST), {N: "1", **PCI}) as pid:
        _, found = ask(here, pid, *contained(tmp_path / "root", 0, 1))
    assert (gpus(found), found["certainty"]) == (None, "unknown")


def test_a_node_of_a_gpu_that_is_gone_counts_for_nobody(machine: MachineFactory) -> None:
    here = machine(TWO)
    with living(sees(0, 2, 3), {N: "0", **PCI}) as pid:
        _, found = ask(here, pid, *sees(0, 1, 2, 3))
    assert (gpus(found), found["certainty"]) == ([0], "exact")


def mps(machine: Machine, server: Mapping[str, str], client: Mapping[str, str]) -> None:
    """An MPS server on all GPUs, and a client of it on GPU 2."""
    name = "/usr/bin/nvidia-cuda-mps-server"
    machine.spawn("server", [name], env={**PCI, **server}, gpu=0, used=2**20)
    machine.spawn("client", ["python"], env={**PCI, **client}, gpu=2, used=2**30, list="mps")
    machine.change(gpu=2, compute=[{"pid": machine.pids["client"], "used": 2**30}])


DEFAULT, OTHER = "/tmp/nvidia-mps", "/tmp/mps-alice"


@rest_long(
    ("server", "client", "devices", "certainty"),
    ({}, {}, [2], "exact"),
    ({PIPE: DEFAULT + "/"}, {PIPE: DEFAULT}, [2], "exact"),
    ({}, {PIPE: ""}, [2], "exact"),
    ({PIPE: OTHER}, {PIPE: OTHER}, [2], "exact"),
    ({PIPE: OTHER}, {PIPE: DEFAULT}, None, "unknown"),
    ({PIPE: OTHER}, {}, None, "unknown"),
    ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, {}, [2], "expected"),
    ({N: "2"}, {N: "0"}, [2], "exact"),
    ({N: "2"}, {}, None, "unknown"),
)
def test_mps(
    machine: MachineFactory, server: dict[str, str], client: dict[str, str],
    devices: list[int] | None, certainty: str,
) -> None:  # fmt: skip
    here = machine(FOUR)
    mps(here, {N: "0,2", **server}, {N: "1", **client})
    _, found = ask(here, here.pids["client"])
    assert (gpus(found), found["certainty"]) == (devices, certainty)
    assert found["process"]["mps"] is True
    if devices is None:
        assert "driver itself" not in told(here, here.pids["client"])


def test_who_wants_no_mps_has_none(machine: MachineFactory) -> None:
    here = machine(FOUR)
    mps(here, {N: "0,2"}, {})
    for pipe, listed in (("/dev/null", False), ("/dev/null", True), (OTHER, True)):
        with living([], {N: "1", PIPE: pipe, **PCI}) as pid:
            on(here, pid, *([1] if listed else []))
            _, found = ask(here, pid)
        if pipe == "/dev/null":
            assert (gpus(found), found["process"]["mps"]) == ([1], False)
            assert found["certainty"] == "exact"
        else:
            assert (gpus(found), found["process"]["mps"]) == (None, True)


def test_who_has_not_started_cuda_will_find_the_server(machine: MachineFactory) -> None:
    here = machine(FOUR)
    mps(here, {N: "0,2"}, {})
    for variables in ({N: "1", **PCI}, {N: "1", PIPE: DEFAULT, **PCI}):
        with living([], variables) as pid:
            _, found = ask(here, pid)
            assert (gpus(found), found["certainty"]) == ([2], "expected")
            assert found["process"]["mps"] is True
            on(here, pid, 1)  # it has started without
            _, found = ask(here, pid)
            assert (gpus(found), found["process"]["mps"]) == ([1], False)


def test_a_server_is_not_its_own_client(machine: MachineFactory) -> None:
    for pipe in ({}, {PIPE: DEFAULT}, {PIPE: OTHER}):
        here = machine(FOUR)
        mps(here, {N: "0,2", **pipe}, pipe)
        found: dict[str, Any]
        _, found = ask(here, here.pids["server"])
        assert (gpus(found), found["process"]["mps"]) == ([0, 2], False)


@pytest.mark.parametrize(
    ("used", "certainty", "lines"),
    [([1], "exact", 1), ([], "expected", 1)],
)
def test_a_uuid_in_a_job_that_does_not_tell_its_gpus(
    machine: MachineFactory, used: list[int], certainty: str, lines: int
) -> None:
    """It names the GPU whatever the job has; that the driver sees it there leaves no doubt."""
    here = machine(FOUR)
    uuid = "GPU-4e017c1a-90b3-5d2e-8f44-a1b2c3d4e501"
    with living([], {"PBS_JOBID": "9", N: uuid}) as pid:
        on(here, pid, *used)
        _, found = ask(here, pid)
        text = told(here, pid)
    assert (gpus(found), found["certainty"]) == ([1], certainty)
    assert text.count(f"export {N}={uuid}") == lines
