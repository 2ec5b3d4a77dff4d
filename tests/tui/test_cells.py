"""What is sent to turn one picture into the next."""

import random

import pyte
import pytest
from rich.cells import cell_len
from rich.color import ColorSystem
from rich.style import Style

from gputop.tui.terminal.cells import Painted, _line, _next_line
from gputop.tui.terminal.sgr import PLAIN, Span, change, span
from tests.conftest import rest_long

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


def spans(*parts: tuple[str, Style | None]) -> list[Span]:
    return [span(text, style, ColorSystem.TRUECOLOR) for text, style in parts]


def draw(painted: Painted, *parts: tuple[str, Style | None], cols: int = 20) -> str:
    return painted.draw([(0, spans(*parts))], (cols, 5))


@rest_long("seed", *range(20))
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
            plain = pyte.Screen(30, 6)
            pyte.Stream(plain).feed("".join(f"{sgr}{text}" for text, sgr in line))
            assert _seen(screen, row) == _seen(plain, 0)


def _random_line(chance: random.Random) -> list[Span]:
    """A line that begins with a character for a mark to go on, and fits into 30 cells."""
    parts: list[tuple[str, Style | None]] = [("|", None)]
    for _ in range(chance.randint(0, 8)):
        text = chance.choice(TEXTS)
        if cell_len("".join(part for part, _ in parts) + text) <= 30:
            parts.append((text, chance.choice(STYLES)))
    return spans(*parts)


def _seen(screen: pyte.Screen, row: int) -> list[object]:
    cells = [screen.buffer[row][column] for column in range(screen.columns)]
    return [cell._replace(fg="", bold=False) if cell.data == " " else cell for cell in cells]


def test_one_changed_character_is_one_move_and_the_character() -> None:
    painted = Painted()
    draw(painted, ("util  97 %", None))
    assert draw(painted, ("util  98 %", None)) == "\x1b[1;8H8"
    assert draw(painted, ("util  98 %", None)) == ""


@rest_long("seed", *range(20))
def test_a_graph_moves_between_words(seed: int) -> None:
    """With it, the cells at its left change, and those at its right do or do not."""
    chance = random.Random(seed)
    painted, screen = Painted(), pyte.Screen(60, 2)
    stream = pyte.Stream(screen)
    past = [chance.choice("▁▂▃▄▅▆▇█") for _ in range(40)]
    for _ in range(25):
        moved = chance.randint(0, 5)
        past = past[moved:] + [chance.choice("▁▂▃▄▅▆▇█ ") for _ in range(moved)]
        style = Style(bgcolor="blue") if seed % 2 else None
        words = (f"{chance.randint(0, 200):3} W ", style), (f" {chance.randint(8, 12):2} x", style)
        graph = [(value, Style(color="red" if value > "▄" else "#010203")) for value in past]
        line = spans(words[0], *graph, words[1])
        stream.feed(painted.draw([(1, line)], (60, 2)))
        plain = pyte.Screen(60, 2)
        pyte.Stream(plain).feed("".join(f"{sgr}{text}" for text, sgr in line))
        assert _seen(screen, 1) == _seen(plain, 0)


def test_a_graph_that_moves_is_not_written_again() -> None:
    painted, past = Painted(), "▁▂▃▄▅▆▇█" * 5
    draw(painted, (f"97% {past} idle", None), cols=60)
    moved = draw(painted, (f"98% {past[2:]}▂▁ idle", None), cols=60)
    assert moved == "\x1b[1;5H\x1b[2P\x1b[38C\x1b[2@\x1b[41D8\x1b[40C▂▁"


def test_digits_below_each_other_take_a_step_each() -> None:
    painted = Painted()
    for share in ("7", "8"):
        lines = [(row, spans(("SM% ", None), (share, Style(color="red")))) for row in range(4)]
        text = painted.draw(lines, (20, 5))
    assert text == "\x1b[1;5H\x1b[31m8" + "\x1b[B\b8" * 3 + "\x1b[m"


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ("\x1b[m", "\x1b[0;1;32m", "\x1b[1;32m"),
        ("\x1b[0;38;2;1;2;3;48;5;9m", "\x1b[0;38;2;1;2;4;48;5;9m", "\x1b[38;2;1;2;4m"),
        ("\x1b[0;38;5;9m", "\x1b[0;94;100m", "\x1b[94;100m"),
        ("\x1b[0;3;31m", "\x1b[0;3;4;31m", "\x1b[4m"),
        ("\x1b[0;1;31m", "\x1b[0;31m", "\x1b[0;31m"),
        ("\x1b[0;31;42m", "\x1b[0;31m", "\x1b[0;31m"),
        ("\x1b[0;31m", "\x1b[m", "\x1b[m"),
        ("\x1b[m", "\x1b[0;4m\x1b]8;id=1;x\x1b\\", "\x1b[0;4m\x1b]8;id=1;x\x1b\\"),
    ],
)
def test_of_a_style_only_what_differs_is_sent(before: str, after: str, text: str) -> None:
    assert change(before, after) == text


def test_a_style_alone_is_a_change() -> None:
    painted = Painted()
    draw(painted, ("busy", Style(color="red")))
    assert draw(painted, ("busy", Style(color="green"))) == "\x1b[1;1H\x1b[32mbusy\x1b[m"


def test_the_colour_of_ink_is_not_sent_for_blanks() -> None:
    painted = Painted()
    draw(painted, ("    ", Style(color="red")))
    assert draw(painted, ("    ", Style(color="green", bold=True))) == ""
    assert draw(painted, ("    ", Style(color="green", reverse=True))) != ""
    assert draw(painted, ("    ", Style(bgcolor="green"))) != ""


def test_a_close_second_change_is_reached_without_a_move() -> None:
    painted = Painted()
    draw(painted, ("a----b--------c", None))
    assert draw(painted, ("A----B--------C", None)) == "\x1b[1;1HA----B\x1b[8CC"


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
    painted.reset()
    assert not painted.knows((20, 5))
    assert draw(painted, ("abc", None)).startswith(PLAIN)
    assert painted.knows((20, 5))
    assert not painted.knows((21, 5))


@pytest.mark.parametrize("seed", range(20))
def test_a_line_is_the_same_whatever_was_there_before(seed: int) -> None:
    chance = random.Random(seed)
    parts = [("|", "sgr"), *((chance.choice(TEXTS), chance.choice("abc")) for _ in range(8))]
    line = _line(parts, 30)
    for _ in range(60):
        parts = list(parts)
        parts[chance.randrange(1, 9)] = (chance.choice(TEXTS), chance.choice("abc"))
        line = _next_line(line, parts, 30)
        assert line == _line(parts, 30)
