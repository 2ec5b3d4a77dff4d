"""What pages are written on, and how far they are scrolled, without an app."""

from __future__ import annotations

import random

import pytest
from rich.cells import cell_len

from gputop.tui.glyphs import ASCII, UNICODE, GlyphSet
from gputop.tui.panes.lines import StyledLine, width_of
from gputop.tui.panes.page import Page
from gputop.tui.panes.paper import LABEL, Paper, title

HOSTILE = "[/][red]" + "訓練" * 60 + "x" * 300 + " a b"


def text_of(line: StyledLine) -> str:
    return "".join(text for text, _ in line)


def test_a_text_is_broken_at_its_spaces() -> None:
    paper = Paper(30, UNICODE)
    lines = list(paper.wrapped("one two three four train-six seven", 4, "quiet"))
    assert [text_of(line) for line in lines] == ["    one two three four", "    train-six seven"]
    assert {line[1][1] for line in lines} == {"quiet"}
    assert [text_of(line) for line in paper.quiet("")] == ["  "]


@pytest.mark.parametrize("width", [200, 80, 40, 26])
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=lambda glyphs: glyphs.name)
def test_no_line_is_wider_than_the_page_and_nothing_is_lost(width: int, glyphs: GlyphSet) -> None:
    paper = Paper(width, glyphs)
    for lines in (
        list(paper.wrapped(HOSTILE)),
        list(paper.marked(HOSTILE, "alarm")),
        list(paper.facts([HOSTILE])),
    ):
        assert all(width_of(line) < width for line in lines)
        told = "".join(text_of(line[1:]) for line in lines).replace(" ", "")
        assert told == paper.glyphs.text(HOSTILE).replace(" ", "")


def test_markup_is_text_and_a_terminal_without_wide_letters_gets_as_many_cells() -> None:
    [unicode] = Paper(200, UNICODE).wrapped("[red]訓練.py")
    [ascii_] = Paper(200, ASCII).wrapped("[red]訓練.py")
    assert unicode[1] == ("[red]訓練.py", "text")
    assert ascii_[1] == ("[red]????.py", "text")
    assert cell_len(unicode[1][0]) == len(ascii_[1][0])


def test_facts_that_do_not_fit_begin_the_next_line_whole() -> None:
    facts = ["PID 401", "reads 4.00 MB/s", "writes 0 B/s", "started 12:00"]
    for width in range(24, 80, 5):
        lines = [text_of(line) for line in Paper(width, UNICODE).facts(facts)]
        assert all(any(fact in line for line in lines) for fact in facts)
        assert all(line.endswith("·") for line in lines[:-1])
        assert max(map(len, lines)) < width
    [line] = Paper(80, UNICODE).facts(facts)
    assert text_of(line) == " PID 401 · reads 4.00 MB/s · writes 0 B/s · started 12:00"
    [line] = Paper(80, ASCII).facts(facts)
    assert text_of(line) == " PID 401, reads 4.00 MB/s, writes 0 B/s, started 12:00"


def test_a_sign_or_a_label_stands_before_the_first_line_only() -> None:
    paper = Paper(30, UNICODE)
    words = "one two three four five six seven"
    first, second = paper.marked(words, "alarm")
    assert (first[0], second[0]) == (("  ! ", "alarm"), ("    ", "alarm"))
    first, second = paper.labelled("unit", words)
    assert first[0] == ("  unit" + " " * (LABEL - 4), "quiet")
    assert second[0] == (" " * (2 + LABEL), "quiet")


def test_a_line_is_cut_to_the_page() -> None:
    paper = Paper(12, UNICODE)
    assert paper.cut([("0123456789abcdef", "text")]) == [("0123456789a…", "text")]
    assert text_of(paper.cut([("short", "text")])) == "short       "
    assert text_of(Paper(12, ASCII).cut([("訓練" * 9, "text")])) == "???????????~"


# Scrolled


def lines_of(*sections: tuple[str, int]) -> list[StyledLine]:
    """Headings, each with so many lines."""
    lines: list[StyledLine] = []
    for name, count in sections:
        lines += title(name)
        lines += [[(f"{name} {n}", "text")] for n in range(count)]
    return lines


class Scrolled(Page):
    """A page of so many lines, without a screen."""

    visible_lines = 5

    def line_at(self, y: int) -> StyledLine | None:
        return self.lines[self.top + y] if self.top + y < len(self.lines) else None


def test_it_scrolls_as_far_as_the_text_goes() -> None:
    page = Scrolled()
    assert (page.span, page.line_at(0)) == ((0, 0, 0), None)
    page.show_lines(lines_of(("a", 10)))
    for top, span in ((3, (4, 8, 12)), (99, (8, 12, 12)), (-1, (1, 5, 12))):
        page.go_to(top)
        assert page.span == span
    page.go_to(99)
    assert page.line_at(4) == [("a 9", "text")]
    assert page.line_at(5) is None
    page.visible_lines = 40
    page.go_to(page.top)
    assert page.top == 0


def test_a_heading_keeps_its_place_when_the_text_above_it_grows() -> None:
    page = Scrolled()
    page.show_lines(lines_of(("a", 3), ("b", 20)))
    page.go_to(9)
    before = page.line_at(0)
    page.show_lines(lines_of(("a", 8), ("b", 20)))
    assert page.line_at(0) == before
    page.show_lines(lines_of(("a", 1), ("b", 20)))
    assert page.line_at(0) == before
    page.show_lines(lines_of(("c", 30)))
    assert page.top == 7
    page.show_lines(lines_of(("c", 2)))
    assert page.top == 0


def test_whatever_happens_lines_are_in_sight() -> None:
    chance, page = random.Random(26), Scrolled()
    for _ in range(500):
        what = chance.randrange(3)
        if what == 0:
            page.show_lines(lines_of(*((name, chance.randrange(9)) for name in "abc")))
        elif what == 1:
            page.visible_lines = chance.randrange(1, 12)
            page.go_to(page.top)
        else:
            page.go_to(page.top + chance.randrange(-9, 10))
        assert 0 <= page.top <= max(0, len(page.lines) - page.visible_lines)
