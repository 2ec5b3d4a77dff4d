"""Views of the process table, tags, those that ended, bad filters."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.model.machine.frame import Process, ProcessKey
from gputop.model.machine.gpu import DeviceHolder
from gputop.settings import ProcessSettings, Session
from tests.builders import id_of
from tests.builders_tui import GIB, NOON, frame_of, gpu_of, process_of, shown
from tests.conftest import rest_long

GPUS = tuple(gpu_of(index) for index in range(3))


def rank(pid: int, **values: Any) -> Process:
    """Of a launcher that is not on a GPU."""
    usual = {"parent": 90, "start_time": NOON - 1000 + pid, "command": f"python t.py --rank {pid}"}
    return process_of(pid, **{**usual, **values})


MIXED = (
    process_of(301, gpu=0, user="amy", gpu_memory=30 * GIB),
    process_of(302, gpu=1, user="bob", gpu_memory=20 * GIB),
    process_of(303, gpu=1, user="amy", gpu_memory=10 * GIB),
)


@pytest.mark.parametrize("before", [(), ("down", "down"), ("tab", "down")])
async def test_u_goes_to_the_next_user_and_enter_to_their_processes(before: tuple[str]) -> None:
    frame = frame_of(*GPUS, *MIXED)
    async with shown(frame, settings=Session(me="bob")) as screen:
        await screen.press(*before, "u")
        assert "─ by user ─" in screen.text
        first, second = screen.process_lines
        assert first.split()[:2] == ["amy", "40.0G"]
        assert first.endswith("GPU 0,1: 2 processes")
        assert second.startswith("▸bob ")
        assert second.endswith("GPU 1: 1 process")
        await screen.press("u")
        assert screen.process_lines[0].startswith("▸amy ")
        await screen.press("enter")
        assert "─ of amy ─" in screen.text
        assert screen.pids == [301, 303]
        await screen.press("u")
        assert screen.process_lines[0].startswith("▸amy ")
        await screen.press("u", "enter")
        assert screen.pids == [302]


async def test_escape_leads_from_the_users_back_to_where_one_was() -> None:
    async with shown(frame_of(*GPUS, *MIXED), settings=Session(me="amy")) as screen:
        await screen.press("end", "f", "u", "escape")
        assert screen.pids == [302, 303]
        await screen.press("enter")  # no row is selected, so it means the first
        assert screen.app.screen is not screen.main
        await screen.press("escape", "escape", "u", "u", "enter", "escape")
        assert screen.process_lines[0].startswith("▸bob ")


@rest_long(
    ("keys", "tagged"),
    ("A", [301, 302, 303]), ("slash a m y enter A", [301, 303]), ("t A", [301, 302, 303]),
     ("u A", [301, 302, 303]), ("A A", []), ("down space A", [301, 302, 303]),
)  # fmt: skip
async def test_a_key_tags_all_that_is_in_view(keys: str, tagged: list[int]) -> None:
    async with shown(frame_of(*GPUS, *MIXED), size=(80, 24)) as screen:
        await screen.press(*keys.split())
        assert sorted(key.process.pid for key in screen.table.listing.tagged) == tagged


async def test_it_starts_with_the_user_that_was_asked_for() -> None:
    async with shown(frame_of(*GPUS, *MIXED), settings=Session(user="bob")) as screen:
        assert screen.pids == [302]
        await screen.show(frame_of(*GPUS))
        assert "no process is on a GPU" in screen.text
        await screen.show(frame_of(*GPUS, MIXED[0]))
        assert "no process matches this view" in screen.text
        await screen.press("escape")
        assert screen.pids == [301]


async def test_the_tree_folds_and_enter_opens() -> None:
    alone = process_of(401, gpu_memory=GIB)
    frame = frame_of(*GPUS, rank(101), rank(102), rank(201, parent=102), alone)
    async with shown(frame) as screen:
        await screen.press("t")
        assert "─ tree ─" in screen.text
        assert [line.split()[2] for line in screen.process_lines] == ["90", "401"]
        assert "[+] 2 x t.py, children of this PID" in screen.process_lines[0]
        assert "30.0G" in screen.process_lines[0]
        await screen.press("j", "enter")
        assert [line.split()[-1] for line in screen.process_lines] == ["PID", "102", "101", "401"]
        assert screen.process_lines[0].startswith("▸")
        await screen.press("j", "enter")
        assert "│" not in screen.text
        assert "  └─ t.py --rank 201" in screen.text
        await screen.press("k", "enter", "t")
        assert screen.pids[-1] == 401
        assert len(screen.pids) == 4


async def test_a_gpu_is_chosen_in_its_pane() -> None:
    async with shown(frame_of(*GPUS, *MIXED)) as screen:
        await screen.press("tab", "j", "f")
        assert screen.pids == [302, 303]
        assert "on GPU 1" in screen.text
        assert screen.app.focused is screen.table
        await screen.press("slash", *"amy", "enter")
        assert screen.pids == [303]
        await screen.press("escape")
        assert screen.pids == [301, 303]
        await screen.press("escape")
        assert len(screen.pids) == 3


async def test_the_gpu_of_the_selected_process_is_shown_and_the_cursor_stays() -> None:
    async with shown(frame_of(*GPUS, *MIXED)) as screen:
        await screen.press("end", "f")
        assert screen.pids == [302, 303]
        assert screen.selected == 303
        assert screen.app.focused is screen.table
        assert screen.gpus.current is None
        await screen.press("escape", "escape")
        assert len(screen.pids) == 3


async def test_a_row_on_several_gpus_asks_which() -> None:
    parts = [process_of(1000, 0), process_of(1001, 1)]
    async with shown(frame_of(*GPUS, *parts)) as screen:
        await screen.press("u", "down", "f")
        assert "on several GPUs: select a process or a GPU" in screen.text
        assert screen.app.focused is screen.table


# Tags


def key(pid: int) -> ProcessKey:
    return ProcessKey("boot", id_of(pid, NOON - 60))


async def test_space_tags_a_process_on_all_its_rows() -> None:
    both = process_of(302, gpu=2, user="bob", gpu_memory=5 * GIB)
    async with shown(frame_of(*GPUS, *MIXED, both)) as screen:
        await screen.press("j", "j", "space", "k", "k", "space")
        assert screen.table.listing.tagged == [key(302), key(301)]
        assert "2 tagged" in screen.text
        assert [line[0] for line in screen.process_lines] == ["»", "»", " ", "»"]
        await screen.press("space")
        assert screen.table.listing.tagged == [key(301)]
        await screen.press("slash", *"amy", "enter", "escape")
        assert screen.table.listing.tagged == []
        assert screen.table.listing.filter == "amy"


# Those that ended


async def test_an_ended_process_stays_dimmed_is_not_counted_and_cannot_be_chosen() -> None:
    async with shown(frame_of(*GPUS, *MIXED)) as screen:
        await screen.press("j")
        assert screen.selected == 301
        await screen.show(frame_of(*GPUS, *MIXED[1:], time=NOON + 1))
        assert screen.pids == [301, 302, 303]
        assert "ended train.py --seed 301" in screen.process_lines[0]
        assert "─ 2 ─" in screen.text
        assert screen.selected is None
        await screen.press("enter", "space")
        assert screen.table.listing.tagged == []
        assert screen.app.screen is screen.main
        await screen.press("z")
        assert screen.pids == [302, 303]
        await screen.press("z")
        await screen.show(frame_of(*GPUS, *MIXED[1:], time=NOON + 62))
        assert screen.pids == [302, 303]


# Idle, and memory that nobody admits to


async def test_who_holds_memory_and_does_nothing_is_marked() -> None:
    gpus = (
        gpu_of(0, idle_for=2460.0, memory_used=30 * GIB, listed="all"),
        gpu_of(1, idle_for=2460.0),
        gpu_of(2, idle_for=599.0, memory_used=30 * GIB),
    )
    processes = (
        process_of(301, user="amy", idle_for=2460.0),
        process_of(302, gpu=2, user="bob", idle_for=599.0, gpu_memory=9 * GIB),
        process_of(303, gpu=2, user="bob", idle_for=700.0, gpu_memory=0),
        process_of(304, gpu=2, user="bob", idle_for=None, gpu_memory=0),
    )
    async with shown(frame_of(*gpus, *processes), size=(200, 50)) as screen:
        assert " amy idle 41m " in screen.gpu_line(0)
        assert " free " in screen.gpu_line(1)
        assert " bob " in screen.gpu_line(2)
        head = screen.lines[screen.table.region.y + 1]
        end = head.index("IDLE") + len("IDLE")
        assert [line[end - 7 : end].strip() for line in screen.process_lines] == [
            "41m00s", "9m59s", "11m40s", "–",
        ]  # fmt: skip
        await screen.resize(40, 20)  # without the column the command says it
        assert [line.count("idle 41m00s") for line in screen.process_lines] == [1, 0, 0, 0]


async def test_order_and_idle_are_what_the_settings_say() -> None:
    settings = Session(processes=ProcessSettings(sort="age", idle_after=5.0))
    idle = process_of(301, idle_for=5.0)
    async with shown(frame_of(*GPUS, idle), size=(200, 50), settings=settings) as screen:
        assert "IDLE" in screen.line_with("COMMAND")
        assert "─ by TIME ↓ ─" in screen.text
        assert " 5s " in screen.process_lines[0]


async def test_memory_that_nobody_admits_to_is_a_line_of_its_gpu() -> None:
    orphan = DeviceHolder(
        pid=777, start_ticks=7, start_time=NOON - 9, user="amy", command="loader", reason="orphan"
    )
    gpus = (
        gpu_of(0, memory_unaccounted=10 * GIB, holders=(orphan,)),
        gpu_of(1, memory_unaccounted=20 * 2**20, holders=(orphan,)),
        gpu_of(2, memory_unaccounted=5 * GIB),
    )
    async with shown(frame_of(*gpus, MIXED[2]), size=(200, 50)) as screen:
        first, process, second = screen.process_lines
        assert " 303 " in process
        what = "its job has ended and it still holds the GPU open: end it (kill 777); loader"
        assert first == f" GPU 0: unaccounted 10.0 GiB: PID 777 amy: {what}"
        held = "GPU 2: 5.00 GiB held by no visible process. Try: sudo fuser -v /dev/nvidia2"
        assert second == f" {held}"
        assert "─ 1 ─" in screen.text
        await screen.press("home", "space", "home", "enter")
        assert screen.table.listing.tagged == []
        assert screen.selected is None
        assert screen.app.screen is screen.main
        await screen.press("end")
        assert f"▸{held}" in screen.text
        screen.table.listing.only_gpu(gpus[2].key)
        assert len(screen.process_lines) == 1


# A bad filter


@pytest.mark.parametrize("size", [(200, 50), (80, 24)])
async def test_a_bad_filter_says_where_and_the_last_good_one_stays(size: tuple[int, int]) -> None:
    async with shown(frame_of(*GPUS, *MIXED), size=size) as screen:
        await screen.press("slash")
        await screen.type("amy mem")
        assert "no process matches the filter" in screen.text
        await screen.press("greater_than_sign", *"20")
        assert "no process matches the filter" in screen.text
        assert "column 9: a unit is missing: K M G T" in screen.lines[-1]
        await screen.press("enter")
        assert screen.app.focused is not screen.table
        await screen.press("G")
        assert "column" not in screen.lines[-1]
        assert screen.pids == [301]
        await screen.press("enter")
        assert screen.app.focused is screen.table
        await screen.press("slash", "exclamation_mark", "escape")
        assert len(screen.pids) == 3


# Identity
