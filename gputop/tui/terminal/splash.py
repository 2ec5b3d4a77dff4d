"""The first frame, painted plainly while the screen is still being loaded.

Importing Textual and laying out a screen takes longer than the agent needs for its first frame.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import termios
import threading
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, NoReturn

from gputop.errors import SourceError
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.summary import users
from gputop.model.machine.text import GIB, MISSING, three_digits
from gputop.model.metrics.gpu import GPU
from gputop.model.metrics.process import COLUMNS
from gputop.model.processes.process_rows import by_value, rows
from gputop.protocol.messages import Preview, Reply
from gputop.sources.feed import Feed

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J\x1b[H"
_HOME, _LINE_END, _REST = "\x1b[H", "\x1b[K\r\n", "\x1b[J"
_LEAVE = "\r\n\x1b[?1049l\x1b[?25h"
_TIMEOUT = 0.25
"""Seconds that a terminal gets to take the picture."""
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_COLUMNS = ("gpu", "pid", "user", "gpu_memory", "sm_utilization", "age")
"""The columns of a process before its command."""


class Splash:
    """The first frame of a source, on a terminal that no screen draws on yet."""

    def __init__(self, feeds: Sequence[Feed], user: str | None = None) -> None:
        """`feeds` are started; a frame is painted only if there is a single feed. `user`: the user
        to show the processes of; None for all users."""
        self._feeds, self._user = feeds, user
        self._lock = threading.Lock()
        self._over = self._painted = self._whole = False
        self._modes = termios.tcgetattr(0)
        self._handlers: dict[int, Any] = {}

    def start(self) -> None:
        """Take over the terminal, and paint. Call `finish` even if a signal ends this halfway."""
        quiet = list(self._modes)
        # Keys are for the screen, which will read them; Enter stays a carriage return.
        quiet[3] &= ~(termios.ECHO | termios.ICANON)
        quiet[0] &= ~termios.ICRNL
        termios.tcsetattr(0, termios.TCSANOW, quiet)
        for number in _ENDING:
            self._handlers[number] = signal.signal(number, _end)
        for feed in self._feeds:
            feed.listen(self._show)

    def finish(self, leave: bool = False) -> None:
        """Restore the terminal, once: for the screen, which draws over the picture; or `leave`, and
        show what was on it before. If the terminal takes no output, the painter waits, and keeps
        the lock."""
        if self._over:
            return
        locked = self._lock.acquire(timeout=_TIMEOUT)
        self._over = True
        if locked:
            if leave and self._painted:
                _write(_LEAVE)
            self._lock.release()
        termios.tcsetattr(0, termios.TCSANOW, self._modes)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _show(self, message: Frame | Reply | SourceError) -> None:
        """Paint the preview, which has no processes yet, and then the first frame."""
        if isinstance(message, Frame) and len(self._feeds) == 1:
            self._paint(message, whole=not isinstance(message, Preview))

    def _paint(self, frame: Frame, whole: bool) -> None:
        with self._lock:
            if self._over or self._whole or frame.problem is not None:
                return
            begin = _HOME if self._painted else _ENTER
            self._painted, self._whole = True, whole
            shown = picture(frame, *shutil.get_terminal_size(), user=self._user)
            _write(begin + shown.replace("\r\n", _LINE_END) + _REST)


def picture(frame: Frame, width: int, height: int, user: str | None = None) -> str:
    """Return a line per GPU in ASCII, then as many processes as there is room for, by GPU. Lines
    are cut to the size, and end in CR LF, as a raw terminal needs it."""
    driver, cuda = frame.driver_version or MISSING, frame.cuda_version or MISSING
    lines = [f" gputop  {frame.host.name}  driver {driver}  CUDA {cuda}"]
    lines += [_line(frame, gpu) for gpu in frame.gpus]
    lines += ["", *_processes(frame, user, max(0, height - 3 - len(lines)))]
    shown = (line.encode("ascii", "replace").decode()[:width] for line in lines[: height - 1])
    return "\r\n".join(shown)


def _line(frame: Frame, gpu: Gpu) -> str:
    def text(id_: str) -> str:
        return GPU[id_].text(gpu)

    who = gpu.error or ("asleep" if gpu.state == "asleep" else " ".join(users(frame, gpu)))
    memory = MISSING
    if gpu.memory_used is not None and gpu.memory_total is not None:
        memory = f"{gpu.memory_used / GIB:.1f}/{three_digits(gpu.memory_total / GIB)}G"
    return (
        f"{gpu.index:>4} {text('name'):<10} {memory:>12} {text('utilization'):>4}%"
        f" {text('temperature'):>4}C {text('power'):>5}W  {who}"
    )


def _processes(frame: Frame, user: str | None, most: int) -> Iterator[str]:
    """Yield a heading and up to `most` processes; nothing if there are none."""
    if not frame.processes:
        return
    columns = [COLUMNS[id_] for id_ in _COLUMNS]
    yield " ".join(f"{column.label:>{column.width}}" for column in columns) + "  COMMAND"
    shown = [row for row in rows(frame) if user is None or row.process.user == user]
    shown = by_value(shown, [row.process.gpu_memory for row in shown], descending=True)
    shown = by_value(shown, [COLUMNS["gpu"].read(row) for row in shown], descending=False)
    for row in shown[:most]:
        facts = " ".join(f"{column.text(row):>{column.width}}" for column in columns)
        yield f"{facts}  {row.process.command or ''}"


def _write(text: str) -> None:
    """Write to the terminal that Textual draws on, too; later code notices one that is gone."""
    try:
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, text.encode("ascii"))
    except OSError:
        return


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
