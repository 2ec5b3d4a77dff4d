"""A table whose cursor is bound to a row's identity: rows move, the cursor goes with its own."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import ClassVar, Generic, TypeVar

from textual.binding import Binding, BindingType

from gputop.tui.widgets.lines import Lines, Piece

R = TypeVar("R")


def _nothing() -> None:
    """Nobody wants to know."""


class Table(Lines, Generic[R], can_focus=True):
    """Rows under fixed head lines. Nothing is selected until a key selects.

    A subclass gives `head_lines`, `head(y)` and `row_pieces(row, selected)`.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "Down", id="table.down", show=False),
        Binding("up,k", "move(-1)", "Up", id="table.up", show=False),
        Binding("pagedown,ctrl+f", "page(1)", "Page down", id="table.page-down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "Page up", id="table.page-up", show=False),
        Binding("home", "end(0)", "First", id="table.first", show=False),
        Binding("end", "end(1)", "Last", id="table.last", show=False),
    ]

    head_lines = 1

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.on_scrolled: Callable[[], None] = _nothing
        """Called when other rows are in sight."""
        self.on_moved: Callable[[], None] = _nothing
        """Called when a key took the cursor to another row, or away."""
        self._rows: Sequence[R] = ()
        self._keys: list[Hashable] = []
        self._cursor: Hashable | None = None
        """The key of the selected row, which may not be among the rows of now."""
        self._in_sight = False
        self._place = 0
        self._top = 0

    def head(self, y: int) -> Iterable[Piece]:
        """The content of head line `y`."""
        return ()

    def row_pieces(self, row: R, selected: bool) -> Iterable[Piece]:
        """The content of a row."""
        raise NotImplementedError

    def empty(self) -> Iterable[Piece]:
        """The content of the first line where there is no row."""
        return ()

    @property
    def current(self) -> R | None:
        """The row under the cursor."""
        return self._rows[self._place] if self._in_sight else None

    @property
    def room(self) -> int:
        """How many rows are visible."""
        return max(0, self.size.height - self.head_lines)

    @property
    def span(self) -> tuple[int, int, int]:
        """First and last visible row, counted from 1, and how many there are."""
        total = len(self._rows)
        return min(self._top + 1, total), min(self._top + self.room, total), total

    def show(self, rows: Sequence[R], keys: list[Hashable]) -> None:
        """Other rows. The cursor stays on its row, and never goes to another by itself: while its
        row is gone nothing is selected, and the next key goes on from where it was."""
        self._rows, self._keys = rows, keys
        if self._cursor is not None:
            self._in_sight = self._cursor in keys
            if self._in_sight:
                self._select(keys.index(self._cursor))
        self._go_to(self._top)
        self.sync()

    def pieces(self, y: int) -> Iterable[Piece]:
        """A head line or a row."""
        if y < self.head_lines:
            return self.head(y)
        place = self._top + y - self.head_lines
        if place >= len(self._rows):
            return self.empty() if place == 0 else ()
        return self.row_pieces(self._rows[place], self._in_sight and place == self._place)

    def on_resize(self) -> None:
        """Keep the cursor in sight."""
        super().on_resize()
        if self._in_sight:
            self._select(self._place)
        self._go_to(self._top)
        self.on_scrolled()

    def action_move(self, step: int) -> None:
        """To a neighbour; the first key selects the first visible row."""
        if self._rows:
            self._choose(self._start + step if self._in_sight else self._start)

    def action_page(self, step: int) -> None:
        """A screenful up or down."""
        if self._rows:
            self._choose(self._start + step * max(1, self.room - 1))

    def action_end(self, last: int) -> None:
        """To the first or the last row."""
        if self._rows:
            self._choose(len(self._rows) - 1 if last else 0)

    def deselect(self) -> bool:
        """Take the cursor away; whether one was in sight."""
        was_in_sight = self._in_sight
        self._cursor, self._in_sight = None, False
        self.sync()
        self.on_moved()
        return was_in_sight

    @property
    def _start(self) -> int:
        """Where a key moves from."""
        return self._top if self._cursor is None else self._place

    def _choose(self, place: int) -> None:
        """What a key does. Where nothing scrolls, two lines are another."""
        top, before = self._top, self._place
        self._select(place)
        lines = {self.head_lines - top + place for place in (before, self._place)}
        whole = self._top != top or not lines <= set(range(self.size.height))
        self.sync(None if whole else lines)
        self.on_moved()

    def _select(self, place: int) -> None:
        self._place = min(max(0, place), len(self._keys) - 1)
        self._cursor, self._in_sight = self._keys[self._place], True
        if self.room and not self._top <= self._place < self._top + self.room:
            below = self._place >= self._top + self.room
            self._go_to(self._place - self.room + 1 if below else self._place)

    def _go_to(self, top: int) -> None:
        before = self._top
        self._top = min(max(0, top), max(0, len(self._rows) - self.room))
        if self._top != before:
            self.on_scrolled()
