"""The app: takes frames from a source, hands them to the screen, owns what concerns all."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.reactive import reactive
from textual.screen import Screen

from gputop.allowed import MAX_INTERVAL, MIN_INTERVAL
from gputop.errors import GputopError, SourceError
from gputop.model.frame import Frame, Problem
from gputop.model.history import History
from gputop.model.protocol import Pause, Refresh, SetInterval
from gputop.model.text import printable
from gputop.settings import Session
from gputop.sources.demo import DemoSource
from gputop.sources.local import LocalSource
from gputop.sources.source import Source
from gputop.tui import glyphs, manners, terminal, themes
from gputop.tui.commands import Commands
from gputop.tui.crash import report
from gputop.tui.inquiry import ProbeWanted
from gputop.tui.keys import KeysInTurn
from gputop.tui.messages import FrameArrived, RequestWanted, SourceEnded
from gputop.tui.screens.health import HealthScreen
from gputop.tui.screens.help import HelpScreen
from gputop.tui.screens.mapping import MappingScreen
from gputop.tui.screens.pages import PAGES
from gputop.tui.screens.problem import ProblemScreen
from gputop.tui.screens.process import ProcessScreen
from gputop.tui.screens.signalling import main_screen
from gputop.tui.sending import Sending
from gputop.tui.widgets.lines import Lines

_INTERVALS = (MIN_INTERVAL, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, MAX_INTERVAL)


class GputopApp(KeysInTurn[None], Commands, manners.TerminalApp[None]):
    """Frames in, pictures out."""

    TITLE = "gputop"
    CSS_PATH = "style.tcss"
    ALLOW_SELECT = False
    paused: reactive[bool] = reactive(False, repaint=False)

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,f1,h", "help", "Help", tooltip="This page", id="app.help",
                key_display="?"),
        Binding("p", "pause", "Pause", tooltip="Stop and go on", id="app.pause"),
        Binding("q,f10", "quit", "Quit", tooltip="Leave gputop", id="app.quit", key_display="q"),
        Binding("ctrl+c", "quit", "Quit", tooltip="Leave gputop, from an editor too",
                id="app.interrupt", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", "Suspend", tooltip="To the shell; fg comes back",
                id="app.suspend", show=False, priority=True),
        Binding("plus,equals_sign", "interval(1)", "Slower", tooltip="A longer interval",
                id="app.slower", show=False),
        Binding("minus", "interval(-1)", "Faster", tooltip="A shorter interval",
                id="app.faster", show=False),
        Binding("r,f5", "refresh_now", "Refresh", tooltip="Look now", id="app.refresh",
                show=False),
        Binding("T", "next_theme", "Theme", tooltip="Another theme", id="app.theme", show=False),
        Binding("ctrl+l", "repaint", "Redraw", tooltip="Draw everything again", id="app.redraw",
                show=False, priority=True),
    ]  # fmt: skip

    def __init__(self, source: Source, settings: Session) -> None:
        super().__init__()
        for theme in themes.THEMES:
            self.register_theme(theme)
        self.theme = terminal.nearest_theme(settings.theme, os.environ)
        self.set_class(Lines.glyphs.name == "ascii", "-ascii")
        self.crash: str | None = None
        """What to say of an internal error, once the terminal is back."""
        self.settings = settings
        self.own_keys = settings.keys
        self._source = source
        self._generation = 0
        self._interval = settings.interval
        self._wanted = False
        """Whether a frame was asked for in spite of the pause."""
        self._laid_out = False
        self._history = History()
        self._frame: Frame | None = None
        self._sending = Sending(
            lambda order: self._source.request(order), lambda words: self._main.show_note(words)
        )
        self._main = main_screen(os.environ, settings, self._sending.send)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """The roles, for themes that do not know them."""
        return themes.DEFAULTS

    def _fatal_error(self) -> None:
        """Textual's answer to an exception that nobody caught, in a line instead of a page."""
        self.crash = report(self._exception or RuntimeError("unknown"))
        self.panic()

    def get_default_screen(self) -> Screen[None]:
        """Frames are shown here."""
        return self._main

    def on_mount(self) -> None:
        """Start to read."""
        self.set_keymap(self.settings.keys)
        self._read(self._source)

    def on_frame_arrived(self, message: FrameArrived) -> None:
        """Show the frame, or why there is nothing to show."""
        if message.source != self._generation:
            return
        for screen in self.screen_stack:  # answers are shown in spite of a pause
            if isinstance(screen, ProcessScreen):
                screen.show_answers(message.frame)
        if self._laid_out:
            self._sending.take(message.frame, self.screen_stack)
        if self.paused and not self._wanted:
            return
        self._wanted = False
        self._frame = message.frame
        self._history.append(message.frame)
        if self._laid_out:
            self._take_frame(message.frame)

    def on_ready(self) -> None:
        """Every widget is there: show what came meanwhile."""
        self._laid_out = True
        gc.enable()  # which the start turned off
        # What is there now stays: to look it through again and again costs a tick. A frame is
        # thousands of objects in no cycle.
        gc.freeze()
        gc.set_threshold(20_000, 10, 10)
        if self._frame is not None:
            self._take_frame(self._frame)

    def _take_frame(self, frame: Frame) -> None:
        if frame.problem is not None:
            self._show_problem(frame.host.name, frame.problem)
            return
        if isinstance(self.screen, ProblemScreen):
            self.pop_screen()
        self._show()

    def on_source_ended(self, message: SourceEnded) -> None:
        """Say so; after signals start another agent, which is told nothing of them."""
        if message.source != self._generation:
            return
        if self._sending.lose(self.screen_stack):
            self.action_retry()
        else:
            advice = "press r to start it again, d for the demo"
            problem = Problem(kind="agent_ended", message=message.reason, advice=advice)
            self._show_problem("", problem)

    def on_probe_wanted(self, message: ProbeWanted) -> None:
        """Have the driver asked; the answer is shown in spite of a pause."""
        self._wanted = self.paused
        self._source.request(message.probe)

    def on_request_wanted(self, message: RequestWanted) -> None:
        """More of a process."""
        self._source.request(message.request)

    def action_help(self) -> None:
        """The keys of now, and how to read the screen."""
        pages = (page.BINDINGS for page in PAGES)
        everywhere = self.keyed(self.BINDINGS, self._main.BINDINGS, *pages)
        self.push_screen(HelpScreen(everywhere, self.keyed(ProblemScreen.BINDINGS), Lines.glyphs))

    async def action_quit(self) -> None:
        """Leave at once, whatever hangs."""
        self.close_source()
        self.exit()

    @property
    def last_frame(self) -> Frame | None:
        """The one that is shown."""
        return self._frame

    def close_source(self) -> None:
        """End the source of now, which need not be the one that the app began with."""
        self._source.close()

    def action_pause(self) -> None:
        """Stop, or go on."""
        self.paused = not self.paused
        self._source.request(Pause(self.paused))
        self._show()

    def action_interval(self, step: int) -> None:
        """The next longer or shorter interval."""
        longer = [seconds for seconds in _INTERVALS if seconds > self._interval]
        shorter = [seconds for seconds in _INTERVALS if seconds < self._interval]
        if step > 0 and longer:
            self._interval = longer[0]
        elif step < 0 and shorter:
            self._interval = shorter[-1]
        self._source.request(SetInterval(self._interval))
        self._show()

    def on_app_blur(self) -> None:
        """Nobody types here: fewer frames, if the user wants so."""
        self._source.request(SetInterval(max(self._interval, self.settings.unfocused)))

    def on_app_focus(self) -> None:
        """Somebody does."""
        self._source.request(SetInterval(self._interval))
        if not self.paused:
            self.action_refresh_now()

    def action_refresh_now(self) -> None:
        """Ask for a frame."""
        self._wanted = self.paused
        self._source.request(Refresh())

    def action_retry(self) -> None:
        """Another agent: it loads the driver's library anew."""
        self._replace(LocalSource(self._interval))

    def action_demo(self) -> None:
        """The invented machine."""
        self._replace(DemoSource(self._interval))

    def _show(self) -> None:
        if self._frame is not None and self._frame.problem is None:
            self._main.show_frame(self._frame, self._history, self._interval, self.paused)
            for screen in self.screen_stack:  # it may be under the help
                if isinstance(screen, MappingScreen):
                    screen.show_frame(self._frame, self._interval, self.paused)
                elif isinstance(screen, HealthScreen):
                    screen.show_frame(self._frame)
            self._main.show_page(self.screen)

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

    def _replace(self, source: Source) -> None:
        self._source.close()
        self._source = source
        self._generation += 1
        self.paused = False
        self._main.inquiry.forget()
        self._history = History()
        self._read(source)

    def _read(self, source: Source) -> None:
        """Frames become messages, in a thread that nobody waits for."""
        generation = self._generation

        def read() -> None:
            try:
                for frame in source.frames():
                    self.post_message(FrameArrived(generation, frame))
            except SourceError as error:
                self.post_message(SourceEnded(generation, str(error)))
            except Exception as error:  # noqa: BLE001 - it is shown, and r begins anew
                words = printable(f"{type(error).__name__}: {error}", 200)
                self.post_message(SourceEnded(generation, f"a frame could not be read: {words}"))

        threading.Thread(target=read, name="source", daemon=True).start()


def run(
    source: Source, settings: Session, taking_over: Callable[[], None]
) -> tuple[int, Frame | None]:
    """Show the frames of `source` until the user has seen enough; exit status and last frame.

    `taking_over` is called when the terminal is about to be drawn on.

    GputopError for an error of ours, when the terminal is as it was.
    """
    override = None if settings.glyphs == "auto" else settings.glyphs
    encoding = getattr(sys.__stderr__, "encoding", None)
    Lines.glyphs = glyphs.choose(terminal.initial_environ(), encoding, override)
    terminal.drop_inherited_colours(os.environ)
    app = GputopApp(source, settings)
    app.taking_over = taking_over
    app.encoding = "ascii" if Lines.glyphs.name == "ascii" else None
    try:
        status = manners.run(app)
    finally:
        app.close_source()
    if app.crash is not None:
        raise GputopError(app.crash)
    return status, app.last_frame
