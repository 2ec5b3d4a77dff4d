"""The dialog that asks for a column to sort by."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from gputop.model.process_metrics import COLUMNS


class SortScreen(ModalScreen[str | None]):
    """Every column of the process table; answers with the id of one, None for none."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "leave", "Cancel", id="sort.leave", show=False),
        Binding("j", "down", "Down", id="sort.down", show=False),
        Binding("k", "up", "Up", id="sort.up", show=False),
    ]

    def __init__(self, current: str) -> None:
        super().__init__()
        self._current = current

    def compose(self) -> ComposeResult:
        """A line a column."""
        options = [
            Option(Content(f"{metric.label:<9}{metric.help}"), id=metric.id)
            for metric in COLUMNS.values()
        ]
        yield OptionList(*options, markup=False)

    def on_mount(self) -> None:
        """Start on the column of now."""
        choices = self.query_one(OptionList)
        choices.border_title = Content("Sort by (the same again: other way)")
        choices.highlighted = list(COLUMNS).index(self._current)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Answer."""
        self.dismiss(event.option.id)

    def action_leave(self) -> None:
        """Nothing changes."""
        self.dismiss(None)

    def action_down(self) -> None:
        """As the arrow key."""
        self.query_one(OptionList).action_cursor_down()

    def action_up(self) -> None:
        """As the arrow key."""
        self.query_one(OptionList).action_cursor_up()
