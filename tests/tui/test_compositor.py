"""The cell-diffing compositor shows what Textual's shows, for fewer bytes."""

import select
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest
import textual.screen
from rich.color import ColorSystem
from textual._compositor import Compositor
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gputop.tui.panes.heading import KeyLine
from gputop.tui.panes.lines import Lines
from gputop.tui.terminal import compositor, drawing
from gputop.tui.terminal.cells import Painted
from gputop.tui.terminal.compatibility import is_supported
from gputop.tui.terminal.sgr import Span
from tests.builders_tui import frame_of, gpu_of, process_of, shown
from tests.patience import Deadline
from tests.terminal import Terminal
from tests.tui.apps.gallery import Gallery
from tests.tui.conftest import TextualFactory

SIZES = {"wide": (200, 50), "small": (80, 24)}


# --- the door ----------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def stock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("textual.screen.Compositor", Compositor)
    is_supported.cache_clear()
    yield
    is_supported.cache_clear()


def installed() -> object:
    drawing.install()
    return vars(textual.screen)["Compositor"]


def test_it_takes_the_place_of_textuals() -> None:
    assert installed() is compositor.DiffCompositor
    is_supported.cache_clear()
    assert installed() is compositor.DiffCompositor


@pytest.mark.parametrize("release", ["8.2.4", "9.0.0", "10.1", "7.9.9", "unknown"])
def test_another_textual_keeps_its_own(
    release: str, textual_of: TextualFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(textual_of(release).partition(":")[0])
    assert not is_supported()
    assert installed() is Compositor


@pytest.mark.parametrize("release", ["8.2.5", "8.2.8", "8.3.0rc1", "8.10"])
def test_the_versions_it_is_made_for(
    release: str, textual_of: TextualFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(textual_of(release).partition(":")[0])
    assert is_supported()


def _with_other_chops(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Compositor, "_render_chops", lambda self, crop: [])


def _without_context(patch: pytest.MonkeyPatch) -> None:
    patch.delattr("textual._context.visible_screen_stack")


def _without_ansi(patch: pytest.MonkeyPatch) -> None:
    patch.delattr(Strip, "render_ansi")


def _without_dirty(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Compositor, "__init__", lambda self: None)


def _without_parser(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(sys.modules, "textual._xterm_parser", None)


def _with_other_bindings(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("textual.app.App._check_bindings", lambda self, key: False)


@pytest.mark.parametrize(
    "change",
    [
        _with_other_chops,
        _without_context,
        _without_ansi,
        _without_dirty,
        _without_parser,
        _with_other_bindings,
    ],
)
def test_a_textual_of_another_shape_keeps_its_own(
    change: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    change(monkeypatch)
    assert not is_supported()
    assert installed() is Compositor


async def test_what_is_held_back_outlives_a_screenshot() -> None:
    drawing.install()
    app = Gallery()
    async with app.run_test() as pilot:
        await pilot.pause()
        pending = Region(0, 0, 5, 1)
        app.screen._compositor._dirty_regions = {pending}
        assert "<svg" in app.export_screenshot()
        assert app.screen._compositor._dirty_regions == {pending}


async def test_all_lines_are_drawn_on_a_screen_that_is_not_known() -> None:
    drawing.install()
    app = Gallery()
    async with app.run_test(size=(40, 10)) as pilot:
        await pilot.pause()
        textuals = app.screen._compositor
        assert isinstance(textuals, compositor.DiffCompositor)
        painted = Painted()
        for rows in (range(10), range(1)):
            textuals._dirty_regions = {Region(0, 0, 5, 1)}
            changes = textuals._changes(painted)
            assert changes is not None
            assert list(changes._lines) == list(rows)
            changes.render_segments(app.console)


@pytest.mark.parametrize("no_color", ["", "1"])
@pytest.mark.parametrize("theme", ["ansi-dark", "dark"])
async def test_the_strips_of_lines_are_those_that_textual_makes_of_them(
    theme: str, no_color: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if no_color:
        monkeypatch.setenv("NO_COLOR", no_color)
    processes = [process_of(400 + n, gpu=n % 2, command="日本 train.py") for n in range(40)]
    frame = frame_of(gpu_of(0), gpu_of(1), *processes)
    async with shown(frame, size=(130, 40), theme=theme) as screen:
        await screen.press("j")
        widgets = [widget for widget in screen.app.screen.query(Lines) if widget.region]
        assert sum(widget.region.height for widget in widgets) >= 38  # all but the editor's line
        for widget in widgets:
            size = widget.region.size
            for crop in (size.region, Region(3, 0, size.width - 7, size.height)):
                ours, textuals = widget.render_lines(crop), Widget.render_lines(widget, crop)
                assert list(map(_drawn, ours)) == list(map(_drawn, textuals))
            for y, strip in enumerate(Widget.render_lines(widget, size.region)):
                for colors in (ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT):
                    spans = widget.spans(y, colors)
                    assert spans is not None
                    assert _cells(spans) == _cells(compositor._spans({0: strip}, colors))


async def test_a_line_that_is_too_long_has_no_spans() -> None:
    async with shown(frame_of(gpu_of(0)), size=(80, 24)) as screen:
        keys, row = screen.app.screen.query_one(KeyLine), 23
        drawn = screen.app.screen._compositor
        assert isinstance(drawn, compositor.DiffCompositor)
        assert drawn._own_spans(row, ColorSystem.TRUECOLOR) == keys.spans(0, ColorSystem.TRUECOLOR)
        keys._painted[0] = [("日本" * 30, "text")]  # of before the layout
        assert drawn._own_spans(row, ColorSystem.TRUECOLOR) is None
        [spans] = drawn._spans([row], ColorSystem.TRUECOLOR).values()
        assert len(_cells(spans)) == 40


def _cells(spans: list[Span]) -> list[tuple[str, str]]:
    return [(cell, sgr) for text, sgr in spans for cell in text]


def _drawn(strip: Strip) -> list[object]:
    return [
        (cell, style and (style.color, style.bgcolor, style.without_color))
        for text, style, _ in strip
        for cell in text
    ]


# --- whole screens -----------------------------------------------------------------------------


class Pair:
    """The same app twice: with Textual's compositor and with ours."""

    def __init__(self, stock: Terminal, diff: Terminal) -> None:
        self.stock, self.diff = stock, diff

    def step(self, keys: bytes, marker: str | Callable[[Terminal], object]) -> None:
        """Type into both, wait until both are done, and then until both look alike."""
        for terminal in (self.stock, self.diff):
            terminal.send(keys)
        self.settle(marker)

    def settle(self, marker: str | Callable[[Terminal], object]) -> None:
        for terminal in (self.stock, self.diff):
            terminal.wait_for(marker if isinstance(marker, str) else partial(marker, terminal))
        deadline = Deadline(10)
        while not self.alike():
            left = max(0.0, min(deadline.left(), 1.0))
            select.select([self.stock, self.diff], [], [], left)
            assert left, self.difference()
            while self.stock.pump(0) or self.diff.pump(0):
                pass

    def alike(self) -> bool:
        if self.stock.display != self.diff.display:
            return False
        return self.stock.cells == self.diff.cells

    def difference(self) -> str:
        rows = zip(self.stock.cells, self.diff.cells, strict=True)
        unequal = [row for row, (line, other) in enumerate(rows) if line != other]
        return f"lines {unequal} differ:\n{self.stock.text}\n{self.diff.text}"

    def sent(self) -> tuple[int, int]:
        """How many bytes each has sent."""
        return len(self.stock.raw), len(self.diff.raw)

    def suspend_and_resume(self) -> None:
        for terminal in (self.stock, self.diff):
            before = len(terminal.raw)
            terminal.send(b"\x1a")
            terminal.wait_for_raw(b"\x1b[?1049l", before)
            terminal.wait_stopped()
            while terminal.pump(0):
                pass
            terminal.wipe()
            terminal.signal(18)
        self.settle("tick")


@pytest.fixture(
    params=[("small", "ansi-dark"), pytest.param(("wide", "textual-dark"), marks=pytest.mark.long)],
    ids="-".join,
)
def pair(request: pytest.FixtureRequest, textual_of: TextualFactory) -> Iterator[Pair]:
    size, theme = request.param
    cols, rows = SIZES[size]
    with ExitStack() as stack:
        argv = [sys.executable, "-m", "tests.tui.apps.gallery", theme]
        one, other = (
            stack.enter_context(Terminal(argv, cols=cols, rows=rows, env=env))
            for env in ({"PYTHONPATH": textual_of("9.0.0")}, {})
        )
        pair = Pair(one, other)
        pair.settle("tick 0")
        yield pair


def lacks(text: str) -> Callable[[Terminal], bool]:
    return lambda terminal: text not in terminal.text and "tick" in terminal.text


@pytest.mark.system
def test_the_screen_is_textuals(pair: Pair) -> None:
    """And a tick takes a fraction of the bytes."""
    before = pair.sent()
    for tick in range(1, 5):
        pair.step(b"t", f"tick {tick}")
    stock, diff = (now - then for now, then in zip(pair.sent(), before, strict=True))
    assert diff < stock / 3
    pair.step(b"jjjjj", "row 5")
    pair.step(b"\x1b[6~\x1b[6~\x1b[6~", "row 50")
    pair.step(b"k", "row 49")
    pair.step(b"m", "a dialog")
    pair.step(b"x", lambda terminal: "a dialog" not in terminal.text)
    pair.step(b"t", "tick 5")
    pair.step(b"\x10", "Search for commands")
    pair.step(b"qui", "Quit the application")
    pair.step(b"\x1b", lacks("Quit the application"))
    pair.step(b"n", "a note")
    pair.step(b"f", "a page")
    pair.step(b"xyz", "a pagexyz")
    pair.step(b"\x1b", "tick 5")
    pair.step(b"c", lacks("a note"))
    pair.step(b"s", "tick 6")
    pair.suspend_and_resume()
    for terminal in (pair.stock, pair.diff):
        terminal.wipe()
    pair.step(b"\x0c", "tick 6")
    for cols, rows in ((97, 31), (60, 20), (140, 45)):
        for terminal in (pair.stock, pair.diff):
            terminal.resize(cols, rows)
        pair.settle(f"{cols}x{rows}")
    pair.step(b"w", "textual-light")
    pair.step(b"jt", "tick 7")
