"""A call that may never come back, as everything on a dead file system does.

deadline.py      one call in a thread of its own, given up after a time (this module)
agent/stall.py   many of them: where one hangs, no other is sent
agent/worker.py  the same call at every tick, in one thread that keeps its last answer
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Call(Generic[T]):
    """A call in a daemon thread, which is left to itself if it does not come back."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._results: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="call", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether it has not come back."""
        return self._thread.is_alive()

    def wait(self, seconds: float) -> bool:
        """Wait for its end; whether it has come back."""
        self._thread.join(seconds)
        return not self.is_running

    def result(self) -> T:
        """Return what it returned, or raise what it raised. For one that has come back."""
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(self._function())
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            self._error = error


def within(seconds: float, function: Callable[[], T]) -> T:
    """Return what the function returns, or raise what it raises; TimeoutError after `seconds`."""
    call = Call(function)
    if not call.wait(seconds):
        raise TimeoutError(f"no answer for {seconds:g} s")
    return call.result()
