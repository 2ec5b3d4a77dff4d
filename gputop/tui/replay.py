"""The app that shows a recording on the screen of a machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import msgspec
from textual.binding import BindingType
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import Input

from gputop.model.machine.frame import Frame
from gputop.model.machine.text import date_time
from gputop.settings import Session
from gputop.sources.feed import Feed
from gputop.sources.source import Moment
from gputop.tui.app import GputopApp
from gputop.tui.dialogs.time import TimeDialog
from gputop.tui.keys import REPLAY_BINDINGS, TIME_BINDINGS
from gputop.tui.messages import Arrived
from gputop.tui.pages.help import HelpScreen
from gputop.tui.playback import SPEEDS, Playback
from gputop.tui.timeline import HeldSnapshot, Timeline

_TICK = 0.05
"""Seconds between two steps of a run, or between two parts of the history that is read."""
_TREE = {"view.tree": "f5"}
"""The tree moves to F5, as in htop, since `t` asks for a time."""
_NEVER = ("refresh_now", "interval", "pause", "demo", "retry", "login", "leave_host")
"""Actions that only a live machine has."""


class ReplayTimeline(Timeline):
    """A recording, held at one of its instants or running on from there."""

    moment: Moment = "replay"

    @property
    def words(self) -> str:
        """The words `REPLAY` and the time that is shown, with the speed if it runs."""
        playback = self._playback
        if playback is None or playback.frame is None:
            return "REPLAY"
        speed = f" {playback.speed}x" if playback.is_running else ""
        return f"REPLAY {date_time(playback.time)}{speed}"

    @property
    def shown(self) -> float | None:
        """The time that is shown, in seconds since the epoch; None before the first move."""
        return None if self._playback is None else self._playback.time

    @property
    def is_busy(self) -> bool:
        """Whether `tick` has anything to do."""
        playback = self._playback
        return playback is not None and (playback.is_running or playback.is_filling)

    def tick(self, seconds: float) -> str:
        """Run on for some seconds of real time, and read more of the history; return a note."""
        playback = self._playback
        if playback is None:
            return ""
        has_moved = playback.advance(seconds)
        if playback.fill() or has_moved:
            self.move(lambda _: None)
        return playback.note if has_moved else ""

    def return_to_now(self) -> bool:
        """Return False: a recording has no now."""
        return False

    def _begin(self) -> Playback | None:
        past = self.machine.feed.source.past
        return None if past is None else Playback(past)

    def _show_past(self, playback: Playback) -> None:
        self.instant = HeldSnapshot(None, playback)
        if playback.frame is not None:
            self.interval = playback.frame.interval or self.interval
            self._hold(playback, playback.frame)


class ReplayApp(GputopApp, inherit_bindings=False):
    """The app of a recording: keys move the time, and no agent is asked for anything."""

    timeline_type = ReplayTimeline

    BINDINGS: ClassVar[list[BindingType]] = [
        *(binding for binding in GputopApp.BINDINGS if binding not in TIME_BINDINGS),
        *REPLAY_BINDINGS,
    ]  # fmt: skip

    def __init__(self, feeds: Sequence[Feed], settings: Session, at: float, note: str) -> None:
        """`at`: the time to begin at, in seconds since the epoch; `note`: shown at the start."""
        keys = {**_TREE, **settings.keys}
        super().__init__(feeds, msgspec.structs.replace(settings, keys=keys))
        self._at, self._first_note = at, note
        self._ticks: Timer | None = None

    @property
    def replay(self) -> ReplayTimeline:
        assert isinstance(self.shown.view, ReplayTimeline)
        return self.shown.view

    def on_mount(self) -> None:
        self._ticks = self.set_interval(_TICK, self._on_tick, pause=True)

    def on_arrived(self, message: Arrived) -> None:
        """Go to the time to begin at, once the first frame is there."""
        message.prevent_default()  # Textual would call the inherited handler as well
        super().on_arrived(message)
        if self.replay.shown is None and isinstance(message.content, Frame):
            self._move_in_time(lambda playback: playback.go(self._at))
            if self._first_note:
                self._say(self._first_note)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("ask_time", "run", "speed"):
            is_typing = isinstance(self.focused, Input)
            is_leafing = action == "run" and isinstance(self.screen, HelpScreen)
            return not (is_typing or is_leafing or isinstance(self.screen, ModalScreen))
        return action not in _NEVER and super().check_action(action, parameters)

    def action_ask_time(self) -> None:
        if self.replay.shown is not None:
            self.push_screen(TimeDialog(self.replay.shown), self._go)

    def action_run(self) -> None:
        """Run, or stop."""
        self._move_in_time(Playback.run)

    def action_speed(self, number: int) -> None:
        """Run at the speed of a number key (`SPEEDS`)."""
        self._move_in_time(lambda playback: playback.run(SPEEDS[number - 1]))

    def _go(self, when: float | None) -> None:
        if when is not None:
            self._move_in_time(lambda playback: playback.go(when))

    def _on_tick(self) -> None:
        if note := self.replay.tick(_TICK):
            self._say(note)
        self.instant = self.replay.words
        self._wait_or_work()

    def _move_in_time(self, move: Callable[[Playback], object], is_on: bool = False) -> None:
        super()._move_in_time(move, is_on)
        self._wait_or_work()

    def _wait_or_work(self) -> None:
        """Stop the timer while the picture stands still."""
        if self._ticks is not None:
            (self._ticks.resume if self.replay.is_busy else self._ticks.pause)()

    def _second(self) -> None:
        """Do nothing: there is no agent that could be silent."""
