"""The filter, edited in the bottom line."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input

from gputop.model.processes.filter import FilterError
from gputop.tui.panes.editor import Editor
from gputop.tui.panes.heading import KeyLabel
from gputop.tui.panes.lines import StyledLine
from gputop.tui.panes.text_lines import TextLines

_KEYS: StyledLine = [
    (" ", "text"), ("Enter", "key"), (" keep  ", "quiet"), ("Esc", "key"), (" drop", "quiet"),
]  # fmt: skip


class FilterLine(Horizontal):
    """The line that edits the filter; hidden until `edit` is called."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "drop", "Drop the filter", id="filter.drop", show=False),
        Binding("tab,shift+tab", "stay", "Nothing", id="filter.stay", show=False),
    ]

    def __init__(
        self, apply: Callable[[str], FilterError | None], closed: Callable[[], None]
    ) -> None:
        """`apply` filters after every key; `closed` is called when the line is closed."""
        super().__init__()
        self._apply, self._on_close = apply, closed
        self._is_wrong = False

    def compose(self) -> ComposeResult:
        yield KeyLabel("/", "filter", id="filter-label")
        yield Editor("", max_length=1024, id="filter")
        yield TextLines()

    def on_mount(self) -> None:
        self.query_one(TextLines).say([_KEYS])

    def edit(self) -> None:
        """Show the line, and put the cursor into it."""
        self.display = True
        self.query_one(Editor).focus()

    def action_drop(self) -> None:
        """Clear the filter, and go back to the processes."""
        editor = self.query_one(Editor)
        editor.value = ""
        editor.post_message(Input.Submitted(editor, ""))

    def action_stay(self) -> None:
        """Stay in the editor: Tab does not leave it."""

    def clear(self) -> bool:
        """Drop the filter; return whether there was one."""
        editor = self.query_one(Editor)
        was, editor.value = editor.value, ""
        return bool(was)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter, and say what is wrong with the filter, and in which column."""
        event.stop()
        error = self._apply(event.value)
        self._is_wrong, line = error is not None, _KEYS
        if error is not None:
            line = [(f" column {error.position + 1}: {error.reason}", "notice")]
        self.query_one(TextLines).say([line])

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Close the line, unless the filter is wrong: the user must correct it first."""
        event.stop()
        if not self._is_wrong:
            self._close()

    def on_descendant_blur(self) -> None:
        """Close the line after a click elsewhere; the filter stays."""
        if self.display and not self.query_one(Editor).has_focus:
            self._close()

    def _close(self) -> None:
        self.display = False
        self._on_close()
