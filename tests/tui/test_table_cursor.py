"""The cursor of a table, without a table."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence

import pytest

from gputop.tui.panes.table_cursor import TableCursor


def cursor_of(keys: Sequence[Hashable], room: int = 5) -> TableCursor:
    cursor = TableCursor()
    cursor.show(list(keys), room)
    return cursor


def selected(cursor: TableCursor, keys: Sequence[Hashable]) -> Hashable | None:
    return keys[cursor.index] if cursor.is_there else None


def test_nothing_is_selected_at_first() -> None:
    cursor = cursor_of("abc")
    assert not cursor.is_there
    assert cursor.start == 0
    cursor.wheel(1, 2)
    assert cursor.start == 1  # the first row in sight
    assert not cursor.drop()


@pytest.mark.parametrize(
    ("index", "top", "span"), [(0, 0, (1, 5, 9)), (4, 0, (1, 5, 9)), (5, 1, (2, 6, 9)),
                               (99, 4, (5, 9, 9)), (-3, 0, (1, 5, 9))]
)  # fmt: skip
def test_a_selected_row_is_in_sight(index: int, top: int, span: tuple[int, int, int]) -> None:
    cursor = cursor_of(range(9))
    cursor.select(index, 5)
    assert cursor.index == min(max(0, index), 8)
    assert (cursor.top, cursor.span(5)) == (top, span)
    cursor.select(0, 5)
    assert cursor.top == 0


def test_the_cursor_goes_with_its_row() -> None:
    cursor = cursor_of("abcdefgh")
    cursor.select(1, 5)
    cursor.show(list("acdefghb"), 5)
    assert selected(cursor, "acdefghb") == "b"
    assert cursor.span(5) == (4, 8, 8)
    cursor.fit(2)
    assert cursor.span(2) == (7, 8, 8)


def test_the_row_that_takes_its_place_is_not_selected() -> None:
    cursor = cursor_of("abc")
    cursor.select(1, 5)
    cursor.show(list("ac"), 5)
    assert (cursor.is_there, cursor.start) == (False, 1)
    cursor.show(list(""), 5)
    assert (cursor.is_there, cursor.span(5)) == (False, (0, 0, 0))
    cursor.show(list("cab"), 5)
    assert selected(cursor, "cab") == "b"
    assert cursor.drop()
    cursor.show(list("abc"), 5)
    assert not cursor.is_there


def test_no_frame_brings_back_what_the_wheel_scrolled_away() -> None:
    cursor = cursor_of(range(20))
    cursor.select(1, 5)
    cursor.wheel(6, 5)
    cursor.show(range(20), 5)
    assert (cursor.top, cursor.index, cursor.is_there) == (6, 1, True)
    cursor.select(cursor.start + 1, 5)
    assert (cursor.top, cursor.index) == (2, 2)
    cursor.wheel(99, 5)
    assert cursor.span(5) == (16, 20, 20)


def test_whatever_happens_it_is_never_on_another_row() -> None:
    chance = random.Random(26)
    cursor, keys, room, chosen = cursor_of(()), list[int](), 3, None
    for _ in range(3000):
        what = chance.randrange(4)
        if what == 0:
            keys = chance.sample(range(12), chance.randrange(13))
            cursor.show(list(keys), room)
        elif what == 1:
            room = chance.randrange(8)
            cursor.fit(room)
        elif what == 2:
            cursor.wheel(chance.randrange(-4, 5), room)
        elif keys:
            cursor.select(cursor.start + chance.randrange(-3, 4), room)
            chosen = keys[cursor.index]
            assert not room or cursor.top <= cursor.index < cursor.top + room
        assert selected(cursor, keys) == (chosen if chosen in keys else None)
        assert 0 <= cursor.top <= max(0, len(keys) - room)
