"""What a dialog offers to do: a word to go to and to press Enter on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from gputop.tui.widgets.lines import Lines, Piece


class Choice(Lines, can_focus=True):
    """One of them. Only Enter takes it: Space tags in the table, and comes by accident."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "take", "Take", id="choice.take", show=False),
    ]

    class Taken(Message):
        """It was chosen."""

        def __init__(self, choice: Choice) -> None:
            super().__init__()
            self.choice = choice

        @property
        def control(self) -> Choice:
            """Who tells it."""
            return self.choice

    def __init__(self, label: str, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.label = label

    def say(self, label: str) -> None:
        """Another label."""
        if label != self.label:
            self.label = label
            self.styles.width = len(label) + 6
            self.sync()

    def on_mount(self) -> None:
        """As wide as its label."""
        self.styles.width = len(self.label) + 6

    def on_focus(self) -> None:
        """Say so."""
        self.sync()

    def on_blur(self) -> None:
        """It is another's turn."""
        self.sync()

    def pieces(self, y: int) -> Iterable[Piece]:
        """In brackets, which tell where there are no colours."""
        if self.has_focus:
            return [(f"{self.glyphs.cursor}[ {self.label} ]", "cursor")]
        return [(f" [ {self.label} ]", "text")]

    def action_take(self) -> None:
        """Tell the dialog."""
        self.post_message(self.Taken(self))
