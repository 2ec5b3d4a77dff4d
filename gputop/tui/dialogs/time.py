"""A dialog in the bottom line that asks for a time to show."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.screen import ModalScreen
from textual.widgets import Input

from gputop.model.instants import FORMS, parse_instant
from gputop.tui.panes.editor import Editor
from gputop.tui.panes.heading import KeyLabel
from gputop.tui.panes.lines import StyledLine
from gputop.tui.panes.text_lines import TextLines

_KEYS: StyledLine = [
    (f" {FORMS}  ", "quiet"), ("Enter", "key"), (" go  ", "quiet"), ("Esc", "key"),
    (" stay", "quiet"),
]  # fmt: skip
_WRONG: StyledLine = [(f" no time: write {FORMS}", "notice")]


class TimeDialog(ModalScreen[float | None]):
    """Asks for an instant; Esc answers None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Cancel", id="time.leave", show=False),
    ]

    def __init__(self, shown: float) -> None:
        """`shown`: the time that is shown, from which a span such as -2h counts."""
        super().__init__()
        self._shown = shown

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield KeyLabel("t", "time", id="time-label")
            yield Editor("", max_length=40, id="time")
            yield TextLines()

    def on_mount(self) -> None:
        self.query_one(TextLines).say([_KEYS])

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.query_one(TextLines).say([_KEYS])

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if not event.value.strip():
            self.dismiss(None)
            return
        try:
            self.dismiss(parse_instant(event.value, self._shown))
        except ValueError:
            self.query_one(TextLines).say([_WRONG])
