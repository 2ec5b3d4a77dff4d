"""The screens of machines: tables under a heading, and below them a line of keys that gives way to
the filter."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.css.query import NoMatches
from textual.screen import Screen

from gputop.files import reason_of
from gputop.model.machine.text import printable
from gputop.model.metrics.process import COLUMNS
from gputop.model.processes.filter import FilterError
from gputop.settings import Session, keep_settings
from gputop.tui.dialogs.list_dialog import SortDialog
from gputop.tui.panes.filter_line import FilterLine
from gputop.tui.panes.heading import KeyLine, key_words
from gputop.tui.panes.processes import ProcessTable
from gputop.tui.panes.table import Table
from gputop.tui.terminal.key_queue import keyed

NOTE_SECONDS = 6.0
"""For how long something is said in passing."""


class TableScreen(Screen[None]):
    """A subclass gives `table`, `filter`, `say` and `share_lines`, and composes what is above the
    last line."""

    FIRST: ClassVar[int]
    """Bindings that stand in the line of keys before those of the app."""
    NEEDED: ClassVar[tuple[str, ...]] = ("open", "help")
    """Words that stay in it on a narrow screen."""

    def __init__(self, settings: Session) -> None:
        super().__init__()
        self.settings = settings

    def compose(self) -> ComposeResult:
        yield FilterLine(self.filter, self.close_filter, id="filter-line")
        yield KeyLine(self.key_words(), self.NEEDED, id="keys")

    def on_mount(self) -> None:
        self.share_lines()

    def on_resize(self) -> None:
        with suppress(NoMatches):  # at the end of the app its parts go one by one
            self.share_lines()

    def share_lines(self) -> None:
        """Give each part as many lines as it needs, or as there are for it."""
        raise NotImplementedError

    @property
    def table(self) -> Table[Any]:
        """What the filter is for."""
        raise NotImplementedError

    def filter(self, text: str) -> FilterError | None:
        """Show only what fits; of a filter that is wrong return why."""
        raise NotImplementedError

    def say(self, words: str) -> None:
        """Say something until something else is said; nothing, where the words are empty."""
        raise NotImplementedError

    def say_for_a_while(self, words: str) -> None:
        self.say(words)
        self.set_timer(NOTE_SECONDS, lambda: self.say(""))

    def save(self, chosen: Mapping[str, Any]) -> None:
        """Keep in the settings what was chosen, where the user wants so; say why that fails."""
        if self.settings.path is None:
            return
        try:
            keep_settings(self.settings.path, chosen)
        except (OSError, ValueError) as error:
            self.say_for_a_while(printable(f"not saved: {reason_of(error)}", 160))

    def key_words(self) -> list[tuple[str, str]]:
        """Return what the line of keys says."""
        own = [b for b in keyed(self.settings.keys, self.BINDINGS)
               if self.check_action(b.action, ())]  # fmt: skip
        of_app = keyed(self.settings.keys, self.app.BINDINGS)
        return key_words([*own[: self.FIRST], *of_app, *own[self.FIRST :]])

    def close_filter(self) -> None:
        """Take in that the filter is no longer edited."""
        self.query_one("#keys").display = True
        if not isinstance(self.focused, Table):  # which a click has chosen
            self.set_focus(self.table)

    def action_filter(self) -> None:
        self.query_one("#keys").display = False
        self.query_one(FilterLine).edit()


class ProcessTableScreen(TableScreen):
    """A screen with a table of processes: what keys do to that. A subclass gives `make_room`."""

    @property
    def processes(self) -> ProcessTable:
        return self.query_one(ProcessTable)

    table = processes

    def make_room(self, count: int) -> None:
        """Make room for so many rows of processes, or give it to others."""
        raise NotImplementedError

    def arranged(self, count: int) -> None:
        """Take in that there are so many rows; while a filter is typed, nothing moves for it, or
        everything would with each key."""
        if not self.query_one(FilterLine).display:
            self.make_room(count)

    def filter(self, text: str) -> FilterError | None:
        return self.processes.filter_by(text)

    def close_filter(self) -> None:
        super().close_filter()
        self.arranged(self.processes.span[2])

    def sort(self, metric_id: str | None) -> None:
        """Sort by a metric that a person has chosen, if it is one."""
        if metric_id in COLUMNS:
            self.processes.sort_by(metric_id)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "signal" or not self.settings.readonly

    def action_sort(self) -> None:
        self.app.push_screen(SortDialog(self.processes.sort_id), self.sort)

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
