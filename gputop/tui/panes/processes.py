"""The process table: draws the rows of a list of processes, and moves a cursor among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from textual.message import Message
from textual.timer import Timer

from gputop.model.machine.frame import ProcessKey
from gputop.model.metrics.process import ProcessRow
from gputop.model.processes.process_listing import ProcessListing
from gputop.model.processes.views import ViewRow
from gputop.settings import Session
from gputop.tui.panes.columns import column_at, heading
from gputop.tui.panes.lines import Piece
from gputop.tui.panes.process_columns import ProcessColumns
from gputop.tui.panes.process_rule import rule, sort_mark
from gputop.tui.panes.table import Table

_SHIFT = 16
"""Characters by which a key scrolls the command."""
_PAUSE = 3.0
"""Seconds without a digit after which the next one begins another PID."""
_MOST_DIGITS = 10


class ProcessTable(Table[ViewRow]):
    """The rows of a `ProcessListing`, under a rule that says which they are. The cursor is bound to
    its process."""

    head_lines = 2

    class Opened(Message):
        """Posted when the user opens a row with Enter or a double click."""

    @dataclass
    class HeadingClicked(Message):
        """Posted when the user clicks on the heading of a column, to sort by it."""

        column: str

    def __init__(self, settings: Session, sort_id: str | None = None) -> None:
        """`sort_id` is the column to sort by, None for that of the settings."""
        super().__init__()
        self.listing = ProcessListing(
            settings.processes.sort if sort_id is None else sort_id,
            me=settings.me,
            user=settings.user,
            idle_after=settings.processes.idle_after,
        )
        self.listing.arranged = self._show_listing
        self.above: Callable[[], str] = str
        """Returns what the rule says of the pane above it; called whenever the rule is drawn."""
        self.arranged: Callable[[int], None] = lambda count: None
        """Called with the number of rows whenever they are arranged anew."""
        self.is_marked: Callable[[ProcessRow], bool] = lambda row: False
        """Returns whether the user waits for the end of a process."""
        self._cells = ProcessColumns(settings.processes.columns)
        self.digits, self.search_note = "", ""
        """The digits of a PID that is searched for, and what to say of it."""
        self._search_end: Timer | None = None

    @property
    def selected(self) -> ProcessRow | None:
        """The process under the cursor; None for a group or an ended process."""
        current = self.current
        return current.row if current is not None and current.kind == "process" else None

    def _show_listing(self) -> None:
        rows = self.listing.rows
        self._cells.show(self.listing)
        self.fit()
        self.show(rows, [line.key for line in rows])
        self.arranged(len(rows))

    def open_row(self, _: ViewRow) -> None:
        self.post_message(self.Opened())

    def click_head(self, x: int, y: int) -> None:
        column = column_at(self._columns, x - 1, self.gap)
        if y == 1 and column is not None:
            self.post_message(self.HeadingClicked(column))

    def next_user(self) -> None:
        """Show a row for each user, with the cursor on the user's own; there, go to the next."""
        if self.listing.view.shape != "users":
            index = self.listing.show_users()
        else:
            index = self.cursor.index + self.cursor.is_there
        if self._rows:
            self._choose(index % len(self._rows))

    def back(self) -> bool:
        """Undo one step: the rows of users, the cursor, another view; return whether there was one
        to undo."""
        if self.listing.view.shape != "users" and self.current is not None:
            return self.deselect()
        was_any = self.listing.leave_view()
        if not self.cursor.is_there:
            self.cursor.drop()
        return was_any

    def tag(self) -> None:
        """Tag or untag what is under the cursor, and go on to the next row."""
        self.select_first()
        if self.current is not None:
            self.listing.tag(self.current)
            self.action_move(1)

    def select_process(self, key: ProcessKey) -> bool:
        """Select a process; return False if it is not among the rows, and select none then."""
        for index, line in enumerate(self.listing.rows):
            if line.kind == "process" and key in self.listing.keys_of(line):
                self._choose(index)
                return True
        self.deselect()
        return False

    def search_pid(self, digits: str) -> None:
        """Select the process with that PID, or as htop does the first whose PID begins so; if there
        is none, leave the cursor alone."""
        digits, note = digits[:_MOST_DIGITS], ""
        if self._search_end is not None:
            self._search_end.stop()
        self._search_end = self.set_timer(_PAUSE, self.stop_search)
        if digits:
            index, note = self.listing.find_pid(digits, self.glyphs.ellipsis)
            if index is not None:
                self._choose(index)
        self.digits, self.search_note = digits, note  # only now: moving the cursor ended the search
        self.repaint_changed([0])

    def stop_search(self) -> bool:
        """End the search, as any other key does; return whether there was one."""
        if not self.digits:
            return False
        self.digits = self.search_note = ""
        self.repaint_changed([0])
        return True

    @property
    def is_exact(self) -> bool:
        """Whether no search is under way, or its digits are the whole PID that is selected: else a
        signal might reach a process that the user did not name."""
        row = self.selected
        return not self.digits or (row is not None and str(row.process.pid) == self.digits)

    @property
    def chosen_columns(self) -> tuple[str, ...]:
        """The ids of the columns that were chosen; empty for the usual ones."""
        return self._cells.chosen

    def show_columns(self, columns: tuple[str, ...]) -> None:
        self._cells.chosen = columns
        self.fit()
        self.repaint_changed()

    def shift(self, direction: int) -> None:
        """Scroll the command line sideways, at most until the end of the longest is in sight."""
        self._scroll_command(self._cells.shift + direction * _SHIFT)

    def shift_to(self, end: int) -> None:
        """Scroll the command line to its start (0) or to the end of the longest."""
        self._scroll_command(end * self._longest_command)

    def _scroll_command(self, shift: int) -> None:
        width = next((width for column, width in self._columns if column.id == "command"), 1)
        self._cells.shift = min(max(0, shift), max(0, self._longest_command - width))
        self.fit()
        self.repaint_changed()

    @property
    def _longest_command(self) -> int:
        return max((len(self._cells.command(view_row)) for view_row in self._rows), default=0)

    def toggle_command(self) -> None:
        """Show commands short, with the script first, or whole."""
        self._cells.full_command = not self._cells.full_command
        self.shift_to(0)

    def head(self, y: int) -> Iterable[Piece]:
        listing, glyphs, width = self.listing, self.glyphs, self.size.width
        if y == 0:
            return rule(listing, self.span, width, glyphs, self.above(), self.is_active)
        mark = sort_mark(listing, glyphs)
        return heading(self._columns, self.gap, listing.order[0], mark)

    def cells(self, row_: ViewRow) -> Sequence[Piece]:
        if row_.kind == "unaccounted":
            return self._cells.across(row_, max(1, self.size.width - 1))
        pieces = super().cells(row_)
        return [(text, "quiet") for text, _ in pieces] if row_.kind == "ended" else pieces

    def sign(self, row_: ViewRow) -> Piece | None:
        if self.listing.is_tagged(row_):
            return self.glyphs.tag, "notice"
        is_marked = row_.kind == "process" and self.is_marked(row_.row)
        return (self.glyphs.mark, "text") if is_marked else None

    def empty(self) -> Iterable[Piece]:
        words, is_expected = self.listing.why_empty()
        return [(f"  {words}", "quiet" if is_expected else "notice")] if words else ()

    def fit(self) -> None:
        self._columns = self._cells.fitted(self.size.width, self.gap, self.glyphs)
