"""The screens of machines: tables under a heading, what keys do in the table of processes, and a
line of keys that gives way to the filter."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.css.query import NoMatches, QueryType
from textual.screen import Screen
from textual.widget import Widget

from gputop.files import reason_of
from gputop.model.machine.text import printable
from gputop.model.metrics.process import COLUMNS
from gputop.model.processes.filter import FilterError
from gputop.settings import Session, keep_settings
from gputop.tui.dialogs.list_dialog import ColumnsDialog, SortDialog
from gputop.tui.messages import Note
from gputop.tui.panes.filter_line import FilterLine
from gputop.tui.panes.heading import KeyLine, key_words, works
from gputop.tui.panes.processes import ProcessTable
from gputop.tui.panes.table import Table
from gputop.tui.terminal.key_queue import keyed

_SLACK = 4
"""Lines that processes keep when some end, so that other parts do not move each time."""


class TableScreen(Screen[None]):
    """A screen of tables, with a table of processes or without. A subclass gives `home`, `say` and
    `share_lines`, and composes what is above the last line."""

    FIRST: ClassVar[int]
    """How many bindings of the screen stand in the line of keys before those of the app."""
    NEEDED: ClassVar[tuple[str, ...]] = ("open", "help", "quit")
    """Words that stay in the line of keys on a narrow screen."""

    def __init__(self, settings: Session) -> None:
        super().__init__()
        self.settings = settings
        self.rows = 0
        """The number of rows that processes have room for; a few may be empty."""

    def compose(self) -> ComposeResult:
        yield FilterLine(self.filter, self.close_filter)
        yield KeyLine(self.key_words(), self.NEEDED, with_notes=True)

    def on_mount(self) -> None:
        self.share_lines()
        if self.settings.mistakes:
            self.say(self.settings.mistakes)

    def on_resize(self) -> None:
        with suppress(NoMatches):  # when the app ends, its widgets go one by one
            self.share_lines()

    def share_lines(self) -> None:
        """Give each part the lines that it needs, as far as there are enough."""
        raise NotImplementedError

    def arranged(self, count: int) -> None:
        """Make room for more rows of processes, or clearly fewer, unless a filter is being typed:
        everything would move with each key."""
        is_typing = self.query_one(FilterLine).display
        if not is_typing and not self.rows - _SLACK < count <= self.rows:
            self.rows = count
            self.share_lines()

    @property
    def home(self) -> Table[Any]:
        """The table that keys go to when no other has them."""
        raise NotImplementedError

    @property
    def processes(self) -> ProcessTable:
        return self.query_one(ProcessTable)

    def focus_next(self, selector: str | type[QueryType] = "*") -> Widget | None:
        return self._with_cursor(super().focus_next(selector))

    def focus_previous(self, selector: str | type[QueryType] = "*") -> Widget | None:
        return self._with_cursor(super().focus_previous(selector))

    def _with_cursor(self, focused: Widget | None) -> Widget | None:
        """Show in the table that Tab goes to which row the next key acts on."""
        if isinstance(focused, Table):
            focused.show_cursor()
        return focused

    def filter(self, text: str) -> FilterError | None:
        """Show only the rows that match; return the error if the filter is wrong."""
        return self.processes.listing.filter_by(text)

    def say(self, words: str) -> None:
        """Show a note until the next one; empty words remove it."""
        raise NotImplementedError

    def save(self, chosen: Mapping[str, Any], said: str = "") -> None:
        """Save choices in the user's settings, if these are to be kept; say `said`, or why
        saving fails."""
        try:
            if self.settings.path is not None:
                keep_settings(self.settings.path, chosen)
        except (OSError, ValueError) as error:
            said = f"not saved: {reason_of(error)}"
        if said:
            self.app.post_message(Note(printable(said, 160)))

    def offers(self, binding: Binding) -> bool:
        """Return whether the last line and the help name a key; any other may still say why."""
        is_refused = self.settings.readonly and binding.action == "signal"
        return not is_refused and works(self, binding)

    def key_words(self) -> list[tuple[str, str]]:
        own = [b for b in keyed(self.app, self.BINDINGS) if self.offers(b)]
        of_app = [b for b in keyed(self.app, self.app.BINDINGS) if self.offers(b)]
        return key_words([*own[: self.FIRST], *of_app, *own[self.FIRST :]])

    def close_filter(self) -> None:
        """Show the keys again, as the filter is no longer edited."""
        self.query_one(KeyLine).display = True
        if not isinstance(self.focused, Table):  # a click may have chosen another table
            self.set_focus(self.home)
        for processes in self.query(ProcessTable):
            self.arranged(processes.span[2])

    def action_filter(self) -> None:
        self.query_one(KeyLine).display = False
        self.query_one(FilterLine).edit()

    # What keys do in the table of processes.

    def sort(self, metric_id: str | None) -> None:
        """Sort by the metric that the user chose; ignore an id that is no column."""
        if metric_id in COLUMNS:
            self.processes.listing.sort_by(metric_id)

    def action_sort(self) -> None:
        self.app.push_screen(SortDialog(*self.processes.listing.order), self.sort)

    def action_user(self) -> None:
        if self.processes.display:
            self.set_focus(self.processes)
            self.processes.next_user()

    def action_invert(self) -> None:
        self.processes.listing.sort_by(self.processes.listing.sort_id)

    def action_command(self) -> None:
        self.processes.toggle_command()

    def action_shift(self, direction: int) -> None:
        self.processes.shift(direction)

    def action_shift_to(self, end: int) -> None:
        self.processes.shift_to(end)

    def action_tree(self) -> None:
        self.processes.listing.toggle_tree()

    def action_tag(self) -> None:
        self.processes.tag()

    def action_tag_all(self) -> None:
        self.processes.listing.tag_all()

    def action_finished(self) -> None:
        self.processes.listing.toggle_ended()

    def action_columns(self) -> None:
        chosen = ColumnsDialog(self.processes.chosen_columns)
        self.app.push_screen(chosen, self._show_columns)

    def _show_columns(self, columns: tuple[str, ...] | None) -> None:
        if columns is not None:
            self.processes.show_columns(columns)
            self.save({"processes.columns": columns})

    def on_process_table_heading_clicked(self, message: ProcessTable.HeadingClicked) -> None:
        self.sort(message.column)
