"""The machine that is open: what its main screen shows of it, now, in a pause, or of its past."""

from __future__ import annotations

from collections.abc import Callable

from gputop.errors import GputopError
from gputop.model.machine.frame import Frame, Problem
from gputop.model.machine.text import duration
from gputop.protocol.messages import Refresh, Reply
from gputop.sources.past import Moment
from gputop.tui.dialogs.signal import SignalScreen
from gputop.tui.machine import Picture, WatchedMachine
from gputop.tui.main import MainScreen
from gputop.tui.pages.problem import ProblemScreen
from gputop.tui.playback import Playback


class MachineView:
    """A machine on its main screen, or why there is nothing to see of it.

    What moves in time returns what there is to say of it.
    """

    moment: Moment = "past"
    """Which time is shown where that is not now."""

    def __init__(self, main: MainScreen, interval: float) -> None:
        self.main, self.interval = main, interval
        self.is_ready = False
        """Whether every widget is there."""
        self.is_paused = self._next_wanted = False
        """Whether the picture stands still, and whether it is to be the next frame's instead."""
        self._playback: Playback | None = None
        """The past that is shown; None where the picture is that of now, or in a pause was."""

    @property
    def machine(self) -> WatchedMachine:
        return self.main.machine

    @property
    def age(self) -> int | None:
        """Seconds that the picture is behind, in a pause; None where there is none."""
        return int(self.machine.age or 0) if self.is_paused else None

    @property
    def instant(self) -> str:
        """What the heading says of the time that is shown; nothing of now."""
        if self._playback is None or self.machine.now is None:
            return ""
        return f"PAST -{duration(self.machine.now - self._playback.time)}"

    def begin_anew(self) -> None:
        """Forget what another agent was asked, a pause and the past."""
        self.is_paused = self._next_wanted = False
        self._playback = None
        self.main.reset()

    def take(self, frame: Frame) -> None:
        """Show a frame; in a pause only in the dialogs of signals."""
        machine = self.machine
        if self.is_ready:
            for dialog in self.main.above(SignalScreen):
                dialog.show_frame(frame)
        machine.handle_frame(frame)
        if self._next_wanted or machine.age is None:
            self._next_wanted = False
            if self.is_paused:
                machine.freeze()
            self.show()

    def reply(self, reply: Reply) -> None:
        """Show an answer to who has asked."""
        self.machine.seconds = 0
        self.machine.handle(reply)
        if self.is_ready:
            self.main.reply(reply)

    def refresh(self) -> None:
        """Ask for a frame, also in a pause."""
        self._next_wanted = self.is_paused
        self.machine.request(Refresh())

    def pause(self) -> None:
        """Hold the picture of now, or go on."""
        if self.is_paused:
            self._thaw()
        else:
            self.is_paused = True
            self.machine.freeze()
            self.show()

    def return_to_now(self) -> bool:
        """Leave the past; whether that was shown."""
        if self._playback is None:
            return False
        self._thaw()
        return True

    def step(self, count: int) -> str:
        """Go by frames, back where `count` is below 0."""
        return self._move(lambda playback: playback.step(count), is_on=count > 0)

    def skip(self, seconds: float) -> str:
        """Go by a time, and by one frame at least."""
        return self._move(lambda playback: playback.skip(seconds), is_on=seconds > 0)

    def _move(self, move: Callable[[Playback], object], is_on: bool = False) -> str:
        if self.machine.picture is None:
            return ""
        if self._playback is None and is_on:
            return "this is now"
        try:
            playback = self._playback or self._begin()
            if playback is None:
                return "nothing is in memory to go back to"
            move(playback)
        except GputopError as error:
            return str(error)
        self._show_past(playback)
        if self._playback is None and not is_on:
            return "nothing older is in memory"
        return playback.note

    def _begin(self) -> Playback | None:
        """Return what goes on from the picture; None where nothing is remembered."""
        past, picture = self.machine.feed.source.past, self.machine.picture
        if past is None or picture is None or not past.times:
            return None
        playback = Playback(past, self.machine.history)
        playback.go(picture.frame.time)
        return playback

    def _show_past(self, playback: Playback) -> None:
        """Show what was come to; the newest frame is that of now."""
        frame = playback.frame
        if playback.is_at_end or frame is None or frame.time == self.machine.now:
            playback.note = ""
            self._thaw()
        else:
            self._hold(playback, frame)

    def _hold(self, playback: Playback, frame: Frame) -> None:
        self._playback, self.is_paused = playback, False
        self.machine.hold(Picture(frame, playback.history, self.moment))
        self.show()

    def _thaw(self) -> None:
        """Show the picture of now."""
        self._playback, self.is_paused = None, False
        self.machine.thaw()
        self.show()

    def lose_signals(self) -> bool:
        """The agent has ended. Return whether somebody waits for what it would tell."""
        asked = [dialog.lose() for dialog in self.main.above(SignalScreen)]
        return self.machine.lose_signals() or any(asked)

    def show(self) -> None:
        """Show the frame, or why it has no GPUs."""
        if not self.is_ready:
            return
        self.main.show_notes()
        picture = self.machine.picture
        if picture is None:
            return
        frame = picture.frame
        if frame.problem is not None:
            host = frame.host.asked or frame.host.name
            self._show_problem(host, frame.problem, tries=picture.moment == "now")
            return
        if isinstance(self.main.app.screen, ProblemScreen):
            self.main.app.pop_screen()
        self.main.show_frame(frame, picture.history, self.interval, picture.moment)

    def show_end(self) -> None:
        """Show that nothing comes any more."""
        machine = self.machine
        self._show_problem(machine.host if machine.is_remote else "", machine.problem)

    def _show_problem(self, host: str, problem: Problem, tries: bool = True) -> None:
        """Show why there is nothing to see, in place of whatever is open. `tries`: whether gputop
        tries again by itself."""
        for screen in self.main.above(ProblemScreen):  # it may be under the help
            screen.show_problem(host, problem, tries)
            return
        app = self.main.app
        while app.screen is not self.main:
            app.pop_screen()
        # A new one each time: the one before may still be on its way out.
        fresh = ProblemScreen()
        fresh.show_problem(host, problem, tries)
        app.push_screen(fresh)
