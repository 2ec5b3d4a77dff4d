"""A program in a pseudo terminal, and what that terminal shows: waits for events, never sleeps.

    with Terminal([sys.executable, "-m", "gputop"], cols=80, rows=24) as terminal:
        terminal.wait_for("GPU")
        terminal.send(b"q")
        assert terminal.exit_code() == 0

The child has the terminal to itself: it is the leader of its own session.
"""

import fcntl
import functools
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pyte
from wcwidth import wcwidth

from tests.patience import Deadline

# What pyte cannot parse: private CSI such as the keyboard protocol, mode queries, hyperlinks.
_UNKNOWN = re.compile(
    rb"\x1b\[[<=>][0-9;]*[a-zA-Z]|\x1b\[\?[0-9;]*\$[a-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"
)
# A sequence that the last read may have cut.
_CUT = re.compile(rb"\x1b(?:\[[0-9;?<=>$]*|\][^\x07\x1b]*\x1b?)?$")
# pyte has no alternate screen; a terminal shows an empty one on either way.
_ALTERNATE = re.compile(rb"\x1b\[\?1049[hl]")
_BACKGROUND = b"\x1b]11;?\x1b\\"
_ANSWERS = {
    b"\x1b[?2026$p": b"\x1b[?2026;2$y",
    b"\x1b[6n": b"\x1b[1;1R",
    _BACKGROUND: b"",
}
_WHOLE = 0.2
"""Seconds in which a picture comes whole; a program that never rests is looked at all the same."""
_QUERY = re.compile(b"|".join(map(re.escape, _ANSWERS)))


class Cell(NamedTuple):
    """What can be seen of one cell. The foreground of a blank cannot, and is left out."""

    text: str
    fg: str
    bg: str
    marks: str


class _Chars(dict[str, pyte.screens.Char]):
    """Characters as they look with the same colours and marks, made once each."""

    def __init__(self, attrs: pyte.screens.Char) -> None:
        self._attrs = attrs

    def __missing__(self, text: str) -> pyte.screens.Char:
        self[text] = self._attrs._replace(data=text)
        return self[text]


_chars = functools.lru_cache(maxsize=4096)(_Chars)


class _Screen(pyte.Screen):
    """pyte's, for pictures of thousands of cells: a run of narrow letters is put down at once."""

    def draw(self, data: str) -> None:
        """Put text down at the cursor."""
        cursor = self.cursor
        end = cursor.x + len(data)
        if not (end <= self.columns and self._draws_as_usual() and _is_narrow(data)):
            super().draw(data)
            return
        chars = map(_chars(cursor.attrs).__getitem__, data)
        self.buffer[cursor.y].update(zip(range(cursor.x, end), chars, strict=True))
        self.dirty.add(cursor.y)
        cursor.x = end

    def _draws_as_usual(self) -> bool:
        usual = self.charset == 0 and self.g0_charset is pyte.charsets.LAT1_MAP
        return usual and pyte.modes.IRM not in self.mode


def _is_narrow(text: str) -> bool:
    """Whether each letter takes a cell."""
    if text.isascii():
        return text.isprintable()
    return all(wcwidth(letter) == 1 for letter in text)


class Terminal:
    """A child process on its own pseudo terminal, as its session leader."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cols: int = 80,
        rows: int = 24,
        env: Mapping[str, str | None] | None = None,
        cwd: str | None = None,
        background: str = "",
    ) -> None:
        """Start `argv`. `env` is laid over the environment; None takes a variable out of it.
        `background` is the colour that the terminal answers with, as ffff/ffff/ffff; it says
        nothing if that is empty."""
        self._answers = dict(_ANSWERS)
        if background:
            self._answers[_BACKGROUND] = f"\x1b]11;rgb:{background}\x1b\\".encode()
        self.raw = bytearray()
        self._screen = _Screen(cols, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._fed = 0
        self._answered = 0
        self._open = True
        self._master, slave = pty.openpty()
        self._set_size(cols, rows)
        self.initial_modes = termios.tcgetattr(self._master)
        try:
            self.process = subprocess.Popen(
                argv,
                stdin=slave,
                stdout=slave,
                stderr=slave,
                env=_environment(env or {}),
                cwd=cwd,
                start_new_session=True,
                preexec_fn=_take_terminal,
            )
        finally:
            os.close(slave)
        self._exited = os.pidfd_open(self.process.pid)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def display(self) -> list[str]:
        """The lines of the screen, with their trailing blanks."""
        columns = range(self._screen.columns)
        lines = (self._screen.buffer[row] for row in range(self._screen.lines))
        return ["".join(line[column].data for column in columns) for line in lines]

    @property
    def text(self) -> str:
        """The screen as one text, without trailing blanks."""
        return "\n".join(line.rstrip() for line in self.display)

    @property
    def cells(self) -> list[list[Cell]]:
        """The screen with its styles."""
        columns = range(self._screen.columns)
        lines = (self._screen.buffer[row] for row in range(self._screen.lines))
        return [[_cell(line[column]) for column in columns] for line in lines]

    @property
    def modes(self) -> list[object]:
        """The terminal's settings as `termios.tcgetattr` gives them."""
        return list(termios.tcgetattr(self._master))

    def pump(self, timeout: float) -> bool:
        """Take output if any comes within `timeout` seconds; False if none did."""
        if not self._open or not select.select([self._master], [], [], max(timeout, 0))[0]:
            return False
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:  # the last one who had the terminal open has closed it
            data = b""
        self._open = bool(data)
        self.raw += data
        self._answer()
        self._feed()
        return self._open

    def fileno(self) -> int:
        """The descriptor that has output to read, for `select`."""
        return self._master

    def wait_for(self, wanted: str | Callable[[], object], timeout: float = 15) -> None:
        """Take output until the screen has a text, or a condition holds."""
        deadline = Deadline(timeout)
        while not (wanted in self.text if isinstance(wanted, str) else wanted()):
            left = deadline.left()
            if not self.pump(left) and (left <= 0 or not self._open):
                raise AssertionError(f"no {wanted!r} on the screen:\n{self.text}")
            whole = time.monotonic() + _WHOLE
            while self.pump(0) and time.monotonic() < whole:
                pass
            while self._is_half() and time.monotonic() < whole:
                self.pump(max(0.0, whole - time.monotonic()))

    def _is_half(self) -> bool:
        """Whether a picture has begun that is not whole yet: a large one comes in pieces."""
        begin, end = (self.raw.rfind(b"\x1b[?2026" + mark, -(1 << 17)) for mark in (b"h", b"l"))
        return begin > end

    def wait_for_raw(self, wanted: bytes, since: int = 0, timeout: float = 15) -> None:
        """Take output until `wanted` is in `raw`, at or after the offset `since`."""
        self.wait_for(lambda: self.raw.find(wanted, since) >= 0, timeout)

    def wait_stopped(self) -> None:
        """Wait until the child is stopped, as by Ctrl-Z."""
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def send(self, data: bytes) -> None:
        """Type."""
        os.write(self._master, data)

    def resize(self, cols: int, rows: int) -> None:
        """Change the size of the window; the child gets SIGWINCH."""
        self._set_size(cols, rows)
        self._screen.resize(rows, cols)

    def wipe(self) -> None:
        """Lose what the screen shows, as if another program had written to it."""
        self._screen.reset()

    def signal(self, signum: int) -> None:
        """Send a signal to the child."""
        self.process.send_signal(signum)

    def hang_up(self) -> None:
        """Close the terminal under the child, as when an SSH connection drops."""
        if self._master >= 0:
            os.close(self._master)
            self._master, self._open = -1, False

    def exit_code(self, timeout: float = 15, *, reading: bool = True) -> int:
        """Wait for the end of the child; a terminal that is not `reading` takes no output."""
        deadline = Deadline(timeout)
        while not select.select([self._exited], [], [], 0)[0]:
            left = deadline.left()
            if left <= 0:
                raise AssertionError(f"still running after {timeout} s:\n{self.text}")
            wanted = [self._exited, self._master] if reading and self._open else [self._exited]
            if self._master in select.select(wanted, [], [], left)[0]:
                self.pump(0)
        while reading and self.pump(0):
            pass
        return self.process.wait()

    def cpu_seconds(self) -> float:
        """Processor time of the child so far, in all its threads."""
        return time.clock_gettime((~self.process.pid) << 3 | 2)

    def close(self) -> None:
        """Kill the child if it still runs, and close the terminal."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        self.hang_up()
        if self._exited >= 0:
            os.close(self._exited)
            self._exited = -1

    def _set_size(self, cols: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def _answer(self) -> None:
        for query in _QUERY.finditer(self.raw, self._answered):
            self._answered = query.end()
            if answer := self._answers[query[0]]:
                os.write(self._master, answer)

    def _feed(self) -> None:
        ready = bytes(self.raw[self._fed :])
        if cut := _CUT.search(ready):
            ready = ready[: cut.start()]
        self._fed += len(ready)
        self._stream.feed(_ALTERNATE.sub(b"\x1b[2J", _UNKNOWN.sub(b"", ready)))


def _environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    """This environment with a usual terminal in it, and `changes` made."""
    usual = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
    unusual = ("NO_COLOR", "LC_ALL", "LC_CTYPE", "COLUMNS", "LINES", "TEXTUAL", "TERM_PROGRAM")
    inherited = {name: value for name, value in os.environ.items() if name not in unusual}
    merged: dict[str, str | None] = {**inherited, **usual, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@functools.lru_cache(maxsize=1 << 16)
def _cell(char: pyte.screens.Char) -> Cell:
    flags = ("reverse", "underscore", "strikethrough", "bold", "italics", "blink")
    blank = char.data == " " and not char.underscore and not char.strikethrough
    seen = flags[:1] if blank else flags
    marks = " ".join(name for name in seen if getattr(char, name))
    return Cell(char.data, "" if blank and not char.reverse else char.fg, char.bg, marks)
