"""A screen with a table of processes: what keys do to that, wherever it stands."""

from __future__ import annotations

from textual.screen import Screen

from gputop.model.processes.filter import FilterError
from gputop.tui.panes.filter_line import FilterLine
from gputop.tui.panes.processes import ProcessTable
from gputop.tui.panes.table import Table


class ProcessTableScreen(Screen[None]):
    """A subclass has the table, a FilterLine and the keys in `#keys`, and gives `sort` and
    `make_room`."""

    @property
    def processes(self) -> ProcessTable:
        return self.query_one(ProcessTable)

    def sort(self, metric_id: str | None) -> None:
        """Sort by a metric that a person has chosen, if it is one."""
        raise NotImplementedError

    def make_room(self, count: int) -> None:
        """Make room for so many rows of processes, or give it to others."""
        raise NotImplementedError

    def arranged(self, count: int) -> None:
        """Take in that there are so many rows; while a filter is typed, nothing moves for it, or
        everything would with each key."""
        if not self.query_one(FilterLine).display:
            self.make_room(count)

    def filter(self, text: str) -> FilterError | None:
        """Show only processes that fit."""
        return self.processes.filter_by(text)

    def close_filter(self) -> None:
        """Take in that the filter is no longer edited."""
        self.query_one("#keys").display = True
        if not isinstance(self.focused, Table):  # which a click has chosen
            self.set_focus(self.processes)
        self.arranged(self.processes.span[2])

    def action_filter(self) -> None:
        self.query_one("#keys").display = False
        self.query_one(FilterLine).edit()

    def action_user(self) -> None:
        self.processes.next_view()

    def action_invert(self) -> None:
        self.processes.sort_by(self.processes.sort_id)

    def action_command(self) -> None:
        self.processes.toggle_command()

    def action_shift(self, direction: int) -> None:
        self.processes.shift(direction)

    def on_process_table_heading_clicked(self, message: ProcessTable.HeadingClicked) -> None:
        self.sort(message.column)
