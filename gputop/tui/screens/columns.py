"""The dialog that chooses the columns of the process table, and their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from gputop.model.process_metrics import COLUMNS
from gputop.tui.widgets.lines import Lines


class ColumnsScreen(ModalScreen[tuple[str, ...] | None]):
    """Every column, those that are shown first and marked; answers with their ids, None to leave
    all as it is. The command is always there, and the last."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "leave", "Cancel", id="columns.leave", show=False),
        Binding("space", "show", "Show or hide", id="columns.toggle", show=False, priority=True),
        Binding("right_square_bracket,shift+down", "move(1)", "Later", id="columns.later",
                show=False),
        Binding("left_square_bracket,shift+up", "move(-1)", "Sooner", id="columns.sooner",
                show=False),
        Binding("j", "down", "Down", id="columns.down", show=False),
        Binding("k", "up", "Up", id="columns.up", show=False),
    ]  # fmt: skip

    def __init__(self, shown: Sequence[str]) -> None:
        super().__init__()
        self._shown = [one for one in shown if one != "command"]
        self._order = [
            *self._shown,
            *(one for one in COLUMNS if one not in shown and one != "command"),
        ]

    def compose(self) -> ComposeResult:
        """A line a column."""
        yield OptionList(markup=False)

    def on_mount(self) -> None:
        """Start at the first."""
        self._list.border_title = Content("Columns: space shows, [ ] move, Enter keeps")
        self._draw(0)

    def on_option_list_option_selected(self) -> None:
        """Answer."""
        shown = [one for one in self._order if one in self._shown]
        self.dismiss((*shown, "command"))

    def action_leave(self) -> None:
        """Nothing changes."""
        self.dismiss(None)

    def action_show(self) -> None:
        """Show the column, or not."""
        place = self._place
        one = self._order[place]
        if one in self._shown:
            self._shown.remove(one)
        else:
            self._shown.append(one)
        self._draw(place)

    def action_move(self, step: int) -> None:
        """Sooner or later."""
        place = self._place
        to = min(max(0, place + step), len(self._order) - 1)
        self._order.insert(to, self._order.pop(place))
        self._draw(to)

    def action_down(self) -> None:
        """As the arrow key."""
        self._list.action_cursor_down()

    def action_up(self) -> None:
        """As the arrow key."""
        self._list.action_cursor_up()

    @property
    def _list(self) -> OptionList:
        return self.query_one(OptionList)

    @property
    def _place(self) -> int:
        return self._list.highlighted or 0

    def _draw(self, place: int) -> None:
        mark = Lines.glyphs.cursor
        self._list.set_options(
            Option(
                Content(f"{mark if one in self._shown else ' '} {metric.label:<10}{metric.help}")
            )
            for one, metric in ((one, COLUMNS[one]) for one in self._order)
        )
        self._list.highlighted = place
