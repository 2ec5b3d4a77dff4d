"""Many calls that may never come back: where one hangs, no other is sent.

A file system whose server is gone holds whoever touches it, often beyond SIGKILL. So what others
choose the place of is touched in a thread of its own, with a timeout; at what it hangs nobody
is sent again until that thread has come back, so that a dead mount takes one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from gputop.deadline import Call

T = TypeVar("T")

_TIMEOUT = 0.25
_MOST = 16
"""Threads that hang; with as many no more calls are made until one comes back."""
_CAREFUL = 8
"""And with as many nothing more is touched that has not answered before."""


class StalledError(Exception):
    """A call has not come back in time, or is not made since too many have not."""


class Step:
    """What a call touches now, as it tells itself: a file system, a process."""

    def __init__(self, at: Hashable = None) -> None:
        self.at = at
        self.passed: set[Hashable] = set()

    def go_on(self, at: Hashable) -> None:
        """Touch another thing: that before has answered."""
        self.passed.add(self.at)
        self.at = at


class CallGuard:
    """Makes calls for one thread."""

    def __init__(self) -> None:
        self._stuck: list[tuple[Step, Call[Any]]] = []
        self.waited = 0.0
        """Seconds that calls which did not come back have cost."""
        self.careful = False
        """Whether only what has answered before is to be touched."""
        self._answered: set[Hashable] = set()

    def ask(self, step: Step, function: Callable[[], T], timeout: float = _TIMEOUT) -> T:
        """Return what a function does, which keeps `step` true; StalledError."""
        if self.is_full:
            raise StalledError
        begun = time.monotonic()
        call = Call(function)
        if call.wait(timeout):
            self._answered |= step.passed
            return call.result()
        self.waited += time.monotonic() - begun
        self._stuck = [entry for entry in self._stuck if entry[1].is_running]
        self._stuck.append((step, call))
        self._answered |= step.passed - {step.at}
        raise StalledError

    @property
    def is_full(self) -> bool:
        """Whether so much hangs that nothing more is touched."""
        return len(self._hanging()) >= _MOST

    def is_stuck(self, at: Hashable) -> bool:
        """Whether a call hangs at that."""
        return any(step.at == at for step in self._hanging())

    def is_barred(self, at: Hashable) -> bool:
        """Whether that is not to be touched now."""
        careful = self.careful or len(self._hanging()) >= _CAREFUL
        return self.is_stuck(at) or (careful and at not in self._answered)

    def _hanging(self) -> list[Step]:
        return [step for step, call in self._stuck if call.is_running]
