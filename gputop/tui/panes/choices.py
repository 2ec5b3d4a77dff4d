"""A page with lines to choose from: findings, or the pages of the manual."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from textual.events import Click

from gputop.tui.panes.lines import StyledLine
from gputop.tui.panes.page import Page
from gputop.tui.panes.table_cursor import TableCursor

K = TypeVar("K")
_ABOVE = 2
"""Lines that stay in sight above the cursor: a heading and the blank before it."""


class ChoicePage(Page, Generic[K]):
    """A text of which some lines stand for a key (K). The cursor stays with its key while the text
    changes; a text without such lines scrolls as any page does."""

    def __init__(self, chosen: Callable[[K], None]) -> None:
        """`chosen` is called with the key of a choice: of `choose`, or a double click."""
        super().__init__()
        self._chosen = chosen
        self._cursor = TableCursor()
        self._begins: Mapping[K, int] = {}

    def show_choices(self, lines: Sequence[StyledLine], begins: Mapping[K, int]) -> None:
        """Show another text. `begins` has the line of each key, from the top to the bottom."""
        self._begins = begins
        self._cursor.show([*begins], len(begins))
        if begins and not self._cursor.has_chosen:
            self._cursor.select(0, len(begins))
        self._mark()
        self.show_lines(lines)

    def action_move(self, step: int) -> None:
        cursor = self._cursor
        if not self._begins:
            super().action_move(step)
            return
        before = cursor.index
        self._select(cursor.start + (step if cursor.is_there else 0))
        begins = [*self._begins.values(), len(self.lines)]
        line, end = begins[cursor.index : cursor.index + 2]
        top, room = self.top, self.visible_lines
        if cursor.index == before and step < 0:
            top = 0
        elif line - _ABOVE < top:
            top = line - _ABOVE
        elif end > top + room:
            top = min(line - _ABOVE, end - room)
        self.go_to(top)

    def action_page(self, step: int) -> None:
        """Scroll, and take the cursor along: at an end of the text to the choice there."""
        top = self.top
        super().action_page(step)
        if self.top == top:
            self.action_end(int(step > 0))
        seen = range(self.top + 1, self.top + self.visible_lines)  # below the title
        in_sight = [n for n, line in enumerate(self._begins.values()) if line in seen]
        if in_sight and self._cursor.index not in in_sight:
            self._select(in_sight[0 if step > 0 else -1])
            self.repaint_changed()

    def action_end(self, last: int) -> None:
        if self._begins:
            self._select(len(self._begins) - 1 if last else 0)
        super().action_end(last)

    def choose(self) -> None:
        """Choose what the cursor is on."""
        if self._cursor.is_there:
            self._chosen([*self._begins][self._cursor.index])

    def on_click(self, event: Click) -> None:
        """Select the lines under the mouse; a double click chooses what its first selected."""
        event.stop()
        above = [n for n, line in enumerate(self._begins.values())
                 if line <= self.number_at(event.y)]  # fmt: skip
        if above and event.chain == 1:
            self._select(above[-1])
            self.repaint_changed()
        elif above and event.chain == 2:
            self.choose()

    def _select(self, index: int) -> None:
        self._cursor.select(index, len(self._begins))
        self._mark()

    def _mark(self) -> None:
        is_there, index = self._cursor.is_there, self._cursor.index
        self.marked = [*self._begins.values()][index] if is_there else None
