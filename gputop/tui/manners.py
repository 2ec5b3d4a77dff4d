"""How a full-screen program has to treat its terminal: an app, a driver for Textual, and `run`.

    signals     TERM, HUP and INT put the terminal back and end the program with 128 + n
    hangup      a terminal that is gone ends it too, also where SIGHUP is ignored
    Ctrl-Z, fg  every line is drawn again
    stall       a terminal that takes no output neither stops the keys nor delays the end
    NO_COLOR    no colour is sent, in any theme
    encoding    input that is not UTF-8 is shown as such, and the keys go on

Textual by itself does none of this.
"""

import asyncio
import contextlib
import io
import os
import select
import signal
import sys
import termios
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TextIO, cast

from textual.app import App, ReturnType
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import LineFilter, NoColor
from textual.message import Message

from gputop.tui import compositor
from gputop.tui.keyboard import Keyboard
from gputop.tui.terminal import reopened

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
# Textual's queue for the terminal holds 30 chunks, and to put one more blocks the event loop. The
# rest is kept free for what puts the terminal back.
MAX_BACKLOG = 18
# Seconds that a terminal has to take the last output before it is given up.
PATIENCE = 0.25
# CAN ends a sequence that was cut, ST a string; then the modes that Textual sets are taken back.
RESTORE = (
    b"\x18\x1b\\\x1b[?2026l\x1b[m\x1b[999H\x1b[K"
    b"\x1b[?7h\x1b[?1004l\x1b[?2004l\x1b[<u\x1b[?1049l\x1b[?25h"
)

_NO_COLOR = NoColor()


def run(app: App[Any]) -> int:
    """Run the app on this terminal; its exit code, 128 + n if signal n ended it."""
    app.driver_class = TerminalDriver
    # An animated page down sends 30 times the bytes, and reports of mouse movements flood a slow
    # line: neither is worth it where nothing needs a mouse.
    app.animation_level = "none"
    app.run(mouse=False)
    return app.return_code or 0


def repaint(app: App[Any]) -> None:
    """Draw every line again, for a terminal that others wrote to (Ctrl-L)."""
    compositor.forget()
    app.screen.refresh()


class TerminalApp(App[ReturnType]):
    """An app that can be trusted with a terminal. Start it by `run`."""

    encoding: str | None = None
    """Of what is sent; None: of stderr. Characters that it has not are sent as `?`."""
    taking_over: Callable[[], None] | None = None
    """Called before the terminal is drawn on."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        # A screen makes its compositor when it is made, and an app may make screens at once. Of
        # two kinds of compositor on one terminal, neither would know what the other painted.
        compositor.install()
        super().__init__(*arguments, **named)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's filters, or under NO_COLOR the one that leaves no colour.

        Textual itself decides that once, by the theme that an app is constructed with, and turns
        an ANSI theme that is set later into black on black.
        """
        return [_NO_COLOR] if self.no_color else super().get_line_filters()

    def on_resize(self) -> None:
        """Draw every line again, even if the size is the same: a terminal that was small for a
        moment has lost what did not fit."""
        repaint(self)

    def action_repaint(self) -> None:
        """Draw every line again."""
        repaint(self)


class TerminalOutput(io.RawIOBase):
    """A terminal to write to until it is given up.

    It takes a descriptor that does not block, for a thread that waits in a write to a terminal that
    takes nothing cannot be called back.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._poll.register(self._wake, select.POLLIN)
        self.given_up = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        """Write some of `data`, or wait for room; drop it once the terminal is given up or gone."""
        while not self.given_up:
            try:
                return os.write(self._descriptor, data)
            except BlockingIOError:
                self._poll.poll()
            except OSError:
                self.given_up = True
        return len(data)

    def give_up(self) -> None:
        """Drop what is being written and all that follows."""
        self.given_up = True
        os.eventfd_write(self._wake, 1)

    def revive(self) -> None:
        """Write again, after a stop in which the terminal may have recovered."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        self.given_up = False

    def restore(self) -> None:
        """Put a terminal that was given up back in order, as soon as it takes output again.

        What it has not taken is thrown away to make room for this.
        """
        with contextlib.suppress(OSError, termios.error):
            termios.tcflush(self._descriptor, termios.TCOFLUSH)
            os.write(self._descriptor, RESTORE)


class TerminalDriver(LinuxDriver):
    """Textual's driver for terminals, with the manners that the module names."""

    def __init__(
        self,
        app: App[Any],
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._reads_keys = compositor.known()
        self._keyboard: Keyboard | None = None
        self._suspended = False
        stream = cast(TextIO, sys.__stderr__)
        opened = reopened(stream.fileno(), os.O_WRONLY)
        self._output = None if opened is None else TerminalOutput(opened)
        if self._output is not None:
            encoding = getattr(app, "encoding", None) or stream.encoding
            self._file = io.TextIOWrapper(
                io.BufferedWriter(self._output), encoding, errors="replace", newline=""
            )

    def write(self, data: str) -> None:
        """Queue output for the terminal; drop it rather than wait for a terminal that is stuck."""
        writer = self._writer_thread
        if writer is None or writer._queue.qsize() >= MAX_BACKLOG:
            compositor.forget()
        else:
            writer.write(data)

    def run_input_thread(self) -> None:
        """Nothing where `_listen` has keys read: Textual would read them here."""
        if not self._reads_keys:
            super().run_input_thread()

    def disable_input(self) -> None:
        self._stop_listening()
        super().disable_input()

    def send_message(self, message: Message) -> None:
        if self._keyboard is None:
            super().send_message(message)
        else:
            self._app.post_message(message)

    def _get_terminal_size(self) -> tuple[int, int]:
        """Of the terminal itself: COLUMNS and LINES, where exported, are those of an old one."""
        with contextlib.suppress(OSError):
            size = os.get_terminal_size(self.fileno)
            if size.columns and size.lines:
                return size.columns, size.lines
        size_: tuple[int, int] = super()._get_terminal_size()
        return size_

    def start_application_mode(self) -> None:
        if self._output is not None:
            self._output.revive()
        if isinstance(self._app, TerminalApp) and self._app.taking_over is not None:
            self._app.taking_over()
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self._listen()

    def stop_application_mode(self) -> None:
        """Leave the cursor below the picture, for GNU screen and the Linux console keep that."""
        self.write("\x1b[m\x1b[999H\x1b[K")
        super().stop_application_mode()

    def suspend_application_mode(self) -> None:
        self._suspended = True
        super().suspend_application_mode()

    def resume_application_mode(self) -> None:
        """Take the terminal over again; what the shell left on it is unknown.

        SIGCONT can also come while nothing is suspended, with a hangup for one. To start once
        more would take the modes of the running screen for those to put back in the end.
        """
        if not self._suspended:
            return
        super().resume_application_mode()
        self._suspended = not self._is_writing
        self._app.call_later(repaint, self._app)

    def close(self) -> None:
        """End the output, within `PATIENCE` if the terminal is stuck."""
        self._stop_listening()
        output = self._output
        if output is None:
            super().close()
            return
        watch = threading.Timer(PATIENCE, output.give_up)
        watch.daemon = True
        watch.start()
        super().close()
        watch.cancel()
        if output.given_up:
            output.restore()

    def _listen(self) -> None:
        """Wait for signals, keys and the end of the terminal."""
        self._stop_listening()
        loop = asyncio.get_running_loop()
        for signum in SIGNALS:
            loop.add_signal_handler(signum, self._end, signum)
        if self._is_writing and self._reads_keys:
            hung_up = partial(self._end, signal.SIGHUP)
            self._keyboard = Keyboard(self.fileno, self.process_message, hung_up)

    def _stop_listening(self) -> None:
        if self._keyboard is not None:
            self._keyboard.close()
            self._keyboard = None

    @property
    def _is_writing(self) -> bool:
        """In the background the start fails, and comes again with the SIGCONT of `fg`."""
        return self._writer_thread is not None and self._writer_thread.is_alive()

    def _end(self, signum: signal.Signals) -> None:
        """End the app as a shell would report it if the signal had."""
        self._app.exit(return_code=128 + signum)
