"""What the keys of the mapping do, on every screen that shows it."""

from __future__ import annotations

from textual.screen import Screen
from textual.timer import Timer

from gputop.tui.inquiry import Inquiry, ProbeWanted

_A_WHILE = 6.0
"""Seconds for which a note is shown."""


class AskingScreen(Screen[None]):
    """A screen with an inquiry. A subclass gives `show_answer`."""

    def __init__(self, inquiry: Inquiry) -> None:
        super().__init__()
        self.inquiry = inquiry
        self._silence: Timer | None = None

    def show_answer(self) -> None:
        """The answer of now."""
        raise NotImplementedError

    def action_order(self) -> None:
        """Another CUDA_DEVICE_ORDER."""
        self.inquiry.next_order()
        self.show_answer()

    def action_unset(self) -> None:
        """Unset CUDA_VISIBLE_DEVICES, which is not the same as to empty it."""
        self.inquiry.ask(text=None)
        self.show_answer()

    def action_verify(self) -> None:
        """Ask the driver what the variables mean."""
        probe = self.inquiry.probe()
        if probe is None:
            self._say(self.inquiry.note)
            return
        self.post_message(ProbeWanted(probe))
        self.show_answer()

    def action_copy(self) -> None:
        """Hand the line for the shell to the terminal, which may keep it (OSC 52)."""
        line = self.inquiry.export
        if not line:
            self._say("there is no line to copy: the process's variables are not known")
            return
        self.app.copy_to_clipboard(line)
        self._say(f"copied (OSC 52): {line}")

    def _say(self, note: str) -> None:
        """Show a note for a while."""
        self.inquiry.note = note
        self.show_answer()
        if self._silence is not None:
            self._silence.stop()
        self._silence = self.set_timer(_A_WHILE, self._be_silent)

    def _be_silent(self) -> None:
        self.inquiry.note = ""
        self.show_answer()
