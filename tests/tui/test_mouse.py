"""Clicks and the wheel: what they do on each screen, and that nobody is disturbed by them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from textual import events
from textual.widgets import OptionList

from gputop.model.machine.frame import Frame
from gputop.model.metrics.process import COLUMNS
from gputop.settings import Session, from_file
from gputop.tui.dialogs.signal import SignalScreen
from gputop.tui.pages.gpu import GpuScreen
from gputop.tui.pages.graph import GraphScreen
from gputop.tui.pages.process import ProcessScreen
from gputop.tui.panes.graph import Graph
from tests.builders_tui import GIB, NOON, Screenful, frame_of, gpu_of, process_of, shown

PIDS = [100, 200, 300]


def three(**values: object) -> Frame:
    """Three processes, the first with most memory."""
    processes = (process_of(pid, gpu_memory=(9 - n) * GIB) for n, pid in enumerate(PIDS))
    return frame_of(gpu_of(0), gpu_of(1), *processes, **values)


def row(screen: Screenful, index: int) -> tuple[int, int]:
    """Where a row of the process table is."""
    return 20, screen.table.region.y + screen.table.head_lines + index


def heading(screen: Screenful, label: str) -> tuple[int, int]:
    """Where a heading of the process table is."""
    y = screen.table.region.y + 1
    found = re.search(rf"(?<![\w%-]){re.escape(label)}(?![\w%-])", screen.lines[y])
    assert found, label
    return found.start(), y


async def test_a_click_selects_a_row_and_gives_its_pane_the_keys() -> None:
    async with shown(three()) as screen:
        await screen.click(*row(screen, 1))
        assert screen.selected == screen.pids[1]
        assert screen.table.has_focus
        await screen.click(20, screen.gpus.region.y + screen.gpus.head_lines + 1)
        assert screen.gpus.current is not None
        assert screen.gpus.current.gpu.index == 1
        assert screen.gpus.has_focus
        await screen.click(*row(screen, 0))
        assert screen.table.has_focus
        await screen.press("down")
        assert screen.selected == screen.pids[1]


@pytest.mark.parametrize("keys", [("/", "s", "e"), ("m",)])
async def test_a_click_elsewhere_leaves_an_editor(keys: tuple[str, ...]) -> None:
    """The keys of the editor are no longer told then; what was typed stays."""
    async with shown(three()) as screen:
        keys_of_now = screen.lines[-1]
        await screen.press(*keys)
        assert screen.lines[-1] != keys_of_now
        await screen.click(20, screen.gpus.region.y + screen.gpus.head_lines + 1)
        assert screen.gpus.has_focus
        assert screen.lines[-1] == keys_of_now
        assert screen.table.listing.filter == "".join(keys)[1:]
        await screen.press("down")
        assert screen.gpus.current is not None
        assert len(screen.app.screen_stack) == 1


async def test_a_click_where_no_row_is_changes_nothing() -> None:
    async with shown(three()) as screen:
        await screen.press("down")
        before = screen.selected
        await screen.click(*row(screen, 3), times=2)
        await screen.click(20, screen.table.region.y, times=2)  # the rule
        await screen.click(20, 0, times=2)
        await screen.click(20, 39, times=2)
        assert screen.selected == before
        assert len(screen.app.screen_stack) == 1


async def test_a_double_click_opens_what_enter_opens() -> None:
    async with shown(three()) as screen:
        await screen.click(*row(screen, 1), times=2)
        assert isinstance(screen.app.screen, ProcessScreen)
        assert f"seed {PIDS[1]}" in screen.text
        await screen.press("escape")
        await screen.click(20, screen.gpus.region.y + screen.gpus.head_lines + 1, times=2)
        assert isinstance(screen.app.screen, GpuScreen)
        assert "GPU 1" in screen.text


async def test_a_double_click_means_the_row_of_its_first_click(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A frame may put another row under the mouse in between."""
    async with shown(three()) as screen:
        # Of half a second: on a busy machine the frame alone takes that long.
        monkeypatch.setattr(screen.app, "CLICK_CHAIN_TIME_THRESHOLD", 60.0)
        x, y = row(screen, 0)
        await screen.click(x, y)
        first = screen.selected
        processes = (process_of(pid, gpu_memory=(n + 1) * GIB) for n, pid in enumerate(PIDS))
        await screen.show(frame_of(gpu_of(0), gpu_of(1), *processes))
        other = screen.pids[0]
        assert other != first
        await screen.click(x, y)
        assert isinstance(screen.app.screen, ProcessScreen)
        assert f"seed {first}" in screen.text
        assert f"seed {other}" not in screen.text


async def test_a_click_on_a_heading_sorts_by_it_and_the_next_the_other_way(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    async with shown(three(), settings=Session(path=path)) as screen:
        await screen.click(*heading(screen, "PID"))
        assert screen.table.listing.sort_id == "pid"
        one_way = screen.pids
        assert sorted(one_way) in (one_way, one_way[::-1])
        await screen.click(*heading(screen, "PID"))
        assert screen.pids == one_way[::-1]
        await screen.click(*heading(screen, "COMMAND"))
        assert screen.table.listing.sort_id == "command"
        assert from_file(path).processes.sort == "command"


async def test_every_heading_is_that_of_its_column() -> None:
    async with shown(three(), size=(200, 50)) as screen:
        for column, _ in list(screen.table._columns):
            await screen.click(*heading(screen, column.label))
            assert screen.table.listing.sort_id == column.id


async def test_the_wheel_scrolls_and_the_cursor_stays_on_its_process() -> None:
    processes = [process_of(100 + n, gpu_memory=(99 - n) * GIB) for n in range(60)]
    async with shown(frame_of(gpu_of(0), *processes), size=(80, 24)) as screen:
        await screen.press("down")
        first = screen.pids[0]
        assert screen.selected == first
        await screen.wheel(*row(screen, 2), 2)
        assert screen.pids[0] == first + 6
        await screen.show(frame_of(gpu_of(0), *processes, time=NOON + 1))
        assert screen.pids[0] == first + 6  # a frame takes nobody back
        assert screen.selected == first
        await screen.press("down")
        assert screen.selected == first + 1
        assert first + 1 in screen.pids
        await screen.wheel(*row(screen, 2), -9)
        assert screen.pids[0] == first
        await screen.wheel(*row(screen, 2), 99)
        assert screen.pids[-1] == first + 59


async def test_the_wheel_scrolls_what_it_is_over_and_not_what_has_the_keys() -> None:
    gpus = [gpu_of(n) for n in range(16)]
    async with shown(frame_of(*gpus, process_of(100)), size=(80, 16)) as screen:
        before = screen.gpu_line(0)
        await screen.wheel(20, screen.gpus.region.y, 1)
        assert screen.gpu_line(0) != before
        assert screen.table.has_focus
        assert screen.gpus.current is None


async def test_pages_and_graphs_scroll() -> None:
    async with shown(three(), size=(80, 12)) as screen:
        await screen.click(*row(screen, 0), times=2)
        before = screen.lines[1]
        await screen.wheel(20, 5, 1)
        assert screen.lines[1] != before
        await screen.click(20, 5, times=2)
        assert isinstance(screen.app.screen, ProcessScreen)
        await screen.press("escape", "G")
        graph = screen.app.screen.query_one(Graph)
        await screen.wheel(20, 5, 1)
        assert graph.front == 0


@pytest.mark.parametrize("keys", [("G",), ("G", "s")])
async def test_a_click_on_a_graph_tells_the_values_of_that_time(keys: tuple[str, ...]) -> None:
    async with shown(three(interval=1.0), size=(80, 24)) as screen:
        await screen.show(*(three(time=NOON + second, interval=1.0) for second in range(1, 50)))
        await screen.press(*keys)
        assert isinstance(screen.app.screen, GraphScreen)
        graph = screen.app.screen.query_one(Graph)
        await screen.click(50, 5)
        start = 30 if graph.stacked else 11
        assert graph._column == 50 - start
        assert " at " in screen.lines[0]
        await screen.click(2, 5)  # beside it
        assert graph._column == 50 - start


async def test_in_a_list_a_click_selects_and_a_double_click_chooses() -> None:
    async with shown(three()) as screen:
        await screen.press("s")
        options = screen.app.screen.query_one(OptionList)
        x, y = options.content_region.offset
        await screen.click(x + 3, y + 1)
        assert options.is_attached
        assert options.highlighted == 1
        await screen.click(x + 3, y + 2, times=2)
        assert not options.is_attached
        assert screen.table.listing.sort_id == list(COLUMNS)[2]


async def test_clicks_and_keys_take_effect_in_their_order() -> None:
    async with shown(three()) as screen:
        x, y = row(screen, 1)
        for kind in (events.MouseDown, events.MouseUp):
            screen.mouse(kind, x, y)
        screen.app.post_message(events.Key("down", None))
        screen.app.post_message(events.Key("enter", "\r"))
        await screen.press()
        assert isinstance(screen.app.screen, ProcessScreen)
        assert "seed 300" in screen.text


async def test_a_dialog_of_signals_is_answered_by_no_click() -> None:
    async with shown(three()) as screen:
        await screen.press("down", "f9")
        assert isinstance(screen.app.screen, SignalScreen)
        asked = list(screen.source.requests)
        for y, line in enumerate(screen.lines):
            for x in range(y * 7 % 36, len(line), 36):
                await screen.click(x, y)
        assert screen.source.requests == asked
        assert isinstance(screen.app.screen, SignalScreen)
