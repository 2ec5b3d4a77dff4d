"""gputop in a PID namespace below the first, as in a container: what each driver tells there, what
of it is believed, and who gets a signal.

The processes are real and have a number in the container and another one outside of it.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from gputop.agent.process.stat import read_stat
from gputop.model.health.free import is_free
from gputop.model.machine.frame import Frame
from tests.agent.driving import Agent, Json, gone
from tests.conftest import MachineFactory, rest_long
from tests.container import Container, Inner
from tests.driver import Machine
from tests.patience import until
from tests.terminal import Terminal
from tests.tui.live import ESCAPE

pytestmark = pytest.mark.system

GIB = 2**30
NOBODY = 4194305
"""Beyond the greatest pid that Linux gives."""
SAMPLED = 0.4
"""Seconds after which a process at work has had another sample, six of which are taken a second."""
BEFORE = ("host", "525.147.05")
TRANSLATED = [
    ("list", "535.183.01"),
    ("memory", "565.77"),
    ("samples", "570.86.10"),
    ("samples", "580.95.05"),
]
"""Whose PIDs which driver tells, see tests/driver/scenario.py."""


@pytest.fixture
def inside() -> Iterator[Container]:
    with Container() as container:
        yield container


def driven(machine: MachineFactory, version: str, pids: str | None = None, **gpu: Any) -> Machine:
    """Two GPUs; without `pids` it tells those that a driver of that version does."""
    memory = {"total": 80 * GIB, "used": 0, "reserved": 0}
    about = {
        "uuid": "GPU-{i}",
        "name": "NVIDIA H200",
        "memory": memory,
        "utilization": {"gpu": 0, "memory": 0},
        **gpu,
    }
    return machine({"driver_version": version, "pids": pids, "gpu": about, "gpus": 2})


def listed(process: Inner, **entry: Any) -> Json:
    return {"pid": process.pid, "host_pid": process.host_pid, "used": 10 * GIB, **entry}


def on(here: Machine, gpu: int, *entries: Json, used: int = 20 * GIB, busy: int = 90) -> None:
    """Put processes on a GPU that is at work."""
    about = {"memory": {"used": used}, "utilization": {"gpu": busy, "memory": 5}}
    here.change(gpu=gpu, compute=list(entries), **about)


def one(frame: Json, pid: int) -> Json:
    (found,) = [process for process in frame["processes"] if process["pid"] == pid]
    return dict(found)


def test_a_number_that_may_be_the_hosts_says_nothing_of_who_has_it_here(
    machine: MachineFactory, inside: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`map --pid` of a process that is on no GPU, while the driver lists a host's PID like it."""
    here = driven(machine, *reversed(BEFORE))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    innocent = inside.start()
    on(here, 0, {"pid": 7, "outside": True, "host_pid": innocent.pid, "used": GIB})
    command = [sys.executable, "-m", "gputop", "map", "--json", "--pid", str(innocent.pid)]
    found = json.loads(here.run([*inside.prefix, *command]).stdout)
    assert (found["process"]["evidence"], found["value"]) == ("unused", "1")
    assert "env-contradicted" not in {hint["code"] for hint in found["advice"]}
    [hint] = [hint for hint in found["advice"] if hint["code"] == "host-pid"]
    assert "GPU 0, which may be a host PID" in hint["text"]


def free(frame: Json) -> list[int]:
    converted = msgspec.convert(frame, Frame)
    return [gpu.index for gpu in converted.gpus if is_free(converted, gpu)]


def for_a_while(agent: Agent, seconds: float) -> Iterator[Json]:
    """Frames over so long a time, the last one after it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield agent.refresh()
    yield agent.refresh()


# What is told


@pytest.mark.parametrize(("pids", "version"), TRANSLATED)
@pytest.mark.parametrize("by_version", [True, False])
def test_our_own_process(
    pids: str, version: str, by_version: bool, inside: Container, machine: MachineFactory
) -> None:
    """The memory and the work of a process are unknown where the driver does not tell them."""
    here, job = driven(machine, version, None if by_version else pids), inside.start()
    on(here, 0, listed(job, sm=90))
    with Agent(here, prefix=inside.prefix) as agent:
        frame = agent.line()
        told = one(frame, job.pid)
        assert told["elsewhere"] is False
        assert told["command"] == "sleep 1000"
        assert told["gpu_memory"] == (None if pids == "list" else 10 * GIB)
        assert told["sm_utilization"] == (0.9 if pids == "samples" else None)
        rest = frame["gpus"][0]["memory_unaccounted"]
        assert rest == (None if pids == "list" else 10 * GIB)


@rest_long(("pids", "version"), *TRANSLATED)
def test_a_busy_process_is_never_idle(
    pids: str, version: str, inside: Container, machine: MachineFactory
) -> None:
    """Its samples have another number: that it has none says nothing."""
    here, job, still = driven(machine, version), inside.start(), inside.start()
    on(here, 0, listed(job, sm=90), listed(still))
    with Agent(here, prefix=inside.prefix) as agent:
        agent.line()
        frames = list(for_a_while(agent, 1.0))
    busy, idle = ([one(frame, who.pid)["idle_for"] for frame in frames] for who in (job, still))
    assert all(known is None or known < SAMPLED for known in busy)
    if pids == "samples":
        assert idle[-1] >= 0.9
    else:
        assert all(known is None or known < SAMPLED for known in idle)


@pytest.mark.parametrize("others", [[], [{"pid": 77, "outside": True, "sm": 5, "used": GIB}]])
def test_work_of_others_leaves_ours_as_it_is(
    others: list[Json], inside: Container, machine: MachineFactory
) -> None:
    """Newest drivers tell our samples by our numbers, and others' by the host's."""
    here, job, still = driven(machine, "580.95.05"), inside.start(), inside.start()
    on(here, 0, listed(job, sm=90), listed(still), *others)
    with Agent(here, prefix=inside.prefix) as agent:
        agent.line()
        frames = list(for_a_while(agent, 1.0))
    busy, idle = ([one(frame, who.pid)["idle_for"] for frame in frames] for who in (job, still))
    assert all(known < SAMPLED for known in busy)
    if others:
        assert all(known is None or known < SAMPLED for known in idle)
    else:
        assert idle[-1] >= 0.9
    assert {one(frame, job.pid)["sm_utilization"] for frame in frames} == {None, 0.9}


@pytest.mark.parametrize(("pids", "version"), TRANSLATED[:2])
def test_a_number_that_two_processes_have(
    pids: str, version: str, inside: Container, machine: MachineFactory
) -> None:
    """The one at work has a number outside that another one has in here."""
    here, job, still = driven(machine, version), inside.start(), inside.start()
    on(here, 0, listed(job, sm=90, host_pid=still.pid), listed(still))
    with Agent(here, prefix=inside.prefix) as agent:
        agent.line()
        for frame in for_a_while(agent, 1.0):
            told = [one(frame, process.pid) for process in (job, still)]
            assert [process["sm_utilization"] for process in told] == [None, None]
            assert all((process["idle_for"] or 0.0) < SAMPLED for process in told)


def test_idleness_is_counted_from_the_last_work_of_anybody(
    inside: Container, machine: MachineFactory
) -> None:
    here, job = driven(machine, "550.54.15"), inside.start()
    on(here, 0, listed(job, sm=90))
    with Agent(here, prefix=inside.prefix) as agent:
        agent.line()
        list(for_a_while(agent, 1.0))
        on(here, 0, listed(job), busy=0)
        rested = [one(frame, job.pid)["idle_for"] for frame in for_a_while(agent, 0.5)]
    assert (rested[0] or 0.0) < SAMPLED
    assert 0.4 <= rested[-1] < 0.5 + SAMPLED


@pytest.mark.parametrize("gpu_used", [0, GIB])
def test_memory_of_0(gpu_used: int, inside: Container, machine: MachineFactory) -> None:
    """Unknown where the GPU has some in use."""
    here, job = driven(machine, "580.95.05"), inside.start()
    on(here, 0, listed(job, used=0), used=gpu_used)
    with Agent(here, prefix=inside.prefix) as agent:
        assert one(agent.line(), job.pid)["gpu_memory"] == (None if gpu_used else 0)


@pytest.mark.parametrize("nodes", [0, 2])
def test_a_driver_that_lists_nobody(nodes: int, machine: MachineFactory) -> None:
    """Who has the GPU open can still be seen."""
    with Container(nodes) as inside:
        here = driven(machine, "535.183.01", "empty")
        job = inside.start(0 if nodes else None)
        on(here, 0, listed(job, sm=90), used=10 * GIB)
        with Agent(here, prefix=inside.prefix) as agent:
            frame = agent.line()
            assert frame["processes"] == []
            assert [gpu["listed"] for gpu in frame["gpus"]] == ["ours", "ours"]
            assert free(frame) == []
            while nodes and not frame["gpus"][0]["holders_known"]:
                frame = agent.refresh()
    holders = frame["gpus"][0]["holders"]
    assert [opener["pid"] for opener in holders] == ([job.pid] if nodes else [])


# Whether a GPU is free


@rest_long(("pids", "version"), *TRANSLATED, ("empty", "535.183.01"))
def test_no_gpu_is_free_by_the_list_of_our_own_processes(
    pids: str, version: str, inside: Container, machine: MachineFactory
) -> None:
    """On GPU 1 is somebody of another container, who has not taken memory yet."""
    here, job = driven(machine, version, pids), inside.start()
    on(here, 0, listed(job))
    here.change(gpu=1, compute=[{"pid": 77, "outside": True, "used": 2**20, "sm": 1}])
    with Agent(here, prefix=inside.prefix) as agent:
        agent.line()
        for frame in for_a_while(agent, 1.5):
            assert [gpu["listed"] for gpu in frame["gpus"]] == ["ours", "ours"]
            assert free(frame) == []


def test_a_pid_of_the_host_shows_that_all_are_listed(
    inside: Container, machine: MachineFactory
) -> None:
    here = driven(machine, BEFORE[1])
    with Agent(here, prefix=inside.prefix) as agent:
        assert free(agent.line()) == []
        on(here, 0, {"pid": NOBODY, "host_pid": NOBODY, "used": GIB, "sm": 40})
        frame = agent.refresh()
        told = one(frame, NOBODY)
        assert (told["elsewhere"], told["gpu_memory"], told["sm_utilization"]) == (True, GIB, 0.4)
        assert [gpu["listed"] for gpu in frame["gpus"]] == ["all", "all"]
        assert free(frame) == [1]
        on(here, 0)
        assert [gpu["listed"] for gpu in agent.refresh()["gpus"]] == ["all", "all"]


def test_a_newer_driver_that_tells_host_pids_is_found_out(
    inside: Container, machine: MachineFactory
) -> None:
    """The version is a hint. A process that is ending is not here for a moment; this one stays."""
    here = driven(machine, "580.95.05", "host")
    on(here, 0, {"pid": NOBODY, "host_pid": NOBODY, "used": GIB})
    with Agent(here, prefix=inside.prefix) as agent:
        assert free(agent.line()) == []
        frames = list(for_a_while(agent, 1.2))
    assert free(frames[0]) == []
    assert free(frames[-1]) == [1]


def test_a_process_that_ends_is_not_taken_for_one_of_the_host(
    inside: Container, machine: MachineFactory
) -> None:
    """Nor those that a GPU listed before it ceased to answer."""
    here, job = driven(machine, "580.95.05"), inside.start()
    on(here, 0, listed(Inner(NOBODY, NOBODY)))
    on(here, 1, listed(job))
    here.hang("nvmlDevice*", gpu=0)
    with Agent(here, prefix=inside.prefix) as agent:
        agent.line()
        here.heal()
        until(lambda: agent.refresh()["gpus"][0]["uuid"])
        here.hang("nvmlDevice*", gpu=0)
        for frame in for_a_while(agent, 1.5):
            assert free(frame) == []
            assert "all" not in [gpu["listed"] for gpu in frame["gpus"]]


# Signals


def verdict(agent: Agent, pid: int, ticks: int | None) -> Json:
    """What becomes of SIGKILL."""
    target = {"process": {"pid": pid, "start_ticks": ticks}, "forced": False}
    agent.ask("signal", id=f"{pid} {ticks}", targets=[target], number=9, grace=5.0)
    [told] = agent.done(f"{pid} {ticks}")["verdicts"]
    return dict(told)


@rest_long(("pids", "version"), *TRANSLATED)
@pytest.mark.parametrize("nodes", [0, 2])
def test_a_signal_reaches_the_process(
    pids: str, version: str, nodes: int, machine: MachineFactory
) -> None:
    with Container(nodes) as inside:
        here, job = driven(machine, version), inside.start(0 if nodes else None)
        on(here, 0, listed(job))
        with Agent(here, prefix=inside.prefix) as agent:
            told = one(agent.line(), job.pid)
            on(here, 0)
            assert verdict(agent, job.pid, told["start_ticks"])["outcome"] == "exited"
        until(lambda: gone(job.host_pid))


@pytest.mark.parametrize("version", [BEFORE[1], "580.95.05"])
@pytest.mark.parametrize("nodes", [0, 2])
def test_a_number_of_the_host_is_somebody_elses_here(
    version: str, nodes: int, machine: MachineFactory
) -> None:
    """A process outside has a number that an innocent one has in here."""
    with Container(nodes) as inside:
        here, innocent = driven(machine, version, "host"), inside.start(cuda=False)
        on(here, 0, {"pid": NOBODY, "host_pid": innocent.pid, "used": GIB, "sm": 90})
        with Agent(here, prefix=inside.prefix) as agent:
            told = one(agent.line(), innocent.pid)
            about = ("user", "command", "start_ticks", "start_time", "state", "origin")
            assert told["elsewhere"] is True
            assert {told[field] for field in about} == {None}
            stat = read_stat(innocent.host_pid)
            assert stat is not None
            for ticks in (None, stat.start_ticks):
                found = verdict(agent, innocent.pid, ticks)
                assert found["outcome"] == "other_namespace"
        assert not gone(innocent.host_pid)


# What is said


GPUTOP = (sys.executable, "-m", "gputop")


def test_free_says_why_not(inside: Container, machine: MachineFactory) -> None:
    here = driven(machine, "580.95.05")
    command = [*inside.prefix, *GPUTOP, "free", "--window", "0.2"]
    done = here.run([*command, "--wait", "1h"])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("cannot be seen from inside a container") == 2
    assert "--shared --min-free SIZE" in done.stderr
    done = here.run([*command, "--shared", "--min-free", "20GiB", "--uuid"])
    assert (done.returncode, done.stdout) == (0, "GPU-0\n")


def test_once_says_what_is_not_known(inside: Container, machine: MachineFactory) -> None:
    here, job = driven(machine, "550.54.15"), inside.start()
    text = here.run([*inside.prefix, *GPUTOP, "--once"]).stdout
    assert " 2 GPUs  users unknown\n" in text
    assert "\nGPU 0,1: container: only its own processes can be seen" in text
    assert text.endswith("those outside of this container cannot be seen\n")
    on(here, 0, listed(job, sm=90))
    text = here.run([*inside.prefix, *GPUTOP, "--once"]).stdout
    [row] = [line.split() for line in text.splitlines() if line.endswith("sleep 1000")]
    assert row[:1] == ["0"]
    assert str(job.pid) in row
    assert "20G" not in text.partition("GPU CUDA")[2]


def test_the_screen_calls_no_gpu_free(inside: Container, machine: MachineFactory) -> None:
    """From the first picture on."""
    here, job = driven(machine, "580.95.05"), inside.start()
    on(here, 0, listed(job, sm=90))
    with Terminal([*inside.prefix, *GPUTOP], cols=120, rows=30, env=here.env) as terminal:
        terminal.wait_for("sleep 1000")
        terminal.wait_for(" 2 GPUs ")
        terminal.wait_for("none seen")
        terminal.send(b"m")
        terminal.wait_for("no GPU is known to be free")
        assert re.search(rb"[0-9] free", terminal.raw) is None
        [row] = [line for line in terminal.text.splitlines() if line.startswith("   1 ")]
        assert "free" not in row
        terminal.send(ESCAPE)
        terminal.wait_for("? help")
        terminal.send(b"q")
        assert terminal.exit_code() == 0


@pytest.mark.long
def test_the_doctor_says_whom_the_driver_tells(inside: Container, machine: MachineFactory) -> None:
    here = driven(machine, "580.95.05")
    told = " ".join(here.run([*inside.prefix, *GPUTOP, "doctor"]).stdout.split())
    assert "container: " not in told
    assert "the driver lists only this container's own processes" in told
    here = driven(machine, BEFORE[1])
    on(here, 0, {"pid": NOBODY, "host_pid": NOBODY, "used": GIB, "sm": 40})
    told = " ".join(here.run([*inside.prefix, *GPUTOP, "doctor"]).stdout.split())
    assert "the driver lists processes of the host, which have other PIDs here" in told
