"""W: a mark before the row, and what comes of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from textual.message import Message

from gputop.model.cuda.logical_names import LogicalNames
from gputop.model.machine.gpu import GpuPart
from gputop.model.machine.process_id import ProcessLiveness
from gputop.model.metrics.history import History
from gputop.protocol.messages import Liveness
from gputop.sources.feed import Feed
from gputop.tui.machine import WatchedMachine
from gputop.tui.messages import MarkReached
from gputop.tui.snapshot import Snapshot
from tests.builders import id_of
from tests.builders_tui import NOON, Silence, frame_of, gpu_of, process_of, shown
from tests.conftest import MachineFactory, needs_everybody
from tests.tui.live import running
from tests.tui.test_gpu_columns import divided, part

BUSY = frame_of(gpu_of(0), gpu_of(1), process_of(1), process_of(2))
ENDED = frame_of(gpu_of(0), gpu_of(1), process_of(2), time=NOON + 8040)
EMPTY = frame_of(gpu_of(0), gpu_of(1), time=NOON + 2)


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_a_process(size: tuple[int, int]) -> None:
    async with shown(BUSY, size=size) as screen:
        await screen.press("down", "W", "down")
        assert screen.line_with("--seed 1").startswith("W  0 ")
        asked = [r for r in screen.source.requests if isinstance(r, Liveness)]
        assert asked[-1].processes == (id_of(1, NOON - 60),)
        alive = ProcessLiveness(process=id_of(1, NOON - 60), state="running")
        await screen.show(request=asked[-1].id, liveness=(alive,))
        await screen.show(ENDED)
        asked = [r for r in screen.source.requests if isinstance(r, Liveness)]
        assert asked[-1].processes == (id_of(1, NOON - 60),)
        over = ProcessLiveness(process=id_of(1, NOON - 60), state="ended")
        await screen.show(request=asked[-1].id, liveness=(over,))
        assert "train.py (PID 1) has ended" in screen.lines[0]
        await screen.press("escape")
        assert "has ended" not in screen.lines[0]


async def test_a_gpu_and_what_is_free_already() -> None:
    async with shown(BUSY) as screen:
        await screen.press("tab", "W", "down", "W")
        assert [line[0] for line in screen.text.splitlines()[2:4]] == ["W", "▸"]
        assert "GPU 1 is free now" in screen.text
        await screen.press("up", "W")
        assert "W  0" not in screen.text
        await screen.press("W")
        await screen.show(EMPTY)
        assert "GPU 0 is free" in screen.lines[0]
        assert "W  0" not in screen.text


async def test_a_mig_device_that_is_free_already_is_named() -> None:
    async with shown(frame_of(divided(0, part(2)))) as screen:
        await screen.press("tab", "down", "W")
        assert "GPU 0:2 is free now" in screen.text


async def test_the_first_is_marked_where_none_is_selected_and_nothing_of_the_past() -> None:
    async with shown(BUSY) as screen:
        await screen.press("W")
        assert screen.line_with("--seed 1").startswith("W")
        await screen.press("W")
        screen.main.show_frame(Snapshot(BUSY, History(), LogicalNames(BUSY), "past"))
        await screen.press("W")
        assert "only live processes and GPUs can be marked" in screen.text
        assert screen.line_with("--seed 1").startswith("▸")


def test_of_a_machine_that_is_not_open() -> None:
    """Marks are the machine's, and go on while another one of the fleet is shown."""
    told: list[Message] = []
    machine = WatchedMachine(Feed(Silence()), told.append)
    machine.handle_frame(BUSY)
    assert machine.marks.toggle_gpu(BUSY, GpuPart(BUSY.gpus[0]))
    machine.set_open(False)
    machine.reconnect()
    machine.handle_frame(EMPTY)
    assert [m.sentence for m in told if isinstance(m, MarkReached)] == ["GPU 0 is free on node"]
    assert machine.news == "GPU 0 is free"


@pytest.mark.system
@needs_everybody
def test_the_terminal_is_told(machine: MachineFactory, tmp_path: Path) -> None:
    """In bytes that leave nothing on the screen, and by the command of the settings."""
    here = machine("h200x8")
    told = tmp_path / "told"
    folder = tmp_path / "config" / "gputop"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(
        f"notify_command = \"{sys.executable} -c 'import sys; open(sys.argv[1], chr(119)).write("
        f"sys.argv[2])' {told}\"\n"
    )
    env = {"XDG_CONFIG_HOME": os.fspath(tmp_path / "config"), "TERM": "xterm-256color"}
    with running(here, env=env) as terminal:
        terminal.send(b"\t")
        terminal.send(b"j")
        terminal.send(b"W")
        terminal.wait_for("W  1 H200")
        here.kill("notebook")
        terminal.wait_for("GPU 1 is free")
        terminal.wait_for_raw(b"\x1b]777;notify;gputop;GPU 1 is free on ")
        assert b"\x1b]9;gputop: GPU 1 is free on " in terminal.raw
        assert "notify" not in terminal.text.replace("notify_", "")
        terminal.wait_for(lambda: told.exists() and "GPU 1 is free" in told.read_text())
