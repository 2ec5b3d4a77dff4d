"""Typed digits search for a PID, as in htop: the cursor goes to the first that begins so."""

from __future__ import annotations

from collections.abc import Callable

from textual.screen import Screen
from textual.timer import Timer

from gputop.tui.panes.processes import ProcessTable

_PAUSE = 3.0
"""Seconds without a digit after which the next one starts another PID."""
_MOST_DIGITS = 10


class PidSearch:
    """Collects digits, and selects the process with that PID, or the first that begins so."""

    def __init__(
        self, screen: Screen[None], table: Callable[[], ProcessTable], say: Callable[[], None]
    ) -> None:
        """`say` is called when `words` change."""
        self._screen, self._table, self._say = screen, table, say
        self._digits, self.words = "", ""
        self._timer: Timer | None = None

    @property
    def is_exact(self) -> bool:
        """Whether no search is under way, or its digits are the whole PID that is selected: else a
        signal might reach a process that the user did not name."""
        row = self._table().selected
        return not self._digits or (row is not None and str(row.process.pid) == self._digits)

    def add(self, digits: str) -> None:
        """Add digits that were typed or pasted."""
        self._search((self._digits + digits)[:_MOST_DIGITS])

    def remove(self) -> None:
        if self._digits:
            self._search(self._digits[:-1])

    def stop(self) -> bool:
        """End the search, as any other key does; return whether there was one."""
        if not self._digits:
            return False
        self._digits, self.words = "", ""
        self._say()
        return True

    def _search(self, digits: str) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._timer = self._screen.set_timer(_PAUSE, self.stop)
        words = self._table().find_pid(digits) if digits else ""
        self._digits, self.words = digits, words  # only now: moving the cursor ended the search
        self._say()
