"""The variables that a process was started with, as /proc/PID/environ has them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from gputop.model.environ import Environ, parse_environ, what_matters


def read_environ(pid: int) -> Environ:
    """Read those that matter here.

    Another user's are readable to root alone (PTRACE_MODE_READ, proc_pid_environ(5)).
    """
    return _read(pid, _parsed)


def read_whole_environ(pid: int) -> Environ:
    """Read all of them, secrets too: not to be sent as they are."""
    return _read(pid, parse_environ)


def _read(pid: int, parse: Callable[[bytes], Environ]) -> Environ:
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            return parse(file.read())
    except PermissionError:
        return Environ({}, "unreadable")
    except OSError:  # gone before it was opened, or while it was read
        return Environ({}, "gone")


@lru_cache(maxsize=64)
def _parsed(block: bytes) -> Environ:
    """Workers of one job share their variables."""
    return what_matters(parse_environ(block))
