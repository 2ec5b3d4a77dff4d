"""The filter, edited in the bottom line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from gputop.model.filter import FilterError
from gputop.tui.widgets.bars import KeyLine
from gputop.tui.widgets.editor import Editor
from gputop.tui.widgets.lines import Lines, Piece


class FilterInput(Editor):
    """What is typed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "drop", "Drop the filter", id="filter.drop", show=False),
    ]

    def action_drop(self) -> None:
        """No filter, and back to the processes."""
        self.value = ""
        self.post_message(self.Submitted(self, ""))


class FilterNote(Lines):
    """What is wrong with it, and where."""

    error: FilterError | None = None

    def say(self, error: FilterError | None) -> None:
        """Another error, or none."""
        self.error = error
        self.sync()

    def pieces(self, y: int) -> Iterable[Piece]:
        """The column, counted from 1, and the reason."""
        if self.error is None:
            return ()
        return [(f" column {self.error.position + 1}: {self.error.reason}", "notice")]


class FilterLine(Horizontal):
    """The line."""

    def compose(self) -> ComposeResult:
        """From left to right."""
        yield KeyLine([("/", "filter")], id="filter-label")
        yield FilterInput("", most=1024, id="filter")
        yield FilterNote()
