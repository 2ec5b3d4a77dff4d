"""`gputop doctor` on simulated machines, and on trees of files that stand for a machine's."""

from __future__ import annotations

import grp
import json
import os
import pwd
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gputop.agent.doctor import toolkits
from gputop.agent.doctor.installation import container
from gputop.agent.doctor.toolkits import toolkit_checks
from gputop.agent.host import nvidia_cards
from gputop.model.doctor.check import frame_checks
from gputop.model.machine.environment import AgentSurroundings
from gputop.model.machine.finding import Finding
from gputop.model.machine.frame import Frame
from tests import builders
from tests.conftest import MachineFactory, needs_everybody, needs_root
from tests.driver import Machine

Json = dict[str, Any]

EXAMINE = """
import json, msgspec, sys
from pathlib import Path
from gputop.agent.doctor.installation import container, installation_checks
from gputop.model.machine.frame import Frame
root, frame = Path(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=Frame)
checks = installation_checks(frame, container(frame, root, {}), root)
print(json.dumps([msgspec.to_builtins(one) for one in checks]))
"""


def doctor(machine: Machine, *arguments: str) -> subprocess.CompletedProcess[str]:
    return machine.run([sys.executable, "-m", "gputop", "doctor", *arguments])


def checks(machine: Machine, *arguments: str) -> list[Json]:
    """Of `gputop doctor --json`, which says the same as its exit status."""
    done = doctor(machine, "--json", *arguments)
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert list(found) == ["errors", "checks"]
    problems = [check for check in found["checks"] if check["level"] == "error"]
    assert (found["errors"], done.returncode) == (len(problems), 1 if problems else 0)
    listed: list[Json] = found["checks"]
    return listed


def of(found: list[Json], subject: str) -> list[tuple[str, str]]:
    return [(check["level"], check["text"]) for check in found if check["code"] == subject]


def examine(
    machine: Machine, root: Path, answers: bool = True, prefix: tuple[str, ...] = ()
) -> list[Json]:
    """What is found of the files below `root`, on a machine with a driver that answers or not."""
    frame = builders.frame()
    if not answers:
        problem = {"code": "no_permission", "text": "", "advice": ""}
        frame = msgspec.convert({**msgspec.to_builtins(frame), "problem": problem}, type(frame))
    words = [sys.executable, "-c", EXAMINE, str(root), msgspec.json.encode(frame).decode()]
    done = machine.run([*prefix, *words])
    assert done.returncode == 0, done.stderr
    found: list[Json] = json.loads(done.stdout)
    return found


def write(path: Path, text: str, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.fixture
def root() -> Iterator[Path]:
    """An empty root that every user may look into."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


# The driver


@pytest.mark.system
def test_a_machine_that_answers(machine: MachineFactory) -> None:
    found = checks(machine("h200x8"))
    assert of(found, "driver") == [("ok", "580.95.05, runs CUDA up to 13.0")]
    assert of(found, "GPUs") == [("ok", "8 x H200")]
    assert of(found, "ECC") == [("ok", "on")]
    assert of(found, "NVML")[0][1].startswith("13.580.95.05 (/")
    assert of(found, "libcuda")[0][1].startswith("CUDA 13.0 (/")


@pytest.mark.system
def test_which_xids_are_known_of(machine: MachineFactory) -> None:
    """NVML tells of none that came before; doctor listens for three seconds."""
    here = machine({"base": "h200x8", "gpus": 1, "gpu": {"xids": [[0, 79]]}, "processes": None})
    found = checks(here)
    [(level, text)] = of(found, "GPU 0")
    assert (level, "held by no process that is listed" in text) == ("info", True)
    [(level, text)] = of(found, "XIDs")
    assert level == "ok"
    assert "since gputop started" in text
    assert "sudo dmesg | grep Xid" in text


@pytest.mark.system
def test_text_is_ascii_and_fits(machine: MachineFactory) -> None:
    here = machine("no-driver")
    here.env.update(LC_ALL="C", PYTHONIOENCODING="ascii:strict", COLUMNS="80")
    done = doctor(here)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (1, "")
    assert lines[0] == "error    driver: the NVIDIA kernel driver is not loaded"
    assert lines[1].startswith("         -> load it with 'sudo modprobe nvidia'")
    assert lines[-1].endswith(" errors") or lines[-1] == "1 error"
    assert all(len(line) <= 80 or "/" in line for line in lines)


@pytest.mark.system
@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        ("no-driver", "not loaded"),
        ("mismatch", "different versions"),
        ("no-permission", "no permission"),
        ("no-gpu", "finds no GPU"),
    ],
)
def test_without_a_driver_that_answers(scenario: str, words: str, machine: MachineFactory) -> None:
    found = checks(machine(scenario))
    assert found[0]["code"] == "driver"
    assert found[0]["level"] == "error"
    assert words in found[0]["text"]
    assert found[0]["advice"]
    assert of(found, "toolkit")  # and it goes on


@pytest.mark.system
def test_a_driver_that_was_unloaded(machine: MachineFactory) -> None:
    here = machine("unloaded")
    here.freeze(4)
    assert "not loaded" in checks(here)[0]["text"]


@pytest.mark.system
def test_a_driver_that_hangs(machine: MachineFactory) -> None:
    found = checks(machine("init-hang"))
    assert re.search(r"has not answered for \d(\.\d)? s", found[0]["text"])


@pytest.mark.system
@needs_everybody
def test_a_gpu_that_is_lost_or_hangs(machine: MachineFactory) -> None:
    here = machine("h200x8")
    here.fail("*", "GPU_IS_LOST", gpu=3)
    here.hang(gpu=5, wakes=False)
    found = checks(here)
    assert of(found, "GPU 3") == [("error", "the driver says: GPU is lost")]
    assert of(found, "GPU 5")[0][1].startswith("it has not answered for ")
    assert of(found, "GPU 4") == []


@pytest.mark.system
@needs_everybody
def test_a_gpu_that_wakes_up_late_is_no_problem(machine: MachineFactory) -> None:
    here = machine("h200x8")
    here.slow("nvmlDeviceGetHandleByIndex*", ms=2500, gpu=3)
    assert of(checks(here), "GPU 3") == []


@pytest.mark.system
def test_what_the_driver_lacks(machine: MachineFactory) -> None:
    level, text = of(checks(machine("old-390")), "NVML")[1]
    assert level == "info"
    assert "nvmlDeviceGetMemoryInfo_v2" in text
    assert "MEM-RSVD" in text
    assert "nvmlDeviceGetProcessUtilization," not in text


@pytest.mark.system
def test_what_is_not_available(machine: MachineFactory) -> None:
    found = checks(machine("nothing-supported"))
    [(level, text)] = of(found, "N/A")
    assert level == "ok"
    assert text.startswith("every GPU (Thing), because of the card or the driver: ")
    assert "Power (all)" in text
    assert "UUID" not in text
    assert of(found, "GPU 0")[0][0] == "warning"  # nobody is told to be on it


def not_available(frames: list[Frame]) -> list[str]:
    return [check.text for check in frame_checks(frames) if check.code == "N/A"]


def test_gpus_with_the_same_gaps_stand_together() -> None:
    fans = (0.3, None, 0.3)
    gpus = [builders.gpu(i, temperature=50.0, fan=fan) for i, fan in enumerate(fans)]
    first, second = not_available([builders.frame(gpus)])
    assert first.startswith("GPU 0, 2 (H200), ")
    assert second.startswith("GPU 1 (H200), ")
    assert "Temperature (TEMP-MEM, T.LIMIT, SLOWDOWN, SHUTDOWN, FAN)" in second
    assert "Temperature (TEMP-MEM, T.LIMIT, SLOWDOWN, SHUTDOWN)" in first


def test_what_one_look_knew_is_available() -> None:
    gpus = [builders.gpu(temperature=50.0, fan=fan) for fan in (None, 0.3, None)]
    looks = [builders.frame([gpu]) for gpu in gpus]
    assert "FAN" not in not_available(looks)[0]
    assert "FAN" in not_available(looks[:1])[0]


@pytest.mark.system
def test_hostile_names(machine: MachineFactory) -> None:
    here = machine({"gpus": [{"name": "\x1b[2J\u202ecard\n", "uuid": "GPU-0"}]})
    here.env["CUDA_HOME"] = "/nowhere\x1b[2J\n\u202e"
    for arguments in ((), ("--json",)):
        done = doctor(here, *arguments)
        assert done.returncode == 1
        assert not set("\x1b\u202e") & set(done.stdout)
    assert "\\u001b" not in done.stdout


# Kernel module, device nodes, cards


@pytest.mark.system
@pytest.mark.parametrize(
    ("version", "level"), [("580.95.05", None), ("580.65.06", "error"), ("", "info")]
)
def test_module_and_library(
    version: str, level: str | None, machine: MachineFactory, root: Path
) -> None:
    if version:
        line = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Tue Sep 1\nGCC 12.3\n"
        write(root / "proc/driver/nvidia/version", line)
    found = examine(machine("h200x8"), root)
    nvml = [
        check for check in found if check["code"] == "NVML" and "kernel module" in check["text"]
    ]
    assert bool(nvml) == (level == "error")
    if nvml:
        assert "of driver 580.95.05, the loaded kernel module is 580.65.06" in nvml[0]["text"]
        assert "reboot" in nvml[0]["advice"]
    assert of(found, "kernel module") == [
        ("ok", version) if version else ("info", "none is loaded")
    ]


@pytest.mark.system
def test_a_container_with_a_library_of_its_own(machine: MachineFactory, root: Path) -> None:
    write(root / "sys/module/nvidia/version", "580.65.06\n")
    write(root / ".dockerenv", "")
    found = examine(machine("h200x8"), root)
    advice = [check["advice"] for check in found if "580.65.06" in check["text"]]
    assert "the container brings a library of its own" in advice[0]
    assert of(found, "machine") == [("ok", "inside a container (docker)")]


@pytest.mark.system
def test_nodes(machine: MachineFactory, root: Path) -> None:
    here = machine("h200x8")
    assert of(examine(here, root), "device nodes")[0][0] == "info"
    assert of(examine(here, root, answers=False), "device nodes")[0][0] == "error"
    for name in ("nvidia0", "nvidiactl", "nvidia-caps-imex-channels", "nvidia-modeset"):
        write(root / "dev" / name, "")
    (uvm, nodes) = of(examine(here, root), "device nodes")
    assert (uvm[0], nodes) == ("info", ("ok", "nvidia0 nvidiactl"))
    write(root / "run/.containerenv", "")
    assert of(examine(here, root), "device nodes")[0][0] == "error"
    write(root / "dev/nvidia-uvm", "")
    nodes = ("ok", "nvidia-uvm nvidia0 nvidiactl")
    assert of(examine(here, root), "device nodes") == [nodes]


@pytest.mark.system
@needs_root
@pytest.mark.parametrize(
    ("mode", "group", "advice"),
    [
        (0o660, "games", "sudo usermod -aG games nobody, then log in again"),
        (0o600, "games", "sudo chmod a+rw"),
        (0o660, "root", "sudo chmod a+rw"),
    ],
)
def test_nodes_that_we_may_not_use(mode: int, group: str, advice: str, root: Path) -> None:
    node = write(root / "dev/nvidia0", "", mode)
    os.chown(node, 0, grp.getgrnam(group).gr_gid)
    nobody = pwd.getpwnam("nobody")
    ids = ("--reuid", str(nobody.pw_uid), "--regid", str(nobody.pw_gid), "--clear-groups")
    with Machine("h200x8", root) as here:
        Path(here.env["GPUTOP_TEST_DRIVER"]).parent.chmod(0o755)
        found = examine(here, root, prefix=("setpriv", *ids))
    denied = [check for check in found if "you may not use" in check["text"]]
    assert [check["level"] for check in denied] == ["error"]
    assert advice in denied[0]["advice"]


def card(root: Path, place: str, driver: str | None) -> None:
    device = root / "sys/bus/pci/devices" / place
    write(device / "vendor", "0x10de\n")
    write(device / "class", "0x030200\n")
    write(device / "device", "0x2335\n")
    if driver:
        (root / "sys/drivers" / driver).mkdir(parents=True, exist_ok=True)
        (device / "driver").symlink_to(root / "sys/drivers" / driver)


@pytest.mark.system
def test_cards(machine: MachineFactory, root: Path) -> None:
    here = machine("h200x8")
    card(root, "0000:0a:00.0", "nvidia")
    assert of(examine(here, root), "PCI bus") == [("ok", "1 NVIDIA card")]
    card(root, "0000:0b:00.0", None)
    card(root, "0000:0c:00.0", "nouveau")
    card(root, "0000:0d:00.0", "vfio-pci")
    assert len(nvidia_cards(root / "sys")) == 4
    levels = [level for level, _ in of(examine(here, root), "PCI bus")]
    assert levels == ["error", "error", "info", "ok"]
    card(root, "0000:0e:00.0", "nvidia")  # the frame has one GPU
    assert ("warning", "the driver has 2 cards and shows 1 GPU") in of(
        examine(here, root), "PCI bus"
    )
    write(root / ".dockerenv", "")  # there it is usual
    assert of(examine(here, root), "PCI bus") == [
        ("info", of(examine(here, root), "PCI bus")[0][1]),
        ("ok", "5 NVIDIA cards"),
    ]


@pytest.mark.system
def test_wsl(machine: MachineFactory, root: Path) -> None:
    write(root / "dev/dxg", "")
    found = examine(machine("h200x8"), root, answers=False)
    assert of(found, "kernel module") == of(found, "device nodes") == []
    assert of(found, "machine")[0] == (
        "ok",
        "WSL: the driver is that of Windows, behind /dev/dxg",
    )


@pytest.mark.system
def test_a_stub_and_no_library(machine: MachineFactory, root: Path) -> None:
    here = machine("h200x8")
    real = Path(here.env["LD_LIBRARY_PATH"].split(":")[0])
    stubs = root / "stubs"
    stubs.mkdir()
    (stubs / "libcuda.so.1").write_bytes((real / "libcuda.so.1").read_bytes())
    (stubs / "libnvidia-ml.so.1").write_bytes(b"no library")
    here.env["LD_LIBRARY_PATH"] = str(stubs)
    here.env.pop("LD_PRELOAD", None)  # with the other libcuda
    found = examine(here, root)
    assert "is a stub" in of(found, "libcuda")[0][1]
    assert of(found, "NVML") == [("error", f"{stubs}/libnvidia-ml.so.1: file too short")]


def test_containers(root: Path) -> None:
    frame = builders.frame()
    assert container(frame, root, {}) is None
    assert container(frame, root, {"APPTAINER_NAME": "x.sif"}) == "apptainer"
    write(root / "run/.containerenv", "")
    assert container(frame, root, {}) == "podman"


@pytest.mark.parametrize("wsl", [False, True])
def test_a_container_without_a_mark(wsl: bool, root: Path) -> None:
    """As one that has only a PID namespace of its own, which WSL has as well."""
    frame = builders.frame()
    host = replace(frame.host, wsl=wsl, surroundings=AgentSurroundings(container=True))
    assert container(replace(frame, host=host), root, {}) == (None if wsl else "container")


# Toolkits, cuDNN, container runtimes


def tools(root: Path, cuda: str | None = "12.4", **environ: str) -> list[Finding]:
    return list(toolkit_checks(cuda, None, root, {"PATH": str(root / "bin"), **environ}))


def said(found: list[Finding], subject: str) -> list[tuple[str, str]]:
    return [(check.level, check.text) for check in found if check.code == subject]


def program(root: Path, name: str, script: str) -> Path:
    return write(root / "bin" / name, f"#!/bin/sh\n{script}\n", 0o755)


@pytest.mark.system
def test_nothing_installed(root: Path) -> None:
    found = tools(root)
    assert said(found, "toolkit")[0][0] == "info"
    assert said(found, "containers") == [("ok", "no runtime")]


@pytest.mark.system
def test_toolkits(root: Path) -> None:
    local = root / "usr/local"
    write(local / "cuda-12.4/version.json", '{"cuda": {"name": "SDK", "version": "12.4.131"}}')
    (local / "cuda").symlink_to(local / "cuda-12.4")
    write(local / "cuda-10.1/version.txt", "CUDA Version 10.1.243\n")
    write(local / "cuda-13.0/version.json", "{")
    write(local / "cuda-12.0/version.json", "[" * 200_000)
    found = sorted(said(tools(root), "toolkit"), key=lambda check: check[1])
    assert found[0] == ("ok", f"CUDA 10.1.243 ({local}/cuda-10.1)")
    assert found[1] == ("ok", f"CUDA 12.0 ({local}/cuda-12.0)")
    assert found[2] == ("ok", f"CUDA 12.4.131 ({local}/cuda-12.4)")
    assert found[3][0] == "warning"
    assert found[3][1].startswith(f"CUDA 13.0 ({local}/cuda-13.0): what it compiles does not run")
    assert len(found) == 4


@pytest.mark.system
def test_nvcc(root: Path) -> None:
    program(root, "nvcc", "echo 'Cuda compilation tools, release 12.8, V12.8.93'")
    found = said(tools(root), "toolkit")  # 12.8 on a driver for 12.4: minor versions agree
    assert found == [("ok", f"CUDA 12.8.93 ({root}/bin/nvcc)")]


@pytest.mark.system
@pytest.mark.parametrize("script", ["sleep 60", "yes", "exit 1", "kill -9 $$", "echo release"])
def test_an_nvcc_that_does_not_tell(
    script: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolkits, "_LIMIT", 0.3)
    monkeypatch.setenv("PATH", f"{root}/bin:{os.environ['PATH']}")
    program(root, "nvcc", script)
    found = said(tools(root, PATH=os.environ["PATH"]), "toolkit")
    assert found[-1] == ("ok", f"CUDA of unknown version ({root}/bin/nvcc)")


@pytest.mark.system
def test_cuda_home_that_is_not_there(root: Path) -> None:
    found = tools(root, CUDA_HOME="/nowhere/cuda")
    assert said(found, "toolkit")[0] == ("error", "CUDA_HOME=/nowhere/cuda is not a directory")


@pytest.mark.system
def test_cudnn(root: Path) -> None:
    macros = "".join(
        f"#define CUDNN_{name} {number}\n"
        for name, number in (("MAJOR", 8), ("MINOR", 9), ("PATCHLEVEL", 7))
    )
    header = write(root / "usr/include/cudnn_version.h", macros)
    old = write(root / "lib/libcudnn.so.7.6.5", "")
    (old.parent / "libcudnn.so.7").symlink_to(old)
    program(root, "ldconfig", f"echo '\tlibcudnn.so.9 (libc6,x86-64) => {root}/libcudnn.so.9.1.0'")
    found = said(tools(root, LD_LIBRARY_PATH=f":{old.parent}"), "cuDNN")
    assert found == [
        ("ok", f"7.6.5 ({old})"),
        ("ok", f"9.1.0 ({root}/libcudnn.so.9.1.0)"),
        ("ok", f"8.9.7 ({header})"),
    ]


@pytest.mark.system
def test_container_runtimes(root: Path) -> None:
    program(root, "docker", "echo 'Docker version 28.2.2, build e6534b4'")
    [check] = [check for check in tools(root) if check.code == "containers"]
    assert (check.level, check.text) == ("warning", "docker 28.2.2, without nvidia-ctk")
    assert "nvidia-container-toolkit" in (check.advice or "")
    program(root, "nvidia-ctk", "echo 'NVIDIA Container Toolkit CLI version 1.17.4'")
    assert said(tools(root), "containers") == [("ok", "docker 28.2.2, nvidia-ctk 1.17.4")]


@pytest.mark.system
def test_bad_arguments(machine: MachineFactory) -> None:
    for arguments in (("x",), ("--python",), ("--python", "/nowhere")):
        done = doctor(machine("h200x8"), *arguments)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


@pytest.mark.system
def test_help_tells_the_exit_status(machine: MachineFactory) -> None:
    done = doctor(machine("h200x8"), "--help")
    assert "exit status: 0 no error was found, 1 there is one, 2 usage" in done.stdout


@pytest.mark.system
def test_a_python_environment(machine: MachineFactory, root: Path) -> None:
    here = machine("h200x8")
    found = checks(here, "--python", sys.executable)
    assert of(found, "Python")[0][1].endswith(f"({Path(sys.executable).absolute()})")
    info = root / "lib/torch-2.5.1+cpu\x1b[2J\u202e.dist-info"
    info.mkdir(parents=True)
    here.env["PYTHONPATH"] += f":{root}/lib"
    done = doctor(here, "--python", str(Path(sys.executable).parent.parent))
    assert "is a build without CUDA: it sees no GPU" in " ".join(done.stdout.split())
    assert not set("\x1b\u202e") & set(done.stdout)
    assert done.returncode == 1


@pytest.mark.system
@pytest.mark.long
def test_a_build_without_kernels_for_the_card(machine: MachineFactory, root: Path) -> None:
    """torch with Hopper's kernels at most on a GB10, whose compute capability the driver tells."""
    here = machine("gb10")
    (root / "lib/torch-2.8.0+cu126.dist-info").mkdir(parents=True)
    write(root / "lib/torch/lib/libtorch_python.so", "\0sm_50 sm_60 sm_90\0")
    here.env["PYTHONPATH"] += f":{root}/lib"
    found = checks(here, "--python", str(Path(sys.executable).parent.parent))
    [lacking] = [check for check in found if "no kernel image is available" in check["text"]]
    assert (lacking["level"], lacking["code"]) == ("error", "torch")
    assert "compute capability 12.1" in lacking["text"]
    assert "https://pytorch.org/" in lacking["advice"]
