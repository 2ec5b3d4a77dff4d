"""Guards many calls that may never come back: what hangs is not called again.

A file system whose server is gone holds every process that touches it, often beyond SIGKILL. So
paths that other users choose are touched in a thread of their own, with a timeout. What hung is not
touched again until its thread is back, so that a dead mount takes one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from gputop.deadline import Call

T = TypeVar("T")

_TIMEOUT = 0.25
_MOST = 16
"""Threads that may hang; at this number no calls are made until one comes back."""
_CAREFUL = 8
"""Threads that may hang; from this number on only what has answered before is touched."""


class StalledError(Exception):
    """A call has not come back in time, or was not made since too many hang."""


class Step:
    """Names what a call touches now, a file system or a process; the call keeps it up to date."""

    def __init__(self, at: Hashable = None) -> None:
        self.at = at
        self.passed: set[Hashable] = set()

    def go_on(self, at: Hashable) -> None:
        """Note that the call now touches `at`, so that the thing before has answered."""
        self.passed.add(self.at)
        self.at = at


class CallGuard:
    """Makes calls on behalf of one thread."""

    def __init__(self) -> None:
        self._stuck: list[tuple[Step, Call[Any]]] = []
        self.waited = 0.0
        """Seconds spent on calls that did not come back."""
        self.careful = False
        """Whether to touch only what has answered before."""
        self._answered: set[Hashable] = set()

    def ask(self, step: Step, function: Callable[[], T], timeout: float = _TIMEOUT) -> T:
        """Return what `function` returns; it keeps `step` up to date. StalledError."""
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
        """Whether so many calls hang that no more are made."""
        return len(self._hanging()) >= _MOST

    def is_stuck(self, at: Hashable) -> bool:
        """Return whether a call hangs at `at`."""
        return any(step.at == at for step in self._hanging())

    def is_barred(self, at: Hashable) -> bool:
        """Return whether `at` must not be touched now."""
        careful = self.careful or len(self._hanging()) >= _CAREFUL
        return self.is_stuck(at) or (careful and at not in self._answered)

    def _hanging(self) -> list[Step]:
        return [step for step, call in self._stuck if call.is_running]
