"""Input lines for text that may come from anywhere: the environment, the clipboard."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.actions import SkipAction
from textual.binding import Binding, BindingType
from textual.events import Blur, Paste
from textual.suggester import SuggestionReady
from textual.widgets import Input

from gputop.model.cuda.pasted.reading import CUT, NEWLINE
from gputop.model.machine.text import printable
from gputop.tui.panes.mapping_state import MappingState

_MAX_LENGTH = 4096


def harmless(value: str) -> str:
    """Return a value as it is shown: a blank for each tab, a sign for each control character."""
    return printable(value.replace("\t", " "), max(len(value), 1))


def _no_blank(character: str) -> str:
    """Replace white space that a shell does not take for a blank with U+FFFD."""
    odd = not character.isascii() and character.isspace()
    return "\ufffd" if odd else character


class Editor(Input):
    """Textual's input, restricted to text that is harmless to print.

    Its cursor does not blink: that would cost more than all the rest of an idle screen.
    """

    def __init__(self, value: str, *, max_length: int, id: str | None = None) -> None:  # noqa: A002
        super().__init__(value, compact=True, select_on_focus=False, max_length=max_length, id=id)

    def on_mount(self) -> None:
        self.cursor_blink = False

    def validate_value(self, value: str) -> str:
        return harmless(value)


class ValueInput(Editor):
    """Edits the value of CUDA_VISIBLE_DEVICES, or a pasted line; an empty value hides every GPU.

    It writes to the `MappingState`, and shows what other screens have written there.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "enter", "Keep the value, and leave", id="value.leave", show=False),
        Binding("up", "recall(-1)", "Previous value", id="value.older", show=False),
        Binding("down", "recall(1)", "Next value", id="value.newer", show=False),
        Binding("tab", "accept", "Accept the suggestion", id="value.accept", show=False),
    ]  # fmt: skip

    def __init__(self, state: MappingState, changed: Callable[[], None]) -> None:
        """`changed` is called after a key has changed the query."""
        super().__init__(state.query.text or "", max_length=_MAX_LENGTH)
        self._state, self._changed = state, changed
        self._invited = False
        """Whether the user wants to type here; if Tab merely passes by, it accepts nothing."""
        self._drawn: tuple[str | None, str, bool] = (None, "", False)
        """The last offer, the text that it completes, and whether the editor had the focus."""

    @property
    def offer(self) -> str | None:
        """The suggested completion of the current text, shown dimly behind it; None without one."""
        offer, text, _ = self._drawn
        return offer if self.has_focus and self.cursor_at_end and text == self.value else None

    def invite(self) -> None:
        """Open the editor for a user who wants to type: that replaces the value, and an arrow key
        keeps it."""
        self.can_focus = self._invited = True
        self.focus()
        self.select_all()

    def show_state(self) -> None:
        """Show the text of the query, which other screens may have changed, and the offer."""
        text = self._state.query.text or ""
        if self.value != harmless(text):
            with self.prevent(Input.Changed):
                self.value = text
            self.cursor_position = len(self.value)
        self._show_offer(self._state.complete(self.value) if self._invited else None)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Ask what the text means. The first event comes from the initial value, not from a key;
        the query keeps that value even if the editor had to replace characters in it."""
        event.stop()
        if event.value != harmless(self._state.query.text or ""):
            self._state.ask(text=event.value)
            self._invited = True
            self._changed()

    def on_blur(self, event: Blur) -> None:
        self._invited = False
        self.placeholder = ""  # without the focus, an empty value shows nothing

    def on_paste(self, event: Paste) -> None:
        """Insert all lines, not the first only as Textual does; a sign stands for each line end.

        A cut text ends with `…`, and white space that is no blank for a shell becomes a sign:
        neither may be read as another text.
        """
        text = event.text.strip("\r\n")
        lines = "".join(_no_blank(c) for c in NEWLINE.join(text.splitlines()))
        room = _MAX_LENGTH - len(self.value) + len(self.selected_text)
        if lines != event.text or len(lines) > room:
            event.stop()
            event.prevent_default()
            cut = lines if len(lines) <= room else f"{lines[: max(0, room - 1)]}{CUT}"
            self.replace(cut, *self.selection)

    def action_cursor_right(self, select: bool = False) -> None:
        """Accept the suggestion if the cursor is at the end."""
        if select or self.offer is None:
            super().action_cursor_right(select)
        else:
            self._accept()

    def action_accept(self) -> None:
        """Accept the suggestion; without one, leave Tab to the screen."""
        if self.offer is None:
            raise SkipAction
        self._accept()

    def action_recall(self, step: int) -> None:
        """Show an earlier (-1) or a later (1) line of this session."""
        self.value = self._state.history.move(step, self.value)
        self.cursor_position = len(self.value)

    async def action_enter(self) -> None:
        self._state.history.enter(self.value)
        await self.run_action("screen.leave")

    def _show_offer(self, offer: str | None) -> None:
        """Have Textual draw the offer as a suggestion, or as a placeholder if there is no text."""
        facts = (offer, self.value, self.has_focus)
        if facts != self._drawn:
            self._drawn = facts
            shown = offer if offer and self.has_focus else ""
            self.placeholder = "" if self.value else shown
            self.post_message(SuggestionReady(self.value, shown))

    def _accept(self) -> None:
        self.value = self.offer or self.value
        self.cursor_position = len(self.value)
