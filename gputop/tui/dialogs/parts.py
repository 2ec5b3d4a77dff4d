"""The button of a dialog."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType

from gputop.tui.panes.lines import Lines, Piece


class DialogButton(Lines, can_focus=True):
    """A button. Only Enter presses it: Space tags in the table, and is pressed by accident."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "press", "Press", id="choice.take", show=False),
    ]

    def __init__(self, label: str, pressed: Callable[[], None], *, id: str) -> None:  # noqa: A002
        """`pressed` does what the button is for."""
        super().__init__(id=id)
        self._pressed = pressed
        self.label = ""
        self.say(label)

    def say(self, label: str) -> None:
        if label != self.label:
            self.label = label
            self.styles.width = len(label) + 6
            self.repaint_changed()

    def action_press(self) -> None:
        self._pressed()

    def on_focus(self) -> None:
        self.repaint_changed()

    def on_blur(self) -> None:
        self.repaint_changed()

    def pieces(self, y: int) -> Iterable[Piece]:
        """Return the label in brackets; a sign before it shows the focus, even without colours."""
        if self.has_focus:
            return [(f"{self.glyphs.cursor}[ {self.label} ]", "cursor")]
        return [(f" [ {self.label} ]", "text")]
