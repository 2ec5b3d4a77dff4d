"""The app: takes machines, shows screens, and owns what concerns all of them."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import SystemCommand
from textual.binding import BindingType
from textual.css.query import NoMatches
from textual.events import AppBlur
from textual.reactive import reactive
from textual.screen import ModalScreen, Screen

from gputop.errors import GputopError, SourceError
from gputop.model.machine.frame import Frame
from gputop.model.machine.text import printable
from gputop.protocol.messages import MAX_INTERVAL, MIN_INTERVAL, Refresh, Reply, SetInterval
from gputop.settings import Session
from gputop.sources.demo.source import DemoSource
from gputop.sources.feed import Feed, close_all
from gputop.tui import palette, themes
from gputop.tui.cluster import ClusterScreen
from gputop.tui.fleet import TICK, FleetScreen
from gputop.tui.keys import APP_BINDINGS, following
from gputop.tui.machine import WatchedMachine
from gputop.tui.machine_view import MachineView, Paused, paused
from gputop.tui.main import MainScreen
from gputop.tui.messages import NOTE_SECONDS, Arrived, MarkReached, Note
from gputop.tui.pages.help import HelpScreen
from gputop.tui.pages.problem import ProblemScreen
from gputop.tui.panes.lines import Lines
from gputop.tui.table_screen import TableScreen
from gputop.tui.terminal import app as terminal_app
from gputop.tui.terminal import capabilities
from gputop.tui.terminal.key_queue import Alarm, KeysInTurn
from gputop.tui.terminal.outside import alert, run_outside

if TYPE_CHECKING:
    from gputop.sources.prometheus.watch import ClusterWatch

_INTERVALS = (MIN_INTERVAL, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, MAX_INTERVAL)

_LATE = 3
"""An agent counts as silent after this many intervals, and after at least this many seconds."""


class GputopApp(KeysInTurn[None], terminal_app.TerminalApp[None]):
    """The screens of one machine or of several, and the keys that work on all of them."""

    TITLE = "gputop"
    view_type: ClassVar[type[MachineView]] = MachineView
    CSS_PATH = "style.tcss"
    ALLOW_SELECT = False
    instant: reactive[str] = reactive("", repaint=False)
    """How the heading names the instant that is shown: a pause, the past; empty for now."""
    note: reactive[str] = reactive("", repaint=False)
    """A note about the last move in time."""
    silence: reactive[int] = reactive(0, repaint=False)
    """Seconds since the agent last sent something; 0 unless that is too long."""

    BINDINGS = APP_BINDINGS

    def __init__(
        self, feeds: Sequence[Feed], settings: Session, cluster: ClusterWatch | None = None
    ) -> None:
        """`feeds` has one entry per machine; several begin with a screen of all. It is empty if
        the machines are those of a `cluster`."""
        super().__init__()
        has_shades = capabilities.colours(os.environ) > capabilities.Colours.ANSI
        for theme in themes.fitting(has_shades):
            self.register_theme(theme)
        self.theme = capabilities.nearest_theme(settings.theme, os.environ)
        self.set_class(Lines.glyphs.name == "ascii", "-ascii")
        self.settings = settings
        self.own_keys = settings.keys
        self._interval = settings.interval
        self._pace = settings.interval
        """The interval in seconds that agents were given; longer while the focus is elsewhere."""
        self._machines = [WatchedMachine(feed, self.post_message) for feed in feeds]
        self._fleet: FleetScreen | ClusterScreen | None = None
        self._cluster = cluster
        self._hosts_age: int | None = None
        """For how many seconds the screen of all machines has been paused; None without a pause."""
        self._note_end: tuple[Alarm, Callable[[], None]] | None = None
        """What ends the note that is shown, and takes it away."""
        self.view: MachineView | None = None
        if cluster is not None:
            self._fleet = ClusterScreen(settings, cluster, self._open_node)
            self._interval = cluster.interval
        elif len(feeds) == 1:
            self.view = self._view(self._machines[0])
        else:
            self._fleet = FleetScreen(settings, self._machines, self._open_host, self._login)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.DEFAULTS

    def get_default_screen(self) -> Screen[None]:
        return self._table_screen

    @property
    def _table_screen(self) -> TableScreen:
        """The screen of the machine that is open, otherwise that of all machines."""
        screen = self._fleet if self.view is None else self.view.main
        assert screen is not None
        return screen

    def on_mount(self) -> None:
        """Set the keys, start the timers and begin to read the machines."""
        self.set_keymap(self.settings.keys)
        self.set_interval(1.0, self._second)
        if self._fleet is not None:
            self.set_interval(TICK, self._tick)
        for machine in self._machines:
            machine.listen()

    def on_ready(self) -> None:
        """Show what has come while the widgets were made."""
        gc.enable()  # the start turned it off
        # What exists now stays: scanning it again and again would cost a tick. A frame is
        # thousands of objects without a cycle.
        gc.freeze()
        gc.set_threshold(20_000, 10, 10)
        if self.view is not None:
            self.view.is_ready = True
            self.view.show()
        self._tick()

    def on_arrived(self, message: Arrived) -> None:
        """Show what comes from the open machine; keep what comes from others."""
        content, machine = message.content, self._machine_of(message.feed)
        if machine is None:
            return
        view = self._view_of(machine)
        if view is not None:
            self.silence = 0
        if isinstance(content, SourceError):
            machine.end(content)
            if view is not None:
                self._show_end(view)
        elif isinstance(content, Reply):
            (view.reply if view else machine.handle)(content)
        elif view is not None:
            view.take(content)
            self._show_time(view)

    def _show_end(self, view: MachineView) -> None:
        """Show that the source has ended. If the outcome of signals is lost, start another agent
        instead, which knows nothing of them."""
        if view.lose_signals():
            self.action_retry()
        else:
            view.show_end()

    def on_mark_reached(self, message: MarkReached) -> None:
        """Notify the user that a mark was reached, in the way that the settings choose."""
        from gputop.notify import terminal_sequence  # seldom needed

        sequence = terminal_sequence(message.sentence, self.settings.notify, os.environ)
        alert(self, sequence)
        if command := self.settings.notify_command:
            run = partial(self._run_notify_command, message.sentence, command)
            threading.Thread(target=run, name="notify", daemon=True).start()

    def _run_notify_command(self, sentence: str, command: str) -> None:
        """Run the user's command; it has a thread of its own, as it may take long."""
        from gputop.notify import notify_command

        try:
            notify_command(sentence, command)
        except GputopError as error:
            self.post_message(Note(printable(str(error), 200)))

    def on_note(self, message: Note) -> None:
        """Say it for a while: where it belongs, above the table, or among the keys of a page."""
        screen = self.screen
        show = message.show or (screen.say if isinstance(screen, TableScreen) else self._show_note)
        self._end_note()
        show(message.words)
        self._note_end = self.after(NOTE_SECONDS, self._end_note), partial(show, "")

    def _end_note(self) -> None:
        if self._note_end is not None:
            (timer, hide), self._note_end = self._note_end, None
            timer.stop()
            with suppress(NoMatches):  # its screen may have closed
                hide()

    def _show_note(self, words: str) -> None:
        self.note = words

    def _second(self) -> None:
        """Count a second. A time in which gputop itself was stopped counts as one."""
        for machine in self._machines:
            if machine.pass_second():
                self._reconnect(machine)
        if self.view is not None:
            if self.view.machine.picture is None:
                self.view.show()
            seconds = self.view.machine.seconds
            pace = max(self._pace, (self.last_frame and self.last_frame.interval) or 0)
            self.silence = seconds if seconds >= max(_LATE, _LATE * pace) else 0
        elif self._hosts_age is not None:
            self._hosts_age += 1
            self.instant = paused(self._hosts_age)

    def _tick(self) -> None:
        """Update the screen of all machines; draw it unless one is open or the picture is held."""
        if self._fleet is not None:
            self._fleet.tick(self._interval, is_shown=self.view is None and not self.paused)

    def _machine_of(self, feed: Feed) -> WatchedMachine | None:
        return next((machine for machine in self._machines if machine.feed is feed), None)

    def _view_of(self, machine: WatchedMachine) -> MachineView | None:
        """Return the view of a machine; None unless it is open."""
        return self.view if self.view is not None and self.view.machine is machine else None

    # From all machines to one, and back.

    async def _open_node(self, host: str) -> None:
        """Open the screen of a machine of the cluster, and begin to read it."""
        assert self._cluster is not None
        self._interval = self._pace = self.settings.interval
        source = self._cluster.source_of(host, self._interval)
        machine = WatchedMachine(Feed(source), self.post_message)
        self._machines = [machine]
        machine.listen()
        await self._open_host(host, None)

    async def _open_host(self, host: str, pid: int | None) -> None:
        """Open the screen of a machine, and select a process there if `pid` is given."""
        machine = next(machine for machine in self._machines if machine.host == host)
        machine.open()
        self._begin_now()
        view = self.view = self._view(machine)
        await self.push_screen(view.main)
        view.is_ready = True
        view.show()
        if machine.ended:
            view.show_end()
        elif pid is not None:
            view.main.processes.select_pid(pid)

    def action_leave_host(self) -> None:
        """Go back to all machines."""
        view, self.view = self.view, None
        if view is None or self._fleet is None:
            return
        self._begin_now()
        view.machine.leave()
        while self.screen is not self._fleet:
            self.pop_screen()
        if self._cluster is not None:  # its machines are read only while they are open
            view.machine.feed.source.close()
            self._machines, self._interval = [], self._cluster.interval
        self._fleet.show(self._interval)

    def _view(self, machine: WatchedMachine) -> MachineView:
        leave = None if self._fleet is None else self.action_leave_host
        main = MainScreen(self.settings, machine, leave, self._return_to_now)
        return self.view_type(main, self._interval)

    # What keys do.

    def action_help(self) -> None:
        """Show the keys that work now, and how to read the screen."""
        described = partial(palette.described, self.settings)
        fleet = self._fleet.BINDINGS if self._fleet is not None else ()
        keys = described(fleet, self.main_bindings(), self.BINDINGS)
        elsewhere = {"On pages": described(*(page.BINDINGS for page in palette.PAGES)),
                     "Without a driver": described(ProblemScreen.BINDINGS)}  # fmt: skip
        self.push_screen(HelpScreen(keys, elsewhere))

    def main_bindings(self) -> Iterable[BindingType]:
        """Return the bindings of the main screen that do something."""
        return MainScreen.BINDINGS

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        return palette.system_commands(self, self.settings, screen, self.choose_theme)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("step", "skip"):
            return self.view is not None and not isinstance(self.screen, ModalScreen)
        if action == "demo":
            return self._fleet is None and not self._machines[0].is_remote
        if action == "leave_host":
            return self._fleet is not None
        if action == "login":
            return self.view is not None and self.view.machine.link.state == "login"
        return super().check_action(action, parameters)

    def choose_theme(self, name: str) -> None:
        """Use a theme, and keep it for the next time."""
        self.theme = name
        self._table_screen.save({"theme": name})

    def action_next_theme(self) -> None:
        self.choose_theme(following(self.theme, (theme.name for theme in themes.THEMES)))

    async def action_quit(self) -> None:
        """Leave one of several machines, or gputop."""
        if self._fleet is not None and self.view is not None:
            self.action_leave_host()
        else:
            self.action_interrupt()

    def action_interrupt(self) -> None:
        """Leave gputop at once, whatever hangs."""
        self.close_sources()
        self.exit()

    @property
    def last_frame(self) -> Frame | None:
        """The frame that is shown; None if there is none."""
        picture = None if self.view is None else self.view.picture
        return picture and picture.frame

    @property
    def paused(self) -> bool:
        """Whether the picture stands still."""
        return (
            self._hosts_age is not None
            if self.view is None
            else isinstance(self.view.instant, Paused)
        )

    def close_sources(self) -> None:
        """End the current sources, which may not be those that the app began with."""
        if self._cluster is not None:
            self._cluster.close()
        close_all([machine.feed.source for machine in self._machines])

    def action_pause(self) -> None:
        """Hold the picture, or return to now."""
        if self.view is None:
            self._hosts_age = None if self.paused else 0
            self.instant = "" if self._hosts_age is None else paused(0)
        elif not self._return_to_now():
            self.view.pause()
            self._show_time(self.view)

    def _return_to_now(self) -> bool:
        """Leave the past; return whether it was shown."""
        if self.view is None or not self.view.return_to_now():
            return False
        self.note = ""
        self._show_time(self.view)
        return True

    def _show_time(self, view: MachineView) -> None:
        self.instant = view.words

    def _begin_now(self) -> None:
        """Clear the pause, the time and the silence, as another picture of now is shown."""
        self._hosts_age, self.silence = None, 0
        self.instant = self.note = ""

    def action_step(self, count: int) -> None:
        """Move in time by `count` frames, back if it is negative."""
        self._move_in_time(lambda view: view.step(count))

    def action_skip(self, seconds: int) -> None:
        """Move in time by some seconds, back if they are negative."""
        self._move_in_time(lambda view: view.skip(seconds))

    def _move_in_time(self, move: Callable[[MachineView], str]) -> None:
        """Move in time, and show the note about it for a while."""
        if self.view is not None:
            self._say(move(self.view))
            self._show_time(self.view)

    def _say(self, note: str) -> None:
        """Show a note about the time, which stands among the keys on every screen."""
        if note:
            self.post_message(Note(note, self._show_note))
        else:
            self.note = ""

    def action_interval(self, step: int) -> None:
        """Take the next longer or shorter interval."""
        longer = (seconds for seconds in _INTERVALS if seconds > self._interval)
        shorter = (seconds for seconds in reversed(_INTERVALS) if seconds < self._interval)
        self._interval = next(longer if step > 0 else shorter, self._interval)
        self._set_pace(self._interval)
        if self.view is not None:
            self.view.interval = self._interval
            self.view.show()
        elif self._fleet is not None:
            self._fleet.show(self._interval)

    def on_app_blur(self, event: AppBlur) -> None:
        """Ask for fewer frames while the focus is elsewhere, if the settings say so."""
        self._set_pace(max(self._interval, self.settings.unfocused))

    def on_app_focus(self) -> None:
        self._set_pace(self._interval)
        if not self.paused:
            self._ask_for_frames()

    def _set_pace(self, seconds: float) -> None:
        self._pace = seconds
        for machine in self._machines:
            machine.request(SetInterval(seconds))

    def action_refresh_now(self) -> None:
        """Ask for frames; connect again where that has failed, or where no agent answers."""
        if self.view is None:
            for machine in self._machines:
                if machine.ended:
                    self._reconnect(machine)
        elif self.silence:
            self.view.lose_signals()
            self.action_retry()
        self._ask_for_frames()

    def _ask_for_frames(self) -> None:
        """Ask for frames where there is a connection; what is broken is left alone."""
        if self.view is not None:
            self.view.refresh()
        elif self._cluster is not None:
            self._cluster.refresh()
        else:
            for machine in self._machines:
                if not machine.ended:
                    machine.request(Refresh())

    def action_retry(self) -> None:
        """Reconnect to the machine: another agent loads the driver's library anew."""
        if self.view is not None:
            self._reconnect(self.view.machine)

    def _reconnect(self, machine: WatchedMachine) -> None:
        if view := self._view_of(machine):
            self._begin_anew(view)
        machine.reconnect()
        machine.request(SetInterval(self._interval))

    def _begin_anew(self, view: MachineView) -> None:
        self._begin_now()
        self._pace = self._interval
        view.begin_anew()

    def action_demo(self) -> None:
        """Show the invented machine instead."""
        if self.view is not None:
            self.close_sources()
            self._begin_anew(self.view)
            machine = WatchedMachine(Feed(DemoSource(self._interval)), self.post_message)
            self._machines = [machine]
            self.view.main.attach(machine)
            machine.listen()

    def action_login(self) -> None:
        """Log in to the open machine by hand."""
        if self.view is not None:
            self._login(self.view.machine.host)

    def _login(self, host: str) -> None:
        """Suspend the screen for a login by hand, then connect."""
        machine = next(machine for machine in self._machines if machine.host == host)
        try:
            login = machine.login_command()
        except SourceError as error:
            machine.end(error, wants_login=True)
            return
        if login is not None:
            words = f"gputop: log in to {host} (Ctrl-C gives up)"
            if run_outside(self, *login, words) == 0:
                self._reconnect(machine)
