"""MIG devices under their GPUs, and what GPUs are doing."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gputop.model.health.activity import WORDS
from gputop.model.machine.frame import Frame, Process
from gputop.model.machine.gpu import Gpu, MigDevice
from gputop.model.machine.sections import Activity, Thermal, Throttle
from gputop.settings import Session
from gputop.tui.glyphs import UNICODE
from tests.builders_tui import GIB, frame_of, gpu_of, process_of, shown

BUSY = Activity(graphics=0.98, sm=0.91, tensor=0.44, dram=0.58, verdict="compute-bound")


def part(gi: int, ci: int = 0, **values: Any) -> MigDevice:
    usual: dict[str, Any] = {
        "uuid": f"MIG-{gi}-{ci}",
        "profile": "2g.20gb",
        "memory_total": 20 * GIB,
        "memory_used": GIB // 8,
    }
    return MigDevice(gi=gi, ci=ci, **{**usual, **values})


def divided(index: int, *parts: MigDevice, **values: Any) -> Gpu:
    return gpu_of(index, **{"mig_mode": True, "mig": parts, "utilization": None, **values})


def on(pid: int, gi: int, ci: int = 0, **values: Any) -> Process:
    return process_of(pid, gpu_instance=gi, compute_instance=ci, **values)


FULL = frame_of(
    divided(
        0,
        part(2, memory_used=15 * GIB, activity=BUSY),
        part(5, profile="1c.2g.20gb"),
        part(5, 1, profile=None, memory_used=None),
    ),
    gpu_of(1),
    on(100, 2),
    on(101, 5, user="bob"),
    on(102, 5, user=None),
    process_of(103, gpu=1, user="eve"),
)


async def test_the_short_history_is_of_what_divided_gpus_have() -> None:
    async with shown(frame_of(divided(0, part(2))), size=(160, 40)) as screen:
        assert screen.lines[1].rstrip().endswith(" of memory")
        assert screen.gpu_line(0)[-1] != " "


async def test_a_part_has_its_own_memory_activity_and_users() -> None:
    async with shown(FULL, size=(200, 50)) as screen:
        head, lines = screen.lines[1], [screen.gpu_line(place) for place in range(5)]
        who = [screen.gpu_cell(place, "WHO") for place in range(5)]
    assert who == ["alice bob 1 not in /proc", "alice", "bob 1 not in /proc", "–", "eve"]
    assert [line.split()[:2] for line in lines] == [
        ["0", "H200"], ["2/0", "├─2g.20gb"], ["5/0", "├─1c.2g.20gb"], ["5/1", "└─MIG"],
        ["1", "H200"],
    ]  # fmt: skip
    for words in ("15.0/20.0G", "98%", "compute-bound", "91%", "44%", "58%"):
        assert words in lines[1]
    assert "compute-bound" not in lines[0]
    for column in ("TEMP", "POWER", "CLOCK"):  # they are the whole GPU's
        start = head.index(column)
        assert lines[0][start : start + len(column)].strip()
        assert not lines[1][start : start + len(column)].strip()
    assert UNICODE.not_available in lines[3]


@pytest.mark.parametrize(
    ("gpu", "device", "who"),
    [
        ({}, {}, "free"),
        ({}, {"memory_used": 2 * GIB}, "no process"),
        ({"listed": "none"}, {}, UNICODE.not_available),
        ({"stale_for": 5.0}, {}, UNICODE.not_available),
    ],
)
async def test_a_part_without_a_process(
    gpu: dict[str, Any], device: dict[str, Any], who: str
) -> None:
    frame = frame_of(divided(0, part(1, **device), **gpu), on(100, 2))
    async with shown(frame, size=(120, 40)) as screen:
        assert screen.gpu_cell(1, "WHO") == who


async def test_parts_come_and_go_and_the_cursor_stays() -> None:
    def at(*places: int) -> Frame:
        return frame_of(divided(0, *(part(gi) for gi in places)), divided(1, part(9)))

    def selected() -> str | None:
        line = screen.gpus.current
        return None if line is None else str(line.key)

    async with shown(at(1, 2, 3), size=(120, 40)) as screen:
        assert screen.gpus.size.height == 7
        await screen.press("shift+tab", "down", "down")
        assert selected() == "MIG-2-0"
        for places, expected, height in [
            ((2, 3), "MIG-2-0", 6),
            ((7, 8, 1, 3, 2), "MIG-2-0", 9),
            ((1, 3), None, 6),
            ((), None, 4),
            ((3, 2), "MIG-2-0", 6),
        ]:
            await screen.show(at(*places))
            assert selected() == expected
            assert screen.gpus.size.height == height
            assert "9/0" in screen.text
        await screen.press("down")
        assert screen.gpus.current
        assert screen.gpus.current.gpu.index == 1


async def test_the_processes_of_a_part_alone() -> None:
    async with shown(FULL, size=(120, 40)) as screen:
        await screen.press("shift+tab", "down", "down", "f")
        assert screen.pids == [101, 102]
        assert screen.process_lines[0].split()[0] == "0:5"
        assert "on GPU 0 MIG 5/0" in screen.text
        await screen.press("escape")
        assert len(screen.pids) == 4
        await screen.press("shift+tab", "up", "up", "up", "f")
        assert screen.pids == [100, 101, 102]


async def test_a_signal_is_for_ones_own_on_the_part() -> None:
    here = [on(100, 2), on(101, 5), on(102, 5, user="bob"), on(103, 5, 1)]
    frame = frame_of(divided(0, part(2), part(5), part(5, 1), part(7)), *here)
    async with shown(frame, settings=Session(me="alice")) as screen:
        await screen.press("shift+tab", "down", "down", "f9")
        assert "SIGTERM to 1 process " in screen.text
        assert " 101 alice" in screen.text
        await screen.press("escape", "end", "f9")
        assert "no process of yours is on that part of GPU 0" in screen.text


async def test_where_a_process_is_is_whole() -> None:
    frame = frame_of(divided(0, part(11, 1)), on(100, 11, 1))
    async with shown(frame, size=(80, 24)) as screen:
        assert screen.process_lines[0].split()[0] == "0:11/1"


async def test_many_parts_leave_room_for_processes() -> None:
    gpus = [divided(index, *(part(gi, uuid=f"{index}/{gi}") for gi in range(7)))
            for index in range(8)]  # fmt: skip
    frame = frame_of(*gpus, *(on(100 + n, n % 7, gpu=n % 8) for n in range(30)))
    async with shown(frame, size=(80, 24)) as screen:
        assert len(screen.process_lines) >= 8
        room = screen.gpus.room
        assert f"GPU rows 1-{room} of 64" in screen.text
        await screen.press("shift+tab", "end")
        assert screen.gpu_line(room - 1).split()[:2] == ["6/0", "└─2g.20gb"]
        assert f"GPU rows {65 - room}-64 of 64" in screen.text


# What GPUs are doing


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        ({"activity": BUSY}, "compute-bound"),
        ({"activity": Activity(verdict="busy (by UTIL)")}, "busy"),
        ({"activity": None}, UNICODE.pending),
        ({"activity": None, "utilization": None}, UNICODE.not_available),
    ],
)
async def test_verdict(gpu: dict[str, Any], said: str) -> None:
    """What it rests on is said once, in the heading."""
    async with shown(frame_of(gpu_of(0, **gpu), process_of(100)), size=(200, 40)) as screen:
        by_utilization = gpu["activity"] is not None and gpu["activity"].sm is None
        label = "DOING (by UTIL)" if by_utilization else "DOING"
        assert screen.gpu_cell(0, label) == said
        assert screen.text.count("(by UTIL)") == by_utilization
        measured = "TENSOR" in screen.lines[1]
        assert measured == (gpu["activity"] is BUSY)
        await screen.resize(80, 24)
        assert "DOING" not in screen.text


async def test_a_free_gpu_does_nothing() -> None:
    """Whatever a display's few percent look like without GPM."""
    gpu = gpu_of(0, utilization=0.05, activity=Activity(verdict="waiting for input (by UTIL)"))
    async with shown(frame_of(gpu), size=(200, 40)) as screen:
        assert screen.gpu_cell(0, "DOING (by UTIL)") == "idle"


async def test_what_holds_the_clocks_back_is_said_in_words() -> None:
    reasons = [("sw_power_cap",), ("hw_thermal_slowdown", "hw_slowdown"), ()]
    gpus = [gpu_of(n, throttle=Throttle(reasons=names)) for n, names in enumerate(reasons)]
    async with shown(frame_of(*gpus), size=(200, 40)) as screen:
        cells = [screen.gpu_cell(n, "THROTTLED") for n in range(3)]
    assert cells == ["power cap", "HW thermal +1", ""]


async def test_degrees_left_where_they_are_known() -> None:
    async with shown(frame_of(gpu_of(0)), size=(230, 40)) as screen:
        assert "T.LIMIT" not in screen.text
        await screen.show(frame_of(gpu_of(0, thermal=Thermal(margin=0.0))))
        at = screen.lines[1].index("T.LIMIT")
        assert screen.gpu_line(0)[at : at + 7] == "      0"


async def test_what_is_to_be_mended_stands_out() -> None:
    gpus = [gpu_of(n, activity=Activity(verdict=word))
            for n, word in enumerate(("busy", "waiting for input"))]  # fmt: skip
    frame = frame_of(*gpus, process_of(100), process_of(101, 1))
    async with shown(frame, size=(200, 40)) as screen:
        bold = [
            any(
                segment.style and segment.style.bold and word in segment.text
                for segment in screen.segments[screen.gpus.region.y + 1 + n]
            )
            for n, word in enumerate(("busy", "waiting for input"))
        ]
    assert bold == [False, True]


async def test_the_help_explains_the_words() -> None:
    async with shown(frame_of(), size=(120, 140)) as screen:
        await screen.press("question_mark")
        text = screen.text
        await screen.press("pagedown")
        text += screen.text
    for word, meaning in WORDS:
        assert re.search(f"{re.escape(word)} +{re.escape(meaning[:30])}", text), word
