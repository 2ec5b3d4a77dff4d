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
from textual.css.query import NoMatches
from textual.events import AppBlur
from textual.reactive import reactive
from textual.screen import ModalScreen, Screen
from textual.timer import Timer

from gputop.errors import GputopError, SourceError
from gputop.model.machine.frame import ProcessKey
from gputop.model.machine.text import printable
from gputop.protocol.messages import MAX_INTERVAL, MIN_INTERVAL, Reply
from gputop.settings import Session
from gputop.sources.demo.source import DemoSource
from gputop.sources.feed import Feed
from gputop.tui import palette, themes
from gputop.tui.cluster import ClusterHosts
from gputop.tui.fleet import TICK, FleetHosts
from gputop.tui.hosts import HostsScreen
from gputop.tui.keys import APP_BINDINGS, OPENING_FIELDS, following
from gputop.tui.machine import WatchedMachine
from gputop.tui.main import MainScreen
from gputop.tui.messages import NOTE_SECONDS, Arrived, MarkReached, Note
from gputop.tui.pages.help import HelpScreen
from gputop.tui.panes.lines import Lines
from gputop.tui.shown import Shown
from gputop.tui.table_screen import TableScreen
from gputop.tui.terminal import app as terminal_app
from gputop.tui.terminal import capabilities
from gputop.tui.terminal.key_queue import SerialInput
from gputop.tui.timeline import Timeline

if TYPE_CHECKING:
    from gputop.sources.prometheus.watch import ClusterWatch
    from gputop.tui.playback import Playback

_INTERVALS = (MIN_INTERVAL, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, MAX_INTERVAL)

_LATE = 3
"""An agent counts as silent after this many intervals, and after at least this many seconds."""


class GputopApp(SerialInput[None], terminal_app.TerminalApp[None]):
    """The screens of one machine or of several, and the keys that work on all of them."""

    TITLE = "gputop"
    timeline_type: ClassVar[type[Timeline]] = Timeline
    CSS_PATH = "style.tcss"
    ALLOW_SELECT = False
    instant: reactive[str] = reactive("", repaint=False)
    """How the heading names the instant that is shown: a pause, the past; empty for now."""
    note: reactive[str] = reactive("", repaint=False)
    """A note about the last move in time."""
    silence: reactive[int] = reactive(0, repaint=False)
    """Seconds since the agent last sent something; 0 unless that is too long."""

    BINDINGS = [*APP_BINDINGS]
    opening_fields = OPENING_FIELDS

    def __init__(
        self, feeds: Sequence[Feed], settings: Session, cluster: ClusterWatch | None = None
    ) -> None:
        """`feeds` has one entry per machine; several begin with a screen of all. It is empty if
        the machines are those of a `cluster`."""
        super().__init__()
        has_shades = capabilities.colours(os.environ) > 16
        for theme in themes.fitting(has_shades):
            self.register_theme(theme)
        self.theme = capabilities.nearest_theme(settings.theme, os.environ)
        self.follows_background = settings.theme == "auto"
        self.set_class(Lines.glyphs.name == "ascii", "-ascii")
        self.settings = settings
        self.own_keys = settings.keys
        self._pace = settings.interval
        """The interval in seconds that agents were given; longer while the focus is elsewhere."""
        self._note_end: tuple[Timer, Callable[[], None]] | None = None
        """What ends the note that is shown, and takes it away."""
        self.shown = Shown(self._first(feeds, cluster))

    def _first(self, feeds: Sequence[Feed], cluster: ClusterWatch | None) -> Timeline | HostsScreen:
        machines = [
            WatchedMachine(feed, self.post_message, self.settings.interval) for feed in feeds
        ]
        if len(machines) == 1:
            return self._view(machines[0])
        hosts: FleetHosts | ClusterHosts
        if cluster is None:
            hosts = FleetHosts(self.settings, machines)
        else:
            hosts = ClusterHosts(self.settings, cluster, self.post_message)
        return HostsScreen(self.settings, hosts, self._open_host, self._login)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.DEFAULTS

    def get_default_screen(self) -> Screen[None]:
        return self.shown.screen

    def on_mount(self) -> None:
        """Set the keys, start the timers and begin to read the machines."""
        self.set_keymap(self.settings.keys)
        self.set_interval(1.0, self._second)
        if self.shown.all_hosts is not None:
            self.set_interval(TICK, self._tick)
        for machine in self.shown.machines:
            machine.listen()

    def on_ready(self) -> None:
        """Show what has come while the widgets were made."""
        gc.enable()  # the start turned it off
        # What exists now stays: scanning it repeatedly would cost a tick. A frame is
        # thousands of objects without a cycle.
        gc.freeze()
        gc.set_threshold(20_000, 10, 10)
        if self.shown.view is not None:
            self.shown.view.is_ready = True
            self.shown.view.show()
        self._tick()

    def on_arrived(self, message: Arrived) -> None:
        """Show what comes from the open machine; keep what comes from others."""
        content, machine = message.content, self.shown.machine_of(message.feed)
        if machine is None:
            return
        view = self.shown.view_of(machine)
        if view is not None:
            self.silence = 0
        if isinstance(content, SourceError):
            machine.end(content)
            if view is not None:
                self._show_end(view)
        elif isinstance(content, Reply):
            machine.handle(content)
        elif view is not None:
            view.take(content)
            self._show_time()

    def _show_end(self, view: Timeline) -> None:
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
        self.alert(sequence)
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
        """Say it for a while: above the table, or before the keys."""
        screen = self.screen
        show: Callable[[str], None] = partial(setattr, self, "note")
        if isinstance(screen, TableScreen) and not message.among_keys:
            show = screen.say
        self._end_note()
        show(message.words)
        self._note_end = self.after(NOTE_SECONDS, self._end_note), partial(show, "")

    def handle_unmarked_paste(self) -> None:
        self.post_message(Note("pasted text is not a command"))

    def _end_note(self) -> None:
        if self._note_end is not None:
            (timer, hide), self._note_end = self._note_end, None
            timer.stop()
            with suppress(NoMatches):  # its screen may have closed
                hide()

    def _second(self) -> None:
        """Count a second. A time in which gputop itself was stopped counts as one."""
        for machine in self.shown.machines:
            if machine.pass_second():
                self._reconnect(machine)
        self.shown.current.pass_second()
        self._show_time()
        if self.shown.view is not None:
            seconds = self.shown.view.machine.seconds
            pace = max(self._pace, (self.shown.frame and self.shown.frame.interval) or 0)
            self.silence = seconds if seconds >= max(_LATE, _LATE * pace) else 0

    def _tick(self) -> None:
        """Let the screen of all hosts take in what has come; it draws only if it is shown."""
        if self.shown.all_hosts is not None:
            self.shown.all_hosts.tick(is_shown=self.shown.view is None)
            self._show_time()

    # From all machines to one, and back.

    async def _open_host(self, host: str, key: ProcessKey | None, action: str) -> None:
        """Open the screen of a host; with the `key` of a process, select it, and do what a key of
        that screen does (`action`; empty for nothing)."""
        view = self.shown.open(host, partial(self._view, leave=self.action_leave_host))
        self._pace = view.interval
        self._begin_now()
        await self.push_screen(view.main)
        view.is_ready = True
        view.show()
        if view.machine.ended:
            view.show_end()
        elif key is not None and self.screen is view.main:
            await view.main.begin_at(key, action)

    def action_leave_host(self) -> None:
        if (screen := self.shown.leave()) is not None:
            self._begin_now()
            while self.screen is not screen:
                self.pop_screen()
            screen.show()

    def _view(self, machine: WatchedMachine, leave: Callable[[], None] | None = None) -> Timeline:
        main = MainScreen(self.settings, machine, leave, self._return_to_now)
        return self.timeline_type(main, self.settings.interval)

    # What keys do.

    def action_help(self) -> None:
        """Show the keys of the screen that is shown, and how to read it."""
        snapshot = self.shown.view and self.shown.view.snapshot
        moment = snapshot.moment if snapshot else "now"
        self.push_screen(HelpScreen(palette.keys_of(self, self.settings, self.screen, moment)))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        return palette.system_commands(self, self.settings, screen, self.choose_theme)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("step", "skip"):
            return self.shown.view is not None and not isinstance(self.screen, ModalScreen)
        if action == "demo":
            return self.shown.all_hosts is None and not self.shown.machines[0].is_remote
        if action == "leave_host":
            return self.shown.all_hosts is not None
        if action == "login":
            return self.shown.view is not None and self.shown.view.machine.link.state == "login"
        return super().check_action(action, parameters)

    def choose_theme(self, name: str) -> None:
        """Use a theme, keep it for the next time, and say which it is."""
        self.theme, self.follows_background = name, False
        self.shown.screen.save({"theme": name}, f"theme: {name}")

    def action_next_theme(self) -> None:
        self.choose_theme(following(self.theme, (theme.name for theme in themes.THEMES)))

    async def action_quit(self) -> None:
        """Leave one of several machines, or gputop."""
        if self.shown.all_hosts is not None and self.shown.view is not None:
            self.action_leave_host()
        else:
            self.action_interrupt()

    def action_interrupt(self) -> None:
        """Leave gputop at once, whatever hangs."""
        self.shown.close()
        self.exit()

    def action_pause(self) -> None:
        """Hold the picture, or return to now."""
        if not self._return_to_now():
            self.shown.current.pause()
            self._show_time()

    def _return_to_now(self) -> bool:
        """Leave the past; return whether it was shown."""
        if self.shown.view is None or not self.shown.view.return_to_now():
            return False
        self.note = ""
        self._show_time()
        return True

    def _show_time(self) -> None:
        self.instant = self.shown.current.words

    def _begin_now(self) -> None:
        """Clear the time and the silence, as another picture of now is shown."""
        self.silence = 0
        self.instant = self.note = ""

    def action_step(self, count: int) -> None:
        """Move in time by `count` frames, back if it is negative."""
        self._move_in_time(lambda playback: playback.step(count), is_on=count > 0)

    def action_skip(self, seconds: int) -> None:
        """Move in time by some seconds, back if they are negative."""
        self._move_in_time(lambda playback: playback.skip(seconds), is_on=seconds > 0)

    def _move_in_time(self, move: Callable[[Playback], object], is_on: bool = False) -> None:
        """Move in time, towards now if `is_on`, and show the note about it for a while."""
        if self.shown.view is not None:
            self._say(self.shown.view.move(move, is_on))
            self._show_time()

    def _say(self, note: str) -> None:
        """Show a note about the time, which stands among the keys on every screen."""
        if note:
            self.post_message(Note(note, among_keys=True))
        else:
            self.note = ""

    def action_interval(self, step: int) -> None:
        """Take the next longer or shorter interval."""
        shown = self.shown.current
        longer = (seconds for seconds in _INTERVALS if seconds > shown.interval)
        shorter = (seconds for seconds in reversed(_INTERVALS) if seconds < shown.interval)
        shown.interval = next(longer if step > 0 else shorter, shown.interval)
        self._set_pace(shown.interval)
        shown.show()

    def on_app_blur(self, event: AppBlur) -> None:
        """Ask for fewer frames while the focus is elsewhere, if the settings say so."""
        self._set_pace(max(self.shown.current.interval, self.settings.unfocused))

    def on_app_focus(self) -> None:
        self._set_pace(self.shown.current.interval)
        if not self.instant:  # neither a pause nor the past
            self.shown.current.refresh_values()

    def _set_pace(self, seconds: float) -> None:
        self._pace = seconds
        for machine in self.shown.machines:
            machine.set_interval(seconds)

    def action_refresh_now(self) -> None:
        """Ask for frames; connect again where that has failed, or where no agent answers."""
        if self.shown.view is None:
            for machine in self.shown.machines:
                if machine.ended:
                    self._reconnect(machine)
        elif self.silence:
            self.shown.view.lose_signals()
            self.action_retry()
        self.shown.current.refresh_values()

    def action_retry(self) -> None:
        """Reconnect to the machine: another agent loads the driver's library anew."""
        if self.shown.view is not None:
            self._reconnect(self.shown.view.machine)

    def _reconnect(self, machine: WatchedMachine) -> None:
        if view := self.shown.view_of(machine):
            self._begin_anew(view)
        machine.reconnect()
        machine.set_interval(self._pace)

    def _begin_anew(self, view: Timeline) -> None:
        self._begin_now()
        view.begin_anew()

    def action_demo(self) -> None:
        """Show the invented machine instead."""
        if self.shown.view is not None:
            self.shown.close()
            self._begin_anew(self.shown.view)
            machine = WatchedMachine(Feed(DemoSource(self.shown.view.interval)), self.post_message)
            self.shown.view.main.attach(machine)
            machine.listen()

    def action_login(self) -> None:
        """Log in to the open machine by hand."""
        if self.shown.view is not None:
            self._login(self.shown.view.machine.host)

    def _login(self, host: str) -> None:
        """Suspend the screen for a login by hand, then connect."""
        machine = next(machine for machine in self.shown.machines if machine.host == host)
        try:
            login = machine.login_command()
        except SourceError as error:
            machine.end(error, wants_login=True)
            if view := self.shown.view_of(machine):
                view.show_end()
            return
        if login is not None:
            words = f"gputop: log in to {host} (Ctrl-C gives up)"
            if self.run_outside(*login, words) == 0:
                self._reconnect(machine)
