"""An ssh in a child process: its input, its output, and why it ended."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from select import POLLIN, POLLOUT, poll
from signal import SIGKILL, SIGTERM

from gputop.errors import LoginError, PermanentError, SourceError
from gputop.model.machine.text import printable
from gputop.sources.agent_process import MAX_LINE
from gputop.sources.child import PipedProcess

_READ = 1 << 16
_TOO_LONG = "the host sent a line that is too long: disconnected"
_TAIL = 4096
"""Bytes that are kept from the end of standard error."""
_ENDS = 0.3
"""Seconds for ssh to end after SIGTERM."""
_LAST_WORDS = 0.5
"""Seconds to read the last errors of an ssh that has ended: its children may hold the pipe open."""
_LAST_STATUS = 1.0
"""Seconds for its exit status."""
_SSH_FAILED = 255
"""The exit status of ssh for its own failures, or for a program that was killed."""
_NOISE = re.compile(r"Warning: Permanently added|\*\* |@@@|Connection to \S+ closed\.$|$")
_PREFIX = re.compile(
    r"^(?:ssh|kex_exchange_identification|client_loop|mux_client_\w+|channel \d+: open failed): "
)
_DENIED = re.compile(r"^(?:\S+: )?Permission denied \(([\w,@.-]*)\)\.?\s*$", re.MULTILINE)
_TOO_MANY_KEYS = "Too many authentication failures"
_UNRESOLVED = re.compile(r"Could not resolve hostname (?!.*Temporary failure)")
_CLOSED = re.compile(r"\w+_exchange_identification: |Connection (?:closed|reset) by ")
"""How ssh's words begin if an sshd, or a jump host, has closed the key exchange."""
_ERROR = re.compile(
    rf"ssh: |{_CLOSED.pattern}|channel \d+: open failed|Connection timed out|Unable to negotiate"
)
"""How its words begin for a reason; what follows them are consequences."""


class BusyError(SourceError):
    """An sshd has closed the key exchange: most often it has too many at once (MaxStartups)."""


_BYTES = (2 * MAX_LINE, 4 << 20)
"""Bytes at once, and a second: forty times what 8 GPUs with 1,000 processes send."""
_LINES = (3000, 100)
"""Lines at once, and a second. The verdicts for a thousand signalled processes come at once, frames
at most ten times a second, and replies on request."""


class Allowance:
    """Limits what comes, to an amount at once and then to an amount a second: no other machine can
    keep gputop busy, or fill its memory."""

    def __init__(self, at_once: float, a_second: float) -> None:
        self._most, self._a_second = at_once, a_second
        self._left = at_once
        self._time = time.monotonic()

    def take(self, amount: float) -> None:
        """Count what has come. SourceError if it is more than a machine can have to say."""
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._time) * self._a_second) - amount
        self._time = now
        if self._left < 0:
            raise SourceError("the host sends more than an agent would: disconnected")


class SshProcess(PipedProcess):
    """An ssh whose output is read by one thread; any thread may write to it and stop it.

    Standard error is read as it comes, so that ssh never waits for its reader.
    """

    def __init__(self, command: list[str], environ: dict[str, str]) -> None:
        """SourceError."""
        self._tail = b""
        self._bytes, self._lines = Allowance(*_BYTES), Allowance(*_LINES)
        self._is_open = True
        self._errors: int | None
        with ExitStack() as ours, ExitStack() as theirs:
            try:
                self._output, write_end = _pipe(ours, theirs)
                self._errors, complained = _pipe(ours, theirs)
                self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
                ours.callback(os.close, self._wake)
                super().__init__(command, environ, write_end, complained)
            except OSError as error:
                raise SourceError(f"ssh cannot be started: {error.strerror}") from None
            ours.pop_all()

    def line(self, seconds: float, most: int = MAX_LINE) -> bytes:
        """Return the next line, with its end; at the end of the output what is left, then nothing.

        TimeoutError if it is not complete after `seconds`. SourceError for a line of more than
        `most` bytes, and for more output than an agent can have.
        """
        end = time.monotonic() + seconds
        line = self._line(lambda: self._read(end), most, _TOO_LONG)
        self._lines.take(1)
        return line

    def send(self, data: bytes, left: Callable[[], float]) -> None:
        """Write all data, if ssh takes it. TimeoutError if it takes nothing for as many seconds as
        are `left`, SourceError once it is stopped."""
        rest = memoryview(data)
        while rest:
            self._wait(time.monotonic() + left(), self._open_input(), POLLOUT)
            with self._writing:
                try:
                    rest = rest[os.write(self._open_input(), rest[:_READ]) :]
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    return  # it has ended: its output says why

    def failure(self) -> SourceError:
        """Return why it has ended, by what it or the program there wrote to standard error."""
        end = time.monotonic() + _LAST_WORDS
        with suppress(TimeoutError, SourceError):
            while self._errors is not None:
                self._wait(end, self._errors, POLLIN)
        return failure(self._tail.decode("utf-8", "replace"), self.wait(_LAST_STATUS))

    def stop(self) -> None:
        """End ssh without waiting, from any thread. Its reader gets a SourceError."""
        if self._close_input():
            self._signal(SIGTERM)
            with self._writing:
                if self._is_open:
                    os.eventfd_write(self._wake, 1)

    def end(self, seconds: float = _ENDS) -> None:
        """End ssh, and wait until it has ended."""
        self.stop()
        if self.wait(seconds) is None:
            self._signal(SIGKILL)
            self.wait(seconds)

    def close(self) -> None:
        """Close its output, at its end; once. For the thread that reads it."""
        with self._writing:
            self._is_open = False
            for descriptor in (self._output, self._errors, self._wake):
                if descriptor is not None:
                    os.close(descriptor)
            self._errors = None

    def _open_input(self) -> int:
        if self._input is None:
            raise _closed()
        return self._input

    def _read(self, end: float) -> bytes:
        """Return what has come; nothing at the end of the output."""
        self._wait(end, self._output, POLLIN)
        more = os.read(self._output, _READ)
        self._bytes.take(len(more))
        return more

    def _wait(self, end: float, descriptor: int, event: int) -> None:
        """Wait until a descriptor is ready, and read standard error meanwhile. TimeoutError if it
        is not by `end`, in monotonic seconds."""
        ready = poll()
        ready.register(self._wake, POLLIN)
        if self._errors is not None:
            ready.register(self._errors, POLLIN)
        ready.register(descriptor, event)
        while (left := end - time.monotonic()) > 0:
            events = dict(ready.poll(1000 * left))
            if self._wake in events:
                raise _closed()
            if self._errors in events:
                self._listen(ready)
            if descriptor in events:
                return
        raise TimeoutError

    def _listen(self, ready: poll) -> None:
        """Read standard error; at its end close it, and poll it no more."""
        assert self._errors is not None
        said = os.read(self._errors, _READ)
        self._bytes.take(len(said))
        self._tail = (self._tail + said)[-_TAIL:]
        if not said:
            ready.unregister(self._errors)
            os.close(self._errors)
            self._errors = None


def failure(written: str, status: int | None) -> SourceError:
    """Return the error for an ssh that has ended; LoginError if a person can log in by hand."""
    denied = _DENIED.search(written)
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in written:
        return PermanentError(
            "the host key has changed: the host was reinstalled, or it is another machine; "
            "ask its administrator, then ssh-keygen -R HOST"
        )
    if "Host key verification failed" in written:
        return LoginError("the host key is not known yet: log in by hand once to accept it")
    if denied:
        return LoginError(f"login wanted: permission denied ({denied[1][:100]})")
    if _TOO_MANY_KEYS in written:
        return LoginError("login wanted: too many keys were refused: set IdentitiesOnly for it")
    line = _reason(written)
    words = _PREFIX.sub("", printable(line, 200)) or _ended(status)
    if status == _SSH_FAILED and _CLOSED.match(line):
        return BusyError(words)
    return PermanentError(words) if _UNRESOLVED.search(line) else SourceError(words)


def _reason(written: str) -> str:
    """Return the first line with an error of ssh's; without one, the last line that says a thing:
    before it a login script or a jump host may have written anything."""
    lines = [line.strip() for line in written.splitlines()]
    said = [line for line in lines if not _NOISE.match(line)]
    return next(filter(_ERROR.match, said), said[-1] if said else "")


def _ended(status: int | None) -> str:
    if status in (None, _SSH_FAILED):
        return "the connection was cut, or the agent killed"
    return f"the agent ended with status {status}"


def _pipe(ours: ExitStack, theirs: ExitStack) -> tuple[int, int]:
    """Return the ends of a pipe to read and to write, which the stacks close."""
    reading, writing = os.pipe()
    ours.callback(os.close, reading)
    theirs.callback(os.close, writing)
    return reading, writing


def _closed() -> SourceError:
    return SourceError("the connection is closed")
