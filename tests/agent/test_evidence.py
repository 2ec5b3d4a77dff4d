"""In a container nobody is hit who only has the number that the driver tells.

The processes are real. Which of them are on a GPU the simulated driver tells as each real one does;
beside them is an innocent one, whose number inside is that of a process on the GPU outside.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.driving import Agent, Json, gone
from tests.conftest import needs_root, rest_long
from tests.container import Container, Inner
from tests.driver import Machine
from tests.patience import until

pytestmark = pytest.mark.system

GIB = 2**30
NOBODY = 65534
_AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", "--clear-groups"]
TRANSLATING = [("list", "535.183.01"), ("memory", "565.77"), ("samples", "580.95.05")]
OTHERS = [("host", "525.147.05"), ("host", "580.95.05"), ("host", None), ("empty", "535.183.01")]
"""Drivers that tell the host's PIDs, or none; a newer one should not."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that everybody may look into."""
    path = Path(tempfile.mkdtemp(prefix="gputop-evidence-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def driven(folder: Path, pids: str, version: str | None) -> Machine:
    """One GPU."""
    memory = {"total": 80 * GIB, "used": 20 * GIB, "reserved": 0}
    gpu = {"uuid": "GPU-{i}", "memory": memory, "utilization": {"gpu": 90, "memory": 5}}
    about = {"driver_version": version, "pids": pids, "gpu": gpu, "gpus": 1}
    return Machine(about, folder)


def on(here: Machine, *entries: Json) -> None:
    here.change(gpu=0, compute=list(entries))


def listed(process: Inner) -> Json:
    return {"pid": process.pid, "host_pid": process.host_pid, "used": 10 * GIB, "sm": 50}


def outside(host_pid: int) -> Json:
    """A process of another container, by its number there."""
    return {"pid": 7, "outside": True, "host_pid": host_pid, "used": GIB, "sm": 40}


def kill(
    here: Machine,
    inside: Container,
    user: int | None,
    *words: str,
    gpu: tuple[str, ...] = ("--gpu", "0"),
    job: Inner | None = None,
) -> tuple[list[Json], str]:
    """Verdicts of SIGTERM to who is on GPU 0, and errors. With a job its end is awaited; nobody is
    on the GPU any more then."""
    Path(here.env["GPUTOP_TEST_DRIVER"]).parent.chmod(0o755)
    for name in ("CONFIG_HOME", "STATE_HOME", "RUNTIME_DIR"):
        here.env[f"XDG_{name}"] = f"{here.env['GPUTOP_TEST_DRIVER']}.{user}"  # not there
    became = [] if user is None else _AS_NOBODY
    command = [sys.executable, "-m", "gputop", "kill", *gpu, "--yes", "--json", *words]
    program = here.popen([*inside.prefix, *became, *command], stderr=subprocess.PIPE)
    if job is not None:
        until(lambda: gone(job.host_pid) or program.poll() is not None, within=20)
        on(here)
    output, errors = program.communicate(timeout=300)
    return (json.loads(output)["verdicts"] if output else []), errors


def users() -> list[int | None]:
    """Who is to run gputop: who runs the tests and, if he can, an ordinary user."""
    python = [*_AS_NOBODY, "sh", "-c", 'test -x "$0"', sys.executable]
    others = os.geteuid() == 0 and subprocess.run(python, check=False).returncode == 0
    return [None, NOBODY] if others else [None]


@pytest.mark.parametrize("nodes", [0, 2])
@rest_long(("pids", "version"), *TRANSLATING, *OTHERS)
def test_only_who_is_on_the_gpu_is_hit(
    pids: str, version: str | None, nodes: int, folder: Path
) -> None:
    """`kill --gpu 0 --yes`: innocent ones with nothing open, with libcuda loaded, with a node.

    Each driver is asked by root and by an ordinary user, one of them where there are nodes."""
    gpu, drivers = 0 if nodes else None, [*TRANSLATING, *OTHERS]
    user = users()[(drivers.index((pids, version)) + nodes // 2) % len(users())]
    with Container(nodes) as inside, driven(folder, pids, version) as here:
        job = inside.start(gpu, user)
        innocent = [inside.start(None, user, cuda=cuda) for cuda in (False, True)]
        innocent += [inside.start(1, user)] if nodes else []
        on(here, listed(job), *(outside(process.pid) for process in innocent))
        translates = (pids, version) in TRANSLATING
        told, errors = kill(here, inside, user, job=job if translates else None)
        if translates:
            verdicts = [(one["pid"], one["verdict"]) for one in told]
            assert verdicts == [(job.pid, "exited")], errors
        else:
            expected = set() if pids == "empty" else {"other_namespace"}
            assert {one["verdict"] for one in told} == expected, errors
            assert not gone(job.host_pid)
        assert not any(gone(process.host_pid) for process in innocent)


@needs_root
def test_who_may_not_be_looked_at_is_not_known_to_be_the_one(folder: Path) -> None:
    """To an ordinary user the job of another one."""
    if NOBODY not in users():
        pytest.skip(f"an ordinary user cannot run {sys.executable}")
    with Container() as inside, driven(folder, "samples", "580.95.05") as here:
        job = inside.start()
        on(here, listed(job))
        [verdict], errors = kill(here, inside, NOBODY, "--foreign")
        assert (verdict["pid"], verdict["verdict"]) == (job.pid, "other_namespace")
        assert "you may not see what the process with this PID has open here" in errors
        assert not gone(job.host_pid)


def test_the_reason_is_told(folder: Path) -> None:
    with Container() as inside, driven(folder, "host", "525.147.05") as here:
        innocent = inside.start()
        on(here, outside(innocent.pid))
        assert "the driver reports the host's PIDs" in kill(here, inside, None)[1]
    with Container() as inside, driven(folder, "host", "580.95.05") as here:
        innocent = inside.start(cuda=False)
        on(here, outside(innocent.pid))
        assert "with this PID here has no GPU open" in kill(here, inside, None)[1]


def command_of(frame: Json, pid: int) -> str | None:
    [found] = [process["command"] for process in frame["processes"] if process["pid"] == pid]
    return None if found is None else str(found)


@pytest.mark.parametrize("version", ["525.147.05", "580.95.05"])
def test_nothing_is_told_of_who_only_has_the_number(version: str, folder: Path) -> None:
    """Not in the first frame either: another PID of the list was never given out here."""
    with Container() as inside, driven(folder, "host", version) as here:
        innocent, job = inside.start(), inside.start()
        on(here, outside(innocent.pid), listed(job))
        with Agent(here, prefix=inside.prefix) as agent:
            for frame in (agent.line(), agent.refresh()):
                assert command_of(frame, innocent.pid) is None
                assert command_of(frame, job.host_pid) is None


def test_one_that_has_ended_and_is_listed_still_leaves_the_others_known(folder: Path) -> None:
    """A child of it may go on to hold the GPU: its number is ours, and no one's of the host."""
    with Container() as inside, driven(folder, "samples", "580.95.05") as here:
        job, other = inside.start(), inside.start()
        on(here, listed(job), listed(other))
        with Agent(here, prefix=inside.prefix) as agent:
            assert command_of(agent.line(), job.pid) == "sleep 1000"
            os.kill(job.host_pid, signal.SIGKILL)
            until(lambda: gone(job.host_pid))
            end = time.monotonic() + 1.3
            while time.monotonic() < end:
                frame = agent.refresh()
                assert command_of(frame, other.pid) == "sleep 1000"
            assert command_of(frame, job.pid) is None
            assert frame["gpus"][0]["listed"] == "ours"
        told, errors = kill(here, inside, None, job=other)
        verdicts = {verdict["pid"]: verdict["verdict"] for verdict in told}
        assert verdicts == {job.pid: "other_namespace", other.pid: "exited"}, errors


def test_a_launcher_that_is_on_no_gpu_ends_with_what_it_started(folder: Path) -> None:
    """Whoever names it means it: its number is not the driver's."""
    with Container() as inside, driven(folder, "samples", "580.95.05") as here:
        launcher, job = inside.launch()
        on(here, listed(job))
        words = (str(launcher.pid), "--descendants")
        told, errors = kill(here, inside, None, *words, gpu=(), job=job)
        verdicts = {verdict["pid"]: verdict["verdict"] for verdict in told}
        assert verdicts.keys() == {launcher.pid, job.pid}, errors
        assert set(verdicts.values()) <= {"exited", "zombie"}


@needs_root
def test_who_may_not_be_looked_at_is_shown(folder: Path) -> None:
    """To an ordinary user the job of another one, unless the driver tells the host's PIDs."""
    if NOBODY not in users():
        pytest.skip(f"an ordinary user cannot run {sys.executable}")
    for version, command in (("580.95.05", "sleep 1000"), ("525.147.05", None)):
        with Container() as inside, driven(folder, "samples", version) as here:
            job = inside.start()
            on(here, listed(job))
            Path(here.env["GPUTOP_TEST_DRIVER"]).parent.chmod(0o755)
            with Agent(here, prefix=(*inside.prefix, *_AS_NOBODY)) as agent:
                frame = agent.line()
            assert command_of(frame, job.pid) == command
