"""Textual's driver for a terminal, with the manners that a full-screen program owes it.

    hangup      a terminal that is gone ends the program, even if SIGHUP is ignored
    Ctrl-Z, fg  every line is drawn again
    stall       a terminal that takes no output neither stops the keys nor delays the end
    encoding    input that is not UTF-8 is shown as such, and the keys go on
    mouse       buttons and the wheel are asked for, and no movements
    background  the terminal is asked once for its colour, if a theme goes by it

Textual by itself does none of this. Only for a Textual that is supported (`compatibility.py`).
"""

import contextlib
import io
import os
import select
import signal
import sys
import termios
import threading
from functools import partial
from typing import Any, TextIO, cast

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from gputop.tui.terminal import background, compositor, drawing
from gputop.tui.terminal.capabilities import reopened
from gputop.tui.terminal.keyboard import Keyboard

# Textual's queue for the terminal holds 30 chunks, and one more blocks the event loop. The rest is
# kept free for what restores the terminal.
MAX_BACKLOG = 18
# Seconds that a terminal gets to take the last output before it is given up.
TIMEOUT = 0.25
# CAN ends a sequence that was cut, ST a string; the rest takes back the modes that Textual sets.
RESTORE = (
    b"\x18\x1b\\\x1b[?2026l\x1b[m\x1b[999H\x1b[K\x1b[?1006l\x1b[?1000l"
    b"\x1b[?7h\x1b[?1004l\x1b[?2004l\x1b[<u\x1b[?1049l\x1b[?25h"
)


class TerminalOutput(io.RawIOBase):
    """A terminal to write to until it is given up.

    Its descriptor must not block: a thread that waits in a write to a terminal that takes nothing
    cannot be called back.
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
        """Write again, after a stop of the program in which the terminal may have recovered."""
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

    def __init__(self, app: App[Any], **named: Any) -> None:
        super().__init__(app, **named)
        self._keyboard: Keyboard | None = None
        self._suspended = False
        self._asks = getattr(app, "follows_background", False) and background.can_be_asked(
            os.environ
        )
        """Whether the terminal is still to be asked for its background."""
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
            compositor.reset()
        else:
            writer.write(data)

    def run_input_thread(self) -> None:
        """Return at once: the event loop reads the keys."""

    def disable_input(self) -> None:
        self._stop_listening()
        super().disable_input()

    def send_message(self, message: Message) -> None:
        if self._keyboard is None:
            super().send_message(message)
        else:
            self._app.post_message(message)

    def _enable_mouse_support(self) -> None:
        """Ask for buttons and the wheel (1000), in decimal coordinates (1006).

        Reports of movements (1002, 1003) flood a slow line. The terminal still selects and copies
        with Shift, unless a program asks for that too (XTSHIFTESCAPE).
        """
        if self._mouse:
            self.write("\x1b[?1000h\x1b[?1006h")

    def _disable_mouse_support(self) -> None:
        if self._mouse:
            self.write("\x1b[?1006l\x1b[?1000l")

    def _enable_mouse_pixels(self) -> None:
        """Leave coordinates in cells: gputop needs nothing finer."""

    def _get_terminal_size(self) -> tuple[int, int]:
        """Return the size of the terminal itself: exported COLUMNS and LINES may be outdated."""
        with contextlib.suppress(OSError):
            size = os.get_terminal_size(self.fileno)
            if size.columns and size.lines:
                return size.columns, size.lines
        size_: tuple[int, int] = super()._get_terminal_size()
        return size_

    def start_application_mode(self) -> None:
        if self._output is not None:
            self._output.revive()
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self._listen()

    def stop_application_mode(self) -> None:
        """Leave the cursor below the picture, as GNU screen and the Linux console keep that."""
        self.write("\x1b[m\x1b[999H\x1b[K")
        super().stop_application_mode()

    def suspend_application_mode(self) -> None:
        self._suspended = True
        super().suspend_application_mode()

    def resume_application_mode(self) -> None:
        """Take over the terminal again; what the shell left on it is unknown.

        SIGCONT can also come while nothing is suspended, for example with a hangup. A second start
        would take the modes of the running screen for those to restore at the end.
        """
        if not self._suspended:
            return
        super().resume_application_mode()
        self._suspended = not self._is_writing
        self._app.call_later(drawing.repaint_all, self._app)

    def close(self) -> None:
        """End the output, within `TIMEOUT` if the terminal is stuck."""
        self._stop_listening()
        output = self._output
        if output is None:
            super().close()
            return
        watch = threading.Timer(TIMEOUT, output.give_up)
        watch.daemon = True
        watch.start()
        super().close()
        watch.cancel()
        if output.given_up:
            output.restore()

    def _listen(self) -> None:
        self._stop_listening()
        if self._is_writing:
            hung_up = partial(self._app.exit, return_code=128 + signal.SIGHUP)
            asks, self._asks = self._asks, False
            self._keyboard = Keyboard(self.fileno, self.process_message, hung_up, asks)
            if asks:
                self.write(background.QUERY)

    def _stop_listening(self) -> None:
        if self._keyboard is not None:
            self._keyboard.close()
            self._keyboard = None

    @property
    def _is_writing(self) -> bool:
        """Whether the start succeeded; in the background it fails, and comes again with `fg`."""
        return self._writer_thread is not None and self._writer_thread.is_alive()
