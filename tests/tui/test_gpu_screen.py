"""The page of a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import DeviceHolder
from gputop.sources.demo.source import demo_frame
from gputop.tui.glyphs import ASCII
from gputop.tui.pages.gpu import GpuScreen
from gputop.tui.pages.graph import GraphScreen
from gputop.tui.pages.help import HelpScreen
from gputop.tui.panes.lines import Lines
from tests.builders_tui import (
    GIB,
    NOON,
    Screenful,
    frame_of,
    gpu_of,
    process_of,
    shown,
)
from tests.conftest import MachineFactory
from tests.tui.live import SIZES, running
from tests.tui.papers import section


async def open_page(screen: Screenful, index: int = 0) -> None:
    screen.main.set_focus(screen.gpus)
    await screen.press("home", *["j"] * index, "enter")
    assert isinstance(screen.app.screen, GpuScreen)


def on_main(screen: Screenful) -> bool:
    return screen.app.screen is screen.main


def at(second: float, *parts: Any, **values: Any) -> Frame:
    return frame_of(*parts, time=NOON + second, **values)


async def test_it_is_live_and_old_values_are_said_to_be() -> None:
    async with shown(at(0, gpu_of(0, power=100.0)), size=(80, 24)) as screen:
        await open_page(screen)
        assert "power        100 of 700 W, 40°C" in screen.text
        await screen.show(at(1, gpu_of(0, power=222.0)))
        assert "power        222 of 700 W" in screen.text
        await screen.show(at(2, gpu_of(0, power=222.0, stale_for=12.0)))
        assert "has not answered for 12s; its values are older" in screen.text
        assert "POWER –  peak 222 W" in await screen.whole_page()  # the graph has a gap
        await screen.show(at(3, gpu_of(1)))
        assert "the driver no longer lists it; these are its last figures" in screen.text
        await screen.show(at(4, gpu_of(0, power=50.0)))
        assert "power        50 of 700 W" in screen.text
        assert "no more" not in screen.text


async def test_one_that_is_gone_keeps_its_processes_and_is_not_free() -> None:
    async with shown(at(0, gpu_of(0), gpu_of(1), process_of(401))) as screen:
        await open_page(screen)
        await screen.show(at(1, gpu_of(1)))
        assert "who          alice" in screen.text
        assert "--seed 401" in "".join(section(screen.text, "Processes"))


async def test_its_own_processes_and_no_others() -> None:
    opener = DeviceHolder(
        pid=77,
        start_ticks=7,
        start_time=NOON,
        user="bob",
        command="python lost.py",
        reason="orphan",
    )
    gpu = gpu_of(1, memory_used=60 * GIB, memory_unaccounted=40 * GIB, holders=(opener,))
    processes = (
        process_of(401, 1, gpu_memory=GIB), process_of(402, 1, user="amy", gpu_memory=9 * GIB),
        process_of(403, 0),
    )  # fmt: skip
    async with shown(frame_of(gpu_of(0), gpu, *processes), size=(130, 40)) as screen:
        await open_page(screen, 1)
        lines = section(screen.text, "Processes")
        assert [line.split()[1] for line in lines[:3]] == ["PID", "402", "401"]
        assert "python lost.py" in "".join(lines[3:])
        assert "403" not in screen.text
        await screen.press("left")
        assert "GPU 0  H200" in screen.text
        assert [line.split()[1] for line in section(screen.text, "Processes")] == ["PID", "403"]


async def test_the_keys_lead_on_and_back() -> None:
    frame = frame_of(gpu_of(0), gpu_of(1), process_of(401, 0), process_of(402, 1))
    async with shown(frame) as screen:
        await open_page(screen, 1)
        await screen.press("n")  # round
        assert "GPU 0  H200" in screen.text
        await screen.press("G")
        assert isinstance(screen.app.screen, GraphScreen)
        assert "GPU 0  all recorded metrics" in screen.lines[0]
        assert "MEM-USED" in screen.text
        await screen.press("escape")
        assert isinstance(screen.app.screen, GpuScreen)
        await screen.press("escape")
        assert on_main(screen)
        assert screen.pids == [401, 402]
        await screen.press("enter", "f")
        assert on_main(screen)
        assert screen.pids == [402]
        assert screen.app.focused is screen.table
        await screen.press("escape")
        screen.main.set_focus(screen.gpus)
        await screen.press("home", "f")
        assert screen.pids == [401]


async def test_f_without_a_gpu_selects_one() -> None:
    async with shown(frame_of(gpu_of(0), gpu_of(1), process_of(402, 1))) as screen:
        await screen.press("f")
        assert screen.app.focused is screen.gpus
        assert screen.gpus.current is not None
        await screen.press("j", "f")
        assert screen.pids == [402]


async def test_it_stays_where_it_was_scrolled_to() -> None:
    async with shown(at(0, gpu_of(0)), size=(80, 24)) as screen:
        await open_page(screen)
        await screen.press("pagedown", "pagedown")
        before = next(line for line in screen.lines if line.startswith(" ") and line[1] != " ")
        await screen.show(at(1, gpu_of(0), *(process_of(400 + n) for n in range(9))))
        assert before in screen.lines


async def test_in_ascii_nothing_else_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lines, "glyphs", ASCII)
    async with shown(demo_frame(NOON, 0.0, 1.0), size=(80, 24)) as screen:
        await open_page(screen)
        assert (await screen.whole_page()).isascii()


async def test_help_and_palette_know_the_keys() -> None:
    async with shown(frame_of(gpu_of(0)), size=(120, 40)) as screen:

        def named() -> set[str]:
            commands = screen.app.get_system_commands(screen.app.screen)
            return {command.title.rpartition("  ")[0] for command in commands}

        assert {"history", "graphs", "its processes"} <= named()
        await open_page(screen)
        assert {"graphs", "its processes", "next gpu"} <= named()
        await screen.press("G")
        assert {"longer", "cursor", "highlight"} <= named()
        assert not {"next metric", "overlay"} & named()
        await screen.press("escape", "question_mark")
        assert isinstance(screen.app.screen, HelpScreen)
        assert "Only its processes, on the main screen" in screen.text


@pytest.mark.system
@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
def test_on_a_machine(size: tuple[int, int], machine: MachineFactory) -> None:
    """Keys, an agent and a driver: it is there, it moves on, and q ends it."""
    env = {"LC_ALL": "C", "NO_COLOR": "1"}
    with running(machine("h200x8"), size=size, env=env) as terminal:
        terminal.wait_for("H200")
        terminal.send(b"\x1b[Z\r")
        terminal.wait_for("The last minute")
        assert "GPU 0  H200" in terminal.text
        assert "UTIL" in terminal.text
        assert terminal.text.isascii()
        terminal.send(b"G")
        terminal.wait_for("all recorded metrics")
        terminal.wait_for("MEM-USED")
        terminal.send(b"qqq")
        assert terminal.exit_code() == 0
