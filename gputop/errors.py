"""The exceptions that gputop raises for its user.

    GputopError                 exit code 1
    ├── UsageError              exit code 2: arguments or input that cannot be taken
    ├── DriverError             exit code 3: the NVIDIA driver cannot be read
    ├── ProgramError            exit code 127 or 126: a program to run is not there, or is none
    └── SourceError             exit code 4: frames ended: the agent died, a stream is broken
        └── LoginError          ... ssh wants to ask somebody: a password, a second factor

Each carries one line that says what happened, to what, and what to do. `cli.py` alone prints
them.
"""


class GputopError(Exception):
    """What happened, to what, and what to do about it, in one line."""

    exit_code = 1


class UsageError(GputopError):
    """Arguments or input that cannot be taken."""

    exit_code = 2


class DriverError(GputopError):
    """The NVIDIA driver cannot be read."""

    exit_code = 3


class ProgramError(GputopError):
    """A program that gputop was to run is not found (127), or cannot be executed (126)."""

    def __init__(self, words: str, exit_code: int) -> None:
        super().__init__(words)
        self.exit_code = exit_code


class SourceError(GputopError):
    """Frames ended: the agent died or a stream is broken."""

    exit_code = 4


class LoginError(SourceError):
    """Another machine wants somebody to log in by hand."""
