"""The app around the panes: keys that reach the source, help, palette, themes, trouble, sizes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from rich.color import Color
from rich.segment import Segment
from textual.binding import Binding
from textual.screen import Screen
from textual.widgets import Input

from gputop.model.machine.frame import Frame, Host, PciCard
from gputop.model.metrics.gpu import GPU
from gputop.protocol.messages import Refresh, SetInterval
from gputop.settings import THEMES, Session
from gputop.tui.app import GputopApp
from gputop.tui.glyphs import ASCII
from gputop.tui.main import MainScreen
from gputop.tui.messages import Arrived
from gputop.tui.pages.problem import ProblemScreen
from gputop.tui.panes.lines import Lines
from gputop.tui.themes import ROLES
from tests.builders_tui import NOON, Screenful, frame_of, gpu_of, process_of, shown, silent_gpu
from tests.conftest import rest_long
from tests.tui.test_mapping_screen import mig_gpu

HOSTILE = "[/] [bold]x[/bold] [@click=app.quit]y[/] $primary \\"
BINDINGS = [
    binding
    for owner in (GputopApp, MainScreen, ProblemScreen)
    for binding in owner.BINDINGS
    if isinstance(binding, Binding)
]
KINDS = (
    "library_not_found", "driver_not_loaded", "version_mismatch", "no_permission", "no_gpu",
    "not_answering", "error",
)  # fmt: skip


# --- keys that reach the source ----------------------------------------------------------------


async def test_the_interval_goes_to_the_source_and_to_the_heading() -> None:
    async with shown(frame_of()) as screen:
        shown_, asked = [], []
        for key in (*["plus"] * 7, *["minus"] * 10):
            await screen.press(key)
            asked.append(screen.source.requests.pop())
            shown_.append(screen.lines[0].split()[-1])
        up, down = [2, 5, 10, 30, 60, 60, 60], [30, 10, 5, 2, 1, 0.5, 0.2, 0.1, 0.1, 0.1]
        assert asked == [SetInterval(seconds) for seconds in (*up, *down)]
        assert shown_ == [f"{seconds:g}s" for seconds in (*up, *down)]


@rest_long(
    ("settings", "told"),
    (Session(me="root"), True), (Session(me="alice"), False), (Session(), False),
     (Session(me="root", readonly=True), False),
)  # fmt: skip
async def test_root_is_told_that_he_is_root(settings: Session, told: bool) -> None:
    for size in ((120, 40), (40, 12)):
        async with shown(frame_of(gpu_of(0)), settings=settings, size=size) as screen:
            assert ("node as root" in screen.lines[0]) is told


async def test_a_pause_holds_what_is_shown() -> None:
    async with shown(frame_of(process_of(100))) as screen:
        await screen.press("p")
        assert "PAUSED" in screen.lines[0]
        await screen.show(frame_of(process_of(200)))
        assert screen.pids == [100]
        await screen.press("p")
        assert "PAUSED" not in screen.lines[0]
        assert screen.pids == [200]  # what came meanwhile
        await screen.show(frame_of(process_of(300)))
        assert screen.pids == [300]
        assert screen.source.requests == []  # the agent goes on all the time


async def test_a_pause_leaves_no_hole_in_the_past() -> None:
    """It holds the picture, its graphs included, and not what is recorded."""
    async with shown(seen_at(0, 0.1), size=(80, 24)) as screen:
        await screen.press("G")
        await screen.show(seen_at(1, 0.2), seen_at(2, 0.3))
        await screen.press("p")
        held = screen.lines[:-1]
        await screen.show(*(seen_at(second, 0.9) for second in range(3, 40)))
        await screen.press("s", "s")  # drawn anew, of the same past
        assert screen.lines[:-1] == held
        await screen.press("p")
        history = screen.machine.snapshot.history  # type: ignore[union-attr]
        assert list(history.times) == [NOON + second for second in range(40)]
        past = history.values(gpu_of(0).key, "utilization")
        assert [round(value, 1) for value in past] == [0.1, 0.2, 0.3, *[0.9] * 37]
        assert "peak 90%" in screen.text


async def test_it_is_said_how_old_the_picture_is() -> None:
    async with shown(seen_at(0, 0.1), size=(40, 12)) as screen:
        await screen.press("p")
        assert "PAUSED  node" in screen.lines[0]
        await screen.show(seen_at(2.5, 0.1))
        assert "PAUSED, 2s old  node" in screen.lines[0]
        assert not re.search(r"node\d", screen.lines[0])
        await screen.show(seen_at(187, 0.1))
        assert "PAUSED, 3m07s old " in screen.lines[0]
        await screen.press("M")
        assert "PAUSED, 3m07s old " in screen.lines[0]
        await screen.press("escape", "H")
        assert "PAUSED, 3m07s old " in screen.lines[-1]
        await screen.show(seen_at(100, 0.1))  # the machine's clock was put back
        assert "PAUSED, 1m40s old " in screen.lines[-1]
        await screen.press("r")
        await screen.show(seen_at(188, 0.1))
        assert "PAUSED  " in screen.lines[-1]


def seen_at(second: float, load: float) -> Frame:
    return frame_of(gpu_of(0, utilization=load), time=NOON + second, interval=1.0)


@pytest.mark.parametrize("page", [("G",), ("H",), ("down", "enter")])
async def test_every_page_says_that_it_is_paused(page: tuple[str, ...]) -> None:
    async with shown(frame_of(process_of(100))) as screen:
        await screen.press("p", *page)
        assert "PAUSED" in screen.lines[-1]
        await screen.press("p")
        assert "PAUSED" not in screen.text
        await screen.press("p")
        assert "PAUSED" in screen.lines[-1]
        await screen.press("escape")
        assert screen.text.count("PAUSED") == 1
        assert "PAUSED" in screen.lines[0]


async def test_one_look_in_spite_of_the_pause() -> None:
    async with shown(frame_of(process_of(100))) as screen:
        await screen.press("p", "r")
        assert screen.source.requests == [Refresh()]
        await screen.show(frame_of(process_of(200)), frame_of(process_of(300)))
        assert screen.pids == [200]
        assert "PAUSED" in screen.lines[0]


async def test_keys_work_while_paused() -> None:
    async with shown(frame_of(process_of(100), process_of(200, user="bob"))) as screen:
        await screen.press("p", "j", "slash", "b", "o", "b", "enter", "m", "1")
        assert screen.pids == [200]
        assert screen.mapping_state.mapping.value == "1"


async def test_another_size_while_paused() -> None:
    async with shown(frame_of(process_of(100)), size=(200, 50)) as screen:
        await screen.press("p")
        for size in ((80, 24), (40, 10), (200, 50)):
            await screen.resize(*size)
            assert screen.lines[0].rstrip().endswith("1s")
            assert " alice " in screen.gpu_line(0)
            (line,) = screen.process_lines
            assert len(line) <= size[0]
            assert line.endswith("train.py --seed 100")


@pytest.mark.parametrize("key", ["q", "f10", "ctrl+c"])
async def test_quit_closes_the_source(key: str) -> None:
    async with shown(frame_of()) as screen:
        await screen.press(key)
        assert screen.source.closed
        assert not screen.app.is_running or screen.app._exit


async def test_ctrl_c_quits_from_an_editor_and_q_is_typed() -> None:
    async with shown(frame_of()) as screen:
        await screen.press("slash", "q")
        assert not screen.source.closed
        assert screen.table.listing.filter == "q"
        await screen.press("ctrl+c")
        assert screen.source.closed


# --- help and palette --------------------------------------------------------------------------


async def test_every_binding_has_an_id_of_its_own() -> None:
    ids = [binding.id for binding in BINDINGS]
    assert None not in ids
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("size", [(80, 24), (40, 10)])
async def test_help_scrolls(size: tuple[int, int]) -> None:
    async with shown(frame_of(), size=size) as screen:
        await screen.press("question_mark")
        before = screen.text
        await screen.press("j", "j")
        assert screen.text != before
        await screen.press("k", "k")
        assert screen.text == before
        await screen.press("end")
        assert [metric.label for metric in GPU.values()][-1] in screen.text


async def test_the_manual_follows_the_keys() -> None:
    async with shown(frame_of(), size=(100, 40)) as screen:
        await screen.press("question_mark", "right")
        assert screen.text.startswith(" gputop help start")
        await screen.press("left")
        assert "below them every word of the screen" in screen.text
        await screen.press("slash")
        await screen.type("nqh?pidfd")  # keys of the page are letters here
        await screen.press("escape")
        assert "below them every word of the screen" in screen.text
        await screen.press("slash")
        await screen.type("pidfd_open")
        await screen.press("enter")
        assert "pidfd_open" in screen.line_with("▸")
        await screen.press(*["escape"] * 9)
        assert isinstance(screen.app.screen, MainScreen)


async def test_a_page_of_the_manual_leads_to_others() -> None:
    async with shown(frame_of(), size=(100, 40)) as screen:
        await screen.press("question_mark", "c")
        lines = screen.text.splitlines()
        [line] = [n for n, text in enumerate(lines) if text.startswith("   filter ")]
        await screen.click(5, line)
        assert screen.text.startswith(" gputop help filter")
        await screen.click(5, 2)  # names no page
        assert screen.text.startswith(" gputop help filter")
        await screen.press("c", "j", "j", "j", "enter")
        assert screen.text.startswith(" gputop help keys")
        await screen.press("c", "j", "j", "enter")
        line = next(n for n, text in enumerate(screen.lines) if "(gputop help " in text)
        topic = screen.lines[line].partition("(gputop help ")[2].partition(")")[0]
        await screen.click(5, line)
        assert screen.text.startswith(f" gputop help {topic}")


@rest_long(
    ("words", "holds"),
    ("pause", lambda screen: "PAUSED" in screen.text),
    ("invert", lambda screen: screen.table.listing.descending),
    ("theme: light", lambda screen: screen.app.theme == "light"),
    ("sort", lambda screen: "Sort by" in screen.text),
    ("unset", lambda screen: screen.mapping_state.mapping.value is None),
)
async def test_the_palette_runs_an_action(words: str, holds: Callable[[Screenful], bool]) -> None:
    async with shown(frame_of()) as screen:
        await screen.press("ctrl+p")
        await screen.type(words)
        await screen.app.workers.wait_for_complete()
        await screen.press("enter")
        assert holds(screen), screen.text


async def test_the_palette_knows_every_action() -> None:
    async with shown(frame_of()) as screen:
        screens: list[Screen[Any]] = [screen.main, ProblemScreen()]
        for on in screens:
            titles = [command.title for command in screen.app.get_system_commands(on)]
            assert len(titles) == len(set(titles))
            for binding in (*GputopApp.BINDINGS, *on.BINDINGS):
                assert isinstance(binding, Binding)
                usable = screen.app.check_action(binding.action.removeprefix("app."), ())
                if usable and not (binding.id or "").startswith("pid."):
                    assert any(binding.description.lower() in title for title in titles)


@pytest.mark.parametrize("keys", ["", "question_mark", "M", "lost"])
async def test_the_palette_runs_actions_where_their_keys_do(
    keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Textual's app has actions of its own with the names of some."""
    ran: list[tuple[str, object]] = []

    async def run_action(action: str, owner: object) -> None:
        ran.append((action, owner))

    async with shown(frame_of(process_of(100))) as screen:
        if keys == "lost":
            await screen.end("the agent ended")
        else:
            await screen.press(*keys.split())
        on = screen.app.screen
        own = {binding.action for binding in on.BINDINGS if isinstance(binding, Binding)}
        with monkeypatch.context() as patch:
            patch.setattr(screen.app, "run_action", run_action)
            for command in screen.app.get_system_commands(on):
                if not command.title.startswith("theme:"):
                    command.callback()
            await screen.drawn()
        assert {action for action, _ in ran} & own
        for action, owner in ran:
            is_own = action in own and not action.startswith("app.")
            assert owner is (on if is_own else screen.app), action


async def test_the_palette_reconnects_a_lost_agent() -> None:
    async with shown(frame_of()) as screen:
        await screen.end("the agent ended")
        await screen.press("ctrl+p")
        await screen.type("try again")
        await screen.app.workers.wait_for_complete()
        await screen.press("enter")
        assert screen.source.reconnects == 1


@rest_long("words", "kill", "signal", "terminate")
async def test_the_palette_finds_how_to_kill(words: str) -> None:
    async with shown(frame_of(process_of(100))) as screen:
        await screen.press("j", "ctrl+p")
        await screen.type(words)
        await screen.app.workers.wait_for_complete()
        assert "F9 K" in screen.line_with("kill, terminate")
        await screen.press("enter")
        while len(screen.app.screen_stack) < 2 or "SIGTERM" not in screen.text:
            await screen.pilot.pause()
        assert "SIGTERM to 1 process" in screen.text


# --- themes ------------------------------------------------------------------------------------


@rest_long("theme", *THEMES[1:])
async def test_every_role_can_be_seen(theme: str) -> None:
    async with shown(frame_of(), theme=theme) as screen:
        background = screen.table.rich_style.bgcolor
        for role in (*ROLES, "text"):
            style = screen.table.role_style(role)
            assert style.color is not None
            if style.color.is_default:  # the terminal's own, which its owner can read
                continue
            assert style.color != background, role
            if not theme.startswith("ansi"):
                assert background is not None
                least = 1.2 if role == "track" else 3
                assert _contrast(style.color, background) > least, role
        assert screen.table.role_style("cursor").reverse


def _contrast(colour: Color, other: Color) -> float:
    """As WCAG 2 counts it."""

    def luminance(colour: Color) -> float:
        parts = [part / 255 for part in colour.get_truecolor()]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    high, low = sorted((luminance(colour), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


async def test_switching_the_theme_repaints_all() -> None:
    frame = frame_of(gpu_of(0), process_of(100))
    async with shown(frame, theme="dark", interval=60) as screen:
        await screen.press("p", "j")
        for _ in THEMES[1:]:
            await screen.press("T")
            assert f" theme: {screen.app.theme} ─" in screen.text
            screen.hand.wait()  # until the note is gone
            await screen.drawn()
            switched = screen.segments
            async with shown(frame, theme=screen.app.theme, interval=60) as fresh:
                await fresh.press("p", "j")
                assert _looks(switched) == _looks(fresh.segments), screen.app.theme
        assert screen.app.theme == "dark"


def _looks(lines: list[list[Segment]]) -> list[list[tuple[str, object]]]:
    """Text and colours; neighbours of one look are one."""
    found: list[list[tuple[str, object]]] = []
    for line in lines:
        found.append([])
        for text, style, _ in line:
            look = style and (style.color, style.bgcolor, style.bold, style.dim, style.reverse)
            if found[-1] and found[-1][-1][1] == look:
                found[-1][-1] = (found[-1][-1][0] + text, look)
            else:
                found[-1].append((text, look))
    return found


# --- trouble -----------------------------------------------------------------------------------


@rest_long("kind", *KINDS)
async def test_a_problem_is_told_with_what_to_do(kind: str) -> None:
    card = PciCard(bus_id="0000:17:00.0", device_id="2335")
    async with shown() as screen:
        await screen.show_problem(kind, cards=(card,))
        assert f"Trouble {kind}." in screen.text
        assert "Do this." in screen.text
        assert "0000:17:00.0 (10de:2335, no driver)" in screen.text
        assert "r try again" in screen.text
        assert "tries again" in screen.text
        await screen.show(frame_of(process_of(100)))
        assert screen.pids == [100]
        assert "Trouble" not in screen.text


async def test_a_problem_has_the_keys_of_the_settings() -> None:
    own = {"problem.retry": "x", "app.help": "y", "app.quit": "z"}
    async with shown(settings=Session(keys=own)) as screen:
        await screen.show_problem("no_driver")
        assert screen.lines[-1].split("  ")[:2] == [" x try again", "d demo"]
        assert screen.lines[-1].rstrip().endswith("  y help  z quit")


async def test_a_problem_comes_and_goes_under_whatever_is_open() -> None:
    async with shown(frame_of(process_of(100))) as screen:
        for keys in (("s",), ("question_mark",), ("ctrl+p",), ("slash", "a"), ("m", "1")):
            await screen.press(*keys)
            await screen.show_problem("driver_not_loaded")
            assert "Trouble" in screen.text, keys
            await screen.show(frame_of(process_of(100)))
            assert "train.py" in screen.text, keys
            await screen.press("escape", "escape", "escape")


async def test_help_stays_open_over_a_problem() -> None:
    async with shown() as screen:
        await screen.show_problem("no_gpu")
        await screen.press("question_mark")
        await screen.show_problem("no_gpu")
        assert "Keys" in screen.text
        await screen.show(frame_of(process_of(100)))
        await screen.press("escape")
        await screen.show(frame_of(process_of(100)))
        assert screen.pids == [100]


async def test_r_reconnects_the_source_whatever_it_is() -> None:
    async with shown(frame_of(process_of(100))) as screen:
        await screen.end("the agent ended")
        assert "The agent ended" in screen.text
        before = screen.machine.feed
        await screen.press("r")
        assert screen.source.reconnects == 1
        assert not screen.source.closed
        screen.app.post_message(Arrived(before, frame_of(process_of(200))))
        await screen.drawn()
        assert "The agent ended" in screen.text  # that frame comes too late
        await screen.show(frame_of(process_of(300)))
        assert screen.pids == [300]


async def test_the_demo_is_a_key_away_from_trouble() -> None:
    async with shown() as screen:
        await screen.show_problem("library_not_found")
        await screen.press("d")
        while "DEMO" not in screen.text:
            await screen.pilot.pause(0.01)
        assert screen.source.closed
        assert "train.py" in screen.text
        await screen.press("q")


async def test_the_demo_answers_what_is_asked_of_it() -> None:
    async with shown(size=(120, 120)) as screen:
        await screen.show_problem("library_not_found")
        await screen.press("d")
        while "DEMO" not in screen.text:
            await screen.pilot.pause(0.01)
        await screen.press("enter")
        for _ in range(100):
            if "being read" not in screen.text:
                break
            await screen.pilot.pause(0.01)
        assert "Open devices" in screen.text
        assert "being read" not in screen.text
        await screen.press("q", "q")  # the demo goes on, also while the screens are taken down


async def test_an_agent_that_ended_is_told() -> None:
    async with shown(frame_of(process_of(100))) as screen:
        await screen.end("the agent ended with status -9: killed [/] \\")
        assert "The agent ended with status -9: killed [/] \\" in screen.text
        assert "Press r to start it again" in screen.text
        assert "tries again" not in screen.text


# --- sizes -------------------------------------------------------------------------------------


def crowd() -> Frame:
    gpus = [gpu_of(index) for index in range(8)]
    gpus[3], gpus[4] = silent_gpu(3, stale_for=9.0), gpu_of(4, error="GPU is lost")
    gpus[5] = mig_gpu(5, 2)
    processes = [process_of(100 + n, gpu=n % 8, user=f"user{n % 7}") for n in range(60)]
    return frame_of(*gpus, *processes)


VIEWS = {
    "main": (),
    "GPUs": ("shift+tab"),
    "filter": ("slash", "a"),
    "mapping": ("m", "0", "comma", "9"),
    "mapping's page": ("m", "0", "comma", "9", "enter", "M"),
    "graphs": ("G", "s"),
    "sort": ("s",),
    "help": ("question_mark",),
    "palette": ("ctrl+p",),
}
"""What can be on the screen, and the keys that lead there."""


@rest_long("view", *VIEWS)
async def test_no_size_is_refused(view: str) -> None:
    async with shown(crowd(), size=(40, 10)) as screen:
        await screen.press(*VIEWS[view])
        for size in ((1, 1), (10, 3), (80, 2), (60, 13), (300, 100)):
            await screen.resize(*size)
            if view != "palette":  # which is Textual's own
                assert [len(line) for line in screen.lines] == [size[0]] * size[1]
            await screen.press("left", "down", "up")
        await screen.resize(80, 24)
        await screen.press("escape", "escape")
        assert "gputop" in screen.lines[0]


async def test_forty_columns_say_something() -> None:
    async with shown(crowd(), size=(40, 10)) as screen:
        assert "0.5/140G" in screen.text
        assert "train.py" in screen.text
        assert "? help" in screen.text


# --- text of others ----------------------------------------------------------------------------


async def test_no_text_is_taken_for_markup() -> None:
    gpu = gpu_of(0, name=HOSTILE)
    frame = frame_of(
        gpu,
        silent_gpu(1, error=HOSTILE),
        process_of(100, user=HOSTILE, command=HOSTILE),
        host=Host(name=HOSTILE),
        driver_version="[/]",
    )
    async with shown(frame, size=(200, 50)) as screen:
        assert screen.text.count("[/] [bold]x") >= 4
        assert screen.process_lines[0].endswith(HOSTILE)
        await screen.press("slash")
        for character in "[/]":
            assert isinstance(screen.app.focused, Input)
            screen.app.focused.insert_text_at_cursor(character)
        await screen.pilot.pause()
        assert "filter: [/]" in screen.text
        await screen.press("enter", "m")
        assert isinstance(screen.app.focused, Input)
        screen.app.focused.insert_text_at_cursor(HOSTILE)
        await screen.pilot.pause()
        assert HOSTILE in screen.line_with("Mapping")
        assert "[bold]" not in screen.line_with("not understood: it does not name")
        await screen.press("ctrl+u")
        screen.app.focused.insert_text_at_cursor("x[/][bold]x[/bold]")
        await screen.pilot.pause()
        assert "x[/][bold]x[/bold]" in screen.line_with("error: ")
        await screen.show_problem("error", cards=(PciCard(bus_id=HOSTILE, device_id="[/]"),))
        assert HOSTILE in screen.text


# --- ASCII -------------------------------------------------------------------------------------


@pytest.fixture
def ascii_glyphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lines, "glyphs", ASCII)


@pytest.mark.usefixtures("ascii_glyphs")
async def test_every_screen_in_ascii() -> None:
    named = frame_of(gpu_of(0), process_of(100, user="zoë", command="訓練.py"), host=Host(name="é"))
    async with shown(named, size=(80, 24)) as screen:
        assert "????.py" in screen.text
        for keys in (
            (),
            ("j",),
            ("m", "9"),
            ("escape", "slash", "x"),
            ("escape", "s"),
            ("escape", "question_mark"),
        ):
            await screen.press(*keys)
            odd = {c for line in screen.lines for c in line if not c.isascii()}
            assert odd == set(), keys
        await screen.press("escape")
        await screen.show_problem("no_gpu")
        assert screen.text.isascii()
