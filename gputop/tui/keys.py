"""Keys in turn: each takes effect before the next is looked at, however fast they come.

Textual hands a key to the widget that has the focus when the key arrives, and runs bindings later,
when the key has come back up to the app. Of what is typed at once, as over a slow line, keys that
follow `/` would so go to the table instead of the filter, and those that follow `s` would meet a
dialog that is not made yet.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from textual import events
from textual.app import App, ReturnType
from textual.message_pump import MessagePump

_PATIENCE = 0.25
"""Seconds after which a key that got lost in a closing screen no longer holds up the next."""
_NOT_YET = 0.005


class KeysInTurn(App[ReturnType]):
    """An app that takes one key at a time."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._waiting: deque[events.Event] = deque()
        self._turn = 0
        """Counts keys, so that what is said of an old one is not taken for the present one."""
        self._at_work = False

    async def on_event(self, event: events.Event) -> None:
        """Keys and pastes from the terminal wait for their turn; all else goes its way."""
        if not isinstance(event, (events.Key, events.Paste)) or event.is_forwarded:
            await super().on_event(event)
            return
        self._waiting.append(event)
        if not self._at_work:
            await self._take()

    async def _take(self) -> None:
        """The next key, when there is a screen for it."""
        self._at_work = bool(self._waiting)
        if not self._waiting:
            return
        if not self.screen.is_mounted:
            self.set_timer(_NOT_YET, self._take)
            return
        self._turn += 1
        turn, event = self._turn, self._waiting.popleft()
        target = self.focused or self.screen
        await super().on_event(event)
        self.set_timer(_PATIENCE, lambda: self._done(turn))
        self._follow(target, event, turn)

    def _follow(self, pump: MessagePump | None, event: events.Event, turn: int) -> None:
        """Go after a key, up from the widget that got it, until somebody has used it.

        Bindings are run at the top. What they ask for later is asked for before the next key is
        taken, and so is what a new screen does first, such as to focus something.
        """
        on_its_way = pump is not None and pump is not self and not event._stop_propagation
        if on_its_way and pump is not None:
            above = pump._parent
            if pump.call_later(lambda: self._follow(above, event, turn)):
                return
        self.call_later(self._settle, turn)

    def _settle(self, turn: int) -> None:
        if not self.screen.call_later(self.call_later, self._done, turn):
            self.call_later(self._done, turn)

    async def _done(self, turn: int) -> None:
        if turn == self._turn and self._at_work:
            self._turn += 1
            await self._take()
