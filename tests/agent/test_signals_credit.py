"""Which of several signals ended a process: the verdicts and the audit log name that one alone."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.agent.driving import Agent, Json
from tests.agent.test_signals import (
    GIB,
    READY,
    Start,
    here,
    send,
    start,
    state,
    target,
    verdict,
    verdicts_of,
)
from tests.driver import Machine
from tests.driver.scenario import enlist
from tests.patience import until

pytestmark = pytest.mark.system

__all__ = ["here", "start", "state"]

IGNORES = f"signal.signal(15, signal.SIG_IGN); {READY}"
HANDLES = f"signal.signal(15, lambda *_: None); {READY}"
KILL_AFTER_TERM = [("SIGTERM", "ignored"), ("SIGKILL", "sent"), ("SIGKILL", "exited")]


def noted(log: Path, pid: int) -> list[tuple[str, str]]:
    """Signal and verdict of each line of the audit log about a process."""
    lines = map(json.loads, log.read_text().splitlines())
    return [(line["signal"], line["verdict"]) for line in lines if line["pid"] == pid]


def last(agent: Agent, order: str) -> Json:
    """The verdict of an order when its process is known to have ended."""
    while True:
        [found] = agent.reply(order)["verdicts"]
        if found["ended"] and found["outcome"] != "waiting":
            return dict(found)


def test_term_is_ignored_and_kill_ends_it(here: Machine, start: Start, state: Path) -> None:
    """The kernel throws an ignored signal away: no grace has to pass to say so."""
    program = start(IGNORES, here)
    with Agent(here) as agent:
        agent.line()
        term = send(agent, target(program.pid), grace=60)
        [ignored] = verdicts_of(agent, term)
        assert (ignored["outcome"], ignored["ended"]) == ("ignored", False)
        assert ignored["words"] == "it ignores SIGTERM; SIGKILL ends it"
        assert ignored["seconds"] < 5
        kill = send(agent, target(program.pid), number=9)
        assert last(agent, kill)["outcome"] == "exited"
    assert noted(state, program.pid) == KILL_AFTER_TERM


def test_who_handles_term_gets_its_time_first(here: Machine, start: Start, state: Path) -> None:
    program = start(HANDLES, here)
    with Agent(here) as agent:
        agent.line()
        told = verdict(agent, target(program.pid), grace=0.3)
        assert told["words"] == "it handles SIGTERM and continues; SIGKILL ends it"
        assert told["seconds"] >= 0.3
        assert last(agent, send(agent, target(program.pid), number=9))["outcome"] == "exited"
    assert noted(state, program.pid)[1:] == KILL_AFTER_TERM


def test_kill_before_the_time_of_term_is_over(here: Machine, start: Start, state: Path) -> None:
    program = start(HANDLES, here)
    with Agent(here) as agent:
        agent.line()
        term = send(agent, target(program.pid), grace=60)
        assert agent.reply(term)["verdicts"][0]["outcome"] == "waiting"
        kill = send(agent, target(program.pid), number=9)
        [early] = verdicts_of(agent, term)
        assert early["outcome"] == "alive"
        assert early["words"].endswith("to end after SIGTERM when SIGKILL was sent")
        assert last(agent, kill)["outcome"] == "exited"
    assert sorted(noted(state, program.pid)) == [
        ("SIGKILL", "exited"), ("SIGKILL", "sent"), ("SIGTERM", "alive"), ("SIGTERM", "sent"),
    ]  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGCONT])
def test_a_signal_that_did_nothing_ends_nobody(
    number: int, here: Machine, start: Start, state: Path
) -> None:
    """The process ends by itself later; the log has no line that gives the signal credit."""
    program = start(IGNORES, here)
    with Agent(here) as agent:
        agent.line()
        order = send(agent, target(program.pid), number=number)
        [before] = verdicts_of(agent, order)
        assert program.stdin
        program.stdin.close()
        after = last(agent, order)
    assert after["outcome"] == before["outcome"] != "exited"
    assert "has ended since" in after["words"]
    assert [word for _, word in noted(state, program.pid)] == [before["outcome"]]


def test_who_ends_late_by_its_own_handler_has_ended_of_the_signal(
    here: Machine, start: Start
) -> None:
    """It saves its work for longer than it was given."""
    save = "signal.signal(15, lambda *_: (sys.stdin.read(1), os._exit(0))); signal.pause()"
    program = start(f"print('.', flush=True); {save}", here)
    with Agent(here) as agent:
        agent.line()
        order = send(agent, target(program.pid), grace=0.2)
        assert verdicts_of(agent, order)[0]["outcome"] == "ignored"
        assert program.stdin
        program.stdin.write(b"x")
        program.stdin.flush()
        assert last(agent, order)["outcome"] == "exited"


def test_a_check_tells_which_signals_are_ignored(here: Machine, start: Start) -> None:
    program = start(f"signal.signal(2, signal.SIG_IGN); {IGNORES}", here)
    other = start(READY)
    with Agent(here) as agent:
        agent.line()
        told = verdict(agent, target(program.pid), number=0)
        assert {2, 15} <= set(told["ignored"])
        assert 15 not in verdict(agent, target(other.pid), number=0)["ignored"]


def test_ended_is_told_while_memory_is_awaited(here: Machine, start: Start) -> None:
    """`waiting` alone does not tell whether there is somebody to wait for."""
    program = start(READY)
    entry = {"pid": program.pid, "used": GIB}
    here.update(lambda scenario: enlist(scenario["gpus"][0], "compute", entry))
    with Agent(here) as agent:
        agent.line()
        order = send(agent, target(program.pid))
        until(lambda: program.poll() is not None)
        while not (told := agent.reply(order)["verdicts"][0])["ended"]:
            assert "has ended" not in told["words"]
        assert (told["outcome"], told["words"]) == (
            "waiting", "it has ended; waiting for its memory",
        )  # fmt: skip


def test_blocked_is_not_ignored(here: Machine, start: Start) -> None:
    """A blocked signal waits for its turn, whatever is done with it then."""
    block = "signal.pthread_sigmask(signal.SIG_BLOCK, [15])"
    program = start(f"{block}; {IGNORES}", here)
    with Agent(here) as agent:
        agent.line()
        assert verdict(agent, target(program.pid), grace=0.3)["seconds"] >= 0.3
    assert os.path.exists(f"/proc/{program.pid}")
