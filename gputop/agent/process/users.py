"""The user of a process, and the names of users."""

from __future__ import annotations

import math
import os
import pwd
import time
from collections.abc import Iterable

from gputop.agent.process.procfs import read_short
from gputop.agent.worker import Worker
from gputop.errors import UsageError
from gputop.model.machine.text import printable
from gputop.proc import proc_field

_MOST_UID = 2**32 - 2
_TIMEOUT = 0.25
"""Seconds that a tick waits for the name of a new user; directory services can take many."""
_AGAIN = 60.0
"""Seconds after which a user without a name is looked up again."""


def real_uid(pid: int) -> int | None:
    """Read the real uid. The owner of /proc/PID is root for processes that may not dump core."""
    words = proc_field(read_short(f"/proc/{pid}/status"), b"Uid")
    return int(words[0]) if words else None


class UserNames:
    """Names of user ids, looked up in a thread of their own and remembered, misses for a while."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._missed: dict[int, float] = {}
        """When a user had no name, in monotonic seconds: a directory service may have failed."""
        self._wanted: set[int] = set()
        self._worker = Worker("user names", self._look_up)

    def prepare(self, uids: Iterable[int | None]) -> None:
        """Look up new ids, and wait a moment for them."""
        self._wanted |= {uid for uid in uids if uid is not None and self._is_due(uid)}
        if self._wanted:
            self._worker.ask()
            self._worker.wait(time.monotonic() + _TIMEOUT)

    def name(self, uid: int | None) -> str | None:
        """Return the name, or the number while the name is unknown; None without a uid."""
        return None if uid is None else self._names.get(uid, str(uid))

    def name_now(self, uid: int | None) -> str | None:
        """Return the name of a single user, after a moment for it."""
        self.prepare([uid])
        return self.name(uid)

    def _is_due(self, uid: int) -> bool:
        missed = self._missed.get(uid, -math.inf)
        return uid not in self._names and time.monotonic() >= missed + _AGAIN

    def _look_up(self) -> None:
        for uid in list(self._wanted):
            try:
                self._names[uid] = printable(pwd.getpwuid(uid).pw_name, 64)
            except KeyError:
                self._missed[uid] = time.monotonic()
            self._wanted.discard(uid)


def uid_of(user: str) -> int:
    """Return the uid for `me`, a name or a number; `+4242` is always the number.

    UsageError if there is no such user, or if a number is also the name of another user.
    """
    shown = printable(user, 60)
    number = user.removeprefix("+")
    is_number = number.isascii() and number.isdecimal() and len(number) < 11
    uid = int(number) if is_number and int(number) <= _MOST_UID else None
    if user.startswith("+") and uid is not None:
        return uid
    named = _named(user)
    if user == "me":
        uid = os.getuid()
    if named is not None and uid is not None and named != uid:
        raise UsageError(f"user {shown} is both uid {uid} and the name of uid {named}: "
                         f"give --user +{uid} or +{named}")  # fmt: skip
    uid = uid if named is None else named
    if uid is None:
        raise UsageError(f"no user {shown} on this machine")
    return uid


def _named(user: str) -> int | None:
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):  # ValueError: no name can have such characters
        return None
