"""The variables that a process was started with, as /proc/PID/environ has them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from gputop.agent.process.procfs import ENVIRON, read_bounded
from gputop.agent.process.stat import read_stat
from gputop.model.machine.environment import Environ, parse_environ, what_matters

_REMEMBERED = 1 << 15
"""Bytes of an environment that may be the same for many processes."""


def read_environ(pid: int) -> Environ:
    """Read those that matter here.

    Another user's are readable to root alone (PTRACE_MODE_READ, proc_pid_environ(5)).
    """
    return _read(pid, _matter)


def read_whole_environ(pid: int) -> Environ:
    """Read all of them, secrets too: not to be sent as they are."""
    return _read(pid, parse_environ)


def _read(pid: int, parse: Callable[[bytes], Environ]) -> Environ:
    try:
        block, whole = read_bounded(f"/proc/{pid}/environ", ENVIRON)
        if not block and _has_ended(pid):
            return Environ({}, "gone")
        return parse(block) if whole else Environ({}, "too_long")
    except PermissionError:
        return Environ({}, "gone" if _has_ended(pid) else "unreadable")
    except OSError:  # gone before it was opened, or while it was read
        return Environ({}, "gone")
    except MemoryError:
        return Environ({}, "too_long")


def _has_ended(pid: int) -> bool:
    """Return whether a process is a zombie, or not there. A zombie's file is root's, whoever ran
    it, and by the kernel's version opening it fails, or it is empty."""
    stat = read_stat(pid)
    return stat is None or stat.state in "ZX"


def _matter(block: bytes) -> Environ:
    return _remembered(block) if len(block) <= _REMEMBERED else what_matters(parse_environ(block))


@lru_cache(maxsize=64)
def _remembered(block: bytes) -> Environ:
    """Workers of one job share their variables."""
    return what_matters(parse_environ(block))
