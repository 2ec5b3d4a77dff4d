"""A line to type into, for text that may come from anywhere: the environment, the clipboard."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.events import Blur, Paste
from textual.suggester import SuggestionReady
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


class Past:
    """Lines that were entered. A line that is not finished keeps its place after them."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._place = 0
        self._unfinished = ""

    def enter(self, line: str) -> None:
        """A line is finished; the same one twice in a row is one."""
        if self._lines[-1:] != [line]:
            self._lines.append(line)
        self._place, self._unfinished = len(self._lines), line

    def move(self, step: int, line: str) -> str:
        """The line so many steps later, `line` where there is none."""
        if self._at(self._place) != line:
            self._place, self._unfinished = len(self._lines), line
        place = self._place + step
        while 0 <= place < len(self._lines) and self._lines[place] == line:
            place += step
        if not 0 <= place <= len(self._lines):
            return line
        self._place = place
        return self._at(place)

    def _at(self, place: int) -> str:
        return self._lines[place] if place < len(self._lines) else self._unfinished


class ValueInput(Editor):
    """The value of CUDA_VISIBLE_DEVICES. Empty is a value too: it hides every GPU."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "enter", "Keep the value, and leave", id="value.leave", show=False),
        Binding("up", "past(-1)", "The value before", id="value.older", show=False),
        Binding("down", "past(1)", "The value after", id="value.newer", show=False),
        Binding("tab", "accept", "Take what is offered, or next pane", id="value.accept",
                show=False),
    ]  # fmt: skip

    def __init__(self, value: str, past: Past, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(value, most=4096, id=id)
        self.invited = False
        """Whether somebody means to type here; Tab may only pass by, and then takes nothing."""
        self._past = past
        self._offer: str | None = None
        self._offered_for = ""
        self._drawn: object = None

    @property
    def offer(self) -> str | None:
        """What the text of now may become, shown dimly behind it."""
        here = self.has_focus and self.cursor_at_end and self._offered_for == self.value
        return self._offer if here else None

    def invite(self) -> None:
        """Put the cursor at the end, for somebody who means to type."""
        self.invited = True
        self.focus()
        self.cursor_position = len(self.value)

    def show_offer(self, offer: str | None) -> None:
        """Textual draws it as a suggestion; behind no text at all as a placeholder."""
        facts = (offer, self.value, self.has_focus)
        if facts != self._drawn:
            self._offer, self._offered_for = offer, self.value
            self._drawn = facts
            shown = offer if offer and self.has_focus else ""
            self.placeholder = "" if self.value else shown
            self.post_message(SuggestionReady(self.value, shown))

    def on_blur(self, event: Blur) -> None:
        """An empty value is empty."""
        self.invited = False
        self.placeholder = ""

    def on_paste(self, event: Paste) -> None:
        """Several lines are one, as a shell reads them; Textual would take the first."""
        lines = [line for line in map(str.strip, event.text.splitlines()) if line]
        if len(lines) > 1:
            event.stop()
            event.prevent_default()
            self.replace("; ".join(lines), *self.selection)

    def set_text(self, text: str) -> None:
        """Another text, from elsewhere than this editor's keys."""
        with self.prevent(Input.Changed):
            self.value = text
        self.cursor_position = len(self.value)

    def action_cursor_right(self, select: bool = False) -> None:
        """Take what is offered, at the end."""
        if select or self.offer is None:
            super().action_cursor_right(select)
        else:
            self._take()

    async def action_accept(self) -> None:
        """Take what is offered, or go on."""
        if self.offer is None:
            await self.run_action("app.focus_next")
        else:
            self._take()

    def action_past(self, step: int) -> None:
        """Another line of this session."""
        self.value = self._past.move(step, self.value)
        self.cursor_position = len(self.value)

    async def action_enter(self) -> None:
        """Keep the value for later, and leave."""
        self._past.enter(self.value)
        await self.run_action("screen.leave")

    def _take(self) -> None:
        self.value = self.offer or self.value
        self.cursor_position = len(self.value)
