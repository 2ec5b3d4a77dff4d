"""How long a test waits: a machine that is busy makes it late, and only what hangs makes it fail.

    until(lambda: path.exists(), within=5)

A test asserts in what order things happen, not how many seconds they take. Where the seconds are
the point, as with a limit of gputop's own, a `Deadline` still has some left.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

_MOST = 10.0
"""How many times as long as on a machine that is calm: what runs in circles hangs as well."""
_SHORTEST, _LONGEST = 0.002, 0.05
"""Seconds between two looks."""

T = TypeVar("T")


class Deadline:
    """So many seconds from now, and as many more as this process and all that it started have to
    wait for a core meanwhile. What they read from a disk or wait for in the network is not added.
    """

    def __init__(self, seconds: float) -> None:
        """seconds: on a machine with a core for everybody."""
        self._seconds = seconds
        self._begin = time.monotonic()
        self._end = self._begin + seconds
        self._waits = _waits()
        self._before = sum(self._waits.values())

    def left(self) -> float:
        """Return the seconds that are left; 0 or less when it is over. Cheap until then."""
        now = time.monotonic()
        if now >= self._end:
            most = self._seconds * _MOST
            self._end = self._begin + min(self._seconds + self._extra(), most)
        return self._end - now

    def _extra(self) -> float:
        """Seconds of waiting so far; those of a task that has ended since the last look stay."""
        for task, waited in _waits().items():
            self._waits[task] = max(waited, self._waits.get(task, 0))
        if not self._before:  # a kernel that does not count them
            return self._seconds * os.getloadavg()[0] / (os.cpu_count() or 1)
        return (sum(self._waits.values()) - self._before) / 1e9


def until(
    condition: Callable[[], T], within: float = 5.0, seen: Callable[[], object] | None = None
) -> T:
    """Look until a condition holds, and return what it gave.

    seen: what to show if it does not hold within so many seconds of a `Deadline`; else what the
    condition gave last. AssertionError.
    """
    if value := condition():
        return value
    begin, deadline = time.monotonic(), Deadline(within)
    while not (value := condition()):
        if deadline.left() <= 0:
            raise AssertionError(f"not within {within} s: {seen() if seen else value!r}")
        time.sleep(min(max((time.monotonic() - begin) / 20, _SHORTEST), _LONGEST))
    return value


def _waits() -> dict[str, int]:
    """Return the ns that each thread of this process and of its descendants has waited for a core
    since it began, by its number (the second one of schedstat, linux/Documentation/scheduler)."""
    waits: dict[str, int] = {}
    pids = [str(os.getpid())]
    while pids:
        folder = f"/proc/{pids.pop()}/task"
        with suppress(OSError):  # it has ended
            for task in os.listdir(folder):
                with suppress(OSError):
                    with open(f"{folder}/{task}/children", encoding="ascii") as file:
                        pids += file.read().split()
                    with open(f"{folder}/{task}/schedstat", encoding="ascii") as file:
                        waits[task] = int(file.read().split()[1])
    return waits
