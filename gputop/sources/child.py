"""A program at the other end of pipes, which ends with gputop.

This module imports next to nothing: an agent is started before anything else is imported.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from _thread import allocate_lock

from gputop.errors import SourceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_SOON = 0.002
_DIES = 0.5
"""Seconds for a killed program to end; the driver may hold it for longer."""
TIDIES_UP = 0.5
"""Seconds for programs whose input is closed to end by themselves."""
_SIGKILL = 9
_STARVED = 5.0
"""Seconds by which a program on a busy machine may be late."""
_LOST = 255 << 8
"""The exit status of a child whose own cannot be known, as the kernel writes it."""


class PipedProcess:
    """A program in a session of its own, since the terminal's signals are for the screen.

    If the driver holds one of its threads, it may never end: nothing here waits for that.
    """

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        output: int,
        errors: int,
        copy: Callable[[], int] | None = None,
    ) -> None:
        """`output` and `errors` are the program's; the caller closes them. With `copy` it is a copy
        of this program, which has one thread and calls that instead of going on. SourceError."""
        try:
            taken, writing = os.pipe()
        except OSError as error:
            raise not_started(command[0], error) from None
        os.set_blocking(writing, False)
        self._input: int | None = writing
        self._ahead = bytearray()
        """What has come of its output, and is not taken yet."""
        self._is_cut = False
        """Whether the last line was written only in part."""
        self._status: int | None = None
        self._reaping = allocate_lock()
        self._writing = allocate_lock()
        streams = (taken, output, errors)
        places = [(os.POSIX_SPAWN_DUP2, have, want) for want, have in enumerate(streams)]
        try:
            self._pid = (
                os.posix_spawn(command[0], [*command], environ, file_actions=places, setsid=True)
                if copy is None
                else _fork(copy, streams)
            )
        except OSError as error:
            os.close(writing)
            raise not_started(command[0], error) from None
        finally:
            os.close(taken)
        _children.append(self)

    def _line(self, read: Callable[[], bytes], most: int, too_long: str) -> bytes:
        """Return the next line, with its end; at the end of the output what is left, then nothing.

        `read` waits for more and returns it, nothing at the end; what it raises loses nothing that
        has come. SourceError, with the words `too_long`, for a line of more than `most` bytes.
        """
        searched = 0
        while not (size := self._ahead.find(b"\n", searched) + 1):
            searched = len(self._ahead)
            if searched > most:
                raise SourceError(too_long)
            more = read()
            self._ahead += more
            if not more:
                size = searched
                break
        line = bytes(self._ahead[:size])
        del self._ahead[:size]
        return line

    def write(self, line: bytes) -> bool:
        """Write a line to its standard input, without waiting; BrokenPipeError if it is gone.

        Return whether it was taken: a stopped program takes nothing once its pipe is full, and
        gputop goes on.
        """
        with self._writing:
            if self._input is None:
                raise BrokenPipeError
            data = b"\n" + line if self._is_cut else line
            try:
                left = len(data) - os.write(self._input, data)
            except BlockingIOError:
                return False
            self._is_cut = left > 0
            return left <= 1  # the line end comes before the next line

    def wait(self, seconds: float) -> int | None:
        """Return its exit status, negative after a signal; None if it runs after `seconds`. What it
        has to wait for a core meanwhile does not count, up to `_STARVED`."""
        begin, starved = time.monotonic(), self._starved()
        while (status := self._reap()) is None:
            more = time.monotonic() - begin - seconds
            if more >= 0 and more >= min(self._starved() - starved, _STARVED):
                break
            time.sleep(_SOON)
        return status

    def _starved(self) -> float:
        """Return the seconds that its first thread has waited for a core; 0 if that is not told."""
        try:
            with open(f"/proc/{self._pid}/schedstat", encoding="ascii") as file:
                return int(file.read().split()[1]) / 1e9
        except (OSError, IndexError):
            return 0.0

    def end(self, seconds: float = 0.0) -> None:
        """Close its input, and kill it if it has not ended after `seconds`; the first time only.

        It is reaped here: not every process 1 of a container does that for us.
        """
        if self._close_input() and self.wait(seconds) is None:
            self._signal(_SIGKILL)
            self.wait(_DIES)

    def _close_input(self) -> bool:
        """Close its standard input; return whether that was open."""
        with self._writing:
            input_, self._input = self._input, None
        if input_ is None:
            return False
        os.close(input_)
        return True

    def _signal(self, number: int) -> None:
        """Send a signal, unless it has ended: then another process may have its PID."""
        if self._reap() is None:
            with self._reaping:
                if self._status is None:
                    os.kill(self._pid, number)

    def _reap(self) -> int | None:
        with self._reaping:
            if self._status is None:
                try:
                    pid, status = os.waitpid(self._pid, os.WNOHANG)
                except ChildProcessError:  # a program that imports gputop may reap its children
                    pid, status = self._pid, _LOST
                if pid:
                    self._status = os.waitstatus_to_exitcode(status)
                    _children.remove(self)
            return self._status

    def disown(self) -> None:
        """Leave it to the process that this one is a copy of: it is no child of ours."""
        self._writing, self._reaping = allocate_lock(), allocate_lock()
        self._close_input()
        self._status = os.waitstatus_to_exitcode(_LOST)


def _fork(copy: Callable[[], int], streams: Sequence[int]) -> int:
    """Fork; return the PID of the copy, which has these standard streams and no other files."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.setsid()
        for stream, have in enumerate(streams):
            os.dup2(have, stream)
        os.closerange(len(streams), _MOST_FILES)
        status = copy()
    except KeyboardInterrupt:  # before it had a session of its own
        status = 130
    finally:
        if (error := sys.exc_info()) != (None, None, None):
            sys.excepthook(*error)
        os._exit(status)


_MOST_FILES = 1024
"""Files that a program has open when it forks, at most."""
_children: list[PipedProcess] = []
"""Programs that are not reaped yet."""


def end_all() -> None:
    """End all children, however gputop ends: none is left behind. They have a moment, together, to
    end their own: nobody may reap those after them."""
    end = time.monotonic() + TIDIES_UP
    for child in list(_children):
        child.end(max(0.0, end - time.monotonic()))


def _disown_all() -> None:
    for child in _children:
        child.disown()
    _children.clear()


os.register_at_fork(after_in_child=_disown_all)


def not_started(program: str, error: OSError) -> SourceError:
    """Return the error for an agent whose program the kernel refuses."""
    why = f"{program}: {error.strerror}"
    if error.errno == errno.EAGAIN:
        why = (
            "this user (ulimit -u) or this container (pids.max) has as many processes as it may "
            "have; end some of them, or raise the limit"
        )
    return SourceError(f"cannot start the agent: {why}")
