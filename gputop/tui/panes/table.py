"""A table whose cursor is bound to a row's identity and moves with it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from textual.events import Click, MouseScrollDown, MouseScrollUp

from gputop.tui.panes.columns import Column, Fitted, fit, heading, row
from gputop.tui.panes.lines import MOVES, NOTCH, Lines, Piece
from gputop.tui.panes.table_cursor import TableCursor

R = TypeVar("R")
V = TypeVar("V")


class Table(Lines, Generic[R], can_focus=True):
    """Rows in columns, as many as fit, under a line of their labels. No row is selected until a key
    or a click selects one.

    A subclass defines `columns`, and calls `fit` when they change.
    """

    BINDINGS = MOVES

    head_lines = 1

    def __init__(self) -> None:
        super().__init__()
        self.scrolled: Callable[[], None] = lambda: None
        """Called when other rows come into sight."""
        self.moved: Callable[[], None] = lambda: None
        """Called when a key or a click has moved the cursor to another row, or removed it."""
        self._rows: Sequence[R] = ()
        self._columns: Fitted[R] = []
        self.cursor = TableCursor()
        self.is_active = False
        """Whether keys go to this table."""

    def columns(self) -> Sequence[Column[R]]:
        """Return all columns, of which `fit` chooses some."""
        raise NotImplementedError

    def fit(self) -> None:
        self._columns = fit(self.columns(), max(1, self.size.width - 1), self.gap)

    def head(self, y: int) -> Iterable[Piece]:
        """Return the content of one of the `head_lines`."""
        return heading(self._columns, self.gap)

    def cells(self, row_: R) -> Sequence[Piece]:
        """Return the content of a row, after the sign before it."""
        return row(self._columns, row_, self.gap, self.glyphs.ellipsis)

    def sign(self, row_: R) -> Piece | None:
        """Return what stands before a row instead of the cursor; None if nothing does."""
        return None

    def empty(self) -> Iterable[Piece]:
        """Return the content of the first line if there is no row."""
        return ()

    def open_row(self, row: R) -> None:
        """Handle Enter or a double click on a row."""

    def click_head(self, x: int, y: int) -> None:
        """Handle a click on head line `y`, at cell `x`."""

    @property
    def current(self) -> R | None:
        """The row under the cursor; None if there is none."""
        return self._rows[self.cursor.index] if self.cursor.is_there else None

    @property
    def gap(self) -> int:
        """Cells between two columns."""
        return 2 if self.size.width >= 110 else 1

    @property
    def visible_rows(self) -> int:
        """How many rows fit."""
        return max(0, self.size.height - self.head_lines)

    @property
    def rows_in_sight(self) -> Sequence[R]:
        return self._rows[self.cursor.top : self.cursor.top + self.visible_rows]

    @property
    def span(self) -> tuple[int, int, int]:
        """First and last visible row, counted from 1, and the number of all rows."""
        return self.cursor.span(self.visible_rows)

    def show(self, rows: Sequence[R], keys: Sequence[Hashable]) -> None:
        """Show other rows. The cursor stays on its row, see `TableCursor`."""
        self._rows = rows
        self._move(self.cursor.show, keys)
        self.repaint_changed()

    def on_focus(self) -> None:
        self._activate(True)

    def on_blur(self) -> None:
        if self.screen.focused is not self:
            self._activate(False)

    def pieces(self, y: int) -> Iterable[Piece]:
        if y < self.head_lines:
            return self.head(y)
        cursor = self.cursor
        index = cursor.top + y - self.head_lines
        if index >= len(self._rows):
            return self.empty() if index == 0 else ()
        row_, lead = self._rows[index], " "
        is_selected = index == cursor.index and cursor.is_there
        if is_selected:  # it has a dot if keys go to another table
            lead = self.glyphs.cursor if self.is_active else self.glyphs.separator
        pieces = [self.sign(row_) or (lead, "text"), *self.cells(row_)]
        is_bright = is_selected and self.is_active
        return [(text, "cursor") for text, _ in pieces] if is_bright else pieces

    def on_resize(self) -> None:
        self.fit()
        super().on_resize()
        self.cursor.fit(self.visible_rows)
        self.scrolled()

    def action_move(self, step: int) -> None:
        """Select a neighbour; the first key selects the first visible row."""
        if self._rows and self.display:  # a hidden row is never selected
            self._choose(self.cursor.start + (step if self.cursor.is_there else 0))

    def action_choose(self) -> None:
        """Open the selected row; if none was selected, the first in sight."""
        self.select_first()
        if self.current is not None:
            self.open_row(self.current)

    def select_first(self) -> None:
        """Select the first row in sight if none has been selected. A row that is gone was: a key
        that came a moment late is not for its neighbour."""
        if not self.cursor.has_chosen:
            self.action_move(0)

    def show_cursor(self) -> None:
        """Select the first row in sight, or the one in the place of a row that is gone."""
        if self.current is None:
            self.action_move(0)

    def action_page(self, step: int) -> None:
        if self._rows:
            self._choose(self.cursor.start + step * max(1, self.visible_rows - 1))

    def action_end(self, last: int) -> None:
        if self._rows:
            self._choose(len(self._rows) - 1 if last else 0)

    def on_click(self, event: Click) -> None:
        """Select the row under the mouse. A double click opens the row that its first click
        selected, even if another has taken its place."""
        event.stop()
        index = self.cursor.top + event.y - self.head_lines
        if event.y < self.head_lines:
            self.click_head(event.x, event.y)
        elif index < len(self._rows):
            if event.chain == 1:
                self._choose(index)
            elif event.chain == 2 and self.cursor.is_there:
                self.action_choose()

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        event.stop()
        self._wheel(NOTCH)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        event.stop()
        self._wheel(-NOTCH)

    def _wheel(self, step: int) -> None:
        self._move(self.cursor.wheel, step)
        self.repaint_changed()

    def deselect(self) -> bool:
        """Remove the cursor; return whether a row was selected."""
        was_there = self.cursor.drop()
        self.repaint_changed()
        self.moved()
        return was_there

    def _activate(self, is_active: bool) -> None:
        self.is_active = is_active
        self.repaint_changed()

    def _choose(self, index: int) -> None:
        """Select a row and redraw: only two lines if nothing scrolls."""
        cursor = self.cursor
        top, before = cursor.top, cursor.index
        self._move(cursor.select, index)
        lines = {self.head_lines - top + index for index in (before, cursor.index)}
        whole = cursor.top != top or not lines <= set(range(self.size.height))
        self.repaint_changed(None if whole else lines)
        self.moved()

    def _move(self, move: Callable[[V, int], None], to: V) -> None:
        """Move the cursor or the rows, and tell if others come into sight."""
        before = self.cursor.top
        move(to, self.visible_rows)
        if self.cursor.top != before:
            self.scrolled()
