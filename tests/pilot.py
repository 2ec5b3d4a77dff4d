"""Who uses the screen in tests: waits for what the app has due, and has a clock of its own.

Textual's pilot waits until there is a moment without CPU: 20 ms a key, and a process that is given
no core passes for an idle one. Importing this replaces that, and lets apps share their parsed
styles. Made for Textual 8.2: names with an
underscore are Textual's.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Callable, Hashable, Iterator
from itertools import chain
from typing import Any

import textual.pilot
from textual import events
from textual._context import active_app
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.keys import REPLACED_KEYS, _character_to_key, _get_unicode_name_from_key
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.timer import Timer
from textual.walk import walk_depth_first
from textual.widget import Widget

from gputop.tui.terminal.key_queue import SerialInput
from gputop.tui.terminal.unmarked_paste import BURST

_ROUNDS = 3
"""Turns of the loop in which nothing may be due: a callback sets off another one."""


async def settled(*_: float) -> None:
    """Wait until the app has handled all messages, resizes and layouts, and what they set off.

    The arguments of Textual's `wait_for_idle`, seconds to sleep, are taken and not used.
    """
    app = active_app.get()
    quiet = 0
    while quiet < _ROUNDS and app._running:
        await asyncio.sleep(0)
        if app._resize_timer is not None:  # for a drag of the window's edge: 1/120 s
            await asyncio.sleep(0.009)
        visible = [screen for screen in app.screen_stack if screen.is_current]
        pumps = [app, *chain.from_iterable(map(_widgets, visible))]
        is_busy = app._resize_timer is not None or any(map(_has_messages, pumps))
        if not is_busy:
            for screen in visible:  # below a dialog, too
                if any(widget._layout_required for widget in _widgets(screen)):
                    screen._on_timer_update()  # now, and not at the next of 60 a second
                    is_busy = True
        quiet = 0 if is_busy else quiet + 1
    for screen in app.screen_stack[:-1]:  # the pilot draws the one above them
        screen._on_timer_update()


def _widgets(screen: Screen[Any]) -> Iterator[Widget]:
    return chain((screen,), walk_depth_first(screen, Widget, with_root=False))


def _has_messages(pump: MessagePump) -> bool:
    return not pump._message_queue.empty() or pump._pending_message is not None


def _parsed_once(self: Stylesheet, css: str, *named: Any, **options: Any) -> list[RuleSet]:
    """Parse the style sheets of an app once for all apps: a fifth of what a test costs."""
    key = (css, *named, *options.items(), *self._variables.items())
    if key not in _parsed:
        _parsed[key] = _parse_rules(self, css, *named, **options)
    return _parsed[key]


_parsed: dict[Hashable, list[RuleSet]] = {}
_parse_rules = Stylesheet._parse_rules
Stylesheet._parse_rules = _parsed_once  # type: ignore[method-assign]
textual.pilot.wait_for_idle = settled  # type: ignore[assignment, attr-defined]


class Alarm(Timer):
    """A call that is due by the clock of a hand."""

    def __init__(self, due: float, then: Callable[[], None]) -> None:
        self.due, self.then, self.is_stopped = due, then, False

    def stop(self) -> None:
        """Let it not come."""
        self.is_stopped = True


class Hand:
    """Types into an app, each key well after the one before; its time passes when it waits."""

    def __init__(self, app: SerialInput[None]) -> None:
        """Becomes the clock of the app's keys."""
        app.after = self._after
        self._alarms: list[Alarm] = []
        self._now = 0.0
        self._typed = 0.0

    def wait(self) -> None:
        """Let time pass until what is due next comes, if anything is."""
        self._alarms = [alarm for alarm in self._alarms if not alarm.is_stopped]
        if self._alarms:
            alarm = min(self._alarms, key=lambda alarm: alarm.due)
            self._alarms.remove(alarm)
            self._now = alarm.due
            alarm.then()

    def _after(self, seconds: float, then: Callable[[], None]) -> Alarm:
        alarm = Alarm(self._now + seconds, then)
        self._alarms.append(alarm)
        return alarm

    def key(self, name: str) -> events.Key:
        """The event of a key by its name, in no burst with the one before."""
        name = name if len(name) > 1 or name.isalnum() else _character_to_key(name)
        key = events.Key(name, _character(name))
        self._typed = key.time = max(key.time, self._typed + 2 * BURST)
        return key


def _character(name: str) -> str | None:
    """What a key types, if anything."""
    try:
        return unicodedata.lookup(_get_unicode_name_from_key(REPLACED_KEYS.get(name, name)))
    except KeyError:
        return name if len(name) == 1 else None
