"""How the panes of the main screen share its lines."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from gputop.model.machine.frame import Frame, Host
from gputop.settings import Session
from gputop.tui.messages import Note
from gputop.tui.panes.history import HistoryPane
from tests.builders_tui import GIB, NOON, Screenful, frame_of, gpu_of, process_of, shown
from tests.conftest import rest_long

SIZES = [(200, 80), (200, 50), (120, 40), (80, 24), (40, 12)]


def machine(processes: int, gpus: int = 8, second: int = 0, **values: Any) -> Frame:
    return frame_of(
        *(gpu_of(index, utilization=index / gpus, **values) for index in range(gpus)),
        *(process_of(1000 + n, gpu=n % gpus, gpu_memory=GIB) for n in range(processes)),
        time=NOON + second,
        host=Host(name="node", boot_id="boot", cpu=0.41),
    )


def history(screen: Screenful) -> HistoryPane:
    return screen.app.screen.query_one(HistoryPane)


def labels(screen: Screenful) -> list[str]:
    """What stands over the graphs."""
    region = history(screen).region
    lines = screen.lines[region.y : region.bottom] if history(screen).display else []
    words = " ".join(line for line in lines if "GPU " in line or "CPU " in line)
    return [f"{a} {b}" for a, b in zip(words.split(), words.split()[1:], strict=False)
            if a in ("GPU", "CPU")]  # fmt: skip


@rest_long("size", *SIZES)
@rest_long("processes", 30, 0, 8, 200)
async def test_no_line_is_empty_while_a_pane_is_cut(processes: int, size: tuple[int, int]) -> None:
    async with shown(machine(processes), size=size) as screen:
        blank = [line for line in screen.lines if not line.strip()]
        first, last, total = screen.table.span
        if last - first + 1 < total:
            assert blank == []
            assert not history(screen).display
            assert screen.pane.size.height <= 1
        else:
            assert len(screen.process_lines) == max(1, total)
            assert history(screen).display or len(blank) < 12


@pytest.mark.parametrize("size", SIZES[:2])
async def test_history_takes_what_is_left(size: tuple[int, int]) -> None:
    async with shown(machine(8), size=size) as screen:
        await screen.show(machine(8, second=1))
        assert "─ Utilization ─" in screen.text
        assert labels(screen) == [*(f"GPU {index}" for index in range(8)), "CPU 41%"]
        assert "GPU 4 50%" in screen.text
        region = history(screen).region
        assert region.bottom == screen.lines.index(screen.line_with("CUDA_VISIBLE_DEVICES is"))
        assert region.y == screen.table.region.bottom
        assert len(screen.process_lines) == screen.table.visible_rows


async def test_what_is_high_has_the_colour_of_a_heavy_load() -> None:
    async with shown(machine(8), size=(200, 50)) as screen:
        await screen.show(machine(8, second=1))
        pane = history(screen)
        plots = [list(pane.pieces(y)) for y in range(pane.size.height)]
        roles = [{role for text, role in line if text.strip()} for line in plots]
        low = next(y for y, line in enumerate(plots) if "GPU 5" in "".join(t for t, _ in line)) - 1
        assert roles[low] == {"light"}
        assert {"moderate", "heavy"} <= set().union(*roles)  # GPU 7 is at 87 %


async def test_one_process_more_moves_history_and_one_less_does_not() -> None:
    async with shown(machine(8), size=(200, 50)) as screen:
        height = history(screen).size.height
        await screen.show(machine(9, second=1))
        assert history(screen).size.height == height - 1
        await screen.show(machine(8, second=100))
        assert history(screen).size.height == height - 1
        await screen.show(machine(1, second=200))  # seven have ended, and are shown for a minute
        assert history(screen).size.height == height - 1
        await screen.show(machine(1, second=300))
        assert history(screen).size.height == height + 7
        await screen.show(machine(200, second=201))
        assert not history(screen).display
        assert screen.table.visible_rows > 30


async def test_a_filter_makes_room_once_it_is_typed() -> None:
    async with shown(machine(200), size=(200, 50)) as screen:
        await screen.press("slash", *"1007")
        assert not history(screen).display
        await screen.press("enter")
        assert screen.pids == [1007]
        assert labels(screen)[0] == "GPU 0"
        await screen.press("escape")
        assert not history(screen).display


async def test_what_does_not_answer_or_has_no_value_is_not_0() -> None:
    async with shown(machine(8), size=(200, 50)) as screen:
        silences: tuple[dict[str, Any], ...] = ({"stale_for": 9.0}, {"error": "GPU is lost"})
        for second, silence in enumerate(silences, 1):
            await screen.show(machine(8, second=second, **silence))
            assert labels(screen)[4] == "GPU 4"
            assert "GPU 4 –" in screen.text
    nothing = gpu_of(0, utilization=None, memory_used=None)
    async with shown(frame_of(nothing), size=(200, 50)) as screen:
        assert not history(screen).display


async def test_few_gpus_have_their_memory_as_well() -> None:
    async with shown(frame_of(gpu_of(0), gpu_of(1, utilization=None)), size=(200, 50)) as screen:
        assert "─ Utilization and memory ─" in screen.text
        assert [screen.text.count(label) for label in (" GPU 0 0%", " GPU 1 –")] == [1, 0]
        assert [screen.text.count(f"MEM {k} 512M/140G") for k in (0, 1)] == [1, 1]


async def test_the_mapping_takes_lines_of_history_while_it_is_open() -> None:
    async with shown(machine(8), size=(200, 50)) as screen:
        height = history(screen).size.height
        await screen.press("m")
        opened = screen.pane.region
        assert history(screen).size.height == height - opened.height + 1
        await screen.type("3,1x")
        assert screen.pane.region == opened  # the editor stays where it is
        await screen.press("enter", "escape")
        assert history(screen).size.height == height


async def test_the_mapping_has_no_blank_line_once_the_value_is_kept() -> None:
    async with shown(machine(8), size=(200, 50)) as screen:
        await screen.press("m")
        await screen.type("3,1")
        await screen.press("enter")
        lines = screen.mapping_lines
        assert screen.pane.size.height == 1 + len(lines)
        assert lines[-1] == "export CUDA_VISIBLE_DEVICES=3,1"
        await screen.press("m", *["backspace"] * 3, *"0,1,2,4", "enter")
        assert screen.pane.size.height == 1 + len(screen.mapping_lines) == 3 + len(lines)
        await screen.press("U")
        assert screen.pane.size.height == 1 + len(screen.mapping_lines) > 3 + len(lines)


async def test_rows_are_not_taken_for_processes() -> None:
    hidden = gpu_of(0, memory_used=50 * GIB, memory_unaccounted=49 * GIB)
    frame = machine(60)
    async with shown(frame, size=(120, 40)) as screen:
        assert f" 1-{screen.table.visible_rows} of 60 ─" in screen.text
        await screen.show(structs.replace(frame, gpus=(hidden, *frame.gpus[1:])))
        assert f" rows 1-{screen.table.visible_rows} of 61, 60 processes ─" in screen.text


async def test_it_is_a_pane_that_can_be_hidden() -> None:
    settings = Session(panes=("gpus", "processes", "mapping"))
    async with shown(machine(8), size=(200, 50), settings=settings) as screen:
        assert not history(screen).display


async def test_a_terminal_that_becomes_narrower_leaves_no_room_for_history() -> None:
    """In as many lines there were enough before: beside each other stood more graphs."""
    async with shown(machine(3), size=(200, 26)) as screen:
        await screen.show(machine(3, second=1))
        height = history(screen).size.height
        assert labels(screen)[0] == "GPU 0"
        for width in (40, 30, 20):
            await screen.resize(width, 26)
            assert screen.app.is_running
            assert not history(screen).display or labels(screen)
        await screen.resize(200, 26)
        assert history(screen).size.height == height


async def test_without_processes_the_gpus_have_the_keys() -> None:
    async with shown(machine(8), settings=Session(panes=("gpus", "mapping"))) as screen:
        await screen.press("j", "j")
        assert screen.gpus.current is not None
        await screen.press("escape", "space", "space", "f9")
        assert "no process is selected" in screen.text
        await screen.press("escape", "m", "escape", "slash", "enter", "j")
        assert screen.gpus.current is not None
        screen.app.post_message(Note("a note"))
        await screen.drawn()
        assert "  a note  node" in screen.lines[0]
        await screen.press("f")
        assert screen.pids == [1000]


async def test_hidden_processes_get_no_signal() -> None:
    async with shown(machine(8)) as screen:
        await screen.press("j", "space", "f2", "down", "space", "enter", "f9")
        assert "no process is selected" in screen.text
