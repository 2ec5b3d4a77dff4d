"""Stepping back in the live view: what is shown then, and what is not done."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from msgspec.structs import replace

from gputop.model.machine.detail import ProcessDetail
from gputop.model.machine.frame import Frame
from gputop.protocol.assemble import Assembler
from gputop.protocol.codec import encode_line
from gputop.protocol.messages import Detail, Probe, Signal, Stack
from gputop.protocol.recent import RecentFrames
from gputop.protocol.split import Splitter
from gputop.sources.source import Past
from gputop.tui.dialogs.signal import SignalScreen
from gputop.tui.panes.history import HistoryPane
from tests.builders import id_of
from tests.builders_tui import NOON, Screenful, Silence, frame_of, gpu_of, process_of, shown
from tests.protocol.streams import HELLO

ENDED, STAYS, LATE = 101, 202, 303


class Remembering(Silence):
    """A source that sends nothing by itself, and remembers what a test has sent."""

    def __init__(self) -> None:
        super().__init__()
        self._assembler, self._splitter, self._count = Assembler(), Splitter(), 1
        self._recent: RecentFrames | None = None
        self._assembler.read(encode_line(0, HELLO))

    @property
    def past(self) -> Past | None:
        """As a LocalSource has it."""
        return self._recent

    def remember(self, wanted: bool) -> None:
        """As a LocalSource does."""
        self._recent = RecentFrames() if wanted else None

    def tell(self, frame: Frame) -> Frame:
        """A frame as it comes from an agent."""
        for message in self._splitter.split(frame):
            told = self._assembler.read(line := encode_line(self._count, message))
            if self._recent is not None:
                self._recent.add(line, told, self._assembler)
            self._count += 1
        assert isinstance(told, Frame)
        return told


def second(number: int) -> Frame:
    """The GPU's load is the second. A process ends after 100, another one begins with 110."""
    pids = [ENDED] * (number < 100) + [STAYS] + [LATE] * (number >= 110)
    return frame_of(
        gpu_of(0, utilization=number / 200),
        gpu_of(1),
        *(process_of(pid, start_time=NOON + (110 if pid == LATE else -60)) for pid in pids),
        time=NOON + number,
        interval=1.0,
    )


@asynccontextmanager
async def two_minutes(size: tuple[int, int] = (120, 40)) -> AsyncIterator[Screenful]:
    """A machine that has been watched for two minutes."""
    source = Remembering()
    async with shown(size=size, source=source) as screen:
        machine = screen.machine
        for number in range(119):
            machine.handle_frame(source.tell(second(number)))
        await screen.show(source.tell(second(119)))
        yield screen


async def tick(screen: Screenful, number: int) -> None:
    assert isinstance(screen.source, Remembering)
    await screen.show(screen.source.tell(second(number)))


def load(screen: Screenful) -> str:
    return screen.gpu_cell(0, "UTIL").split()[-1]


@contextmanager
def nothing_asked(screen: Screenful) -> Iterator[None]:
    """Nothing that the past has no answer to is asked of the agent of now."""
    before = len(screen.source.requests)
    yield
    asked = screen.source.requests[before:]
    assert [r for r in asked if isinstance(r, Detail | Probe | Signal | Stack)] == []


async def test_back_on_and_to_now() -> None:
    async with two_minutes(size=(80, 24)) as screen:
        assert load(screen) == "60%"  # 119 of 200
        await screen.press(",")
        assert (load(screen), "PAST -1s" in screen.lines[0]) == ("59%", True)
        assert "12:00" not in screen.lines[0]
        await screen.press("<")
        assert (load(screen), "PAST -1m01s" in screen.lines[0]) == ("29%", True)
        assert str(ENDED) in screen.text
        await tick(screen, 120)
        assert (load(screen), "PAST -1m02s" in screen.lines[0]) == ("29%", True)
        words = " , . step  < > minute  Esc now  Enter open  / filter  u users  ? help  q quit"
        assert screen.lines[-1].rstrip() == words
        await screen.press(".", ".")
        assert (load(screen), "PAST -1m00s" in screen.lines[0]) == ("30%", True)
        await screen.press("<", "<")
        assert "history begins at" in screen.lines[-1]
        assert load(screen) == "0%"
        await screen.press(">", ">", ">")
        assert (load(screen), "PAST" in screen.text) == ("60%", False)
        await screen.press(".")
        assert "this is now" in screen.lines[-1]


async def test_pages_show_the_keys_that_work_in_the_past() -> None:
    async with two_minutes() as screen:
        await screen.press("end", "enter")
        assert " Esc back  e values  t stack  F9 signal  " in screen.lines[-1]
        await screen.press(",")
        moves = ", . step  < > minute"
        assert f"PAST -1s  {moves}  Esc back  j k PgDn scroll" in screen.lines[-1]
        await screen.press("question_mark")
        assert not re.search("Python stack|another signal", screen.text)
        await screen.press("escape", "escape", "tab", "down", "enter")
        assert f"{moves}  Esc back  G graphs" in screen.lines[-1]
        await screen.press("p")
        assert screen.lines[-1].startswith(" Esc back  G graphs")
        await screen.press("p")
        assert f"PAUSED  {moves}  p resume  Esc back" in screen.lines[-1]
        await screen.press("escape")
        assert screen.lines[-1].startswith(f" {moves}  p resume  Enter open  ")
        assert "p pause" not in screen.lines[-1]
        await screen.press("p")
        assert "p pause" in screen.lines[-1]


async def test_keys_that_move_work_in_the_past_and_two_return() -> None:
    async with two_minutes() as screen:
        await screen.press("<", "end", "up", "tab", "tab", "home", "enter", "q", *str(ENDED))
        assert "PAST -1m" in screen.lines[0]
        assert screen.selected == ENDED
        await screen.press("escape")
        assert "PAST" not in screen.lines[0]
        for key in ("escape", "p"):
            await screen.press(",")
            assert "PAST" in screen.lines[0]
            await screen.press(key)
            assert ("PAST" in screen.lines[0], load(screen)) == (False, "60%"), key
        await screen.press("p", ",")
        assert "PAST -1s" in screen.lines[0]
        assert "PAUSED" not in screen.lines[0]


async def test_pages_show_the_past_and_ask_nothing_of_now() -> None:
    async with two_minutes() as screen:
        await screen.press("end")
        assert screen.selected == LATE
        await screen.press("home", "<")
        with nothing_asked(screen):
            await screen.press("enter")
            assert "not kept for the past" in await screen.whole_page()
            assert "PAST" in screen.lines[-1]
            await screen.press("t", ",", "f9")
            assert isinstance(screen.app.screen, SignalScreen)
            assert "this is the past" in screen.text
            await screen.press(",", "enter")
            await screen.press("escape", "v")
            assert "the driver can only be asked about now" in screen.text
        await screen.press("escape", "enter")
        assert any(isinstance(request, Detail) for request in screen.source.requests)


async def test_a_page_that_is_open_goes_back_with_it() -> None:
    async with two_minutes() as screen:
        await screen.press("end", "enter", "<")
        assert "not started yet at this time" in screen.text
        await screen.press(">")
        assert "not started yet at this time" not in screen.text
        await screen.press("escape", "G", "<")
        assert "GPU 0      29% of 100%" in screen.text


async def test_details_of_now_are_not_shown_as_those_of_then() -> None:
    async with two_minutes() as screen:
        await screen.press("home", "enter")
        detail = ProcessDetail(id_of(STAYS, NOON - 60), files=61, devices=())
        await screen.show(detail=detail)
        assert "61 open files" in await screen.whole_page()
        await screen.press(",")
        page = await screen.whole_page()
        assert ("61 open files" in page, "not kept for the past" in page) == (False, True)
        await screen.show(detail=detail)
        assert "61 open files" not in await screen.whole_page()


async def test_processes_that_start_later_have_not_ended() -> None:
    async with two_minutes() as screen:
        await screen.press("<")
        assert "ended" not in "\n".join(screen.process_lines)


async def test_f9_in_the_past_signals_nobody() -> None:
    async with two_minutes() as screen:
        await screen.press("down", ",", "W")
        assert "only live processes and GPUs can be marked" in screen.text
        assert not screen.machine.marks.has_process(STAYS)
        with nothing_asked(screen):
            await screen.press("f9")
            assert "this is the past: return to now first" in screen.text
            await screen.press("enter")
        await screen.press("escape", "f9")
        assert any(isinstance(request, Signal) for request in screen.source.requests)


async def test_the_graphs_end_where_the_past_is() -> None:
    async with two_minutes(size=(200, 50)) as screen:
        whole = screen.main.query_one(HistoryPane)
        before = [str(line) for line in whole._lines]
        await screen.press("<")
        assert [str(line) for line in whole._lines] != before
        assert screen.main._shown is not None
        assert screen.main._shown.history.times[-1] == NOON + 59
        await screen.press("escape")
        assert screen.main._shown.history.times[-1] == NOON + 119


async def test_nothing_to_go_back_to() -> None:
    async with shown(second(0)) as screen:
        await screen.press(",")
        assert "no history is kept of this machine" in screen.lines[-1]
    source = Remembering()
    async with shown(second(0), size=(120, 40), source=source) as screen:
        await screen.press(",")
        assert "no history yet" in screen.lines[-1]
        await screen.show(source.tell(second(0)))
        await screen.press("<")
        assert "nothing older is in memory" in screen.lines[-1]
    async with two_minutes() as screen:
        await screen.press(",")
        await screen.end("it broke")
        screen.app.action_retry()
        await tick(screen, 130)
        assert "PAST" not in screen.lines[0]


async def test_a_gap_is_said() -> None:
    async with two_minutes() as screen:
        source = screen.source
        assert isinstance(source, Remembering)
        await screen.show(source.tell(replace(second(119), time=NOON + 200)))
        await screen.press(",")
        assert "nothing was read from" in screen.lines[-1]
