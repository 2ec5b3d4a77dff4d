"""Bars, graphs and the choice of signs."""

from collections.abc import Sequence
from math import inf

import pytest

from gputop.tui.glyphs import ASCII, UNICODE, GlyphSet, choose
from gputop.tui.panes.gpu_cells import bar
from gputop.tui.panes.lines import Lines
from gputop.tui.panes.plot import sparkline

SETS = [UNICODE, ASCII]


def drawn_bar(ratio: float | None, width: int, glyphs: GlyphSet) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lines, "glyphs", glyphs)
        return "".join(text for text, _ in bar(ratio, width, "text"))


@pytest.mark.parametrize(
    ("ratio", "drawn"),
    [
        (0.0, "░░░░"),
        (0.001, "▏░░░"),
        (0.5, "██░░"),
        (0.53, "██▏░"),
        (0.999, "███▉"),
        (1.0, "████"),
        (7.0, "████"),
        (-1.0, "░░░░"),
        (None, "    "),
        (float("nan"), "░░░░"),
    ],
)
def test_bar(ratio: float | None, drawn: str) -> None:
    assert drawn_bar(ratio, 4, UNICODE) == drawn


@pytest.mark.parametrize(
    ("ratio", "drawn"),
    [(0.0, "...."), (0.001, "#..."), (0.5, "##.."), (0.999, "###."), (1, "####")],
)
def test_bar_in_ascii(ratio: float, drawn: str) -> None:
    assert drawn_bar(ratio, 4, ASCII) == drawn


@pytest.mark.parametrize("glyphs", SETS, ids=lambda glyphs: glyphs.name)
@pytest.mark.parametrize("width", [0, 1, 3, 40])
def test_a_bar_is_as_wide_as_asked(glyphs: GlyphSet, width: int) -> None:
    for step in range(-1, 102):
        drawn = drawn_bar(step / 100, width, glyphs)
        assert len(drawn) == width
        assert drawn.startswith(glyphs.fill(step / 100, width))


def drawn_sparkline(values: Sequence[float], glyphs: GlyphSet, top: float = 1.0) -> str:
    pieces = sparkline(values, top, lambda share: "load" if share > 0 else "track", glyphs)
    return "".join(text for text, _ in pieces)


def test_a_sparkline_has_a_cell_for_each_value() -> None:
    assert drawn_sparkline([0, 0.25, 0.5, 0.75, 1], UNICODE) == "▁▃▅▆█"
    assert drawn_sparkline([0, 20, 40], UNICODE, top=40) == "▁▅█"
    assert drawn_sparkline([], UNICODE) == ""
    assert drawn_sparkline([2, -1, -inf, 1], ASCII) == "#_ #"


def test_a_sparkline_has_a_piece_for_each_role() -> None:
    pieces = sparkline([0, 1, 1, 0], 1.0, lambda share: "load" if share else "track", UNICODE)
    assert pieces == [("▁", "track"), ("██", "load"), ("▁", "track")]


@pytest.mark.parametrize("glyphs", SETS, ids=lambda glyphs: glyphs.name)
def test_no_sample_is_not_zero(glyphs: GlyphSet) -> None:
    assert drawn_sparkline([-inf], glyphs) != drawn_sparkline([0], glyphs)
    assert drawn_bar(None, 3, glyphs) != drawn_bar(0, 3, glyphs)
    marks = {glyphs.not_available, glyphs.pending, glyphs.stale, "0"}
    assert len(marks) == 4


def test_ascii_is_ascii_and_the_sets_are_of_one_width() -> None:
    for name in UNICODE.__slots__:
        if name not in ("name", "bar"):
            assert len(getattr(ASCII, name)) == len(getattr(UNICODE, name)), name
        assert getattr(ASCII, name).isascii(), name


@pytest.mark.parametrize(
    ("environ", "encoding", "chosen"),
    [
        ({"LANG": "en_US.UTF-8"}, "utf-8", UNICODE),
        ({"LANG": "de_DE.utf8"}, "UTF-8", UNICODE),
        ({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, "utf-8", ASCII),
        ({"LC_ALL": "", "LC_CTYPE": "C.UTF-8", "LANG": "C"}, "utf-8", UNICODE),
        ({"LANG": "C"}, "utf-8", ASCII),
        ({}, "utf-8", ASCII),
        ({"LANG": "en_US.UTF-8"}, "iso-8859-1", ASCII),
        ({"LANG": "en_US.UTF-8"}, None, ASCII),
        ({"LANG": "en_US.UTF-8"}, "no-such-encoding", ASCII),
        ({"LANG": "en_US.UTF-8", "TERM": "linux"}, "utf-8", ASCII),
    ],
)
def test_choice(environ: dict[str, str], encoding: str | None, chosen: GlyphSet) -> None:
    assert choose(environ, encoding) is chosen
    assert choose(environ, encoding, "ascii") is ASCII
    assert choose(environ, encoding, "unicode") is UNICODE
    assert choose(environ, encoding, "auto") is chosen


def test_text_keeps_its_width() -> None:
    assert UNICODE.text("naïve 日本") == "naïve 日本"
    assert ASCII.text("naïve 日本") == "na?ve ????"
    assert ASCII.text("e\u0301\u200d") == "e"
    assert ASCII.text("train.py") == "train.py"
