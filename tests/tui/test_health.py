"""Health on the screen: the mark on a row, the count in the heading, the list with advice."""

from __future__ import annotations

import re
from typing import Any

import pytest
from textual.app import SystemCommand

from gputop.model.machine.environment import CudaContext, Environ
from gputop.model.machine.frame import Frame
from gputop.model.machine.sections import Ecc, Health, Nvlink, Xid
from gputop.tui.panes.lines import NOTCH
from gputop.tui.panes.page import Page
from tests.builders_tui import NOON, frame_of, gpu_of, process_of, shown

SIZES = [(80, 24), (200, 50)]


def xids(*numbers: int) -> Health:
    """Of twelve seconds ago."""
    return Health(xids=tuple(Xid(number, NOON - 12) for number in numbers))


def sick(**values: Any) -> Frame:
    """GPU 0 is well, 1 is lost, 2 has a broken row, 3 has a notice."""
    return frame_of(
        gpu_of(0, health=xids()),
        gpu_of(1, error="GPU is lost", health=xids(79)),
        gpu_of(
            2,
            ecc=Ecc(remap_failure=True, remap_pending=True),
            nvlink=Nvlink(up=3, down=1),
            health=xids(),
        ),
        gpu_of(3, health=xids(31)),
        process_of(101, gpu=3),
        **values,
    )


@pytest.mark.parametrize("size", SIZES)
async def test_a_row_has_a_mark_for_the_worst(size: tuple[int, int]) -> None:
    async with shown(sick(), size) as screen:
        assert "!" not in screen.gpu_line(0)
        assert re.search(r" H200 +! XID 79 .* GPU is lost$", screen.gpu_line(1))
        assert "! REMAP" in screen.gpu_line(2)
        assert "XID" not in screen.gpu_line(2)


async def test_a_mark_has_the_colour_of_its_level() -> None:
    async with shown(sick(), (200, 50)) as screen:
        top = screen.gpus.region.y + screen.gpus.head_lines
        for line, mark, role in ((2, "! REMAP", "alarm"), (3, "! XID 31", "notice")):
            [segment] = [segment for segment in screen.segments[top + line] if mark in segment.text]
            assert segment.style == screen.gpus.role_style(role)


async def test_the_page_of_a_gpu_says_how_grave_a_finding_is_in_words() -> None:
    async with shown(sick(), (80, 24)) as screen:
        await screen.press("tab", "j", "j", "enter")
        lines = [line.strip() for line in screen.lines]
        at = lines.index("! error: a row of memory could not be replaced")
        assert lines[at + 1] == "have the card replaced"
        assert any(line.startswith("! warning: faulty rows of memory") for line in lines)


async def test_a_notice_hides_nobody() -> None:
    """It is there where there is room, an alarm everywhere."""
    async with shown(sick(), (200, 50)) as screen:
        assert " alice   ! XID 31 " in screen.gpu_line(3)
        await screen.resize(40, 12)
        assert " alice " in screen.gpu_line(3)
        assert "XID 31" not in screen.gpu_line(3)


@pytest.mark.parametrize("size", SIZES)
async def test_the_heading_counts_gpus_that_need_a_person(size: tuple[int, int]) -> None:
    async with shown(sick(), size) as screen:
        assert " 2 alarms (H) " in screen.lines[0]
        await screen.show(frame_of(gpu_of(0), gpu_of(1, ecc_uncorrected=3)))
        assert " 1 alarm (H) " in screen.lines[0]
        await screen.show(frame_of(gpu_of(0), gpu_of(1, compute_mode="prohibited")))
        assert "alarm" not in screen.lines[0]


@pytest.mark.parametrize("size", SIZES)
async def test_a_hung_gpu_is_an_alarm(size: tuple[int, int]) -> None:
    async with shown(frame_of(gpu_of(0), gpu_of(1, stale_for=12.0)), size) as screen:
        assert " 1 alarm (H) " in screen.lines[0]
        await screen.press("H")
        assert "All is well" not in screen.text
        assert "nvidia-smi" in screen.text or "dmesg" in screen.text


async def test_the_list_says_what_and_what_to_do() -> None:
    async with shown(sick(), (80, 24)) as screen:
        await screen.press("H")
        assert "2 of 4 GPUs need attention." in screen.text
        assert "GPU 0" not in screen.text
        assert screen.line_with("GPU 1").strip() == "GPU 1  H200  00000000:02:00.0"
        assert "! error: XID 79, 12s ago: the GPU has fallen off the bus" in screen.text
        assert "nvidia-smi --gpu-reset -i 2" in screen.text
        await screen.press("end")
        assert "! warning: XID 31, 12s ago" in screen.text
        assert "compute-sanitizer" in screen.text
        assert all(len(line) <= 80 and "…" not in line for line in screen.lines)
        await screen.press("escape")
        assert "Processes" in screen.text


@pytest.mark.parametrize("size", [(200, 50), (80, 24), (40, 12)])
async def test_enter_leads_to_the_gpu_of_a_finding_and_back(size: tuple[int, int]) -> None:
    async with shown(sick(), size) as screen:
        await screen.press("H")
        assert "Enter" in screen.lines[-1]
        assert screen.line_with("▸").startswith("▸ ! error: XID 79")
        await screen.press("j", "j", "j", "down")
        assert "NVLinks is down" in screen.line_with("▸")
        await screen.press("enter")
        assert screen.lines[1].strip() == "GPU 2  H200"
        await screen.press("escape")
        assert "NVLinks is down" in screen.line_with("▸")
        await screen.press("end")
        assert "XID 31" in screen.line_with("▸")
        await screen.press("enter", "f")
        assert screen.app.screen is screen.main
        assert screen.pids == [101]


async def test_the_cursor_stays_on_its_finding() -> None:
    async with shown(sick()) as screen:
        await screen.press("H", "j", "j")
        assert "could not be replaced" in screen.line_with("▸")
        await screen.show(frame_of(
            gpu_of(0, ecc_uncorrected=3), *sick().gpus[1:], time=NOON + 1))  # fmt: skip
        assert "could not be replaced" in screen.line_with("▸")
        await screen.show(frame_of(gpu_of(0, ecc_uncorrected=3), time=NOON + 2))
        assert "▸" not in screen.text
        await screen.press("enter")
        assert screen.lines[1].strip() == "Health"
        await screen.press("k", "enter")
        assert screen.lines[1].strip() == "GPU 0  H200"


async def test_enter_leads_to_the_process_of_a_finding() -> None:
    wrong = CudaContext(Environ({"CUDA_VISIBLE_DIVICES": "1"}))
    async with shown(frame_of(process_of(401), process_of(402, cuda_context=wrong))) as screen:
        await screen.press("H", "enter")
        assert screen.lines[1].strip() == "Process 402  alice"
        await screen.press("q")
        assert "PID 402 of alice" in screen.line_with("▸")


async def test_a_click_selects_a_finding_and_a_double_click_opens_it() -> None:
    async with shown(sick(), (80, 24)) as screen:
        await screen.press("H")
        at = screen.lines.index(screen.line_with("gpu-reset -i 2").ljust(80))
        await screen.click(10, at)
        assert "could not be replaced" not in screen.line_with("▸")
        assert "faulty rows" in screen.line_with("▸")
        await screen.click(10, at, times=2)
        assert screen.lines[1].strip() == "GPU 2  H200"


async def test_a_page_down_and_the_wheel_leave_out_no_line() -> None:
    gpus = [gpu_of(index, error="GPU is lost", health=xids(79)) for index in range(16)]
    async with shown(frame_of(*gpus), (80, 23)) as screen:
        await screen.press("H")
        page = screen.app.screen.query_one(Page)
        first = page.marked
        await screen.press("pagedown")
        assert page.top == page.visible_lines - 1
        assert "▸" in screen.text
        await screen.wheel(10, 10, 1)
        assert page.top == page.visible_lines - 1 + NOTCH
        await screen.press("pageup", "pageup", "pageup")
        assert (page.top, page.marked) == (0, first)


async def test_a_title_that_stays_in_sight_hides_nothing_to_click_at() -> None:
    gpus = [gpu_of(index, error="GPU is lost", health=xids(79)) for index in range(16)]
    async with shown(frame_of(*gpus), (80, 23)) as screen:
        await screen.press("H", "pagedown")
        page = screen.app.screen.query_one(Page)
        marked = page.marked
        await screen.click(10, page.region.y)
        assert (page.marked, page.top > 0) == (marked, True)
        await screen.click(10, page.region.y, times=2)
        assert screen.app.screen.query_one(Page) is page


async def test_the_list_follows_the_frames() -> None:
    async with shown(frame_of(gpu_of(0, health=xids()))) as screen:
        await screen.press("H")
        assert "All is well: nothing was found on 1 GPU." in screen.text
        await screen.show(frame_of(gpu_of(0, health=xids(95))))
        assert "1 of 1 GPU needs attention." in screen.text
        assert "XID 95" in screen.text
        await screen.show(frame_of(gpu_of(0, compute_mode="prohibited", health=xids())))
        assert "Nothing is broken" in screen.text
        assert "no program may use the GPU" in screen.text
        await screen.press("H")
        assert "Processes" in screen.text


async def test_the_key_is_in_the_help_and_in_the_palette() -> None:
    async with shown(sick()) as screen:
        commands: list[SystemCommand] = list(screen.app.get_system_commands(screen.app.screen))
        [command] = [command for command in commands if command.title.startswith("health ")]
        command.callback()
        await screen.pilot.pause()
        await screen.pilot.pause()
        assert "GPUs need attention" in screen.text
        await screen.press("escape", "question_mark")
        assert "What needs attention" in screen.text
