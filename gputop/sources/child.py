"""The agent of this machine as a child process, started as early as may be.

Its first frame takes about as long as gputop takes to be ready for it, so a screen's agent is
started before anything else is imported: this module imports next to nothing, and no subprocess.
"""

from __future__ import annotations

import os
import sys
import time
from _thread import allocate_lock
from collections.abc import Sequence
from fcntl import F_SETPIPE_SZ, fcntl

INTERVAL = 1.0
"""Seconds of an agent that is started before the settings are read."""
_HERE = os.path.dirname(os.path.abspath(__file__))
_MAIN = os.path.join(os.path.dirname(_HERE), "__main__.py")
_WITHOUT_SCREEN = {"--once", "--json", "--demo", "-h", "--help", "--version"}
_SOON = 0.002
_SIGKILL = 9
_FRAME = 1 << 20
"""Bytes that a pipe and its reader have room for: a frame goes through at once."""


class Child:
    """`gputop agent ARGUMENTS` at the other end of its pipes.

    In a session of its own, for the terminal's signals are the screen's. A thread of its that the
    driver holds may never die, and neither may it then: nothing here waits for that.
    """

    def __init__(self, *arguments: str) -> None:
        asked, self._input = os.pipe()
        output, told = os.pipe()
        _widen(told)
        self.output = os.fdopen(output, "rb", _FRAME)
        self._errors = os.memfd_create("agent's errors")
        self._status: int | None = None
        self._reaping = allocate_lock()
        command = [sys.executable, _MAIN, "agent", *arguments]
        taken = ((asked, 0), (told, 1), (self._errors, 2))
        places = [(os.POSIX_SPAWN_DUP2, have, want) for have, want in taken]
        self._pid = os.posix_spawn(
            command[0], command, os.environ, file_actions=places, setsid=True
        )
        os.close(asked)
        os.close(told)

    def write(self, data: bytes) -> None:
        """To its standard input; BrokenPipeError if it is gone."""
        os.write(self._input, data)

    def wait(self, seconds: float) -> int | None:
        """Its exit status, negative if a signal ended it; None if it has not ended by then."""
        end = time.monotonic() + seconds
        while (status := self._reap()) is None and time.monotonic() < end:
            time.sleep(_SOON)
        return status

    def kill(self) -> None:
        """At once, if it has not ended."""
        if self._reap() is None:
            os.kill(self._pid, _SIGKILL)

    def _reap(self) -> int | None:
        with self._reaping:
            if self._status is None:
                pid, status = os.waitpid(self._pid, os.WNOHANG)
                self._status = os.waitstatus_to_exitcode(status) if pid else None
            return self._status

    def last_words(self) -> str:
        """How it ended, for an error: its exit status and the last line that it complained of."""
        from gputop.model.text import printable

        status = self.wait(1)
        said = os.pread(self._errors, 1 << 20, 0).decode("utf-8", "replace").strip()
        words = f": {printable(said.splitlines()[-1], 200)}" if said else ""
        return f"the agent ended with status {'unknown' if status is None else status}{words}"


def _widen(pipe: int) -> None:
    """For a whole frame, unless the user's share of pipes is used up."""
    try:
        fcntl(pipe, F_SETPIPE_SZ, _FRAME)
    except OSError:
        return


_early: list[Child] = []


def start_early(words: Sequence[str]) -> None:
    """Start one if these arguments, which name no command, want a screen; it ends with us if nobody
    takes it."""
    if all(map(os.isatty, range(3))) and _WITHOUT_SCREEN.isdisjoint(words):
        _early.append(Child("--interval", str(INTERVAL), "--preview"))


def take_early() -> Child | None:
    """The agent that was started early; None if there is none, or somebody has it."""
    return _early.pop() if _early else None
