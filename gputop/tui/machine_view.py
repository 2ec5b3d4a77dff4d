"""The machine that is open: what comes from it goes to its main screen."""

from __future__ import annotations

from gputop.model.machine.frame import Frame, Problem
from gputop.protocol.messages import Refresh, Reply
from gputop.sources.feed import Feed
from gputop.tui.machine import Picture, WatchedMachine
from gputop.tui.main import MainScreen
from gputop.tui.pages.problem import ProblemScreen


class MachineView:
    """A machine on its main screen, or why there is nothing to see of it."""

    def __init__(self, machine: WatchedMachine, main: MainScreen, interval: float) -> None:
        self.main, self.interval = main, interval
        self.is_ready = False
        """Whether every widget is there."""
        self.is_paused = self._next_wanted = False
        """Whether the picture stands still, and whether it is to be the next frame's instead."""
        self._link = ("", "")
        """What was said of the way to the machine."""
        self.watch(machine)

    def watch(self, machine: WatchedMachine) -> None:
        self.machine = machine
        machine.note = self.main.show_note
        self._link = ("", "")
        machine.on_news = self.main.marks.show_news
        self.main.marks.watch(machine.marks, machine.ask_about_marks, machine.dismiss_news)

    def begin_anew(self) -> None:
        """Forget what another agent was asked, and a pause."""
        self.is_paused = self._next_wanted = False
        self.main.reset()

    def shows(self, feed: Feed) -> bool:
        """Whether a feed is the machine's of now: what one that was replaced says is late."""
        return feed is self.machine.feed

    def take(self, frame: Frame) -> None:
        """Show a frame; in a pause only in the dialogs of signals."""
        machine = self.machine
        if self.is_ready:
            self.main.signals.show_frame(frame)
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

    def freeze(self) -> None:
        """Hold the picture."""
        self.is_paused = True
        self.machine.freeze()
        self.show()

    def thaw(self) -> None:
        """Show the picture of now."""
        self.is_paused = False
        self.machine.thaw()
        self.show()

    def hold(self, picture: Picture) -> None:
        """Show a picture of the past."""
        self.is_paused = False
        self.machine.hold(picture)
        self.show()

    def lose_signals(self) -> bool:
        """The agent has ended. Return whether somebody waits for what it would tell."""
        asked = self.main.signals.lose()
        return self.machine.lose_signals() or asked

    def show(self) -> None:
        """Show the frame, or why it has no GPUs."""
        if not self.is_ready:
            return
        link = self.machine.waiting, self.machine.limit
        if link != self._link:
            self._link = link
            self.main.show_link(*link)
        picture = self.machine.picture
        if picture is None:
            return
        frame = picture.frame
        if frame.problem is not None:
            host = frame.host.asked or frame.host.name
            self.show_problem(host, frame.problem, tries=picture.moment == "now")
            return
        if isinstance(self.main.app.screen, ProblemScreen):
            self.main.app.pop_screen()
        self.main.show_frame(frame, picture.history, self.interval, picture.moment)

    def show_end(self) -> None:
        """Show that nothing comes any more."""
        self.show_problem(self.machine.host if self.machine.is_remote else "", self.machine.problem)

    def show_problem(self, host: str, problem: Problem, tries: bool = True) -> None:
        """Show why there is nothing to see, in place of whatever is open. `tries`: whether gputop
        tries again by itself."""
        app = self.main.app
        for screen in app.screen_stack:  # it may be under the help
            if isinstance(screen, ProblemScreen):
                screen.show_problem(host, problem, tries)
                return
        while app.screen is not self.main:
            app.pop_screen()
        # A new one each time: the one before may still be on its way out.
        fresh = ProblemScreen()
        fresh.show_problem(host, problem, tries)
        app.push_screen(fresh)
