"""Graphs: what is drawn, and the screen of them."""

from __future__ import annotations

import pytest

from gputop.model.machine.frame import Frame
from gputop.model.machine.sections import Activity
from gputop.settings import THEMES
from gputop.tui.glyphs import ASCII, UNICODE
from gputop.tui.pages.graph import GraphScreen
from gputop.tui.panes.graph import Graph
from gputop.tui.panes.lines import Lines
from gputop.tui.panes.plot import Canvas, area, with_cursor
from tests.builders_tui import NOON, Screenful, frame_of, gpu_of, shown, silent_gpu
from tests.conftest import rest_long

GAP = float("-inf")


def text(canvas: Canvas) -> list[str]:
    return ["".join(piece for piece, _ in row) for row in canvas.rows()]


def test_braille_is_one_line_and_a_gap_is_left() -> None:
    canvas = Canvas(5, 2, UNICODE)
    canvas.draw([0, 1, 1, 0, GAP, GAP, 0, 0.5, GAP, 1], 1.0, "load", "0")
    assert text(canvas) == ["⢸⢱ ⢀⠈", "⡸⢸ ⡸ "]


def test_braille_that_is_filled() -> None:
    assert area([-1, 1, GAP, 0.5, 2, 0.25], 1.0, 2, UNICODE) == ["⢸⢀⡇", "⣸⢸⣷"]
    assert area([], 1.0, 2, UNICODE) == ["", ""]


def test_zero_is_drawn_and_nothing_is_not() -> None:
    for glyphs in (UNICODE, ASCII):
        width = 2 if glyphs is ASCII else 1
        zero, none = Canvas(width, 2, glyphs), Canvas(width, 2, glyphs)
        zero.draw([0.0, 0.0], 1.0, "load", "0")
        none.draw([GAP, GAP], 1.0, "load", "0")
        for lines in (text(zero), area([0.0, 0.0], 1.0, 2, glyphs)):
            assert lines[1].strip()
        for lines in (text(none), area([GAP, GAP], 1.0, 2, glyphs)):
            assert lines == [" " * width] * 2


def test_ascii_has_marks_in_a_plot_and_columns_in_a_strip() -> None:
    canvas = Canvas(4, 3, ASCII)
    canvas.draw([0, 50, 100, GAP], 100.0, "load", "7")
    canvas.draw([0, GAP, 20, 100], 100.0, "user1", "8")
    assert text(canvas) == ["  78", " 7  ", "8 8 "]
    assert canvas.rows()[2] == [("8", "user1"), (" ", "text"), ("8", "user1"), (" ", "text")]
    strip = area([0, 0.25, 0.75, 1], 1.0, 2, ASCII)
    assert strip == ["  -#", "_-##"]
    assert "".join(strip).isascii()


def test_the_later_curve_has_the_colour_and_the_cursor_is_marked() -> None:
    canvas = Canvas(3, 1, UNICODE)
    canvas.draw([0, 0, 0, 0, 0, 0], 1.0, "user0", "0")
    canvas.draw([GAP, GAP, 1, 1, GAP, GAP], 1.0, "user1", "1")
    assert canvas.rows() == [[("⣀", "user0"), ("⣉", "user1"), ("⣀", "user0")]]
    assert [role for _, role in canvas.rows(2)[0]] == ["user0", "user1", "cursor"]
    assert Canvas(3, 1, UNICODE).rows(1) == [[(" ", "text"), ("▏", "key"), (" ", "text")]]
    assert with_cursor("⣀ ⣀", "load", 1, UNICODE) == [("⣀", "load"), ("▏", "key"), ("⣀", "load")]
    assert with_cursor("⣀⣉⣀", "load", 1, UNICODE)[1] == ("⣉", "cursor")
    assert with_cursor("⣀⣉⣀", "load", 3, UNICODE) == [("⣀⣉⣀", "load")]


def at(second: float, *loads: float | None) -> Frame:
    gpus = (gpu_of(n, utilization=load, temperature=40.0 + n) for n, load in enumerate(loads))
    return frame_of(*gpus, time=NOON + second, interval=1.0)


@pytest.fixture
def ascii_glyphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lines, "glyphs", ASCII)


async def graphs(screen: Screenful) -> Graph:
    await screen.press("G")
    assert isinstance(screen.app.screen, GraphScreen)
    return screen.app.screen.query_one(Graph)


@rest_long("size", (80, 24), (200, 50))
async def test_all_gpus_in_one_plot(size: tuple[int, int]) -> None:
    """With scale, times, whose curve it is, and what each was at most."""
    async with shown(at(0, *[0.0] * 8), size=size) as screen:
        for second in range(1, 40):
            await screen.show(at(second, *[second % 8 / 10] * 7, None))
        await graphs(screen)
        await screen.press("s")
        assert screen.lines[0].startswith(" UTIL  share of the last sample with work in it")
        assert screen.lines[0].rstrip().endswith("1 min")
        assert [line.split()[0] for line in screen.lines[1:-4] if "%" in line[:10]] == [
            "100%", "50%", "0%"
        ]  # fmt: skip
        assert "GPU 6  70%  peak 70%" in screen.text
        assert "GPU 7  –  peak 0%" in screen.text
        assert screen.line_with("GPU 0-6").endswith(" GPU 0-6")


async def test_ends_of_curves_are_named_by_their_gpus() -> None:
    """Not by a row of digits that looks like the index of one."""
    async with shown(at(0, 0.1, 0.5, 0.9, 0.5, 0.5, 0.1, 0.9, 0.9), size=(200, 50)) as screen:
        await graphs(screen)
        await screen.press("s")
        ends = [line[-13:].strip() for line in screen.lines if "GPU" in line[-13:]]
        assert ends == ["GPU 2,6,7", "GPU 1,3,4", "GPU 0,5"]


async def test_eight_gpus_have_eight_colours() -> None:
    async with shown(at(0, *(n / 8 for n in range(8))), size=(200, 50)) as screen:
        graph = await graphs(screen)
        await screen.press("s")
        roles = [curve.role for curve in graph._curves]
        for theme in THEMES[1:]:
            screen.app.theme = theme
            await screen.drawn()
            styles = {graph.role_style(role) for role in roles}
            assert len({style.color for style in styles}) == 8, theme
            assert not any(style.underline for style in styles)


async def test_the_cursor_tells_the_values_of_its_time() -> None:
    async with shown(at(0, 0.0), size=(80, 24)) as screen:
        for second in range(1, 60):
            await screen.show(at(second, second / 100))
        graph = await graphs(screen)
        await screen.press("s")
        assert "GPU 0  59%  peak 59%" in screen.text
        assert " at " not in screen.lines[0]
        await screen.press("left", "left")
        there = screen.line_with("peak").split()[2]
        assert there in ("57%", "58%")  # a cell before the newest is about a second
        assert " at " in screen.lines[0]
        before = graph._cursor
        await screen.show(at(60, 0.6), at(61, 0.61))  # it stays with its time
        assert graph._cursor == before
        assert f"GPU 0  {there}  peak 61%" in screen.text
        await screen.press("right", "right", "right", "right", "right")
        assert "GPU 0  61%  peak" in screen.text
        await screen.press(*["pageup"] * 30)  # no further than the left end
        assert graph._column == 0
        await screen.press("escape")
        assert " at " not in screen.lines[0]
        assert isinstance(screen.app.screen, GraphScreen)
        await screen.press("escape")
        assert not isinstance(screen.app.screen, GraphScreen)


async def test_zoom_and_the_peak_of_what_is_in_sight() -> None:
    async with shown(at(0, 1.0), size=(80, 24)) as screen:
        for second in range(3, 130, 3):
            await screen.show(at(second, 0.1))
        await graphs(screen)
        assert "3 min" in screen.lines[0]
        assert "peak 100%" in screen.text
        await screen.press("-", "-")
        assert "1 min" in screen.lines[0]
        assert "peak 10%" in screen.text
        await screen.press("-", *"+++++", "+")
        assert "15 min" in screen.lines[0]
        assert "peak 100%" in screen.text
        assert screen.source.requests == []  # the interval is not what + and - change here


async def test_another_metric_is_one_of_which_there_are_values() -> None:
    frame = frame_of(gpu_of(0, activity=Activity(tensor=0.5)), time=NOON)
    async with shown(frame, size=(80, 24)) as screen:
        await graphs(screen)
        labels = []
        for _ in range(8):
            labels.append(screen.lines[0].split()[0])
            await screen.press("g")
        known = ["UTIL", "MEM-USED", "POWER", "TEMP", "CLOCK", "TENSOR"]
        assert labels == [*known, *known[:2]]
        await screen.press("b", "b", "b")
        assert screen.lines[0].split()[0] == "TENSOR"
        assert "GPU 0      50% of 100%" in screen.text


async def test_it_begins_with_what_the_short_history_shows() -> None:
    async with shown(at(0, 0.5), size=(80, 24)) as screen:
        await screen.press("g")
        await graphs(screen)
        assert screen.lines[0].startswith(" TEMP")
        assert "40°C" in screen.lines[1]


async def test_strips_have_a_gpu_each_and_scroll_to_the_one_in_front() -> None:
    async with shown(at(0, *[0.5] * 16), size=(80, 14)) as screen:
        await graphs(screen)
        assert [line.split()[1] for line in screen.lines[1:-2]] == [str(n) for n in range(11)]
        await screen.press("k")
        assert [line.split()[1] for line in screen.lines[1:-2]] == [str(n) for n in range(5, 16)]
        await screen.resize(80, 50)
        assert [screen.text.count(f" GPU {n} ") for n in range(16)] == [1] * 16
        assert screen.text.count("peak 50%") == 16
        assert screen.text.count("50% of 100%") == 16
        await screen.press("s")
        assert "50%  peak 50%" in screen.lines[-2]


async def test_one_gpus_graphs_offer_no_key_that_does_nothing() -> None:
    async with shown(at(0, 0.5, 0.5), size=(120, 40)) as screen:
        await screen.press("G")
        assert "g next metric" in screen.lines[-1]
        assert "s overlay" in screen.lines[-1]
        await screen.press("escape", "shift+tab", "enter", "G")
        assert "GPU 0  all recorded metrics" in screen.lines[0]
        assert "g next" not in screen.lines[-1]
        assert "overlay" not in screen.lines[-1]
        before = screen.lines
        await screen.press("g", "s")
        assert screen.lines == before


async def test_one_in_front_has_its_colour_and_the_others_have_none() -> None:
    async with shown(at(0, 0.1, 0.9), size=(80, 24)) as screen:
        graph = await graphs(screen)
        await screen.press("s")

        def roles() -> set[str]:
            return {role for line in graph._lines[1:-3] for text, role in line if text[:1] >= "⠁"}

        assert roles() == {"curve0", "curve1"}
        await screen.press("j")
        assert roles() == {"curve0", "quiet"}
        await screen.press("j")
        assert roles() == {"curve1", "quiet"}


@pytest.mark.usefixtures("ascii_glyphs")
@pytest.mark.parametrize("stacked", [False, True])
async def test_in_ascii_nothing_else_is_drawn(stacked: bool) -> None:
    async with shown(at(0, 0.1, 0.9), size=(80, 24)) as screen:
        await graphs(screen)
        await screen.press(*["s"] * (not stacked), "left")
        assert screen.text.isascii()
        assert ("_" in screen.text) is stacked


async def test_only_lines_that_change_are_painted() -> None:
    async with shown(at(0, 0.0, 0.5), size=(80, 24)) as screen:
        await screen.show(*(at(second, 0.0, 0.5) for second in range(1, 30)))
        graph = await graphs(screen)
        await screen.press("s")
        graph.repaint_changed()
        before = dict(graph._painted)
        await screen.show(at(30, 0.0, 0.5))
        changed = {y for y, line in graph._painted.items() if before[y] != line}
        assert 0 < len(changed) <= 4  # two curves, the times


async def test_a_narrow_screen() -> None:
    async with shown(at(0, *[0.5] * 8), size=(40, 12)) as screen:
        await graphs(screen)
        assert "GPU 7      50%" in screen.text
        for width in range(40, 28, -3):
            await screen.resize(width, 12)
            await screen.press("left")
            assert {len(clock) for clock in screen.lines[-2].split()} == {8}, width


async def test_a_gpu_without_any_value() -> None:
    async with shown(at(0, None), size=(80, 24)) as screen:
        await graphs(screen)
        assert screen.lines[0].startswith(" MEM-USED")  # what there is instead
    async with shown(frame_of(silent_gpu(0)), size=(80, 24)) as screen:
        await graphs(screen)
        await screen.press("left", "-", "j", "s")
        assert "No values yet" in screen.text
