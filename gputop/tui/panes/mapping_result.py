"""The widgets of a mapping: one line, or its result to scroll."""

from __future__ import annotations

from collections.abc import Iterable

from gputop.tui.messages import ResultShown
from gputop.tui.panes.lines import Lines, Piece
from gputop.tui.panes.mapping_lines import mapping_line, result_lines, shell_line
from gputop.tui.panes.mapping_state import MappingState
from gputop.tui.panes.page import Page
from gputop.tui.panes.paper import Paper


class MappingLine(Lines):
    """The mapping in one line."""

    def __init__(self, state: MappingState, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._state = state

    def pieces(self, y: int) -> Iterable[Piece]:
        return mapping_line(self._state, Paper(self.size.width, self.glyphs))


class MappingResultView(Page, can_focus=False):
    """The mapping, a line for each device, then the remarks on it; the line for a shell is last.

    The keys of the editor scroll it.
    """

    with_devices = True

    def __init__(self, state: MappingState, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._state = state
        self._offer: str | None = None

    def on_resize(self) -> None:
        super().on_resize()
        self.show_result(self._offer)

    def show_result(self, offer: str | None) -> None:
        """Show the current result; `offer` is the completion that the editor suggests."""
        self._offer = offer
        self.show_lines(list(result_lines(self._state, self.paper, offer, self.with_devices)))
        self.post_message(ResultShown())

    @property
    def lines(self) -> int:
        """How many lines the result takes, with the one for a shell."""
        return len(self.text.lines) + 1

    @property
    def visible_lines(self) -> int:
        """The number of visible rows; if there is more than one line, the last is the shell's."""
        return max(1, self.size.height - 1) if self.size.height else 0

    def pieces(self, y: int) -> Iterable[Piece]:
        is_short = self.size.height == 1
        foot = min(len(self.text.lines), self.size.height - 1)
        if y == foot and not is_short:
            return shell_line(self._state, self.paper, self.text.span(self.visible_lines))
        return super().pieces(y)
