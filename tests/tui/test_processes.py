"""The process table: order, cursor, filter, command."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gputop.model.machine.environment import CudaContext, Environ
from gputop.model.metrics.process import PROCESS
from tests.builders_tui import GIB, NOON, Screenful, frame_of, gpu_of, process_of, shown
from tests.conftest import rest_long


def masked(value: str, **around: Any) -> CudaContext:
    """Of a process that was started with CUDA_VISIBLE_DEVICES=`value`."""
    return CudaContext(Environ({"CUDA_VISIBLE_DEVICES": value}), **around)


MIXED = (
    process_of(
        301, gpu=1, user="bob", type="C", gpu_memory=3 * GIB, sm_utilization=0.1, cpu=0.0,
        idle_for=0.0, rss=GIB, state="D", start_time=NOON - 5, command="python b.py",
        cuda_context=masked("1"),
    ),
    process_of(
        302, gpu=0, user="amy", type="C+G", gpu_memory=2 * GIB, sm_utilization=0.9, cpu=3.5,
        idle_for=900.0, rss=3 * GIB, state="R", start_time=NOON - 500, command="python c.py",
        cuda_context=masked("1,0"),
    ),
    process_of(
        303, gpu=2, user="eve", type="M", gpu_memory=5 * GIB, sm_utilization=0.0, cpu=1.0,
        idle_for=90.0, rss=2 * GIB, state="S", start_time=NOON - 50, command="python a.py",
        cuda_context=masked("0,1,2"),
    ),
)  # fmt: skip
UNKNOWN = process_of(
    304, gpu_uuid=None, user=None, gpu_memory=None, sm_utilization=None, cpu=None, rss=None,
    state=None, start_time=None, command=None,
)  # fmt: skip
GPUS = tuple(gpu_of(index) for index in range(3))
ASCENDING = {
    "gpu": [302, 301, 303],
    "gpu_memory": [302, 301, 303],
    "command": [303, 301, 302],
}


async def sort_by(screen: Screenful, metric_id: str) -> None:
    """As a person does it: the dialog, arrows, Enter."""
    ids = list(PROCESS)
    steps = ids.index(metric_id) - ids.index(screen.table.listing.sort_id)
    await screen.press("s", *["down" if steps > 0 else "up"] * abs(steps), "enter")


async def test_a_column_sorts_both_ways_with_the_unknown_last() -> None:
    """As every other one does (tests/model/test_query.py)."""
    async with shown(frame_of(*GPUS, UNKNOWN, *MIXED)) as screen:
        for metric_id in ASCENDING:
            if metric_id != screen.table.listing.sort_id:
                await sort_by(screen, metric_id)
            both = [await seen_order(screen, metric_id) for _ in range(2)]
            ascending = ASCENDING[metric_id]
            assert sorted(both) == [(False, ascending), (True, ascending[::-1])], metric_id


async def seen_order(screen: Screenful, metric_id: str) -> tuple[bool, list[int]]:
    """Whether it descends, and the processes of which the value is known; then turn it round."""
    pids, descending = screen.pids, screen.table.listing.descending
    assert pids[-1] == 304
    mark = "↓" if descending else "↑" if metric_id != "gpu" else " "
    label, head = PROCESS[metric_id].label, screen.lines[screen.table.region.y + 1]
    assert f"{label}{mark}" in head or f"{mark}{label}" in head
    await screen.press("I")
    return descending, [pid for pid in pids if pid != 304]


@pytest.mark.parametrize("key", ["s", "C"])
async def test_the_dialogs_keep_labels_and_words_apart(key: str) -> None:
    async with shown(frame_of(*GPUS, *MIXED), size=(120, 60)) as screen:
        await screen.press(key)
        assert " CONTAINER  name, or short id" in screen.text


async def test_escape_leaves_the_order_alone() -> None:
    async with shown(frame_of(*GPUS, *MIXED)) as screen:
        for key in ("escape", "q"):
            await screen.press("s", "down", key)
            assert screen.table.listing.sort_id == "gpu"
        assert screen.app.is_running


@rest_long("key", "down", "j", "up", "k")
async def test_the_first_key_selects_the_first_row(key: str) -> None:
    async with shown(frame_of(*(process_of(100 + n) for n in range(5)))) as screen:
        assert screen.selected is None
        assert "▸" not in screen.text
        await screen.press(key)
        assert screen.selected == 100
        assert screen.process_lines[0].startswith("▸")


async def test_moving() -> None:
    frame = frame_of(gpu_of(0), *(process_of(1000 + n) for n in range(100)))
    async with shown(frame, size=(80, 24)) as screen:
        room = screen.table.visible_rows
        for keys, expected in (
            (["j", "j", "down"], 1002),
            (["k"], 1001),
            (["end"], 1099),
            (["j"], 1099),
            (["pageup"], 1099 - room + 1),
            (["ctrl+b"], 1099 - 2 * (room - 1)),
            (["home"], 1000),
            (["up"], 1000),
            (["pagedown", "ctrl+f"], 1000 + 2 * (room - 1)),
            (["end"], 1099),
            (["home"], 1000),
        ):
            await screen.press(*keys)
            assert screen.selected == expected, keys
            (line,) = (line for line in screen.process_lines if line.startswith("▸"))
            assert str(expected) in line
            assert len(screen.process_lines) == room
        assert f"1-{room} of 100" in screen.text


async def test_the_cursor_follows_its_process() -> None:
    processes = [process_of(100 + n, gpu_memory=(50 - n) * GIB) for n in range(40)]
    async with shown(frame_of(*processes), size=(80, 24)) as screen:
        await sort_by(screen, "gpu_memory")
        await screen.press("j", "j")
        assert screen.selected == 101
        processes[1] = process_of(101, gpu_memory=GIB)  # from the second place to the last
        await screen.show(frame_of(*processes))
        assert screen.selected == 101
        assert screen.process_lines[-1].startswith("▸")
        await screen.press("I")
        assert screen.selected == 101
        assert screen.process_lines[0].startswith("▸")
        await sort_by(screen, "pid")
        assert screen.selected == 101


async def test_every_key_filters() -> None:
    frame = frame_of(process_of(100, user="bob"), process_of(200), process_of(201, gpu=1))
    async with shown(frame) as screen:
        await screen.press("j", "j", "slash")
        for text, shown_ in (("a", 3), ("l", 2), ("i", 2), (" ", 2), ("gpu:1", 1), ("2", 0)):
            await screen.type(text)
            assert f"{shown_} of 3" in screen.text
        assert "no process matches the filter" in screen.text
        await screen.press(*["backspace"] * 8)
        assert screen.pids == [200, 201]
        assert screen.process_lines[0].startswith("·")  # the keys are for the filter
        await screen.press("enter")
        assert "filter: al " in screen.text
        assert screen.app.focused is screen.table
        await screen.press("escape", "escape")
        assert "filter:" not in screen.text
        assert len(screen.pids) == 3


async def test_escape_goes_back_step_by_step() -> None:
    async with shown(frame_of(process_of(100), process_of(200)), size=(80, 24)) as screen:
        await screen.press("slash", "a", "enter", "j", "m", "1")
        steps = []
        for _ in range(3):
            await screen.press("escape")
            steps.append(
                (screen.app.focused is screen.table, screen.selected, screen.table.listing.filter)
            )
        assert steps == [(True, 100, "a"), (True, None, "a"), (True, None, "")]
        assert screen.app.is_running


async def test_script_first_or_the_whole_line() -> None:
    command = "/opt/conda/bin/python3 -u /home/alice/train.py --lr 3e-4"
    async with shown(frame_of(process_of(100, command=command)), size=(200, 50)) as screen:
        assert screen.process_lines[0].endswith(" train.py --lr 3e-4")
        await screen.press("c")
        assert screen.process_lines[0].endswith(command)
        await screen.press("c")
        assert screen.process_lines[0].endswith(" train.py --lr 3e-4")


async def test_the_command_scrolls_sideways_and_says_so() -> None:
    frame = frame_of(process_of(100, command="x" + "0123456789" * 30), process_of(101))
    async with shown(frame, size=(80, 24)) as screen:
        before = screen.process_lines
        await screen.press("right")
        assert "COMMAND from 16" in screen.text
        assert "5678901234" in screen.process_lines[0]
        await screen.press(*["right"] * 50)
        assert screen.process_lines[0].endswith("123456789")
        assert screen.process_lines[1].endswith("1m00s")
        await screen.press(*["left"] * 50)
        assert screen.process_lines == before
        assert "COMMAND from" not in screen.text


async def test_enter_shows_the_process_with_the_reasoning() -> None:
    frame = frame_of(gpu_of(0), gpu_of(1), process_of(401, gpu=1, cuda_context=masked("1\x1b[2J")))
    async with shown(frame) as screen:
        await screen.press("enter")
        page = screen.text
        assert "It was started with CUDA_VISIBLE_DEVICES=1�[2J and CUDA_DEVICE_ORDER unset." in page
        assert re.search(r"cuda:0 +/device:GPU:0 +→ +GPU 1 +in use", page)
        assert "The driver sees it on GPU 1, which fits." in page
        await screen.show(frame_of(gpu_of(0), gpu_of(1)))
        assert "it has ended" in screen.text
        await screen.press("down", "pagedown", "end", "home", "escape")
        assert "no process is on a GPU" in screen.text
