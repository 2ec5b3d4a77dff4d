"""The exceptions that gputop raises for its user, and the exit codes.

`cli.py` prints the one that ends gputop; commands that go on after an error print it themselves.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class GputopError(Exception):
    """One line that says what happened, to what, and what to do about it."""

    exit_code = 1
    lines: tuple[str, ...] = ()
    """What a command writes of it if that is several lines."""


class NotEnoughGpusError(GputopError):
    """Fewer GPUs suit a job than it needs."""

    def __init__(self, summary: str, reasons: Sequence[str]) -> None:
        """`reasons`: a line for each GPU, why it is not picked."""
        super().__init__("; ".join((summary, *reasons)))
        self.summary, self.reasons = summary, tuple(reasons)
        self.lines = (*reasons, summary)


class UsageError(GputopError):
    """Arguments or input that gputop cannot use."""

    exit_code = 2


class DriverError(GputopError):
    """The NVIDIA driver cannot be read."""

    exit_code = 3


class ProgramError(GputopError):
    """The program for `gputop run` is not found (127) or cannot be executed (126)."""

    def __init__(self, words: str, exit_code: int) -> None:
        super().__init__(words)
        self.exit_code = exit_code


class SourceError(GputopError):
    """Frames ended: the agent died or a stream broke."""

    exit_code = 4


class LoginError(SourceError):
    """Another machine requires a person to log in by hand: for a password or a second factor."""


class PermanentError(SourceError):
    """A machine cannot be reached, and another attempt soon would fail alike and do harm: a login
    that hangs stays there as a process."""
