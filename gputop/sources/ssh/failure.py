"""Why there is no connection, in a line: what ssh has written, read by a person's eyes."""

from __future__ import annotations

import re

from gputop.errors import LoginError, SourceError
from gputop.model.machine.text import printable

_SSH_FAILED = 255
"""The exit status of ssh for what went wrong with ssh itself, or of a program that was killed."""
_NOISE = re.compile(r"Warning: Permanently added|\*\* |@@@|Connection to \S+ closed\.$|$")
_PREFIX = re.compile(r"^(?:ssh: |kex_exchange_identification: |client_loop: |mux_client_\w+: )")
_DENIED = re.compile(r"Permission denied \(([\w,@.-]*)\)")


def failure(written: str, status: int | None) -> SourceError:
    """Return the error for an ssh that has ended; LoginError where somebody can log in by hand."""
    denied = _DENIED.search(written)
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in written:
        return SourceError(
            "the host key has changed: the host was installed anew, or it is another one; "
            "ask who runs it, then ssh-keygen -R HOST"
        )
    if "Host key verification failed" in written:
        return LoginError("the host key is not known yet: log in by hand once to accept it")
    if denied:
        return LoginError(f"login wanted: permission denied ({denied[1][:100]})")
    return SourceError(_ended(_last_line(written), status))


def _last_line(written: str) -> str:
    lines = [line.strip() for line in written.splitlines()]
    said = [line for line in lines if not _NOISE.match(line)]
    return _PREFIX.sub("", printable(said[-1], 200)) if said else ""


def _ended(words: str, status: int | None) -> str:
    if words:
        return words
    if status in (None, _SSH_FAILED):
        return "the connection was cut, or the agent killed"
    return f"the agent ended with status {status}"
