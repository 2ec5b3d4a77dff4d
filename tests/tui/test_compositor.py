"""The cell-diffing compositor shows what Textual's shows, for fewer bytes."""

import random
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pyte
import pytest
import textual.screen
from rich.color import ColorSystem
from rich.style import Style
from textual._compositor import Compositor
from textual.strip import Strip

from gputop.tui import compositor, diffing
from gputop.tui.painting import PLAIN, Painted, Span, span
from tests.terminal import Terminal

SIZES = {"wide": (200, 50), "small": (80, 24)}
TEXTS = [
    "",
    " ",
    "          ",
    "a",
    "train.py",
    "日本",
    "한",
    "e\u0301",
    "█▌░",
    "🚀",
    "\u0301",
    "x y",
]
STYLES = [
    None,
    Style(),
    Style(color="red"),
    Style(color="default", bgcolor="default"),
    Style(bgcolor="blue"),
    Style(bold=True, color="#123456"),
    Style(underline=True),
    Style(reverse=True),
]


# --- lines -----------------------------------------------------------------------------------


def spans(*parts: tuple[str, Style | None]) -> list[Span]:
    return [span(text, style, ColorSystem.TRUECOLOR) for text, style in parts]


def draw(painted: Painted, *parts: tuple[str, Style | None], cols: int = 20) -> str:
    return painted.draw([(0, spans(*parts))], (cols, 5))


@pytest.mark.parametrize("seed", range(20))
def test_any_picture_can_follow_any_other(seed: int) -> None:
    chance = random.Random(seed)
    painted, screen = Painted(), pyte.Screen(30, 6)
    stream = pyte.Stream(screen)
    for _ in range(25):
        rows = sorted(chance.sample(range(6), chance.randint(1, 6)))
        lines = {row: _random_line(chance) for row in rows}
        if not painted.knows((30, 6)):
            lines = {row: _random_line(chance) for row in range(6)}
        stream.feed(painted.draw(lines.items(), (30, 6)))
        for row, line in lines.items():
            fresh = pyte.Screen(30, 6)
            pyte.Stream(fresh).feed(Painted().draw([(row, line)], (30, 6)))
            assert _seen(screen, row) == _seen(fresh, row)


def _random_line(chance: random.Random) -> list[Span]:
    parts = [(chance.choice(TEXTS), chance.choice(STYLES)) for _ in range(chance.randint(0, 8))]
    return spans(*parts)


def _seen(screen: pyte.Screen, row: int) -> list[object]:
    cells = [screen.buffer[row][column] for column in range(screen.columns)]
    return [cell._replace(fg="", bold=False) if cell.data == " " else cell for cell in cells]


def test_one_changed_character_is_one_move_and_the_character() -> None:
    painted = Painted()
    draw(painted, ("util  97 %", None))
    assert draw(painted, ("util  98 %", None)) == "\x1b[1;8H8"
    assert draw(painted, ("util  98 %", None)) == ""


def test_a_style_alone_is_a_change() -> None:
    painted = Painted()
    draw(painted, ("busy", Style(color="red")))
    assert draw(painted, ("busy", Style(color="green"))) == "\x1b[1;1H\x1b[0;32mbusy\x1b[m"


def test_the_colour_of_ink_is_not_sent_for_blanks() -> None:
    painted = Painted()
    draw(painted, ("    ", Style(color="red")))
    assert draw(painted, ("    ", Style(color="green", bold=True))) == ""
    assert draw(painted, ("    ", Style(color="green", reverse=True))) != ""
    assert draw(painted, ("    ", Style(bgcolor="green"))) != ""


def test_a_close_second_change_is_reached_without_a_move() -> None:
    painted = Painted()
    draw(painted, ("a----b--------c", None))
    assert draw(painted, ("A----B--------C", None)) == "\x1b[1;1HA\x1b[4CB\x1b[8CC".replace(
        "A\x1b[4CB", "A----B"
    )


def test_blanks_are_erased_unless_they_have_a_background() -> None:
    assert "\x1b[20X" in draw(Painted(), (" " * 20, None))
    assert " " * 20 in draw(Painted(), (" " * 20, Style(bgcolor="blue")))


def test_the_halves_of_a_wide_character_go_together() -> None:
    painted = Painted()
    draw(painted, ("ab日cd", None))
    assert draw(painted, ("ab本cd", None)) == "\x1b[1;3H本"
    assert draw(painted, ("abx cd", None)) == "\x1b[1;3Hx "
    assert draw(painted, ("a日 cd", None)) == "\x1b[1;2H日"


def test_a_wide_character_that_does_not_fit_leaves_a_blank() -> None:
    assert draw(Painted(), ("abc日", None), cols=4).endswith("abc ")


@pytest.mark.parametrize("cluster", ["👩\u200d🚀", "❤\ufe0f", "🚀"])
def test_what_follows_a_disputed_width_is_addressed_by_its_column(cluster: str) -> None:
    assert f"{cluster}\x1b[3Gheart" in draw(Painted(), (f"{cluster}heart", None))


def test_a_mark_joins_the_span_before_it() -> None:
    assert "e\u0301" in draw(Painted(), ("e", Style(bold=True)), ("\u0301x", None))


def test_control_characters_never_reach_the_terminal() -> None:
    text = draw(Painted(), ("a\x1b]0;title\x07\x9b2Jb\r\n\x00\x7f", None))
    assert "a]0;title2Jb" in text
    assert "\x1b]" not in text
    assert not set(text) & set("\x07\x9b\r\n\x00\x7f")


def test_links_are_opened_and_closed() -> None:
    text = draw(Painted(), ("docs", Style(link="https://example.org")), (" x", None))
    opened = text.index(";https://example.org\x1b\\docs")
    assert text.index("\x1b]8;;\x1b\\") > opened
    assert "\x1b]8" not in draw(Painted(), ("docs", Style(link="https://e\x1b]0;x\x07")))


def test_a_forgotten_screen_is_sent_in_full_and_so_is_another_size() -> None:
    painted = Painted()
    draw(painted, ("abc", None))
    painted.forget()
    assert not painted.knows((20, 5))
    assert draw(painted, ("abc", None)).startswith(PLAIN)
    assert painted.knows((20, 5))
    assert not painted.knows((21, 5))


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
