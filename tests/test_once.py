"""`gputop --once`: what nvidia-smi's front page says, and whose the processes are."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.agent.driving import Json
from tests.conftest import ME, NESTED, MachineFactory, needs_everybody, rest_long
from tests.driver import Machine
from tests.test_json import HARMFUL

pytestmark = pytest.mark.system

ONCE = [sys.executable, "-m", "gputop", "--once"]


def look(here: Machine, *more: str) -> str:
    done = here.run([*ONCE, *more])
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def table(text: str, title: str) -> list[dict[str, str]]:
    """The rows under the heading that starts with `title`, by heading; cells are two blanks
    apart, and the last one may hold any."""
    block = next(part for part in text.split("\n\n") if part.split()[0:2] == title.split())
    heads, *rows = block.rstrip("\n").split("\n")
    names = heads.split()
    found = []
    for row in rows:
        cells = re.split(r" {2,}", row.strip(), maxsplit=len(names) - 1)
        assert len(cells) == len(names), row
        found.append(dict(zip(names, cells, strict=True)))
    return found


@needs_everybody
def test_the_front_page(machine: MachineFactory) -> None:
    here = machine({"base": "h200x8", "frozen_at": 2.5})
    text = look(here)
    heading = text.splitlines()[0]
    assert "driver 580.95.05" in heading
    assert "CUDA 13.0" in heading
    assert "8 GPUs, 2 free" in heading
    gpus = table(text, "GPU NAME")
    assert gpus[0] == {
        "GPU": "0",
        "NAME": "NVIDIA H200",
        "BUS-ID": "00000000:0A:00.0",
        "FAN%": "-",
        "TEMP-C": "36",
        "PERF": "P0",
        "POWER-W": "209/700",
        "MEM-MiB": "100000/143771",
        "UTIL%": "89",
        "MIG": "off",
        "WHO": ME,
    }
    assert [gpu["GPU"] for gpu in gpus if gpu["WHO"] == "free"] == ["2", "6"]
    assert [gpu["BUS-ID"] for gpu in gpus] == [gpu["pci"]["bus_id"] for gpu in _gpus(here)]
    assert [gpu["MEM-MiB"] for gpu in gpus] == [
        f"{-(-gpu['memory']['used'] // 2**20)}/143771" for gpu in _gpus(here)
    ]


def _gpus(here: Machine) -> list[Json]:
    gpus: list[Json] = here.scenario["gpus"]
    return gpus


def test_processes_with_user_and_command(machine: MachineFactory) -> None:
    here = machine({"base": "h200x8", "frozen_at": 2.5})
    rows = table(look(here), "GPU CUDA")
    assert len(rows) == 22
    assert {row["USER"] for row in rows} == {ME}
    by_pid = {(row["GPU"], row["PID"]): row for row in rows}
    train = by_pid["0", str(here.pids["train"])]
    assert train["COMMAND"] == "python train.py --lr 3e-4"
    assert (train["TYPE"], train["GPU-MEM"], train["SM%"]) == ("C", "97.0G", "89")
    notebook = by_pid["1", str(here.pids["notebook"])]
    assert notebook["SM%"] == "-"
    assert notebook["COMMAND"].startswith("/opt/conda/bin/python -m ipykernel_launcher -f")
    assert {("3", str(here.pids["pretrain-0"])), ("4", str(here.pids["pretrain-0"]))} <= set(by_pid)


def test_a_geforce_with_a_display(machine: MachineFactory) -> None:
    here = machine({"base": "geforce", "frozen_at": 20})
    text = look(here)
    [gpu] = table(text, "GPU NAME")
    assert (gpu["FAN%"], gpu["DISP"], gpu["PERS"]) == ("42", "on", "off")
    assert gpu.keys().isdisjoint(("ECC", "COMPUTE"))
    rows = {row["PID"]: row for row in table(text, "GPU CUDA")}
    assert rows[str(here.pids["blender"])]["TYPE"] == "C+G"
    assert rows[str(here.pids["xorg"])]["TYPE"] == "G"


def test_a_gpu_that_hangs_and_one_that_is_lost(machine: MachineFactory) -> None:
    here = machine({"base": "h200x8", "gpus": 3, "processes": None})
    here.fail("*", "GPU_IS_LOST", gpu=1)
    gpus = table(look(here), "GPU NAME")
    assert [gpu["STATE"] for gpu in gpus] == ["ok", "GPU is lost", "ok"]
    assert gpus[1]["MEM-MiB"] == "-/-"


def test_a_process_that_is_not_here(machine: MachineFactory) -> None:
    gpu = {"name": "A", "uuid": "GPU-0", "compute": [{"pid": 4194305, "used": 2**30}]}
    [row] = table(look(machine({"gpu": gpu})), "GPU CUDA")
    missing = "(may be a host PID)" if NESTED else "(not in this /proc)"
    assert (row["USER"], row["TIME"], row["COMMAND"]) == ("-", "-", missing)
    assert row["GPU-MEM"] == "1.00G"


def test_instances_of_a_mig_gpu_are_told_apart(machine: MachineFactory) -> None:
    rows = table(look(machine("mig-processes")), "GPU CUDA")
    assert [row["GPU"] for row in rows] == ["0:1", "0:2", "0:2"]


@needs_everybody
def test_mig_devices_have_lines(machine: MachineFactory) -> None:
    rows = table(look(machine({"base": "h100-mig", "processes": None})), "GPU    PROFILE")
    numbers = [row["GPU"] for row in rows]
    assert numbers == ["0:2", "0:5", "0:11", "0:13", "1:1", "1:1/1", "1:3"]
    assert [row["WHO"] for row in rows] == [*["no process"] * 3, "free", *["no process"] * 3]
    assert (rows[1]["PROFILE"], rows[1]["MEM-MiB"]) == ("2g.20gb", "12288/19968")
    assert rows[1]["MIG-UUID"] == "MIG-2b0d6f3a-51c4-5d77-8a10-9e4f00a1c002"


@needs_everybody
def test_nothing_runs(machine: MachineFactory) -> None:
    """A GPU whose memory is held by nobody that can be seen is not free."""
    here = machine({"base": "h200x8", "gpus": 1, "processes": None})
    text = look(here)
    assert "1 GPU, 0 free  0 users" in text
    assert text.endswith("\n\nno process is on a GPU\n")
    here.change(gpu=0, memory={"used": 0}, utilization={"gpu": 0})
    assert "1 GPU, 1 free  0 users" in look(here)


def test_nothing_is_supported(machine: MachineFactory) -> None:
    gpus = table(look(machine("nothing-supported")), "GPU NAME")
    assert {gpu["NAME"] for gpu in gpus} == {"NVIDIA Thing"}
    shown = ("FAN%", "TEMP-C", "PERF", "UTIL%", "MIG")
    assert {gpu[name] for gpu in gpus for name in shown} == {"-"}


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [("gb10", "unified memory: the GPU uses the machine's RAM, "), ("vgpu", "vGPU: a share of ")],
)
def test_what_is_not_told_has_a_reason(scenario: str, reason: str, machine: MachineFactory) -> None:
    text = look(machine({"base": scenario, "gpus": 2}))
    lines = [line for line in text.splitlines() if line.startswith("GPU 0,1: ")]
    assert len(lines) == 1 + NESTED
    assert lines[0].startswith(f"GPU 0,1: {reason}")


def test_hostile_command_lines(machine: MachineFactory) -> None:
    here = machine("hostile")
    done = subprocess.run(ONCE, env=here.env, capture_output=True, check=True, timeout=300)
    text = done.stdout.decode()
    for line in text.splitlines():
        assert not HARMFUL.search(line), line
    assert len(text.split("\n\n")[-1].splitlines()) == 1 + len(here.pids)
    assert max(map(len, text.splitlines())) < 4300
    assert " [/]\n" in text


@rest_long("encoding", "ascii", "latin-1", "utf-16")
def test_an_output_that_is_not_utf8(encoding: str, machine: MachineFactory) -> None:
    here = machine("hostile")
    env = {**here.env, "PYTHONIOENCODING": encoding}
    done = subprocess.run(ONCE, env=env, capture_output=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode(encoding)
    assert "NVIDIA H200" in text
    assert ("??.py" in text) == (encoding != "utf-16")


def test_a_demo_says_that_it_is_one() -> None:
    done = subprocess.run(
        [*ONCE, "--demo"], capture_output=True, text=True, timeout=300, check=True
    )
    assert "DEMO: an invented machine" in done.stdout.splitlines()[0]
    assert len(table(done.stdout, "GPU NAME")) == 8
