"""Keys and clicks in turn: each takes effect before the next is handled, however fast they come.

Textual hands a key to the widget that has the focus when the key arrives, and runs bindings later,
when the key has come back up to the app. If keys come at once, as over a slow line, those that
follow `/` would go to the table instead of the filter, and those that follow `s` would come before
the dialog is made.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, ClassVar

from textual import events
from textual.app import App, ReturnType
from textual.binding import Binding, BindingType
from textual.errors import NoWidget
from textual.message_pump import MessagePump
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input

from gputop.tui.terminal.compatibility import is_supported
from gputop.tui.terminal.unmarked_paste import UnmarkedPaste

_LOOK, _LOOKS = 0.025, 10
"""Seconds between two looks at the queues, and how many find them empty before a key that got lost
in a closing screen holds up the next no longer. On a busy machine a key may take long."""
_NOT_YET = 0.005
_TYPED = (events.Key, events.Paste, events.MouseEvent)


def keyed(app: App[Any], *groups: Iterable[BindingType]) -> list[Binding]:
    """Return bindings with the keys that the user has given them."""
    keys = app.own_keys if isinstance(app, SerialInput) else {}
    return [
        replace(binding, key=key, key_display=None)
        if (key := keys.get(binding.id or ""))
        else binding
        for group in groups
        for binding in group
        if isinstance(binding, Binding)
    ]


class KeyBindingsOnly(Widget):
    """A widget that handles keys by bindings alone, as does everything above it: its bindings can
    be checked without a round through the queues."""


class IgnoresTypeAhead:
    """A screen that ignores keys that were typed before the user could read it."""

    def is_too_soon(self, event: events.Event) -> bool:
        """Return whether to ignore a key, a paste or a click."""
        raise NotImplementedError


class SerialInput(App[ReturnType]):
    """An app that takes one key at a time."""

    own_keys: Mapping[str, str] = {}
    """The keys that the user has given to bindings, by id."""
    opening_fields: ClassVar[Collection[str]] = ()
    """The actions that open a field to type into."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._waiting: deque[events.Event] = deque()
        self._sequence = 0
        """Counts keys, so that a late `_release` of an old key does not count for this one."""
        self._at_work = False
        self._paste = UnmarkedPaste()
        self._clock: asyncio.TimerHandle | None = None
        self.after: Callable[[float, Callable[[], None]], Timer] = self.set_timer
        """Calls a function in so many seconds, by the clock of the hand that types."""

    async def on_event(self, event: events.Event) -> None:
        """Let what is typed, pasted or clicked wait for its turn; pass on all other events."""
        waits = isinstance(event, _TYPED) and not event.is_forwarded
        if not waits or not is_supported():
            await super().on_event(event)
            return
        self._waiting.append(event)
        if not self._at_work:
            await self._take()

    async def _take(self) -> None:
        """Take the next keys, when there is a screen for them."""
        self._at_work = True
        while self._waiting:
            if not self.screen.is_mounted:
                self.set_timer(_NOT_YET, self._take)
                return
            if not await self._dispatch(self._waiting.popleft()):
                return
        self._at_work = False

    async def _dispatch(self, event: events.Event) -> bool:
        """Hand a key on; return False if its effect is still under way, until `_release`."""
        self._sequence += 1
        sequence = self._sequence
        if isinstance(self.screen, IgnoresTypeAhead):
            if self.screen.is_too_soon(event):
                return True
        elif isinstance(event, events.Key) and self._is_pasted(event):
            return True
        screen, target = self.screen, self._target(event)
        if isinstance(event, events.Key) and isinstance(target, KeyBindingsOnly):
            if not await self._check_bindings(event.key, priority=True):
                await self._check_bindings(event.key)
            if self.screen is screen and self.focused is target and self._is_idle:
                return True
        else:
            await super().on_event(event)
        self._look(sequence)
        # Bindings run when an unused key has come up to the app. Their effect may come up the
        # same way, as a message of the widget; and a new screen has something to do first, such
        # as focusing an editor.
        self._after_queues(
            target, lambda: self._after_queues(target, lambda: self._await_screen(sequence))
        )
        return False

    def _is_pasted(self, key: events.Key) -> bool:
        """Return whether a key is part of a text that was pasted where there is no field for it."""
        if isinstance(self.focused, Input):
            return False
        was_under_way = self._paste.is_under_way
        # What was read with it is still among the messages of the app.
        read = chain((self._pending_message,), self._message_queue.values)
        following = chain(self._waiting, (event for event in read if isinstance(event, _TYPED)))
        is_pasted = self._paste.has(key, following, self._actions)
        if is_pasted and not was_under_way:
            self.handle_unmarked_paste()
        return is_pasted

    def _actions(self) -> dict[str, bool]:
        """Return each key that does something on the screen or on those below it, to which a key
        may lead back, with whether it opens a field."""
        return {
            key: active.binding.action in self.opening_fields
            for screen in self.screen_stack
            for key, active in screen.active_bindings.items()
        }

    def handle_unmarked_paste(self) -> None:
        """Called when keys are dropped that were a text."""

    def _target(self, event: events.Event) -> Widget:
        if isinstance(event, events.MouseEvent):
            with suppress(NoWidget):
                return self.get_widget_at(event.x, event.y)[0]
        return self.focused or self.screen

    def _look(self, sequence: int, left: int = _LOOKS) -> None:
        """Give a key up once nothing was on its way at so many looks."""
        if left == 0:
            self.call_later(self._release, sequence)
        elif sequence == self._sequence and self._at_work:
            left -= self._is_idle
            self._clock = asyncio.get_running_loop().call_later(_LOOK, self._look, sequence, left)

    @property
    def _is_idle(self) -> bool:
        """Whether no widget has anything in its queue, or taken it out to look at."""
        pumps = (self, self.screen, *self.screen.walk_children())
        return all(pump._message_queue.empty() and not pump._pending_message for pump in pumps)

    def _after_queues(self, pump: MessagePump | None, then: Callable[[], object]) -> None:
        """Call `then` when a widget and all above it have handled what is in their queues now."""
        while pump is not None and pump is not self:
            above = pump._parent
            if pump.call_later(partial(self._after_queues, above, then)):
                return
            pump = above
        self.call_later(then)

    def _await_screen(self, sequence: int) -> None:
        self._after_queues(self.screen, partial(self.call_later, self._release, sequence))

    async def _release(self, sequence: int) -> None:
        if sequence == self._sequence and self._at_work:
            self._sequence += 1
            if self._clock is not None:
                self._clock.cancel()
            await self._take()
