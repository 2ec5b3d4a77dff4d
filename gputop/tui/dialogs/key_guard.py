"""Ignores keys that were typed before a dialog could be read, pasted, or held down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual import events
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer

from gputop.tui.terminal import drawing
from gputop.tui.terminal.key_queue import SerialInput
from gputop.tui.terminal.unmarked_paste import BURST

QUIET = 0.3
"""Seconds without a key that must pass after an offer is drawn, before it takes keys."""
ALONE = 0.12
"""Seconds for which a key waits before it acts: a key that is held down repeats sooner."""
_HARMLESS = ("escape", "ctrl+c", "ctrl+l", "ctrl+z")
"""Keys that are never too soon."""


class KeyGuard:
    """Takes keys once the dialog is on the terminal and no key has been pressed for a moment.

    A key that is too soon starts the moment anew: what comes in one go, by a paste, a held key or
    blind typing, has no effect, however long it is. A key that acts waits until it is known to be
    a single key; a paste, or a key that repeats, drops the keys that wait.
    """

    def __init__(
        self, screen: Screen[Any], changed: Callable[[], None], acts: Callable[[str], bool]
    ) -> None:
        """`changed` is called when the dialog begins or ceases to take keys; `acts` returns whether
        a key does more than move or type."""
        self._screen, self._changed, self._acts = screen, changed, acts
        self._timer: Timer | None = None
        self._since: Message | None = None
        """Made when keys were first taken; earlier events are too soon, whenever they come."""
        self._last = 0.0
        """When the last key was typed."""
        self._waiting: list[events.Key] = []
        """Keys that are not yet known to be single keys."""
        self._released: list[events.Event] = []
        """Keys that are known to be single, on their way to the screen."""
        self.has_ignored = False
        """Whether keys were ignored since one last acted."""

    @property
    def is_open(self) -> bool:
        return self._since is not None

    def close(self) -> None:
        """Start anew, as something else is about to be drawn."""
        self._since = None
        self._waiting, self._released = [], []
        self._stop()
        self._screen.call_after_refresh(self._wait)

    def is_too_soon(self, event: events.Event) -> bool:
        """Return whether to ignore a key, a paste or a click, at least for now."""
        if isinstance(event, events.Key) and event.key in _HARMLESS:
            if self._waiting:
                self._stop()
            self._waiting, self._released = [], []
            return False
        if event in self._released:
            self._released.remove(event)
            return False
        if self._since is None:
            if self._timer is not None:
                self._wait()
            self.has_ignored = True
            return True
        if event.time < self._since.time or isinstance(event, events.MouseEvent):
            return event.time < self._since.time
        return self._waits(event)

    def _waits(self, event: events.Event) -> bool:
        """Return whether an event of an open dialog must wait, or is dropped."""
        key = event if isinstance(event, events.Key) else None
        last, self._last = self._last, event.time
        if key is not None and not self._waiting and not self._acts(key.key):
            return False
        is_held = key is not None and bool(self._waiting) and key.key == self._waiting[-1].key
        if key is None or is_held or key.time - last < BURST:
            self.close()
            self.has_ignored = True
            self._changed()
            return True
        self._waiting.append(key)
        self._stop()
        self._timer = self._after(ALONE, self._release)
        return True

    def _release(self) -> None:
        """Let the keys that waited act, in their order; the app posts them, like all keys."""
        self._stop()
        self._screen.app.call_later(self._post)

    def _post(self) -> None:
        if self._since is None or self._timer is not None:
            return  # another key has come meanwhile
        self._released, self._waiting = [key.copy() for key in self._waiting], []
        self.has_ignored = False
        for key in self._released:
            self._screen.app.post_message(key)

    def _wait(self) -> None:
        """Wait `QUIET` seconds, and again while the terminal has not taken what was drawn."""
        if self._since is None:
            self._stop()
            self._timer = self._after(QUIET, self._open)

    def _open(self) -> None:
        if not drawing.is_taken(self._screen.app):
            self._wait()
            return
        self._stop()
        self._since = Message()
        self._changed()

    def _after(self, seconds: float, then: Callable[[], None]) -> Timer:
        app = self._screen.app
        assert isinstance(app, SerialInput)
        return app.after(seconds, lambda: then() if self._screen.is_attached else None)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
