"""A line to type into, for text that may come from anywhere: the environment, the clipboard."""

from __future__ import annotations

from textual.widgets import Input

from gputop.model.text import printable


def harmless(value: str) -> str:
    """A value as it is shown: tabs as the blanks that they mean, control characters as a sign."""
    return printable(value.replace("\t", " "), max(len(value), 1))


class Editor(Input):
    """Textual's input, which holds nothing but what is harmless to print.

    Its cursor does not blink: that would cost more than all the rest of an idle screen.
    """

    def __init__(self, value: str, *, most: int, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(value, compact=True, select_on_focus=False, max_length=most, id=id)

    def on_mount(self) -> None:
        """Stand still."""
        self.cursor_blink = False

    def validate_value(self, value: str) -> str:
        """Whatever is typed or pasted."""
        return harmless(value)
