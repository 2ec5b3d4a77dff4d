"""The app: takes frames from a source, hands them to the screen, owns what concerns all."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar

from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.reactive import reactive
from textual.screen import Screen

from gputop.allowed import MAX_INTERVAL, MIN_INTERVAL
from gputop.errors import SourceError
from gputop.model.machine.frame import Frame, Problem
from gputop.protocol.messages import Preview, Refresh, Reply, SetInterval
from gputop.settings import Session
from gputop.sources.demo.source import DemoSource
from gputop.sources.feed import Feed, Listener
from gputop.tui import glyphs, palette, themes
from gputop.tui.machine import WatchedMachine
from gputop.tui.main import MainScreen
from gputop.tui.messages import FrameArrived, ReplyArrived, SourceEnded
from gputop.tui.pages.help import HelpScreen
from gputop.tui.pages.problem import ProblemScreen
from gputop.tui.panes.lines import Lines
from gputop.tui.terminal import app as terminal_app
from gputop.tui.terminal import capabilities
from gputop.tui.terminal.key_queue import KeysInTurn

_INTERVALS = (MIN_INTERVAL, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, MAX_INTERVAL)

SCREEN = Binding.Group("Screen")

_LATE = 3
"""Intervals, and seconds at least, after which an agent is said not to answer."""


class GputopApp(KeysInTurn[None], terminal_app.TerminalApp[None]):
    """Frames in, pictures out."""

    TITLE = "gputop"
    CSS_PATH = "style.tcss"
    ALLOW_SELECT = False
    age: reactive[int | None] = reactive(None, repaint=False)
    """Seconds that the picture is behind, in a pause; None where it is that of now."""
    silence: reactive[int] = reactive(0, repaint=False)
    """Seconds since the agent has sent something, once they are more than they should be."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,f1,h", "help", "Help", tooltip="This page", id="app.help",
                key_display="?", group=SCREEN),
        Binding("q,f10", "quit", "Quit", tooltip="Quit", id="app.quit", key_display="q",
                group=SCREEN),
        Binding("ctrl+c", "quit", "Quit", tooltip="Quit",
                id="app.interrupt", show=False, priority=True, group=SCREEN),
        Binding("p,Z", "pause", "Pause", tooltip="Pause the display", id="app.pause",
                key_display="p", group=SCREEN),
        Binding("ctrl+z", "suspend_process", "Suspend", tooltip="Suspend; fg resumes",
                id="app.suspend", show=False, priority=True, group=SCREEN),
        Binding("plus,equals_sign", "interval(1)", "Slower", tooltip="Longer, shorter interval",
                id="app.slower", show=False, group=SCREEN),
        Binding("minus", "interval(-1)", "Faster", tooltip="Longer, shorter interval",
                id="app.faster", show=False, group=SCREEN),
        Binding("r,f5,ctrl+r", "refresh_now", "Refresh", tooltip="Refresh now", id="app.refresh",
                show=False, group=SCREEN),
        Binding("T", "next_theme", "Theme", tooltip="Next colour theme", id="app.theme", show=False,
                group=SCREEN),
        Binding("ctrl+l", "repaint", "Redraw", tooltip="Redraw the screen", id="app.redraw",
                show=False, priority=True, group=SCREEN),
    ]  # fmt: skip

    def __init__(self, feed: Feed, settings: Session) -> None:
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
        """Seconds between two frames that the agent was told: more of them without focus."""
        self._wanted = False
        """Whether the pause is to hold the next frame instead."""
        self._laid_out = False
        self._machine = self._watch(feed)
        self._main = MainScreen(os.environ, settings, lambda asked: self._machine.request(asked))

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """The roles, for themes that do not know them."""
        return themes.DEFAULTS

    def get_default_screen(self) -> Screen[None]:
        """Frames are shown here."""
        return self._main

    def on_mount(self) -> None:
        """Start to read."""
        self.set_keymap(self.settings.keys)
        self.set_interval(1.0, self._second)
        self._listen()

    def on_frame_arrived(self, message: FrameArrived) -> None:
        """Show the frame, or why there is nothing to show."""
        machine = self._machine
        if message.feed is not machine.feed:
            return
        machine.seconds = self.silence = 0
        if self._laid_out:
            self._main.signals.show_frame(message.frame)  # in spite of a pause
        machine.take(message.frame)
        if self._wanted or machine.age is None:
            self._wanted = False
            if self.paused:
                machine.freeze()
            self._show_picture()
        if self.paused:
            self.age = int(machine.age or 0)

    def on_reply_arrived(self, message: ReplyArrived) -> None:
        """Show an answer to who has asked."""
        if message.feed is not self._machine.feed:
            return
        self._machine.seconds = self.silence = 0
        self._machine.handle(message.reply)
        if self._laid_out:
            self._main.reply(message.reply)

    def on_ready(self) -> None:
        """Every widget is there: show what came meanwhile."""
        self._laid_out = True
        gc.enable()  # which the start turned off
        # What is there now stays: to look it through again and again costs a tick. A frame is
        # thousands of objects in no cycle.
        gc.freeze()
        gc.set_threshold(20_000, 10, 10)
        self._show_picture()

    def _show_picture(self) -> None:
        picture = self._machine.picture
        if picture is None or not self._laid_out:
            return
        frame = picture.frame
        if frame.problem is not None:
            self._show_problem(frame.host.name, frame.problem)
            return
        if isinstance(self.screen, ProblemScreen):
            self.pop_screen()
        self._show()

    def _second(self) -> None:
        """Another one is over. A time in which this was stopped itself counts as one."""
        machine = self._machine
        machine.seconds = 0 if machine.ended else machine.seconds + 1
        late = machine.seconds >= max(_LATE, _LATE * self._pace)
        self.silence = machine.seconds if late else 0

    def on_source_ended(self, message: SourceEnded) -> None:
        """Say so; after signals start another agent, which is told nothing of them."""
        if message.feed is not self._machine.feed:
            return
        self._machine.ended, self.silence = True, 0
        if self._lose_signals():
            self.action_retry()
        else:
            advice = "press r to start it again, d for the demo"
            problem = Problem(kind="agent_ended", message=message.reason, advice=advice)
            self._show_problem("", problem)

    def _lose_signals(self) -> bool:
        """The agent has ended. Return whether somebody waits for what it would tell."""
        asked = self._main.signals.lose()
        return self._machine.lose_signals() or asked

    def action_help(self) -> None:
        """The keys of now, and how to read the screen."""
        described = partial(palette.described, self.settings)
        keys = described(self._main.BINDINGS, self.BINDINGS)
        of_pages = described(*(page.BINDINGS for page in palette.PAGES))
        of_problem = described(ProblemScreen.BINDINGS)
        self.push_screen(HelpScreen(keys, of_pages, of_problem, Lines.glyphs))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        return palette.system_commands(self, self._main, screen, self.choose_theme)

    def choose_theme(self, name: str) -> None:
        """Use a theme, and keep it for the next time."""
        self.theme = name
        self._main.save({"theme": name})

    def action_next_theme(self) -> None:
        names = [theme.name for theme in themes.THEMES]
        index = names.index(self.theme) if self.theme in names else -1
        self.choose_theme(names[(index + 1) % len(names)])

    async def action_quit(self) -> None:
        """Leave at once, whatever hangs."""
        self.close_source()
        self.exit()

    @property
    def last_frame(self) -> Frame | None:
        """The one that is shown."""
        picture = self._machine.picture
        return picture and picture.frame

    @property
    def paused(self) -> bool:
        """Whether the picture stands still."""
        return self.age is not None

    def close_source(self) -> None:
        """End the source of now, which need not be the one that the app began with."""
        self._machine.feed.source.close()

    def action_pause(self) -> None:
        """Hold the picture, or show that of now."""
        if self.paused:
            self._machine.thaw()
            self.age = None
        else:
            self._machine.freeze()
            self.age = 0
        self._show_picture()

    def action_interval(self, step: int) -> None:
        """The next longer or shorter interval."""
        longer = [seconds for seconds in _INTERVALS if seconds > self._interval]
        shorter = [seconds for seconds in _INTERVALS if seconds < self._interval]
        if step > 0 and longer:
            self._interval = longer[0]
        elif step < 0 and shorter:
            self._interval = shorter[-1]
        self._set_pace(self._interval)
        self._show()

    def on_app_blur(self) -> None:
        """Nobody types here: fewer frames, if the user wants so."""
        self._set_pace(max(self._interval, self.settings.unfocused))

    def on_app_focus(self) -> None:
        """Somebody does."""
        self._set_pace(self._interval)
        if not self.paused:
            self.action_refresh_now()

    def _set_pace(self, seconds: float) -> None:
        self._pace = seconds
        self._machine.request(SetInterval(seconds))

    def action_refresh_now(self) -> None:
        """Ask for a frame, or start another agent where the one of now does not answer."""
        if self.silence:
            self._lose_signals()
            self.action_retry()
            return
        self._wanted = self.paused
        self._machine.request(Refresh())

    def action_retry(self) -> None:
        """Reconnect to the machine: another agent loads the driver's library anew."""
        self._begin_anew()
        self._machine.reconnect(self._listener)
        self._machine.request(SetInterval(self._interval))

    def action_demo(self) -> None:
        """The invented machine."""
        self.close_source()
        self._begin_anew()
        self._machine = self._watch(Feed(DemoSource(self._interval)))
        self._listen()

    def _show(self) -> None:
        picture = self._machine.picture
        if picture is not None and picture.frame.problem is None:
            self._main.show_frame(picture.frame, picture.history, self._interval)

    def _show_problem(self, host: str, problem: Problem) -> None:
        for screen in self.screen_stack:  # it may be under the help
            if isinstance(screen, ProblemScreen):
                screen.show_problem(host, problem)
                return
        while self.screen is not self._main:
            self.pop_screen()
        # A new one each time: the one before may still be on its way out.
        fresh = ProblemScreen()
        fresh.show_problem(host, problem)
        self.push_screen(fresh)

    def _begin_anew(self) -> None:
        self.age, self.silence = None, 0
        self._pace = self._interval
        self._main.reset()

    def _watch(self, feed: Feed) -> WatchedMachine:
        return WatchedMachine(feed, lambda words: self._main.show_note(words))

    def _listen(self) -> None:
        self._machine.feed.listen(self._listener(self._machine.feed))

    def _listener(self, feed: Feed) -> Listener:
        """Return what makes messages of what comes, in the thread that reads."""

        def post(told: Frame | Reply | SourceError) -> None:
            if isinstance(told, Reply):
                self.post_message(ReplyArrived(feed, told))
            elif isinstance(told, SourceError):
                self.post_message(SourceEnded(feed, str(told)))
            elif not isinstance(told, Preview):  # the splash shows that
                self.post_message(FrameArrived(feed, told))

        return post


def run(feed: Feed, settings: Session, taking_over: Callable[[], None]) -> tuple[int, Frame | None]:
    """Show the frames of a source until the user has seen enough; exit status and last frame.

    `taking_over` is called when the terminal is about to be drawn on.

    GputopError for an error of ours, when the terminal is as it was.
    """
    override = None if settings.glyphs == "auto" else settings.glyphs
    encoding = getattr(sys.__stderr__, "encoding", None)
    Lines.glyphs = glyphs.choose(capabilities.initial_environ(), encoding, override)
    capabilities.drop_inherited_colours(os.environ)
    app = GputopApp(feed, settings)
    app.taking_over = taking_over
    app.encoding = "ascii" if Lines.glyphs.name == "ascii" else None
    try:
        status = terminal_app.run(app, settings.mouse)
    finally:
        app.close_source()
    return status, app.last_frame
