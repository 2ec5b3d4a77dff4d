"""Keys and the mouse, read in the event loop that handles them.

Textual reads them in a thread that wakes up ten times a second, and hands each over by a task of
its own: at rest that is a sixth of the cost of a screen. Here the event loop waits for the
terminal, and a timer runs only while the input may be the beginning of a sequence.
"""

import asyncio
import codecs
import os
from collections.abc import Callable, Iterable

from textual._xterm_parser import XTermParser
from textual.constants import ESCAPE_DELAY
from textual.message import Message

from gputop.tui.terminal.background import AnswerFilter, Background
from gputop.tui.terminal.capabilities import reopened

_MOST = 4096
"""The most bytes that are read at once."""
_LATER = 0.001
"""Seconds after a deadline until both clocks agree that it has passed."""
_PATIENCE = 1.0
"""Seconds in which the terminal's answer changes the theme: later, it would startle."""


class _CellParser(XTermParser):
    """Textual's parser with the mouse in cells. Textual takes a terminal that reports its size in
    pixels for one that reports the mouse in pixels as well."""

    @property
    def mouse_pixels(self) -> bool:
        """False: the mouse is reported in cells."""
        return False

    @mouse_pixels.setter
    def mouse_pixels(self, are_reported: bool) -> None:
        """Ignore this: gputop does not ask for pixels."""


class Keyboard:
    """Reads a terminal until `close`, in the running event loop."""

    def __init__(
        self,
        descriptor: int,
        handle: Callable[[Message], None],
        hung_up: Callable[[], None],
        asks: bool = False,
    ) -> None:
        """`handle` gets what is typed; `hung_up` is called when the terminal is gone; `asks`:
        whether the terminal has just been asked for its background."""
        self._handle, self._hung_up = handle, hung_up
        self._parser = _CellParser()
        # Bytes that are not UTF-8, as in a paste, become U+FFFD.
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        # A read must not wait, even if another program has taken the input meanwhile.
        self._own = reopened(descriptor, os.O_RDONLY)
        self._descriptor = descriptor if self._own is None else self._own
        self._loop = asyncio.get_running_loop()
        self._clock: asyncio.TimerHandle | None = None
        self._answers = AnswerFilter()
        self._due = self._loop.time() + _PATIENCE if asks else 0.0
        """Until when an answer counts."""
        self._loop.add_reader(self._descriptor, self._read)

    def close(self) -> None:
        self._stop_clock()
        self._loop.remove_reader(self._descriptor)
        if self._own is not None:
            os.close(self._own)
            self._own = None

    def _read(self) -> None:
        try:
            typed = os.read(self._descriptor, _MOST)
        except BlockingIOError:
            return
        except OSError:
            typed = b""
        if typed:
            self._take(self._decode(typed))
        else:
            self._loop.remove_reader(self._descriptor)
            self._hung_up()

    def _take(self, typed: str) -> None:
        is_due = self._loop.time() < self._due
        text, light = self._answers.feed(typed, is_due)
        if light is not None and is_due:
            self._due = 0.0
            self._handle(Background(light))
        # To Textual's parser, nothing is the end of all input.
        self._hand_over(self._parser.feed(text) if text else ())

    def _hand_over(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._handle(message)
        self._stop_clock()
        if self._parser._timeout_time is not None or self._answers.held:
            self._clock = self._loop.call_later(ESCAPE_DELAY + _LATER, self._late)

    def _late(self) -> None:
        """Take what came for keys, as it did not become a sequence."""
        held = self._answers.release()
        self._hand_over(self._parser.feed(held) if held else self._parser.tick())

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
