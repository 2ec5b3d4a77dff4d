"""The cell-diffing compositor shows what Textual's shows, for fewer bytes."""

import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest
import textual.screen
from rich.color import ColorSystem
from textual._compositor import Compositor
from textual.geometry import Region
from textual.strip import Strip
from textual.widgets import Static

from gputop.tui import compositor, diffing
from gputop.tui.painting import Painted, _line
from gputop.tui.pens import Palette
from tests.builders_tui import frame_of, gpu_of, process_of, shown
from tests.terminal import Terminal
from tests.tui.apps.gallery import Gallery

SIZES = {"wide": (200, 50), "small": (80, 24)}


# --- the door ----------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def stock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("textual.screen.Compositor", Compositor)


def installed() -> object:
    return vars(textual.screen)["Compositor"]


def test_it_takes_the_place_of_textuals() -> None:
    assert compositor.install()
    assert installed() is diffing.DiffCompositor
    assert compositor.install()


@pytest.mark.parametrize("release", ["8.2.4", "9.0.0", "10.1", "7.9.9", "unknown"])
def test_another_textual_keeps_its_own(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compositor, "version", lambda _: release)
    assert not compositor.install()
    assert installed() is Compositor


@pytest.mark.parametrize("release", ["8.2.5", "8.2.8", "8.3.0rc1", "8.10"])
def test_the_versions_it_is_made_for(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compositor, "version", lambda _: release)
    assert compositor.install()


def _with_other_chops(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Compositor, "_render_chops", lambda self, crop: [])


def _without_context(patch: pytest.MonkeyPatch) -> None:
    patch.delattr("textual._context.visible_screen_stack")
    patch.delitem(sys.modules, "gputop.tui.diffing")
    patch.delattr("gputop.tui.diffing")


def _without_ansi(patch: pytest.MonkeyPatch) -> None:
    patch.delattr(Strip, "render_ansi")


def _without_dirty(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Compositor, "__init__", lambda self: None)


@pytest.mark.parametrize(
    "change", [_with_other_chops, _without_context, _without_ansi, _without_dirty]
)
def test_a_textual_of_another_shape_keeps_its_own(
    change: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    change(monkeypatch)
    assert not compositor.install()
    assert installed() is Compositor


async def test_what_is_held_back_outlives_a_screenshot() -> None:
    compositor.install()
    app = Gallery()
    async with app.run_test() as pilot:
        await pilot.pause()
        pending = Region(0, 0, 5, 1)
        app.screen._compositor._dirty_regions = {pending}
        assert "<svg" in app.export_screenshot()
        assert app.screen._compositor._dirty_regions == {pending}


async def test_all_lines_are_drawn_on_a_screen_that_is_not_known() -> None:
    compositor.install()
    app = Gallery()
    async with app.run_test(size=(40, 10)) as pilot:
        await pilot.pause()
        textuals = app.screen._compositor
        assert isinstance(textuals, diffing.DiffCompositor)
        painted = Painted()
        for rows in (range(10), range(1)):
            textuals._dirty_regions = {Region(0, 0, 5, 1)}
            changes = textuals._changes(painted)
            assert changes is not None
            assert list(changes._lines) == list(rows)
            changes.render_segments(app.console)


@pytest.mark.parametrize("no_color", ["", "1"])
@pytest.mark.parametrize("theme", ["ansi-dark", "dark"])
async def test_lines_that_a_widget_fills_are_those_of_its_strips(
    theme: str, no_color: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if no_color:
        monkeypatch.setenv("NO_COLOR", no_color)
    processes = [process_of(400 + n, gpu=n % 2, command="日本 train.py") for n in range(40)]
    frame = frame_of(gpu_of(0), gpu_of(1), *processes)
    async with shown(frame, size=(130, 40), theme=theme) as screen:
        await screen.press("j")
        textuals = screen.app.screen._compositor
        assert isinstance(textuals, diffing.DiffCompositor)
        filters = screen.app.get_line_filters()
        palette = Palette(filters, ColorSystem.TRUECOLOR)
        whole = textuals._owners()
        assert len(whole) >= 38  # all but the editor's line
        chops = textuals._render_chops(Region(0, 0, 130, 40), lambda row: True)
        for row, line in whole.items():
            ours = _line(line.spans(palette, ColorSystem.TRUECOLOR), 130)
            textual = _line(list(diffing._spans(chops[row], ColorSystem.TRUECOLOR)), 130)
            assert (ours.cells, ours.pens) == (textual.cells, textual.pens)


async def test_a_line_under_another_widget_is_not_its_own() -> None:
    async with shown(frame_of(gpu_of(0)), size=(80, 24)) as screen:
        textuals = screen.app.screen._compositor
        assert isinstance(textuals, diffing.DiffCompositor)
        assert textuals._owners()
        over = Static("over")
        over.styles.overlay, over.styles.width, over.styles.height = "screen", 10, 3
        over.styles.offset = (5, -8)
        await screen.app.screen.mount(over)
        while not over.region:
            await screen.pilot.pause()
        rows = set(over.region.line_range)
        assert rows < set(range(24))
        assert not rows & textuals._owners().keys()


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
        for one in (self.stock, self.diff):
            one.wait_for(marker if isinstance(marker, str) else partial(marker, one))
        deadline = time.monotonic() + 10
        while not self.alike():
            left = max(0, deadline - time.monotonic())
            assert select.select([self.stock, self.diff], [], [], left)[0], self.difference()
            while self.stock.pump(0) or self.diff.pump(0):
                pass

    def alike(self) -> bool:
        if self.stock.display != self.diff.display:
            return False
        return self.stock.cells == self.diff.cells

    def difference(self) -> str:
        rows = zip(self.stock.cells, self.diff.cells, strict=True)
        unequal = [row for row, (one, other) in enumerate(rows) if one != other]
        return f"lines {unequal} differ:\n{self.stock.text}\n{self.diff.text}"

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


@pytest.fixture(params=["ansi-dark", "textual-dark"])
def theme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=SIZES)
def pair(request: pytest.FixtureRequest, theme: str) -> Iterator[Pair]:
    cols, rows = SIZES[request.param]
    with ExitStack() as stack:
        argv = [sys.executable, "-m", "tests.tui.apps.gallery"]
        one, other = (
            stack.enter_context(Terminal([*argv, kind, theme], cols=cols, rows=rows))
            for kind in ("stock", "diff")
        )
        pair = Pair(one, other)
        pair.settle("tick 0")
        yield pair


def lacks(text: str) -> Callable[[Terminal], bool]:
    return lambda terminal: text not in terminal.text and "tick" in terminal.text


def test_the_screen_is_textuals(pair: Pair) -> None:
    pair.step(b"tttt", "tick 4")
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


def test_a_tick_takes_a_fraction_of_the_bytes(pair: Pair) -> None:
    pair.step(b"t", "tick 1")
    before = [len(terminal.raw) for terminal in (pair.stock, pair.diff)]
    for tick in range(2, 8):
        pair.step(b"t", f"tick {tick}")
    stock, diff = (
        len(terminal.raw) - start
        for terminal, start in zip((pair.stock, pair.diff), before, strict=True)
    )
    assert diff < stock / 3
