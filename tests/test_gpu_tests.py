"""`pytest -m gpu` on a simulated driver: it passes there, and finds out each driver that lies.

The tests themselves are in tests/gpu/, for whoever has a GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import pytest

from gputop.model.machine.gpu import Gpu
from tests.conftest import MachineFactory
from tests.driver import Machine, nvidia_smi
from tests.driver.machine import REPOSITORY
from tests.gpu.values import OURS, VALUES

SINGLE = {"base": "h200x8", "gpus": 1, "processes": None,
          "gpu": {"memory": {"used": 629145600}, "utilization": {"gpu": 0}}}  # fmt: skip


class Outcome(NamedTuple):
    """What a run of the tests has said."""

    status: int
    output: str
    report: dict[str, Any]
    page: str


def gpu_tests(here: Machine, folder: Path, *words: str, **lies: str) -> Outcome:
    """Run the tests on a machine; `lies`: what its nvidia-smi says of fields."""
    programs = folder / "bin"
    programs.mkdir()
    nvidia_smi.install(programs, lies=lies)
    path = os.pathsep.join((str(programs), here.env["PATH"]))
    env = {name: text for name, text in here.env.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider",
               "--gpu-report", str(folder / "report"), f"--basetemp={folder / 'tmp'}",
               *(words or ("tests/gpu",))]  # fmt: skip
    done = subprocess.run(
        command, cwd=REPOSITORY, env={**env, "PATH": path}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    output = done.stdout + done.stderr
    pages = list((folder / "report").glob("*.md"))
    if not pages:
        return Outcome(done.returncode, output, {}, "")
    report = json.loads(pages[0].with_suffix(".json").read_text())
    return Outcome(done.returncode, output, report, pages[0].read_text())


pytestmark = pytest.mark.timeout(600)


@pytest.mark.system
def test_in_short(machine: MachineFactory, tmp_path: Path) -> None:
    done = gpu_tests(machine(SINGLE), tmp_path, "tests/gpu/test_values.py")
    assert done.status == 0, done.output
    assert done.report["differences"] == []
    assert done.report["values"]["compared"] == len(VALUES)
    assert "## Differences\n\nNone." in done.page


@pytest.mark.system
@pytest.mark.long
@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param({**SINGLE, "base": "era-535"}, id="era-535"),
        *("h200x8", "mixed", "mig-processes", "gb10"),
    ],
)
def test_a_driver_that_tells_the_truth(
    machine: MachineFactory, tmp_path: Path, scenario: Any
) -> None:
    here = machine(scenario)
    done = gpu_tests(here, tmp_path)
    assert done.status == 0, done.output
    assert done.report["differences"] == []
    assert done.report["driver"] == here.scenario["driver_version"]
    assert done.report["values"]["compared"] == len(VALUES) * len(here.scenario["gpus"])
    assert "## Differences\n\nNone." in done.page
    calls = done.report["cost"]["Calls of the driver, a tick a second"]
    assert any("ComputeRunningProcesses" in row["function"] for row in calls)
    # It is kind: nothing of it is left, and nobody else has lost anything.
    assert {entry["pid"] for gpu in here.scenario["gpus"] for entry in gpu["compute"] or ()} <= {
        *here.pids,
        *here.pids.values(),
    }
    assert set(here.pids) == set(here.scenario["processes"])


@pytest.mark.system
@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "test", "words"),
    [
        pytest.param({"lie": "no_memory"}, "known_memory", "None MiB more", id="no-memory"),
        pytest.param({"lie": "half_memory"}, "known_memory", "the process has", id="half-memory"),
        pytest.param({"lie": "gpu_memory"}, "known_memory", "GPU 0 has 0", id="memory-of-the-gpu"),
        pytest.param({"lie": "no_sample"}, "sm_utilization", "gputop shows SM%", id="no-sample"),
        pytest.param({"lie": "stays"}, "after_a_kill", "is still there", id="memory-stays"),
        pytest.param({"lie": "stays"}, "ends_while", "are still shown", id="a-process-stays"),
        pytest.param({"lie": "pid"}, "pid_namespace", "PID", id="another-pid"),
        pytest.param({"latency_ms": 300}, "refreshes", "refreshes a second", id="slow"),
    ],
)
def test_a_driver_that_lies_about_programs(
    machine: MachineFactory, tmp_path: Path, change: Any, test: str, words: str
) -> None:
    done = gpu_tests(machine({**SINGLE, **change}), tmp_path, "tests/gpu", "-k", test)
    assert done.status == 1, done.output
    assert any(words in text for text in done.report["differences"]), done.report["differences"]
    assert words in done.page


@pytest.mark.system
@pytest.mark.long
@pytest.mark.parametrize(
    ("field", "lie"),
    [
        ("memory.used", "12345"), ("uuid", "GPU-0"), ("mig.mode.current", "Enabled"),
        ("compute_mode", "Prohibited"), ("ecc.errors.uncorrected.volatile.total", "7"),
    ],
)  # fmt: skip
def test_values_that_differ(machine: MachineFactory, tmp_path: Path, field: str, lie: str) -> None:
    done = gpu_tests(machine(SINGLE), tmp_path, "tests/gpu/test_values.py", **{field: lie})
    assert done.status == 1, done.output
    [value] = [value.path for value in VALUES if value.field == field]
    assert any(value in text or "GPUs" in text for text in done.report["differences"])


@pytest.mark.system
@pytest.mark.long
@pytest.mark.parametrize("order", [[1, 0, 2, 3, 4, 5, 6, 7], [0, 1]])
def test_another_order(machine: MachineFactory, tmp_path: Path, order: list[int]) -> None:
    here = machine({"base": "h200x8", "cuda_order": order})
    done = gpu_tests(here, tmp_path, "tests/gpu/test_mapping.py")
    assert done.status == 1, done.output
    assert any("unset under unset" in text for text in done.report["differences"])


@pytest.mark.system
@pytest.mark.long
def test_uuids_in_another_order(machine: MachineFactory, tmp_path: Path) -> None:
    here = machine("h200x8")
    first, second = here.gpu(2)["uuid"], here.gpu(6)["uuid"]
    here.change(gpu=2, cuda_uuid=second)
    here.change(gpu=6, cuda_uuid=first)
    done = gpu_tests(here, tmp_path, "tests/gpu/test_mapping.py")
    assert done.status == 1, done.output
    assert any(repr("7,6,5,4,3,2,1,0") in text for text in done.report["differences"])


@pytest.mark.system
@pytest.mark.long
def test_no_gpu_is_free(machine: MachineFactory, tmp_path: Path) -> None:
    busy = {**SINGLE, "gpu": {"memory": {"used": 50 << 30}}}
    done = gpu_tests(machine(busy), tmp_path, "tests/gpu/test_processes.py", "-rs")
    assert done.status == 0, done.output
    assert done.output.count("SKIPPED") == 1
    assert "no GPU is free" in done.output


@pytest.mark.system
@pytest.mark.long
@pytest.mark.parametrize("scenario", ["no-driver", "mismatch"])
def test_no_driver(machine: MachineFactory, tmp_path: Path, scenario: str) -> None:
    done = gpu_tests(machine(scenario), tmp_path, "tests/gpu")
    assert done.status == 0, done.output
    [line] = [line for line in done.output.splitlines() if line.startswith("SKIPPED")]
    assert "no NVIDIA driver here" in line
    assert not done.report


def test_only_who_asks_for_it() -> None:
    text = (REPOSITORY / "pyproject.toml").read_text()
    assert "-m 'not long and not gpu'" in text


def leaves(kind: Any, prefix: str = "") -> Iterator[str]:
    """Yield the paths of all values of a GPU in --json."""
    for name, hint in get_type_hints(kind).items():
        parts = get_args(hint) or (hint,)
        sections = [part for part in parts if getattr(part, "__module__", "").endswith("sections")]
        if sections:
            yield from leaves(sections[0], f"{name}.")
        else:
            yield prefix + name


def test_every_value_is_compared_or_has_a_reason() -> None:
    known = {value.path for value in VALUES} | set(OURS)
    paths = set(leaves(Gpu))
    covered = {path for path in paths if f"{path.partition('.')[0]}.*" in OURS}
    assert paths - known - covered == set()
    assert {value.path for value in VALUES} <= paths
