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
        self._before = _waits.seconds()

    def left(self) -> float:
        """Return the seconds that are left; 0 or less when it is over. Cheap until then."""
        now = time.monotonic()
        if now >= self._end:
            longest = self._seconds * _MOST
            self._end = self._begin + min(self._seconds + self._extra(), longest)
        return self._end - now

    def _extra(self) -> float:
        if _waits.are_counted:
            return _waits.seconds() - self._before
        return self._seconds * os.getloadavg()[0] / (os.cpu_count() or 1)


class Waits:
    """How long this process and its descendants have waited for a core, as far as was looked: what
    one waited after the last look at it, and before its end, nobody knows."""

    def __init__(self) -> None:
        self._latest: dict[str, int] = {}
        self._sum = 0

    @property
    def are_counted(self) -> bool:
        """Whether the kernel does it; one that does not says 0, or nothing."""
        return self._sum > 0

    def seconds(self) -> float:
        """Look, and return those of all the threads that there have ever been."""
        delays = _run_delays()
        latest, self._latest = self._latest, delays
        for task, delay in delays.items():
            before = latest.get(task, 0)
            self._sum += delay - before if delay >= before else delay  # the number was given again
        return self._sum / 1e9


def until(
    condition: Callable[[], T | None], within: float = 5.0, seen: Callable[[], object] | None = None
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


def _run_delays() -> dict[str, int]:
    """Return the ns that each thread of this process and of its descendants has waited for a core
    since it began, by its number (the second one of schedstat, linux/Documentation/scheduler)."""
    delays: dict[str, int] = {}
    pids = [str(os.getpid())]
    while pids:
        folder = f"/proc/{pids.pop()}/task"
        with suppress(OSError):  # it has ended
            for task in os.listdir(folder):
                with suppress(OSError):
                    with open(f"{folder}/{task}/schedstat", encoding="ascii") as file:
                        delays[task] = int(file.read().split()[1])
                    with open(f"{folder}/{task}/children", encoding="ascii") as file:
                        pids += file.read().split()
    return delays


_waits = Waits()
count_waits = _waits.seconds
"""Whoever does it now and then misses little of those that end in between."""
