"""Who holds memory that the driver names nobody for: real processes with a node open."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.driving import Agent, Json
from tests.conftest import NESTED, MachineFactory, needs_root
from tests.driver import Machine
from tests.patience import until

pytestmark = [
    pytest.mark.system,
    needs_root,
]

GIB = 2**30
MINOR = 1000 + 2 * os.getpid()
"""Of GPU 1: every opener on this machine is found, those of other tests too."""
MINOR_0 = MINOR + 1
"""Of GPU 0, for the same reason: other tests find ours."""
ASKS = f"import os, sys, time; node = open('/dev/nvidia{MINOR}'); "
OPENS = ASKS + "uvm = open('/dev/nvidia-uvm'); "
READY = "print(os.getpid(), flush=True); sys.stdin.read()"
FORKS = f"""{OPENS}
if os.fork() == 0:
    print(os.getpid(), flush=True)
    time.sleep(1000)
time.sleep(1000)
"""
SHORT = "not every process was searched in time"
Start = Callable[..., tuple["subprocess.Popen[bytes]", int]]


@pytest.fixture
def here(machine: MachineFactory) -> Machine:
    """Two GPUs, on the second 30 GiB of nobody."""
    memory = {"total": 2**37, "used": {"each": [0, 30 * GIB]}, "reserved": 0}
    gpu = {"uuid": "GPU-{i}", "memory": memory, "minor": {"each": [MINOR_0, MINOR]}}
    return machine({"gpu": gpu, "gpus": 2})


@pytest.fixture
def start() -> Iterator[Start]:
    """Start Python code that prints a pid, where there are device nodes; its process and that."""
    pids: list[int] = []
    names = (str(MINOR_0), str(MINOR), "ctl", "-uvm")
    nodes = " ".join(["mount -t tmpfs t /dev && touch", *(f"/dev/nvidia{name}" for name in names)])
    started = []

    def popen(code: str, *prefix: str) -> tuple[subprocess.Popen[bytes], int]:
        script = ["unshare", "--mount", "sh", "-c", f'{nodes} && exec "$@"', "sh"]
        program = subprocess.Popen(
            [*script, *prefix, sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(program)
        assert program.stdout
        pids.append(int(program.stdout.readline()))
        return program, pids[-1]

    yield popen
    for job in started:
        job.kill()
        job.wait()
    for pid in pids:
        if pid > 1:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def look(here: Machine, sought: bool = True) -> list[Json]:
    """The holders of GPU 1 by `gputop --json`; GPU 0 has none to look for. Where they are `sought`,
    a machine that is busy may have to be asked again."""
    while True:
        done = here.run([sys.executable, "-m", "gputop", "--json"])
        assert (done.returncode, done.stderr) == (0, "")
        zero, one = json.loads(done.stdout)["gpus"]
        assert zero["holders"] == []
        if one["holders_known"] or not sought:
            found: list[Json] = one["holders"]
            return found


def reasons(here: Machine) -> dict[int, str]:
    return {process["pid"]: process["reason"] for process in look(here)}


def test_a_worker_that_outlives_its_job(here: Machine, start: Start) -> None:
    job, worker = start(FORKS)
    assert reasons(here) == {job.pid: "open", worker: "open"}
    job.kill()
    job.wait()
    [told] = look(here)
    assert (told["pid"], told["reason"], told["user"]) == (worker, "orphan", "root")
    assert told["command"].startswith(f"{sys.executable} -c import os")
    assert told["start_time"] > 0
    once = SHORT
    while SHORT in once:
        once = here.run([sys.executable, "-m", "gputop", "--once"]).stdout
    assert re.search(rf"\n  1 +30\.0G +{worker}  root +its job has ended .*\(kill {worker}\)", once)


def test_a_worker_of_a_zombie(here: Machine, start: Start) -> None:
    job, worker = start(FORKS)
    job.kill()
    os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT)
    assert reasons(here) == {worker: "zombie_child"}


def test_one_that_is_simply_there(here: Machine, start: Start) -> None:
    job, _ = start(OPENS + READY)
    assert reasons(here) == {job.pid: "open"}


def test_a_monitor(here: Machine, start: Start) -> None:
    name = "import ctypes; ctypes.CDLL(None).prctl(15, b'nv-hostengine', 0, 0, 0); "
    job, _ = start(OPENS + name + READY)
    assert reasons(here) == {job.pid: "monitor"}
    once = here.run([sys.executable, "-m", "gputop", "--once"]).stdout
    assert ("Look from the host" if NESTED else f"fuser -v /dev/nvidia{MINOR}") in once


def test_who_only_asks_the_driver_is_a_monitor(here: Machine, start: Start) -> None:
    """As another gputop does: nobody computes without nvidia-uvm."""
    job, _ = start(ASKS + READY)
    assert reasons(here) == {job.pid: "monitor"}


def test_one_in_a_container(here: Machine, start: Start) -> None:
    outer, inside = start(OPENS + READY, "unshare", "--pid", "--fork", "--kill-child")
    assert inside == 1
    [child] = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
    assert reasons(here) == {int(child): "other_namespace"}


def test_who_is_listed_or_has_another_node_open_is_none(here: Machine, start: Start) -> None:
    job, _ = start(OPENS + READY)
    other, _ = start(OPENS.replace(f"nvidia{MINOR}", f"nvidia{MINOR_0}") + READY)
    control, _ = start(OPENS.replace(f"nvidia{MINOR}", "nvidiactl") + READY)
    assert not {other.pid, control.pid} & reasons(here).keys()
    here.change(gpu=1, compute=[{"pid": job.pid, "used": GIB}])
    assert look(here, sought=False) == []


def test_where_all_is_explained_nobody_is_looked_for(here: Machine, start: Start) -> None:
    start(OPENS + READY)
    here.change(gpu=1, compute=[{"pid": 4194305, "used": 30 * GIB - 600 * 2**20}])
    assert look(here, sought=False) == []


def test_where_nobody_is_listed_openers_say_who_computes(here: Machine, start: Start) -> None:
    job, _ = start(OPENS + READY)
    here.change(gpu=1, memory={"used": 5})
    here.fail("nvmlDeviceGetComputeRunningProcesses*", "NO_PERMISSION", gpu=1)
    assert reasons(here) == {job.pid: "open"}


def test_who_ended_is_gone_with_the_next_frame(here: Machine, start: Start) -> None:
    job, _ = start(OPENS + READY)
    with Agent(here) as agent:

        def holders() -> list[Any]:
            return [gpu["pid"] for gpu in agent.refresh()["gpus"][1]["holders"]]

        until(lambda: holders() == [job.pid])
        job.kill()
        job.wait()
        until(lambda: holders() == [], within=3)  # long before the next walk through /proc
