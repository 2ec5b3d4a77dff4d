"""The agent of this machine as a child process, started as early as possible.

Its first frame takes about as long as gputop's own start, so a screen's agent is started before
anything else is imported: this module imports next to nothing, and no subprocess.
"""

from __future__ import annotations

import _thread
import os
import sys
from fcntl import F_SETPIPE_SZ, fcntl

from gputop.errors import DriverError, SourceError
from gputop.sources.child import PipedProcess, not_started

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

SILENCE = 10.0
"""Seconds that a command waits for an agent, beyond its interval."""
ANSWER = 30.0
"""Seconds for a whole answer of another machine, from connecting to its last byte."""
INTERVAL = 1.0
"""The interval, in seconds, of an agent that is started before the settings are read."""
_HERE = os.path.dirname(os.path.abspath(__file__))
_MAIN = os.path.join(os.path.dirname(_HERE), "__main__.py")
SNAPSHOTS = {"--once", "-1", "--json", "--line"}
_WITHOUT_SCREEN = {*SNAPSHOTS, "--demo", "-h", "--help", "-V", "--version"}
_PARTS = 8
MAX_LINE = 16 << 20
"""Bytes: `protocol.split` makes no longer line, whatever users write into their processes."""
_TOO_LONG = f"the agent sent a line of more than {MAX_LINE >> 20} MiB: start it again"
_READ = 1 << 20
"""Bytes that a pipe and its reader have room for: the messages of an instant pass at once."""


become_agent: Callable[[list[str]], int] | None = None
"""Makes a copy of this program what `gputop agent ARGUMENTS` is. `gputop.__main__` sets it if a
copy is as safe as another start."""


class AgentProcess(PipedProcess):
    """A `gputop agent ARGUMENTS` on this machine. With `--once` it is a copy of this program, if
    that has one thread: half of its start would be to import what is imported here."""

    def __init__(self, *arguments: str) -> None:
        self._output, write_end, self._errors = _streams()
        _widen(write_end)
        command = (sys.executable, _MAIN, "agent", *arguments)
        become = become_agent if "--once" in arguments and not _thread._count() else None
        copy = None if become is None else lambda: become([*arguments])
        try:
            super().__init__(command, os.environ, write_end, self._errors, copy)
        except SourceError:
            self.close()
            raise
        finally:
            os.close(write_end)

    def line(self, seconds: float | None) -> bytes:
        """Return the next line, with its end; at the end of the output what is left, then nothing.

        DriverError if nothing comes for `seconds` (None: it waits for ever). A driver that hangs
        keeps no agent from answering: a silent one is stopped, or its machine is. SourceError for a
        line that is longer than any agent's.
        """
        return self._line(lambda: self._read(seconds), MAX_LINE, _TOO_LONG)

    def _read(self, seconds: float | None) -> bytes:
        if seconds is not None:
            from select import POLLIN, poll  # a screen waits for ever, and starts sooner without

            ready = poll()
            ready.register(self._output, POLLIN)
            # In parts: if gputop itself is frozen, with the agent, that uses up only one part.
            if not any(ready.poll(seconds * 1000 / _PARTS) for _ in range(_PARTS)):
                raise DriverError(
                    f"the agent has not answered for {seconds:g} s: it is stopped, or the machine "
                    "is overloaded; try again"
                )
        return os.read(self._output, _READ)

    def close(self) -> None:
        os.close(self._output)
        os.close(self._errors)

    def exit_message(self) -> str:
        """Return how it ended, for an error: exit status and last line of standard error."""
        from gputop.model.machine.text import printable

        status = self.wait(1)
        lines = os.pread(self._errors, 1 << 20, 0).decode("utf-8", "replace").strip().splitlines()
        words = f": {printable(lines[-1], 200)}" if lines else ""
        return f"the agent ended with status {'unknown' if status is None else status}{words}"


def _streams() -> tuple[int, int, int]:
    """Return the ends of a pipe to read and to write, and a file for errors. SourceError."""
    opened: list[int] = []
    try:
        opened += os.pipe()
        return opened[0], opened[1], os.memfd_create("agent's errors")
    except OSError as error:
        for descriptor in opened:
            os.close(descriptor)
        raise not_started(sys.executable, error) from None


def _widen(pipe: int) -> None:
    """Make room in a pipe for a whole instant, unless the user's share of pipes is used up."""
    try:
        fcntl(pipe, F_SETPIPE_SZ, _READ)
    except OSError:
        return


def is_snapshot(words: Iterable[str]) -> bool:
    """Return whether arguments that name no command want something printed, and no screen."""
    return not SNAPSHOTS.isdisjoint(words)


_early: list[AgentProcess] = []


def start_early(words: Sequence[str]) -> None:
    """Start an agent if these arguments, which name no command, want a screen of this machine. It
    ends with us if it is not taken."""
    elsewhere = any(word.startswith(("-H", "--ho", "--prom")) for word in words)
    if all(map(os.isatty, range(3))) and _WITHOUT_SCREEN.isdisjoint(words) and not elsewhere:
        _early.append(AgentProcess("--interval", str(INTERVAL), "--preview"))


def take_early() -> AgentProcess | None:
    """Return the agent that was started early; None if there is none, or it was taken."""
    return _early.pop() if _early else None
