"""The machine that is open, and whether its main screen shows now, a pause or the past."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gputop.errors import GputopError
from gputop.model.cuda.logical_names import LogicalNames
from gputop.model.machine.frame import Frame, Problem
from gputop.model.machine.text import duration
from gputop.protocol.messages import Refresh
from gputop.sources.source import Moment
from gputop.tui.dialogs.signal import SignalScreen
from gputop.tui.machine import WatchedMachine
from gputop.tui.main import MainScreen
from gputop.tui.pages.problem import ProblemScreen
from gputop.tui.panes.heading import paused
from gputop.tui.playback import Playback
from gputop.tui.snapshot import Snapshot


class HeldSnapshot(NamedTuple):
    """What is shown instead of now: a pause, or an instant of the past."""

    snapshot: Snapshot | None
    """None if there was no frame yet: a pause then holds the first one."""
    playback: Playback | None = None
    """What moves on from the instant; None in a pause."""
    next_wanted: bool = False
    """Whether the next frame replaces the one that a pause shows."""


class Timeline:
    """A machine on its main screen, or why there is nothing to see of it.

    The methods that move in time return a note about it, or an empty string.
    """

    moment: Moment = "past"
    """What is shown instead of now: the past, or a replay."""

    def __init__(self, main: MainScreen, interval: float) -> None:
        self.main, self.interval = main, interval
        self.is_ready = False
        """Whether every widget has been made."""
        self.instant: HeldSnapshot | None = None
        """What is shown instead of now."""

    @property
    def machine(self) -> WatchedMachine:
        return self.main.machine

    @property
    def snapshot(self) -> Snapshot | None:
        """What is shown; None before the first frame."""
        return (self.instant and self.instant.snapshot) or self.machine.snapshot

    @property
    def words(self) -> str:
        """How the heading names the instant that is shown; empty for now."""
        now, instant = self.machine.snapshot, self.instant
        if instant is None:
            return ""
        age = 0.0 if now is None else now.frame.time - (instant.snapshot or now).frame.time
        return f"PAST -{duration(age)}" if instant.playback else paused(int(age))

    @property
    def _playback(self) -> Playback | None:
        return self.instant and self.instant.playback

    def begin_anew(self) -> None:
        """Forget the pause, the past, and what the previous agent was asked."""
        self.instant = None
        self.main.reset()

    def take(self, frame: Frame) -> None:
        """Show a frame; in a pause or the past, show it only in the dialogs of signals."""
        if self.is_ready:
            for dialog in self.main.above(SignalScreen):
                dialog.show_frame(frame)
        self.machine.handle_frame(frame)
        instant = self.instant
        if instant and not instant.playback and (instant.next_wanted or instant.snapshot is None):
            self.instant = self._pause()
        if self.instant is not instant or instant is None:
            self.show()

    def refresh_values(self) -> None:
        """Ask for a frame, and show it even in a pause."""
        if self.instant and not self.instant.playback:
            self.instant = self.instant._replace(next_wanted=True)
        self.machine.request(Refresh())

    def pause(self) -> None:
        """Hold what is shown, or go on."""
        self.instant = None if self.instant and not self.instant.playback else self._pause()
        self.show()

    def pass_second(self) -> None:
        """Count a second, in which what gputop waits for may have changed."""
        if self.machine.snapshot is None:
            self.show()

    def _pause(self) -> HeldSnapshot:
        """Return what is shown now, with a history that does not go on."""
        now = self.machine.snapshot
        return HeldSnapshot(now and now._replace(history=now.history.copy(), is_paused=True))

    def return_to_now(self) -> bool:
        """Leave the past; return whether it was shown."""
        if self._playback is None:
            return False
        self._go_live()
        return True

    def move(self, move: Callable[[Playback], object], is_on: bool = False) -> str:
        """Move in time, towards now if `is_on`; return the note about it."""
        if self.snapshot is None:
            return ""
        if self._playback is None and is_on:
            return "this is now"
        try:
            playback = self._playback or self._begin()
            if playback is None:
                is_kept = self.machine.feed.source.past is not None
                return "no history yet" if is_kept else "no history is kept of this machine"
            move(playback)
        except GputopError as error:
            return str(error)
        self._show_past(playback)
        if self._playback is None and not is_on:
            return "nothing older is in memory"
        return playback.note

    def _begin(self) -> Playback | None:
        """Return a playback that begins at the snapshot; None if nothing is remembered."""
        past, snapshot = self.machine.feed.source.past, self.snapshot
        if past is None or snapshot is None or not past.times:
            return None
        playback = Playback(past, self.machine.history)
        playback.go(snapshot.frame.time)
        return playback

    def _show_past(self, playback: Playback) -> None:
        """Show where a playback has come to; its newest frame leads back to now."""
        frame = playback.frame
        now = self.machine.snapshot
        if playback.is_at_end or frame is None or now is None or frame.time == now.frame.time:
            playback.note = ""
            self._go_live()
        else:
            self._hold(playback, frame)

    def _hold(self, playback: Playback, frame: Frame) -> None:
        names = LogicalNames(frame)
        snapshot = Snapshot(frame, playback.history, names, self.moment)
        self.instant = HeldSnapshot(snapshot, playback)
        self.show()

    def _go_live(self) -> None:
        self.instant = None
        self.show()

    def lose_signals(self) -> bool:
        """Take in that the agent ended; return whether an outcome of signals is lost with it."""
        asked = [dialog.lose() for dialog in self.main.above(SignalScreen)]
        return self.machine.lose_signals() or any(asked)

    def show(self) -> None:
        """Show the frame, or why it has no GPUs."""
        if not self.is_ready:
            return
        self.main.show_notes()
        snapshot = self.snapshot
        if snapshot is None:
            return
        frame = snapshot.frame
        if frame.problem is not None:
            host = frame.host.requested_name or frame.host.name
            self._show_problem(host, frame.problem, tries=snapshot.moment == "now")
            return
        if isinstance(self.main.app.screen, ProblemScreen):
            self.main.app.pop_screen()
        self.main.show_frame(snapshot._replace(interval=self.interval))

    def show_end(self) -> None:
        machine = self.machine
        self._show_problem(machine.host if machine.is_remote else "", machine.problem)

    def _show_problem(self, host: str, problem: Problem, tries: bool = True) -> None:
        """Show why there is nothing to see, instead of whatever is open. `tries`: whether gputop
        tries again by itself."""
        for screen in self.main.above(ProblemScreen):  # it may be under the help
            screen.show_problem(host, problem, tries)
            return
        app = self.main.app
        while app.screen is not self.main:
            app.pop_screen()
        # A new screen each time: the one before may not have closed yet.
        fresh = ProblemScreen()
        fresh.show_problem(host, problem, tries)
        app.push_screen(fresh)
