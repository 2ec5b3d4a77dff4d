"""An app that can be trusted with a terminal, and `run`.

    signals     TERM, HUP and INT put the terminal back and end the program with 128 + n
    crash       one line on the terminal, the traceback in a file
    focus       keys go where they went, whether or not the terminal has the focus
    NO_COLOR    no colour is sent, in any theme

What a terminal needs besides these is in `driver.py`, for a Textual that is supported.
"""

import asyncio
import os
import signal
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from textual.app import App, ReturnType
from textual.driver import Driver
from textual.events import AppBlur
from textual.filter import LineFilter, NoColor
from textual.timer import Timer

from gputop.errors import GputopError
from gputop.model.machine.text import printable
from gputop.tui.terminal import drawing
from gputop.tui.terminal.background import Background
from gputop.tui.terminal.compatibility import is_supported

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

_NO_COLOR = NoColor()
_AFTERWARDS = 0.2
"""Seconds until the event loop has seen a Ctrl-C that the terminal sent to both programs."""


class TerminalApp(App[ReturnType]):
    """An app that puts the terminal back however it ends. Start it by `run`."""

    encoding: str | None = None
    """The encoding of the output; None for that of stderr. It sends other characters as `?`."""
    taking_over: Callable[[], None] | None = None
    """Called before the terminal is drawn on."""
    follows_background = False
    """Whether the theme goes by the terminal's background."""
    _heeds_interrupt = True
    """Whether SIGINT ends the app; False while another program on the terminal gets it."""
    crash: str | None = None
    """What to say of an internal error, once the terminal is restored."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        # A screen's constructor makes its compositor, and an app's may make screens. With two
        # kinds of compositor on one terminal, neither would know what the other painted.
        drawing.install()
        super().__init__(*arguments, **named)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return Textual's filters, or under NO_COLOR a filter that removes all colours.

        Textual decides this once, by the theme that an app is constructed with, and turns an ANSI
        theme that is set later into black on black.
        """
        return [_NO_COLOR] if self.no_color else super().get_line_filters()

    def set_timer(self, *arguments: Any, **named: Any) -> Timer:
        """Call a function once, after a delay, however late.

        Textual skips a call that is late, also one that comes once: a process that got no core for
        as long as the delay would never take another size of its terminal, nor the key that waits.
        """
        timer = super().set_timer(*arguments, **named)
        timer._skip = False
        return timer

    def on_load(self) -> None:
        """Take over the terminal and its signals."""
        if self.taking_over is not None:
            self.taking_over()
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.end_by, number)

    def end_by(self, number: signal.Signals) -> None:
        """Exit with the status that a shell reports for a program that the signal ended."""
        if number == signal.SIGINT and not self._heeds_interrupt:
            return
        self.exit(return_code=128 + number)

    def _heed_interrupt(self) -> None:
        self._heeds_interrupt = True

    def run_outside(
        self, command: Sequence[str], environ: Mapping[str, str], words: str
    ) -> int | None:
        """Suspend the screen, print `words`, and run a program that asks on the terminal itself
        (/dev/tty), as for a password. Return its exit status; None if it cannot be started. It has
        no input and output: these would be those of another machine. Ctrl-C ends only that."""
        self._heeds_interrupt = False
        try:
            with self.suspend():
                os.write(2, f"{words}\n".encode(errors="replace"))
                nothing = subprocess.DEVNULL
                return subprocess.run(
                    command, env=dict(environ), stdin=nothing, stdout=nothing, check=False
                ).returncode
        except OSError:
            return None
        finally:
            self.set_timer(_AFTERWARDS, self._heed_interrupt)

    def alert(self, sequence: str) -> None:
        """Send the sequence of a notification between two pictures; ring the bell instead if this
        Textual does not fit."""
        if not is_supported():
            self.bell()
        elif sequence and self._driver is not None:
            self._driver.write(sequence)

    def on_app_blur(self, event: AppBlur) -> None:
        """Leave the keys to the widget that has them. Textual would take them from it until the
        terminal has the focus again; a screen that begins without it would never have any."""
        event.prevent_default()

    def on_background(self, message: Background) -> None:
        if self.follows_background:
            self.theme = "ansi-light" if message.is_light else "ansi-dark"

    def on_resize(self) -> None:
        """Draw every line again, even if the size is the same: a terminal that was small for a
        moment has lost what did not fit."""
        drawing.repaint_all(self)

    def action_repaint(self) -> None:
        drawing.repaint_all(self)

    def _fatal_error(self) -> None:
        """Report an uncaught exception in one line; Textual would print pages."""
        self.crash = report(self._exception or RuntimeError("unknown"), keeps=not self.is_web)
        self.panic()


def run(app: TerminalApp[Any], mouse: bool = False, driver: type[Driver] | None = None) -> int:
    """Run the app on this terminal and return its exit status, 128 + n if signal n ended it.

    `mouse` asks for clicks and the wheel, unless Textual does not fit: it would ask for movements.
    `driver` is a Textual driver for something other than this terminal.

    Raise GputopError for an internal error, once the terminal is restored.
    """
    if driver is not None:
        app.driver_class = driver
    elif is_supported():
        from gputop.tui.terminal.driver import TerminalDriver

        app.driver_class = TerminalDriver
    app.animation_level = "none"  # an animated page down sends 30 times the bytes
    app.run(mouse=mouse and is_supported())
    if app.crash is not None:
        raise GputopError(app.crash)
    return app.return_code or 0


def report(error: BaseException, keeps: bool = True) -> str:
    """Write a traceback to a file if that is to be kept, and return a line that says where it is.

    The traceback has no variables, since they hold other people's command lines.
    """
    summary = f"internal error ({type(error).__name__}: {printable(str(error), 200)})"
    if not keeps:
        return summary
    try:
        # Under sudo -E, TMPDIR may be another user's folder, which is no place for root to write.
        folder = "/tmp" if os.geteuid() == 0 else None
        descriptor, path = tempfile.mkstemp(".txt", "gputop-crash-", folder)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            traceback.print_exception(error, file=file)
    except OSError:
        return summary
    return f"{summary}; please report it with {path}"
