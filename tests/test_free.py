"""`gputop free`, through a command line of its own, on simulated machines."""

import argparse
import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputop.cli import main
from gputop.commands.free import add_options
from tests.agent.driving import Json
from tests.conftest import MachineFactory, needs_everybody
from tests.driver import Machine

Done = subprocess.CompletedProcess[str]
Free = Callable[..., Done]
QUICK = ("--window", "0.2")
MIXED: Json = {
    "gpu": {"uuid": "GPU-{i}0000000", "pci": {"bus_id": "00000000:{i:02X}:00.0"},
            "memory": {"total": 2**35, "used": 0}, "utilization": {"gpu": 0, "memory": 0}},
    "gpus": [{"name": "NVIDIA L4"}, {"name": "NVIDIA A100-SXM4-80GB"}],
}  # fmt: skip


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "gputop", "free", *QUICK, *arguments]


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def h200x8(machine: MachineFactory) -> Machine:
    here = machine("h200x8")
    here.env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    return here


def free(machine: Machine, *arguments: str, **variables: str) -> Done:
    machine.env.update(variables)
    return machine.run(command(*arguments))


def uuids(machine: Machine, *indices: int) -> str:
    return ",".join(machine.gpu(index)["uuid"] for index in indices)


@pytest.mark.system
@needs_everybody
def test_the_value_alone_is_on_stdout(h200x8: Machine) -> None:
    done = free(h200x8)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")
    assert free(h200x8, "-n", "2").stdout == "2,6\n"
    assert free(h200x8, "--exclude", f"2,{uuids(h200x8, 0)[:9]}").stdout == "6\n"


@pytest.mark.system
@needs_everybody
def test_a_shell_can_use_it(h200x8: Machine) -> None:
    words = " ".join(f"'{word}'" for word in command("-n", "2", "--format", "export"))
    script = f'eval "$({words})"; echo $CUDA_DEVICE_ORDER $CUDA_VISIBLE_DEVICES'
    assert h200x8.run(["sh", "-c", script]).stdout == "PCI_BUS_ID 2,6\n"


@pytest.mark.system
@needs_everybody
def test_an_index_is_a_number_or_nothing(h200x8: Machine, machine: MachineFactory) -> None:
    """int() of vLLM and DeepSpeed cannot read a UUID; an index that may mean another GPU is worse
    than none."""
    assert free(h200x8, "-n", "2", "--format", "index").stdout == "2,6\n"
    for words in ("--uuid", "--format=uuid"):
        done = free(h200x8, words, "-n", "2")
        assert (done.stdout, done.stderr) == (uuids(h200x8, 2, 6) + "\n", "")
    del h200x8.env["CUDA_DEVICE_ORDER"]
    done = free(h200x8, "-n", "2")
    advice = "gputop: counted by PCI bus id: set CUDA_DEVICE_ORDER=PCI_BUS_ID, too\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, "2,6\n", advice)
    mixed = machine(MIXED)
    done = free(mixed)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "gputop: an index may mean another GPU here: set CUDA_DEVICE_ORDER=PCI_BUS_ID,"
        " or give --uuid\n"
    )
    assert free(mixed, "--uuid").stdout == "GPU-00000000\n"
    assert free(mixed, CUDA_DEVICE_ORDER="PCI_BUS_ID").stdout == "0\n"
    assert free(mixed, "--format", "export").stdout.endswith("CUDA_VISIBLE_DEVICES=0\n")


@pytest.mark.system
@needs_everybody
def test_not_enough(h200x8: Machine) -> None:
    done = free(h200x8, "-n", "3")
    assert (done.returncode, done.stdout) == (1, "")
    lines = done.stderr.splitlines()
    assert len(lines) == 9
    assert lines[0].startswith("gputop: GPU 0 H200: processes of ")
    assert lines[2] == "gputop: GPU 2 H200: free"
    assert lines[8] == "gputop: not enough GPUs: 2 free, 3 requested"


@pytest.mark.system
@needs_everybody
def test_what_is_in_use_is_not_called_free(h200x8: Machine) -> None:
    done = free(h200x8, "-n", "7", "--min-free", "60GiB", "--shared")
    lines = done.stderr.splitlines()
    assert lines[2] == "gputop: GPU 2 H200: free"
    assert lines[5] == "gputop: GPU 5 H200: suitable"
    assert re.fullmatch(r"gputop: not enough GPUs: \d suitable, 7 requested", lines[8])
    done = free(h200x8, "-n", "3", CUDA_VISIBLE_DEVICES="5,6")
    assert done.stderr.splitlines()[-1] == "gputop: not enough GPUs: 1 suitable, 3 requested"


@pytest.mark.system
def test_shared(h200x8: Machine) -> None:
    done = free(h200x8, "-n", "4", "--min-free", "60GiB", "--shared", "--format", "export")
    assert done.stdout.endswith("CUDA_VISIBLE_DEVICES=2,5,6,7\n")


@pytest.mark.system
@needs_everybody
def test_the_callers_own_variable(h200x8: Machine) -> None:
    done = free(h200x8, CUDA_VISIBLE_DEVICES="5,6")
    assert done.stdout == "6\n"
    assert "your own CUDA_VISIBLE_DEVICES='5,6' leaves GPU 5, GPU 6" in done.stderr


@pytest.mark.system
@needs_everybody
def test_json(h200x8: Machine) -> None:
    answer: dict[str, Any] = json.loads(free(h200x8, "--json", "--exclude", "2").stdout)
    assert list(answer) == ["value", "gpus", "refused", "notes"]
    assert answer["value"] == "6"
    assert [gpu["gpu"] for gpu in answer["gpus"]] == [6]
    assert answer["refused"][2]["reason"] == "it is excluded"
    done = free(h200x8, "--json", "-n", "3")
    assert (done.returncode, json.loads(done.stdout)["value"]) == (1, None)


@pytest.mark.system
@needs_everybody
def test_a_slice_of_a_gpu(machine: MachineFactory) -> None:
    """Of seven, one is free: 1g.10gb+me, GPU instance 13 of GPU 0."""
    here, uuid = machine("h100-mig"), "MIG-2b0d6f3a-51c4-5d77-8a10-9e4f00a1c004"
    done = free(here, "--min-free", "5G")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{uuid}\n", "")
    [gpu] = json.loads(free(here, "--json").stdout)["gpus"]
    assert (gpu["gpu"], gpu["mig"], gpu["mig_uuid"]) == (0, "0:13", uuid)
    done = free(here, "-n", "2")
    assert (done.returncode, done.stdout) == (1, "")
    assert "gputop: GPU 0:5 MIG 2g.20gb: processes of " in done.stderr
    assert done.stderr.endswith("gputop: not enough slices: 1 free, 2 requested\n")


@pytest.mark.system
@needs_everybody
def test_mig_without_a_device_is_not_offered(machine: MachineFactory) -> None:
    done = free(machine("mig-processes"), "--wait")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("it is in MIG mode") == 2


@pytest.mark.system
@needs_everybody
def test_one_that_needs_a_person_is_not_offered(h200x8: Machine) -> None:
    h200x8.change(gpu=2, remapped={"rows": {"correctable": 0, "uncorrectable": 1}, "failure": 1})
    done = free(h200x8, "-n", "2")
    assert (done.returncode, done.stdout) == (1, "")
    assert "GPU 2 H200: it needs attention (gputop doctor): a row of memory could" in done.stderr


@pytest.mark.system
@needs_everybody
def test_rows_that_wait_to_be_remapped_keep_nobody_off(h200x8: Machine) -> None:
    """NVIDIA's "GPU Memory Error Management": new workloads can be launched."""
    h200x8.change(gpu=2, remapped={"correctable": 0, "uncorrectable": 1, "pending": 1})
    done = free(h200x8, "-n", "2")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "2,6\n"


@pytest.mark.system
@needs_everybody
def test_it_waits_for_a_process_to_end(h200x8: Machine) -> None:
    waiting = h200x8.popen(command("-n", "3", "--wait"), stderr=subprocess.PIPE)
    assert waiting.stderr is not None
    assert waiting.stderr.readline() == "gputop: waiting: 2 free, 3 requested\n"
    h200x8.kill("notebook")
    out, errors = waiting.communicate(timeout=300)
    assert (waiting.returncode, out, errors) == (0, "1,2,6\n", "")


@pytest.mark.system
@needs_everybody
def test_it_gives_up(h200x8: Machine) -> None:
    done = free(h200x8, "-n", "3", "--wait", "3s")
    assert (done.returncode, done.stdout) == (1, "")
    assert "waiting" in done.stderr
    # What cannot come true is not waited for.
    assert free(h200x8, "-n", "9", "--wait").returncode == 1
    assert free(h200x8, "--min-free", "200G", "--wait").returncode == 1


@pytest.mark.system
@needs_everybody
def test_an_interrupt(h200x8: Machine) -> None:
    waiting = h200x8.popen(command("-n", "3", "--wait"), stderr=subprocess.PIPE)
    assert waiting.stderr is not None
    waiting.stderr.readline()
    children = Path(f"/proc/{waiting.pid}/task/{waiting.pid}/children").read_text().split()
    agent = os.pidfd_open(int(children[0]))
    waiting.send_signal(signal.SIGINT)
    out, errors = waiting.communicate(timeout=300)
    assert (waiting.returncode, out, errors) == (130, "", "")
    assert select.select([agent], [], [], 10)[0] == [agent]
    os.close(agent)


@pytest.mark.system
def test_a_driver_problem(machine: MachineFactory) -> None:
    done = free(machine("no-driver"), "--wait")
    assert (done.returncode, done.stdout) == (3, "")
    assert "kernel driver is not loaded" in done.stderr


@pytest.mark.system
@needs_everybody
def test_a_driver_that_wakes_up_late(h200x8: Machine) -> None:
    h200x8.slow("nvmlInit*", ms=1500)
    assert free(h200x8).stdout == "2\n"


@pytest.mark.system
@needs_everybody
def test_a_lost_gpu(h200x8: Machine) -> None:
    h200x8.fail("*", "GPU_IS_LOST", gpu=2)
    assert free(h200x8, "--uuid").stdout == uuids(h200x8, 6) + "\n"
    done = free(h200x8)  # which of them CUDA still counts is not known
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        r"gputop: no index is exact here: .*; --uuid \(uuid=True\) gives UUIDs\n", done.stderr
    )
    assert "GPU 2 -: the driver says: " in free(h200x8, "-n", "3").stderr


@pytest.mark.system
@needs_everybody
def test_a_gpu_that_hangs(h200x8: Machine) -> None:
    h200x8.hang(gpu=2)
    assert free(h200x8, "--uuid").stdout == uuids(h200x8, 6) + "\n"


@pytest.mark.system
@needs_everybody
def test_nowhere_to_write(h200x8: Machine) -> None:
    with open("/dev/full", "w") as full:
        program = h200x8.popen(command(), stdout=full, stderr=subprocess.PIPE)
        _, errors = program.communicate(timeout=300)
    assert program.returncode == 1
    assert errors.startswith("gputop: cannot write to standard output: No space left")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-n", "0"), "-n 0 is not a number of GPUs"),
        (("-n", "x"), "invalid int value: 'x'"),
        (("--shared",), "--shared needs --min-free"),
        (("--min-free", "20Q"), "'20Q' is not a size"),
        (("--min-free", "-1"), "'-1' is not a size"),
        (("--max-util", "101"), "'101' is not a percentage"),
        (("--max-util", "nan"), "'nan' is not a percentage"),
        (("--wait", "soon"), "'soon' is not a time"),
        (("--window", "61"), "'61' is not a number of seconds"),
        (("--format", "x"), "unknown --format 'x'"),
    ],
)
def test_usage(arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["free", *arguments]) == 2
    out, errors = capsys.readouterr()
    assert out == ""
    assert said in errors
    assert errors.count("\n") == 1


@pytest.mark.system
def test_an_exclusion_that_names_nothing(h200x8: Machine) -> None:
    done = free(h200x8, "--exclude", "2,8")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "gputop: --exclude '8' names no GPU here: nvidia-smi -L lists them\n"


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        ("--min-free", "20GiB", 20 * 2**30),
        ("--min-free", "20G", 20 * 2**30),
        ("--min-free", "1.5 gb", 3 * 2**29),
        ("--min-free", "500MiB", 500 * 2**20),
        ("--min-free", "4096", 4096),
        ("--max-util", "20%", 20),
        ("--wait", "90", 90),
        ("--wait", "10m", 600),
        ("--wait", "2h", 7200),
        ("--window", "0", 0),
        ("--window", ".5", 0.5),
    ],
)
def test_quantities(option: str, text: str, value: float) -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    options = parser.parse_args([option, text])
    assert getattr(options, option[2:].replace("-", "_")) == value


@pytest.mark.system
def test_it_starts_without_textual() -> None:
    program = "import sys, gputop.commands.free; sys.exit('textual' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
