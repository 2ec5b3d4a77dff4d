"""A button of a dialog."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from gputop.tui.panes.lines import Lines, Piece


class DialogButton(Lines, can_focus=True):
    """A button. Only Enter presses it: Space tags in the table, and comes by accident."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "press", "Press", id="choice.take", show=False),
    ]

    class Pressed(Message):
        """The button was pressed."""

        def __init__(self, button: DialogButton) -> None:
            super().__init__()
            self.button = button

        @property
        def control(self) -> DialogButton:
            return self.button

    def __init__(self, label: str, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.label = label

    def say(self, label: str) -> None:
        if label != self.label:
            self.label = label
            self.styles.width = len(label) + 6
            self.sync()

    def on_mount(self) -> None:
        self.styles.width = len(self.label) + 6

    def on_focus(self) -> None:
        self.sync()

    def on_blur(self) -> None:
        self.sync()

    def pieces(self, y: int) -> Iterable[Piece]:
        """Return the label in brackets, which show the focus where there are no colours."""
        if self.has_focus:
            return [(f"{self.glyphs.cursor}[ {self.label} ]", "cursor")]
        return [(f" [ {self.label} ]", "text")]

    def action_press(self) -> None:
        self.post_message(self.Pressed(self))
