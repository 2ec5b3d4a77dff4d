"""`gputop map --pid`: what is said where variables are not known, and of others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.conftest import ME, MachineFactory, needed, require_root
from tests.driver import Machine
from tests.test_map_reach import FOUR, PCI, N, ask, gpus, on, told
from tests.views import living, sees

pytestmark = pytest.mark.system

OVERWRITES = """
import ctypes, sys
stat = open('/proc/self/stat').read().rpartition(')')[2].split()
start, end = int(stat[47]), int(stat[48])
ctypes.memset(start, 0, end - start)
print('ready', flush=True)
sys.stdin.read()
"""
NOBODY = 65534
WEAK = "--bounding-set=-sys_ptrace,-perfmon,-sys_admin"
"""Without what lets root read the variables of others."""


@contextmanager
def wiped(variables: dict[str, str], *prefix: str) -> Iterator[int]:
    """A process that has changed its title, as setproctitle does it."""
    with subprocess.Popen(
        [*prefix, sys.executable, "-c", OVERWRITES], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], **variables},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.communicate()


def no_line_for_a_shell(text: str) -> bool:
    return not [line for line in text.splitlines() if line.startswith(("unset", "export"))]


@pytest.mark.parametrize("used", [(), (2,)])
def test_overwritten_is_not_unset(machine: MachineFactory, used: tuple[int, ...]) -> None:
    here = machine(FOUR)
    with wiped({N: "2"}) as pid:
        on(here, pid, *used)
        _, found = ask(here, pid)
        text = told(here, pid)
    assert (found["value"], gpus(found), found["certainty"]) == (None, None, "unknown")
    assert found["process"]["variables"] == "overwritten"
    assert found["process"]["because"]
    assert no_line_for_a_shell(text)
    assert "is unset" not in text


def test_without_a_node_it_has_none_whatever_its_variables_were(machine: MachineFactory) -> None:
    here = machine(FOUR)
    with wiped({N: "2"}, *sees()) as pid:
        status, found = ask(here, pid, *sees(0, 1, 2, 3))
    assert (status, gpus(found)) == (1, [])
    assert found["process"]["variables"] == "overwritten"


def test_private_is_not_unset(machine: MachineFactory) -> None:
    """Of another user's process, without the capability that lets root read it."""
    require_root()
    here = machine(FOUR)
    setpriv = needed("setpriv", "util-linux")
    with living([setpriv, f"--reuid={NOBODY}", "--clear-groups"], {N: "2"}) as pid:
        _, found = ask(here, pid, setpriv, WEAK)
        text = told(here, pid, setpriv, WEAK)
    assert (found["value"], gpus(found), found["certainty"]) == (None, None, "unknown")
    assert found["process"]["variables"] == "private"
    assert "root" in found["process"]["because"]
    assert no_line_for_a_shell(text)


def test_a_zombie_has_no_variables_and_is_not_unset(machine: MachineFactory) -> None:
    here = machine(FOUR)
    with subprocess.Popen(["true"], env={N: "2"}) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        done = here.run([sys.executable, "-m", "gputop", "map", "--pid", str(process.pid)])
    assert (done.returncode, done.stdout) == (2, "")
    assert f"no process {process.pid} here, or it has ended" in done.stderr


def test_known_ones_are_read(machine: MachineFactory) -> None:
    here = machine(FOUR)
    for variables in ({N: "2,1", **PCI}, {N: ""}, {}):
        with living([], variables) as pid:
            _, found = ask(here, pid)
        assert found["process"]["variables"] == "read"
        assert found["value"] == variables.get(N)


def test_contradicted_variables_are_not_offered(machine: MachineFactory) -> None:
    here = machine(FOUR)
    with living([], {N: "2,1"}) as pid:
        on(here, pid, 3)
        text = told(here, pid)
    assert no_line_for_a_shell(text)


def test_a_process_is_not_told_that_it_is_there_itself(machine: MachineFactory) -> None:
    here = machine(FOUR)
    total = here.gpu(0)["memory"]["total"]
    here.change(gpu=0, memory={"used": total - 2**20})
    with living([], {N: "0", **PCI}) as pid, living([], {}) as other:
        here.change(gpu=0, compute=[{"pid": pid, "used": total - 2**30}])
        assert "full" not in told(here, pid)
        assert "used by" not in told(here, pid)
        share = total // 2
        both = [{"pid": pid, "used": share}, {"pid": other, "used": share - 2**21}]
        here.change(gpu=0, compute=both)
        assert f"GPU 0 (cuda:0) is also used by {ME}." in told(here, pid)
        here.change(gpu=0, compute=[{"pid": pid, "used": 2**20}, {"pid": other, "used": share}])
        assert "is full" in told(here, pid)  # that is not its own doing


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({N: "0", "CUDA_VISIBLE_DIVICES": "1"}, f"What counts is {N}=0."),
        ({N: "", "CUDA_VISIBLE_DIVICES": "1"}, f"What counts is {N}=."),
        ({"CUDA_VISIBLE_DIVICES": "1"}, "As it stands every GPU is visible."),
    ],
)
def test_a_misspelt_name(machine: MachineFactory, variables: dict[str, str], said: str) -> None:
    here = machine(FOUR)
    with living([], variables) as pid:
        text = told(here, pid)
    assert said in text
    assert text.count("every GPU is visible") == ("every GPU" in said)


VENDORS = [
    # MetaX, Moore Threads, Biren, Hygon, Enflame; then AMD, Huawei, Cambricon, Habana, Google
    *("MACA", "MUSA", "SUPA", "DCU", "GCU", "HIP", "ROCR", "ASCEND_RT", "ASCEND", "MLU"),
    *("HABANA", "TPU", "NVIDIA"),
]


def test_variables_of_other_vendors_are_no_misspellings(machine: MachineFactory) -> None:
    here = machine(FOUR)
    names = [f"{vendor}_VISIBLE_DEVICES" for vendor in VENDORS]
    with living([], {N: "0", **dict.fromkeys(names, "1")}) as pid:
        _, found = ask(here, pid)
        done = here.run([sys.executable, "-m", "gputop", "map"])
    assert "name-typo" not in json.dumps(found)
    assert done.returncode == 0


def test_two_cases_that_are_one(machine: MachineFactory) -> None:
    """Unset, on cards of two models: the first of them is cuda:0 either way."""
    big = {"name": "NVIDIA H200", "cores": 16896}
    small = {"name": "NVIDIA A100", "cores": 6912}
    here: Machine = machine({"base": "h200x8", "gpus": [big, small], "processes": None})
    with living([], {}) as pid:
        for gpu in (0, 1):
            here.change(gpu=gpu, compute=[])
        on(here, pid, 0)
        text = told(here, pid)
    assert "cuda:0 in the first case and cuda:0 in the second" not in text
