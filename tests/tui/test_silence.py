"""An agent that does not answer: the screen says so, and everything on it still works."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.conftest import MachineFactory
from tests.patience import Deadline
from tests.terminal import Terminal
from tests.tui.live import SIZES, agents, quit_by, restored, running

pytestmark = pytest.mark.system

SAID = re.compile(r"no answer for (\d+) s")


def said(terminal: Terminal, line: int = 0) -> int | None:
    """Seconds, as the heading has them."""
    found = SAID.search(terminal.display[line])
    return int(found[1]) if found else None


@contextmanager
def stopped(terminal: Terminal) -> Iterator[int]:
    """The agent, by a SIGSTOP."""
    [agent] = agents(terminal)
    os.kill(agent, signal.SIGSTOP)
    try:
        yield agent
    finally:
        with suppress(ProcessLookupError):
            os.kill(agent, signal.SIGCONT)


def test_the_heading_says_it_within_seconds(machine: MachineFactory) -> None:
    with running(machine("h200x8"), size=SIZES[0]) as terminal:
        begun, deadline = next_frame(terminal), Deadline(6)
        with stopped(terminal):
            terminal.wait_for(lambda: said(terminal) is not None, timeout=8)
            assert time.monotonic() - begun >= 2
            assert deadline.left() > 0
            first = said(terminal)
            assert first is not None
            assert first >= 3
            terminal.wait_for(lambda: (said(terminal) or 0) > first)
            for size in (*SIZES[1:], SIZES[0], (40, 12)):
                terminal.resize(*size)
                terminal.wipe()
                terminal.wait_for(lambda: said(terminal) is not None, timeout=2)
                assert_keys_work(terminal)
        terminal.wait_for(lambda: said(terminal) is None)


def next_frame(terminal: Terminal) -> float:
    """Wait for one, from which silence is counted; a moment just before it came."""
    heading, before = terminal.display[0], time.monotonic()
    while terminal.display[0] == heading:
        before = time.monotonic()
        terminal.pump(0.05)
    return before


def assert_keys_work(terminal: Terminal) -> None:
    """Pages and the filter, while the agent is silent."""
    for keys, sign in ((b"?", "Keys"), (b"q", "no answer"), (b"/zz", "zz"), (b"\x15\r", "?")):
        terminal.send(keys)
        terminal.wait_for(sign, timeout=2)
    terminal.wait_for(lambda: said(terminal) is not None, timeout=2)


@pytest.mark.long
def test_a_slow_pace_is_no_silence(machine: MachineFactory) -> None:
    with running(machine("h200x8"), "-i", "2") as terminal, stopped(terminal):
        begun = time.monotonic()
        terminal.wait_for(lambda: said(terminal) is not None, timeout=12)
        assert (said(terminal) or 0) >= 6
        assert time.monotonic() - begun >= 4


@pytest.mark.long
def test_a_pause_hides_no_silence_and_a_stop_of_the_screen_itself_is_none(
    machine: MachineFactory,
) -> None:
    """Both at the same time, for the one takes as long as the other would."""
    here = machine("h200x8")
    with running(here, "-i", "0.2") as paused, running(here, "-i", "0.2") as halted:
        paused.send(b"p")
        paused.wait_for("PAUSED")
        halted.signal(signal.SIGSTOP)
        halted.wait_stopped()
        with stopped(paused):
            paused.wait_for("no answer", timeout=8)
            assert "PAUSED" in paused.display[0]
        paused.wait_for(lambda: "no answer" not in paused.text)
        begun = len(halted.raw)
        halted.signal(signal.SIGCONT)
        for key in (b"j", b"k"):
            halted.send(key)
            halted.wait_for_raw(b"", since=begun)
        halted.wait_for(lambda: len(halted.raw) > begun + 100)
        assert b"no answer" not in bytes(halted.raw[begun:])
        paused.send(b"p")
        paused.wait_for(lambda: "PAUSED" not in paused.text)


@pytest.mark.long
def test_it_is_said_below_a_page_which_is_left_at_once(machine: MachineFactory) -> None:
    with running(machine("h200x8")) as terminal:
        terminal.send(b"j\r")
        terminal.wait_for("scroll")
        [agent] = agents(terminal)
        os.kill(agent, signal.SIGSTOP)
        terminal.wait_for(lambda: said(terminal, -1) is not None, timeout=8)
        terminal.send(b"\x1b")
        terminal.wait_for(lambda: said(terminal) is not None)
        deadline = Deadline(2)
        assert quit_by(terminal, lambda: terminal.send(b"q")) == 0
        assert deadline.left() > 0
        assert restored(terminal)


def test_r_starts_another(machine: MachineFactory) -> None:
    with running(machine("h200x8")) as terminal:
        [agent] = agents(terminal)
        os.kill(agent, signal.SIGSTOP)
        terminal.wait_for("no answer", timeout=8)
        terminal.send(b"r")
        terminal.wait_for(lambda: agents(terminal) not in ([], [agent]))
        terminal.wait_for(lambda: said(terminal) is None)
        assert not os.path.exists(f"/proc/{agent}")


@pytest.mark.long
def test_no_number_of_keys_fills_the_pipe_of_a_stopped_agent(machine: MachineFactory) -> None:
    """Each is a request; more of them than a pipe holds stopped the screen for ever."""
    with running(machine("h200x8")) as terminal, stopped(terminal):
        for _ in range(10):  # 76,000 bytes of requests
            terminal.send(b"+-" * 100 + b"/x")
            terminal.wait_for("filter: x", timeout=30)
            terminal.send(b"\x15\r")
            terminal.wait_for(lambda: "filter: x" not in terminal.text, timeout=30)
        terminal.wait_for("no answer", timeout=8)
        deadline = Deadline(2)
        assert quit_by(terminal, lambda: terminal.send(b"q")) == 0
        assert deadline.left() > 0
