"""Errors that nobody thought of: they are told, the others go on, and so does who met them."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from gputop.agent.errors import log_once
from gputop.agent.worker import Worker
from gputop.sources.agent_process import AgentProcess
from tests.agent.driving import Agent
from tests.agent.test_signals import target
from tests.conftest import MachineFactory, in_child, needs_root
from tests.driver import Machine
from tests.terminal import Terminal

OTHER_BINDING = """
    # The real one, of which a function answers what nobody expects as long as there is a file.
    import sys
    sys.path.remove({folder!r})
    del sys.modules["pynvml"]
    import os, pynvml

    real = pynvml.{function}

    def broken(*arguments):
        if os.path.exists({flag!r}) and {when}:
            raise OverflowError("as \\x1b[2J never before")
        return real(*arguments)

    broken.__name__ = real.__name__
    pynvml.{function} = broken
"""
GPU_1 = "pynvml.nvmlDeviceGetIndex(arguments[0]) == 1"


class Broken:
    """An NVML binding, for the path of programs, of which a function fails until `mend`."""

    def __init__(self, folder: Path, function: str, when: str = "True") -> None:
        self.flag = folder / "broken"
        path = folder / "binding"
        path.mkdir()
        text = OTHER_BINDING.format(
            folder=str(path), flag=str(self.flag), function=function, when=when
        )
        (path / "pynvml.py").write_text(dedent(text))
        self.path = str(path)
        self.flag.touch()

    def on(self, here: Machine) -> dict[str, str]:
        """The environment of programs that use it."""
        return {"PYTHONPATH": os.pathsep.join([self.path, here.env["PYTHONPATH"]])}

    def mend(self) -> None:
        self.flag.unlink()


def errors_of(agent: Agent) -> list[str]:
    """What it wrote on standard error in all."""
    agent.process.kill()
    assert agent.process.stderr
    return agent.process.stderr.read().decode().splitlines()


@pytest.mark.system
def test_a_gpu_that_cannot_be_read_says_why_and_comes_back(
    machine: MachineFactory, tmp_path: Path
) -> None:
    here = machine({"base": "h200x8", "gpus": 3, "processes": None})
    broken = Broken(tmp_path, "nvmlDeviceGetPerformanceState", GPU_1)
    with Agent(here, env=broken.on(here)) as agent:
        for frame in (agent.line(), agent.refresh(), agent.refresh()):
            gpus = frame["gpus"]
            assert [gpu["stale_for"] for gpu in gpus] == [None] * 3
            assert [gpu["error"] is None for gpu in gpus] == [True, False, True]
            assert gpus[1]["error"].startswith("gputop cannot read it: OverflowError at pynvml.py:")
            assert gpus[1]["error"].endswith(": as \ufffd[2J never before")
            assert (gpus[1]["uuid"], gpus[1]["memory_used"]) == (here.gpu(1)["uuid"], None)
        broken.mend()
        assert agent.refresh()["gpus"][1]["error"] is None
        broken.flag.touch()
        assert agent.refresh()["gpus"][1]["error"]
        [line] = errors_of(agent)
    assert line.startswith("gpu 1: OverflowError at pynvml.py:")


@pytest.mark.system
@pytest.mark.long
def test_its_row_says_so_on_the_screen(machine: MachineFactory, tmp_path: Path) -> None:
    here = machine({"base": "h200x8", "gpus": 2, "processes": None})
    broken = Broken(tmp_path, "nvmlDeviceGetPerformanceState", GPU_1)
    argv = [sys.executable, "-m", "gputop", "-i", "0.2"]
    env = {**here.env, **broken.on(here)}
    with Terminal(argv, cols=120, rows=24, env=env) as terminal:
        terminal.wait_for("gputop cannot read it: OverflowError")
        terminal.wait_for("? help")
        terminal.send(b"H")
        terminal.wait_for("the fault is gputop's: please report it")
        assert "Traceback" not in terminal.text
        assert "REPLACE" not in terminal.text.upper()
        terminal.send(b"\x1b")
        broken.mend()
        terminal.wait_for(lambda: "cannot read" not in terminal.text)


@pytest.mark.system
def test_a_driver_that_cannot_be_opened_says_why(machine: MachineFactory, tmp_path: Path) -> None:
    here = machine({"base": "h200x8", "gpus": 2, "processes": None})
    broken = Broken(tmp_path, "nvmlSystemGetCudaDriverVersion_v2")
    with Agent(here, env=broken.on(here)) as agent:
        problem = agent.line()["problem"]
        assert (problem["level"], problem["code"]) == ("error", "error")
        assert problem["text"].startswith("gputop cannot read the NVIDIA driver: OverflowError")
        assert agent.refresh()["problem"] == problem
        [line] = errors_of(agent)
    assert line.startswith("driver: OverflowError at pynvml.py:")


@pytest.mark.system
def test_events_are_listened_to_again(machine: MachineFactory, tmp_path: Path) -> None:
    """XIDs that are not heard of are unknown, and not none."""
    here = machine({"base": "h200x8", "gpus": 1, "processes": None})
    broken = Broken(tmp_path, "nvmlEventSetCreate")
    with Agent(here, interval=0.2, env=broken.on(here)) as agent:
        assert [agent.line()["gpus"][0]["health"]["xids"] for _ in range(3)] == [None] * 3
        [line] = errors_of(agent)
    assert line.startswith("events: OverflowError at pynvml.py:")


@pytest.mark.system
@pytest.mark.parametrize("thread", ["signals", "frames"])
def test_a_thread_that_nothing_stands_for_ends_the_agent_with_its_reason(
    thread: str, machine: MachineFactory
) -> None:
    """No file can be opened any more. Whoever waits for an answer is told that none comes."""
    here = machine({"base": "h200x8", "gpus": 1, "processes": None})
    me = target(os.getpid())
    with Agent(here) as agent:
        agent.line()
        agent.refresh()
        resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE, (0, 0))
        if thread == "signals":
            agent.ask("signal", id="1", targets=[me], number=0, grace=0.0, descendants=True)
        else:
            agent.ask("refresh")
        with pytest.raises(EOFError):
            agent.line()
        assert agent.process.wait(60) == 1
        *_, last = errors_of(agent)
    assert last.startswith(f"{thread}: OSError at")


@pytest.fixture
def worker() -> Iterator[Worker[int]]:
    answers = iter([1, 0, 2, 0])
    made = Worker("divider", lambda: 6 // next(answers))
    yield made
    made.end()


def asked(worker: Worker[int]) -> int | None:
    worker.ask()
    assert worker.wait(time.monotonic() + 60)
    return worker.latest


def test_a_worker_goes_on(worker: Worker[int], capfd: pytest.CaptureFixture[str]) -> None:
    assert [asked(worker) for _ in range(4)] == [6, None, 3, None]
    [line] = capfd.readouterr().err.splitlines()
    assert line.startswith("divider: ZeroDivisionError at test_trouble.py:")


def test_what_a_worker_makes_of_an_error() -> None:
    worker = Worker("failing", lambda: [][0], str.upper)
    worker.ask()
    assert worker.wait(time.monotonic() + 60)
    assert worker.latest is not None
    assert worker.latest.endswith("LIST INDEX OUT OF RANGE")
    worker.end()


WITHOUT_ROOM = 54321
"""A user who has as many processes as he may have; root has no such limit."""


@pytest.mark.system
@needs_root
def test_no_room_for_a_thread_is_told_in_plain_words() -> None:
    def start() -> None:
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        try:
            threading.Thread(target=int).start()
        except RuntimeError as error:
            raise OSError(log_once("frames", error)) from None

    words = in_child(start, WITHOUT_ROOM)
    assert words.startswith("OSError: no further thread may be started: this user (ulimit -u) or")
    assert "RuntimeError" not in words


@pytest.mark.system
@needs_root
def test_no_room_for_the_agent_is_told_in_plain_words() -> None:
    def start() -> None:
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        AgentProcess("--once")

    words = in_child(start, WITHOUT_ROOM)
    assert words.startswith("SourceError: cannot start the agent: this user (ulimit -u) or")
