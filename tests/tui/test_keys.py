"""The keys of the main screen: where they go, what they are called, and that hands know them."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest
from textual import events
from textual.binding import Binding

from gputop.model.health import activity, findings
from gputop.model.health.throttle import THROTTLE_REASONS
from gputop.model.machine.detail import EnvVariable, ProcessDetail
from gputop.model.machine.frame import Frame
from gputop.model.metrics.gpu import GPU
from gputop.model.metrics.process import COLUMNS
from gputop.protocol.messages import Detail
from gputop.settings import Session, Thresholds
from gputop.tui.app import GputopApp
from gputop.tui.main import MainScreen
from gputop.tui.messages import Note
from gputop.tui.pages.mapping_tables import LogicalTable, PhysicalTable
from gputop.tui.panes.editor import ValueInput
from gputop.tui.panes.gpu_columns import GpuColumns
from gputop.tui.panes.short_history import ShortHistory
from tests.builders import id_of
from tests.builders_tui import NOON, Screenful, frame_of, gpu_of, process_of, shown
from tests.conftest import rest_long
from tests.tui import machines

GPUS = tuple(gpu_of(index) for index in range(4))
FRAME = frame_of(*GPUS, process_of(1523), process_of(15234, gpu=1), process_of(301, gpu=2))


def bright(screen: Screenful) -> list[str]:
    """The lines that are drawn as the cursor is."""
    return [
        "".join(segment.text for segment in line).strip()
        for line in screen.segments
        if any(segment.style and segment.style.reverse for segment in line if segment.text.strip())
    ]


def titles(screen: Screenful) -> dict[str, bool]:
    """The title of each pane, and whether it is bright."""
    found = {}
    for line in screen.segments:
        for segment in line:
            for title in ("GPU NAME", "Processes"):
                if title.split()[0] in segment.text.split() and title not in found:
                    found[title] = bool(segment.style and segment.style.bold)
    return found


# --- two places for keys -----------------------------------------------------------------------


@rest_long("size", (200, 50), (120, 40), (80, 24), (40, 12))
async def test_tab_goes_between_gpus_and_processes(size: tuple[int, int]) -> None:
    async with shown(FRAME, size=size) as screen:
        stops = []
        for key in ("tab", "tab", "tab", "shift+tab", "shift+tab"):
            await screen.press(key)
            stops.append(screen.app.focused)
        gpus, processes = screen.gpus, screen.table
        assert stops == [gpus, processes, gpus, processes, gpus]


async def test_no_number_of_tabs_leads_to_an_editor() -> None:
    async with shown(FRAME) as screen:
        for count in range(1, 6):
            await screen.press(*["tab"] * count, "0", "comma", "y")
            assert screen.mapping_state.query.text is None
            await screen.press("escape", "escape")
        await screen.press("tab", "q")
        assert screen.source.closed


async def test_only_the_pane_with_the_focus_is_bright() -> None:
    async with shown(FRAME) as screen:
        await screen.press("j", "tab")
        (line,) = bright(screen)
        assert line.split()[:3] == ["▸", "0", "H200"]
        assert titles(screen) == {"GPU NAME": True, "Processes": False}
        assert screen.process_lines[0].startswith("·")
        await screen.press("tab")
        (line,) = bright(screen)
        assert line.startswith("▸ ")
        assert "train.py" in line
        assert titles(screen) == {"GPU NAME": False, "Processes": True}
        await screen.press("m")
        assert [line for line in bright(screen) if "train.py" in line or "H200 " in line] == []


async def test_a_first_key_acts_on_the_first_row() -> None:
    async with shown(FRAME) as screen:
        await screen.press("enter")
        assert screen.app.screen is not screen.main
        await screen.press("q", "escape", "space")
        assert "1 tagged" in screen.text
    async with shown(FRAME) as screen:
        await screen.press("tab")
        (line,) = bright(screen)
        assert line.split()[:3] == ["▸", "0", "H200"]
        await screen.press("enter", "q")
        assert screen.app.is_running
        assert screen.app.screen is screen.main


@pytest.mark.parametrize("key", ["space", "enter", "W"])
async def test_a_key_that_comes_as_its_process_ends_is_for_no_other(key: str) -> None:
    async with shown(FRAME) as screen:
        await screen.press("z", *"1523")  # without the rows of those that have ended
        assert screen.selected == 1523
        await screen.show(frame_of(*GPUS, process_of(15234, gpu=1), process_of(301, gpu=2)))
        before = screen.text
        await screen.press(key)
        assert screen.app.screen is screen.main
        assert (screen.text, bright(screen)) == (before, [])
        await screen.press("j", "space")
        assert "1 tagged" in screen.text


async def test_a_terminal_without_focus_changes_nothing_of_that() -> None:
    async with shown(FRAME) as screen:
        await screen.press("tab")
        before = screen.text
        screen.app.post_message(events.AppBlur())
        await screen.drawn()
        assert screen.text == before
        assert len(bright(screen)) == 1
        screen.app.post_message(events.AppFocus())
        await screen.press("m", "1")
        screen.app.post_message(events.AppBlur())
        await screen.drawn()
        screen.app.post_message(events.AppFocus())
        await screen.press("2")
        assert screen.mapping_state.query.text == "12"


async def test_an_editor_shows_its_own_keys() -> None:
    async with shown(FRAME) as screen:
        await screen.press("m")
        assert "Enter keep the value" in screen.lines[-1]
        assert "quit" not in screen.lines[-1]
        await screen.press("escape")
        assert "q quit" in screen.lines[-1]
        await screen.press("slash")
        assert "Enter keep" in screen.lines[-1]
        assert "Esc drop" in screen.lines[-1]
        await screen.press("tab", "a")
        assert screen.table.listing.filter == "a"


async def test_the_fields_of_the_mapping_page_are_opened_by_a_key() -> None:
    async with shown(FRAME, size=(160, 50)) as screen:
        await screen.press("M")
        stops = []
        for _ in range(4):
            await screen.press("tab")
            stops.append(type(screen.app.focused))
        assert {PhysicalTable, LogicalTable} <= set(stops)
        assert ValueInput not in stops
        assert "Esc back" in screen.lines[-1]
        await screen.press("m", "q", "tab", "q", "escape")
        assert screen.mapping_state.query.text == "q"
        assert screen.mapping_state.query.order == "q"
        assert screen.app.screen_stack[1:]
        await screen.press("q")
        assert not screen.app.screen_stack[1:]


# --- digits ------------------------------------------------------------------------------------


async def test_digits_search_a_pid_and_hide_nothing(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    async with shown(FRAME, settings=Session(path=path)) as screen:
        before = [line for line in screen.lines if "H200" in line]
        await screen.press(*"15234")
        assert screen.selected == 15234
        assert "─ PID 15234 ─" in screen.text
        assert [line for line in screen.lines if "H200" in line] == before
        assert "COMMAND" in screen.text
        assert "CUDA_VISIBLE_DEVICES" in screen.text
        assert not path.exists()
        await screen.press("j", *"301")
        assert screen.selected == 301


async def test_digits_go_to_the_first_pid_that_begins_so_and_stay_where_none_does() -> None:
    async with shown(FRAME, settings=Session(me="alice")) as screen:
        selected = []
        for key in ("1", "5", "2", "3", "9", "backspace", "4"):
            await screen.press(key)
            selected.append(screen.selected)
        assert selected == [1523, 1523, 1523, 1523, 1523, 1523, 15234]
        await screen.press("escape", *"301")
        await screen.press("escape", *"152")
        assert "─ PID 152… ─" in screen.text
        assert screen.selected == 1523
        await screen.press("9")
        assert "─ no PID 1529 ─" in screen.text
        assert screen.selected == 1523


async def test_escape_ends_the_search_before_all_else() -> None:
    async with shown(FRAME, settings=Session(user="alice")) as screen:
        await screen.press("9", "9", "escape")
        assert "PID 99" not in screen.text
        assert "of alice" in screen.text
        await screen.press("slash", *"gpu:1", "enter", *"301")
        assert "PID 301 is not in this view" in screen.text


async def test_a_pid_can_be_pasted() -> None:
    async with shown(FRAME) as screen:
        await screen.press("1")
        screen.app.post_message(events.Paste(" 15234\n"))
        await screen.press()
        assert screen.selected == 15234


@pytest.mark.parametrize("page", ["", "h"])
@pytest.mark.parametrize("second", ["the first", "the second"])
async def test_a_second_note_stays_as_long_as_the_first(page: str, second: str) -> None:
    async with shown(FRAME) as screen:
        await screen.press(*page)
        for seconds, note in ((3, "the first"), (4, second)):
            screen.app.post_message(Note(note))
            await screen.drawn()
            screen.app.after(seconds, lambda: None)
            screen.hand.wait()
        await screen.drawn()
        assert f" {second} " in screen.text
        screen.hand.wait()
        await screen.drawn()
        assert second not in screen.text


async def test_there_is_one_note_at_a_time() -> None:
    async with shown(FRAME) as screen:
        await screen.press("m", "1", "escape", "y")
        assert "copied" in screen.text
        screen.app.post_message(Note("another"))
        await screen.drawn()
        assert "─ another ─" in screen.text
        assert "copied" not in screen.text
        await screen.press("y")
        assert "copied" in screen.text
        assert "another" not in screen.text


# --- leaving -----------------------------------------------------------------------------------


@rest_long(
    "keys",
    ("G",),
    ("H",),
    ("M",),
    ("j", "enter"),
    ("tab", "enter"),
    ("tab", "enter", "G"),
    ("question_mark",),
    ("s",),
    ("C",),
    ("S",),
    ("j", "f9"),
)
async def test_q_leaves_what_is_open_and_quits_on_the_main_screen(keys: tuple[str, ...]) -> None:
    async with shown(FRAME, size=(160, 50)) as screen:
        await screen.press(*keys)
        opened = len(screen.app.screen_stack)
        assert opened > 1
        for left in range(opened - 1, 0, -1):
            await screen.press("q")
            assert len(screen.app.screen_stack) == left
            assert not screen.source.closed
        await screen.press("q")
        assert screen.source.closed


async def test_f10_quits_from_everywhere() -> None:
    async with shown(FRAME) as screen:
        await screen.press("G", "f10")
        assert screen.source.closed


# --- the line of keys --------------------------------------------------------------------------

FIRST = ("Enter open", "/ filter", "u users", "F9 signal", "m mapping", "H health", "G graphs",
         "? help", "q quit")  # fmt: skip


@rest_long(
    ("width", "words"),
    (200, FIRST),
    (120, FIRST),
    (80, (*FIRST[:6], *FIRST[7:])),
    (60, (*FIRST[:4], *FIRST[7:])),
    (40, (FIRST[0], FIRST[3], *FIRST[7:])),
    (20, (FIRST[3], FIRST[7])),
)
async def test_the_line_of_keys_fills_the_width(width: int, words: tuple[str, ...]) -> None:
    async with shown(FRAME, size=(width, 24)) as screen:
        line = screen.lines[-1].strip()
        assert line.startswith("  ".join(words))
        shown_words = line.split("  ")
        assert len(shown_words) > 14 if width == 200 else shown_words[: len(words)] == list(words)


async def test_read_only_has_no_signal() -> None:
    async with shown(FRAME, settings=Session(readonly=True)) as screen:
        assert "F9" not in screen.lines[-1]
        assert "u users  m mapping" in screen.lines[-1]


# --- keys of others ----------------------------------------------------------------------------


@rest_long(
    ("keys", "words"),
    (("f3",), "Esc drop"),
    (("f4",), "Esc drop"),
    (("backslash",), "Esc drop"),
    (("f6",), "Sort by"),
    (("f2",), "Panes"),
    (("Z",), "PAUSED"),
    (("h",), "Keys"),
    (("f1",), "Keys"),
    (("j", "e"), "Variables of GPUs"),
    (("j", "K"), "SIGTERM"),
    (("t",), "tree"),
)
async def test_keys_of_htop_and_nvitop(keys: tuple[str, ...], words: str) -> None:
    async with shown(FRAME) as screen:
        await screen.press(*keys)
        assert words in screen.text


async def test_the_ends_of_a_command() -> None:
    long = process_of(301, command=f"python train.py {'x' * 200} --last")
    async with shown(frame_of(*GPUS, long)) as screen:
        for there, back in (("ctrl+e", "ctrl+a"), ("dollar_sign", "circumflex_accent")):
            assert "--last" not in screen.text
            await screen.press(there)
            assert screen.process_lines[0].endswith("--last")
            await screen.press(back)
            assert "train.py" in screen.text


async def test_the_environment_is_shown_at_once() -> None:
    frame = frame_of(*GPUS, process_of(301))
    async with shown(frame, size=(80, 12)) as screen:
        await screen.press("e")
        (asked,) = screen.source.requests
        assert isinstance(asked, Detail)
        assert asked.hidden
        detail = ProcessDetail(
            process=id_of(301, NOON - 60), variables=(EnvVariable("HOME", "other", "/x"),)
        )
        await screen.show(detail=detail)
        assert screen.lines[1].strip() == "Variables of GPUs, ranks and jobs"
        assert "HOME=/x" in await screen.whole_page()


# --- before the first frame --------------------------------------------------------------------


@pytest.mark.parametrize(("key", "words"), [("H", "Health"), ("G", "UTIL")])
async def test_a_page_can_be_opened_before_the_first_frame(key: str, words: str) -> None:
    async with shown() as screen:
        await screen.press(key)
        assert len(screen.app.screen_stack) == 2
        await screen.show(FRAME)
        assert words in screen.text


# --- help --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_all_keys_are_on_one_screen_of_help(size: tuple[int, int]) -> None:
    async with shown(FRAME, size=size) as screen:
        await screen.press("question_mark")
        for binding in (*MainScreen.BINDINGS, *GputopApp.BINDINGS):
            assert isinstance(binding, Binding)
            assert binding.tooltip in screen.text
        for task in ("View", "Mapping", "Move", "Processes", "Screen"):
            assert re.search(rf"(?m)(^| ) {task}( |$)", screen.text)
        assert "…" not in screen.text


async def test_help_scrolls_as_less_does() -> None:
    async with shown(FRAME, size=(80, 24)) as screen:
        await screen.press("question_mark")
        first = screen.text
        for on, back in (("space", "b"), ("f", "b"), ("j", "k"), ("G", "g"), ("pagedown", "home")):
            await screen.press(on)
            assert screen.text != first
            await screen.press(back)
            assert screen.text == first


def codes() -> set[str]:
    """The codes of findings, as their module writes them."""
    found = {reason.code for reason in THROTTLE_REASONS.values() if reason.code}
    for call in ast.walk(ast.parse(inspect.getsource(findings))):
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Finding":
            code = call.args[1]
            if isinstance(code, ast.JoinedStr):
                code = code.values[0]
            if isinstance(code, ast.Constant):
                found.add(str(code.value).split()[0])
    return found


def heads(*frames: Frame) -> set[str]:
    """The labels of every column that the GPUs of some frames have."""
    labels: set[str] = set()
    for frame in frames:
        columns = GpuColumns(frame, ShortHistory(Thresholds()), Session())
        for column, _ in columns.fit(2000, 2):
            if column.id != "history":  # which has a sentence
                labels.update(column.label.split())
    return labels


async def test_every_word_of_the_screen_is_in_the_help() -> None:
    labels = {m.label for m in COLUMNS.values()} | {m.label for m in GPU.values()}
    states = {"free", "the last 3 minutes", "hung", "no answer", "CPU", "RAM", "idle 41m",
              "not in /proc", "stale", "unaccounted", "ended", "PAUSED",
              "exact", "likely", "uncertain", "unknown", "hidden", "verified"}  # fmt: skip
    doing = {word for word, _ in activity.WORDS}
    machines_ = heads(*machines.sick(), *machines.mig(), *machines.demo())
    async with shown(FRAME, size=(140, 120)) as screen:
        await screen.press("question_mark")
        text = await screen.whole_page()
    words = labels | states | doing | codes() | machines_
    lines = [f" {line} " for line in text.splitlines()]
    assert {word for word in words if not any(word in line[:26] for line in lines)} == set()


@rest_long("size", (120, 40), (80, 24), (40, 12))
async def test_what_is_typed_is_seen(size: tuple[int, int]) -> None:
    async with shown(FRAME, size=size) as screen:
        await screen.press("m", *"3,1,2")
        assert "3,1,2" in screen.text
        await screen.press("escape", "slash", *"train.py")
        assert "train.py" in screen.lines[-1]
