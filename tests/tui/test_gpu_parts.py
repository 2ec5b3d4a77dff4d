"""MIG devices under their GPUs on the screen, and the words for what GPUs are doing."""

from __future__ import annotations

import re

from gputop.model.health.activity import WORDS
from gputop.model.machine.frame import Frame
from gputop.settings import Session
from tests.builders_tui import frame_of, gpu_of, shown
from tests.tui.test_gpu_columns import FULL, divided, on, part


async def test_parts_come_and_go_and_the_cursor_stays() -> None:
    def at(*places: int) -> Frame:
        return frame_of(divided(0, *(part(gi) for gi in places)), divided(1, part(9)))

    def selected() -> str | None:
        line = screen.gpus.current
        return None if line is None else str(line.subject.uuid)

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
            assert "1:9" in screen.text
        await screen.press("down")
        assert screen.gpus.current
        assert screen.gpus.current.gpu.index == 1


async def test_the_processes_of_a_part_alone() -> None:
    async with shown(FULL, size=(120, 40)) as screen:
        await screen.press("shift+tab", "down", "down", "f")
        assert screen.pids == [101, 102]
        assert screen.process_lines[0].split()[0] == "0:5"
        assert "on GPU 0:5" in screen.text
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
        assert "no process of yours is on GPU 0:7" in screen.text


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
        room = screen.gpus.visible_rows
        assert f"GPU rows 1-{room} of 64" in screen.text
        await screen.press("shift+tab", "end")
        assert screen.gpu_line(room - 1).split()[:2] == ["7:6", "└─2g.20gb"]
        assert f"GPU rows {65 - room}-64 of 64" in screen.text


async def test_enter_opens_the_page_of_a_part() -> None:
    async with shown(FULL, size=(120, 40)) as screen:
        await screen.press("shift+tab", "down", "enter")
        assert screen.lines[1].startswith(" GPU 0:2  MIG 2g.20gb")
        assert "of GPU 0 H200" in screen.lines[2]
        assert "who          alice" in screen.text
        assert "no: processes of alice" in screen.text
        assert "15.0G of 20.0G in use" in screen.text
        assert [line.split()[1] for line in screen.lines if "--seed" in line] == ["100"]
        await screen.press("n", "n")
        assert screen.lines[1].startswith(" GPU 0:5/1  MIG")
        await screen.press("n")
        assert screen.lines[1].startswith(" GPU 1  H200")
        await screen.press("b", "b", "f")
        assert screen.pids == [101, 102]
        assert "on GPU 0:5" in screen.text


async def test_the_page_of_a_part_that_goes() -> None:
    async with shown(FULL, size=(120, 40)) as screen:
        await screen.press("shift+tab", "down", "enter")
        await screen.show(frame_of(divided(0), gpu_of(1)))
        assert "the driver no longer lists it; these are its last figures" in screen.text
        assert "who          alice" in screen.text
        assert "no: processes of alice" in screen.text


async def test_the_page_of_a_part_of_which_nobody_is_known() -> None:
    async with shown(frame_of(divided(0, part(2), listed="none"))) as screen:
        await screen.press("shift+tab", "down", "enter")
        assert "who          –" in screen.text
        assert "free         not known: " in screen.text


async def test_the_page_of_a_gpu_names_the_part_of_each_process() -> None:
    async with shown(FULL, size=(120, 40)) as screen:
        await screen.press("shift+tab", "enter")
        rows = [line.split() for line in screen.lines if "--seed" in line]
        assert [row[0] for row in rows] == ["0:2", "0:5", "0:5"]
        await screen.press("b")
        assert screen.lines[1].startswith(" GPU 1  H200")
        assert "0:2" not in screen.text


# What GPUs are doing


async def test_the_help_explains_the_words() -> None:
    async with shown(frame_of(), size=(120, 140)) as screen:
        await screen.press("question_mark")
        text = screen.text
        await screen.press("pagedown")
        text += screen.text
    for word, meaning in WORDS:
        assert re.search(f"{re.escape(word)} +{re.escape(meaning[:30])}", text), word
