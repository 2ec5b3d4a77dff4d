"""Back in time on a machine that is watched: a terminal, an agent, a driver, real processes."""

from __future__ import annotations

from functools import partial

import pytest

from tests.conftest import MachineFactory
from tests.terminal import Terminal
from tests.tui.live import running

pytestmark = pytest.mark.system


def went_back(terminal: Terminal) -> bool:
    """Whether the past is shown; `,` asks for it until there is one."""
    if "PAST -" in terminal.text:
        return True
    terminal.send(b",")
    return False


def test_a_process_that_has_ended_is_seen_again_and_cannot_be_signalled(
    machine: MachineFactory,
) -> None:
    here = machine("h200x8")
    with running(here, "-i", "0.2") as terminal:
        terminal.wait_for("train.py")
        pid = str(here.pids[next(iter(here.pids))])
        terminal.wait_for(pid)
        # What is remembered begins with the screen, and there is a picture before that.
        terminal.wait_for(partial(went_back, terminal))
        terminal.send(b"jp")
        terminal.wait_for(lambda: "PAST" not in terminal.text)
        here.kill(next(iter(here.pids)))
        terminal.wait_for("ended")
        terminal.send(b"<")
        terminal.wait_for("PAST -")
        terminal.wait_for(lambda: pid in terminal.text and "ended" not in terminal.text)
        terminal.send(b"jp")
        terminal.wait_for(lambda: "PAST" not in terminal.text and "ended" in terminal.text)
        terminal.send(b"<\x1b[20~")  # F9
        terminal.wait_for("this is the past: return to now first")
        terminal.send(b"\x03")
        assert terminal.exit_code() == 0
