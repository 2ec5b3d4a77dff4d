"""`gputop map --pid`: real processes with each kind of environment, on a simulated machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from tests.conftest import MachineFactory, needs_root
from tests.driver import Machine

pytestmark = pytest.mark.system

EIGHT = {"base": "h200x8", "processes": {}}


def ask(machine: Machine, pid: int) -> tuple[int, dict[str, Any]]:
    """Exit status and JSON of `gputop map --pid`."""
    command = [sys.executable, "-m", "gputop", "map", "--json", "--pid", str(pid)]
    done = subprocess.run(command, env=machine.env, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, found


def advice(found: Mapping[str, Any]) -> set[str]:
    return {hint["code"] for hint in found["advice"]}


def devices(found: Mapping[str, Any]) -> list[int]:
    return [device["gpu"] for device in found["devices"]]


def start(machine: Machine, environ: dict[str, str], *, gpu: int) -> int:
    return machine.spawn("job", ["python", "train.py"], env=environ, gpu=gpu, used=2**30)


def test_its_own_variables_count(machine: MachineFactory) -> None:
    here = machine(EIGHT)
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    status, found = ask(here, start(here, {"CUDA_VISIBLE_DEVICES": "2,1", **order}, gpu=2))
    assert (status, found["value"], found["certainty"]) == (0, "2,1", "exact")
    assert devices(found) == [2, 1]
    assert "env-contradicted" not in advice(found)


def test_a_gpu_that_its_variables_hide_contradicts_them(machine: MachineFactory) -> None:
    here = machine(EIGHT)
    _, found = ask(here, start(here, {"CUDA_VISIBLE_DEVICES": "2,1"}, gpu=5))
    assert found["devices"] is None
    assert found["certainty"] == "unknown"
    assert "env-contradicted" in advice(found)


def test_unset_and_on_one_gpu_is_ambiguous(machine: MachineFactory) -> None:
    here = machine(EIGHT)
    _, found = ask(here, start(here, {"CUDA_VISIBLE_DIVICES": "3"}, gpu=3))
    assert devices(found) == list(range(8))
    assert {"set-in-process", "name-typo"} <= advice(found)


def test_empty_hides_all_and_graphics_prove_nothing(machine: MachineFactory) -> None:
    here = machine(EIGHT)
    empty = {"CUDA_VISIBLE_DEVICES": ""}
    pid = here.spawn("viewer", ["blender"], env=empty, list="graphics", used=2**20)
    status, found = ask(here, pid)
    assert (status, found["value"], devices(found)) == (1, "", [])


def test_an_overwritten_environment_is_not_unset(machine: MachineFactory) -> None:
    """What setproctitle does: the block of variables becomes NULs."""
    here = machine(EIGHT)
    program = (
        "import ctypes, sys\n"
        "stat = open('/proc/self/stat').read().rpartition(')')[2].split()\n"
        "start, end = int(stat[47]), int(stat[48])\n"
        "ctypes.memset(start, 0, end - start)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "2"},
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        _, found = ask(here, child.pid)
        child.communicate()
    assert (found["value"], found["devices"], found["certainty"]) == (None, None, "unknown")
    assert "env-clobbered" in advice(found)


@needs_root
def test_integers_count_in_the_container(machine: MachineFactory) -> None:
    """A mount namespace of its own with the nodes of two GPUs, as a container has."""
    here = machine(EIGHT)
    script = (
        "mount -t tmpfs tmpfs /dev && touch /dev/nvidiactl /dev/nvidia2 /dev/nvidia5 && "
        "echo ready && exec cat"
    )
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        _, found = ask(here, child.pid)
        child.communicate()
    assert devices(found) == [5]
    reasons = {hidden_device["gpu"]: hidden_device["reason"] for hidden_device in found["hidden"]}
    assert reasons[2] == "no entry names it"
    assert "device nodes" in reasons[0]


def test_questions_that_cannot_be_asked(machine: MachineFactory) -> None:
    here = machine(EIGHT)
    for arguments in (["--pid", str(os.getpid()), "1"], ["--pid", "999999999"], ["--pid", "x"]):
        done = here.run([sys.executable, "-m", "gputop", "map", *arguments])
        assert done.returncode == 2
        assert done.stdout in ("", b"")


@needs_root
def test_a_process_that_proc_hides_has_not_ended(machine: MachineFactory) -> None:
    """Root without CAP_SYS_PTRACE, as in a container, sees no other users' processes there."""
    here = machine(EIGHT)
    hide = 'mount -t proc -o hidepid=2 proc /proc && exec setpriv "$@"'
    less = ("--regid", "1", "--clear-groups", "--bounding-set", "-sys_ptrace", "--")
    prefix = ("unshare", "--mount", "sh", "-c", hide, "sh", *less)
    cat = ["setpriv", "--reuid", "65534", "--clear-groups", "cat"]
    with subprocess.Popen(cat, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin
        assert child.stdout
        child.stdin.write(b"ready\n")
        child.stdin.flush()
        child.stdout.readline()
        command = [sys.executable, "-m", "gputop", "map", "--pid", str(child.pid)]
        done = here.run([*prefix, *command])
        child.communicate()
    assert (done.returncode, done.stdout) == (2, "")
    assert f"/proc hides process {child.pid}" in done.stderr
    assert "has ended" not in done.stderr
