"""What the keys of the mapping do, on every screen that shows it."""

from __future__ import annotations

from collections.abc import Callable

from textual.screen import Screen
from textual.timer import Timer

from gputop.protocol.messages import Probe
from gputop.tui.panes.mapping_state import MappingState

_NOTE_SECONDS = 6.0
"""For how long a note is shown."""


class MappingControl:
    """Changes the query of a mapping, and has a screen `show` the result."""

    def __init__(
        self,
        screen: Screen[None],
        state: MappingState,
        request: Callable[[Probe], None],
        show: Callable[[], None],
    ) -> None:
        self.state = state
        self._screen, self._request, self._show = screen, request, show
        self._timer: Timer | None = None

    def next_order(self) -> None:
        self.state.next_order()
        self._show()

    def unset(self) -> None:
        """Unset CUDA_VISIBLE_DEVICES, which is not the same as to empty it."""
        self.state.ask(text=None)
        self._show()

    def verify(self) -> None:
        """Ask the driver what the variables mean."""
        probe = self.state.probe()
        if probe is None:
            self._say(self.state.note)
        else:
            self._request(probe)
            self._show()

    def copy(self) -> None:
        """Hand the line for the shell to the terminal, which may keep it (OSC 52)."""
        line = self.state.export
        if line:
            self._screen.app.copy_to_clipboard(line)
        self._say(f"copied (OSC 52): {line}" if line else self.state.why_no_export)

    def _say(self, note: str) -> None:
        self.state.note = note
        self._show()
        if self._timer is not None:
            self._timer.stop()
        self._timer = self._screen.set_timer(_NOTE_SECONDS, self._clear)

    def _clear(self) -> None:
        self.state.note = ""
        self._show()
