"""An agent that says nothing: no command waits for it for ever."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.agent.driving import gone
from tests.conftest import MachineFactory, needs_everybody, rest_long
from tests.driver import Machine
from tests.patience import until
from tests.test_kill import goes_on

pytestmark = pytest.mark.system

__all__ = ["goes_on"]

GPUTOP = [sys.executable, "-m", "gputop"]
COMMANDS = ["--once", "--json", "--json --watch", "map", "map --pid {pid}", "free", "free --wait",
            "topo", "kill {pid} --yes"]  # fmt: skip


@pytest.fixture
def here(machine: MachineFactory) -> Machine:
    jobs = {
        "train": {"command": ["python", "train.py"], "on": {"used": 2**30}},
    }
    return machine({"gpu": {"memory": {"total": 2**36, "used": 2**32}}, "processes": jobs})


def start(here: Machine, words: str) -> subprocess.Popen[str]:
    command = [*GPUTOP, *words.format(pid=here.pids["train"]).split()]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=here.env, stdout=pipe, stderr=pipe, text=True)


def agent_of(pid: int) -> int:
    """The agent that a gputop has started, once it is one. That of a snapshot is a copy of it; of
    other commands, a child that is not in its program yet looks so, and its parent waits for it."""
    path = Path(f"/proc/{pid}/task/{pid}/children")

    def is_agent(child: int) -> bool:
        words = command_of(child)
        one = words[len(GPUTOP) : -1] in ([b"--once"], [b"--json"])
        copied = words == command_of(pid) and one
        return b"agent" in words or copied

    def found() -> int:
        children = [int(child) for child in path.read_text().split()]
        return next(filter(is_agent, children), 0)

    until(lambda: found() != 0)
    return found()


def command_of(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


@pytest.mark.timeout(120)
@rest_long("commands", COMMANDS[::4], COMMANDS, ids=["some", "all"])
def test_no_command_waits_for_an_agent_that_is_stopped(commands: list[str], here: Machine) -> None:
    here.hang("nvmlInit_v2")
    running, agents = {}, []
    for words in commands:
        running[words] = start(here, words)
        agents.append(agent_of(running[words].pid))
        os.kill(agents[-1], signal.SIGSTOP)
    here.heal()
    for words, program in running.items():
        output, errors = program.communicate(timeout=300)
        assert (program.returncode, output) == (3, ""), (words, errors)
        [line] = errors.splitlines()
        assert re.match(r"gputop: the agent has not answered for 1[01](\.\d+)? s: ", line), words
    until(lambda: all(map(gone, agents)))
    assert not gone(here.pids["train"])


@pytest.mark.timeout(60)
@rest_long(
    ("number", "words"),
    (signal.SIGKILL, "the agent ended with status -9"),
    (signal.SIGSTOP, "the agent has not answered for 1"),
)
def test_the_doctor_tells_what_is_installed_all_the_same(
    number: int, words: str, here: Machine
) -> None:
    """Another agent says it, which leaves the driver alone: that may have ended the first."""
    here.hang("nvmlInit_v2")
    with start(here, "doctor --json") as running:
        agent = agent_of(running.pid)
        os.kill(agent, number)
        here.heal()
        output, errors = running.communicate(timeout=300)
    assert (running.returncode, errors) == (1, "")
    told = {check["code"]: check for check in json.loads(output)["checks"]}
    assert told["driver"]["level"] == "error"
    assert "the driver and the GPUs did not answer: " in told["driver"]["text"]
    assert words in told["driver"]["text"]
    assert len(told) > 3
    until(lambda: gone(agent))


@pytest.mark.timeout(60)
@pytest.mark.long
def test_an_agent_that_is_stopped_after_the_signal(
    here: Machine, goes_on: int, tmp_path: Path
) -> None:
    """Whether the signal went out nobody knows, and that is said."""
    here.env["XDG_STATE_HOME"] = str(tmp_path)
    with start(here, f"kill {goes_on} --grace 60 --yes") as running:
        agent = agent_of(running.pid)
        log = tmp_path / "gputop" / "signals.jsonl"
        until(lambda: log.exists() and log.read_text())
        os.kill(agent, signal.SIGSTOP)
        _, errors = running.communicate(timeout=300)
    assert running.returncode == 3
    assert "SIGTERM may have been sent: gputop --once shows who is there" in errors
    assert errors.count("\n") == 1
    until(lambda: gone(agent))


@needs_everybody
@pytest.mark.timeout(90)
@pytest.mark.long
def test_both_were_frozen(machine: MachineFactory) -> None:
    """As by `docker pause`: the time in which gputop itself did not run is not the agent's."""
    here = machine("h200x8")
    words = "free -n 3 --wait 20s --window 0"
    with start(here, words) as running:
        assert running.stderr
        assert running.stderr.readline() == "gputop: waiting: 2 free, 3 requested\n"
        frozen = (running.pid, agent_of(running.pid))
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(13)  # longer than it waits for an answer
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
        errors = running.stderr.read()
    assert running.returncode == 1
    assert errors.endswith("gputop: not enough GPUs: 2 free, 3 requested\n")
