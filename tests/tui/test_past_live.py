"""Back in time on a machine that is watched: a terminal, an agent, a driver, real processes."""

from __future__ import annotations

import pytest

from tests.conftest import MachineFactory
from tests.tui.live import running

pytestmark = pytest.mark.system


def test_a_process_that_has_ended_is_seen_again_and_cannot_be_signalled(
    machine: MachineFactory,
) -> None:
    here = machine("h200x8")
    with running(here, "-i", "0.2") as terminal:
        terminal.wait_for("train.py")
        pid = str(here.pids[next(iter(here.pids))])
        terminal.wait_for(pid)
        here.kill(next(iter(here.pids)))
        terminal.wait_for("ended")
        terminal.send(b"<")
        terminal.wait_for("PAST -")
        terminal.wait_for(lambda: pid in terminal.text and "ended" not in terminal.text)
        terminal.send(b"j")
        terminal.wait_for(lambda: "PAST" not in terminal.text and "ended" in terminal.text)
        terminal.send(b"<\x1b[20~")  # F9
        terminal.wait_for("this is the past: return to now first")
        terminal.send(b"\x03")
        assert terminal.exit_code() == 0
