"""A call that may never return, such as any call on a dead file system.

deadline.py              one call in its own thread, given up after a time (this module)
agent/worker.py          the same call for every frame, in one thread that keeps its last answer
agent/process/reader.py  calls about another user's process, in a child process that is killed
agent/program.py         a program that is run for its output, and killed with what it started

Some wait in a way of their own. variables.py runs before root may import `threading`, which might
be another user's; sources/many.py yields the answers of many hosts as they come; sources/child.py
and sources/ssh/process.py talk with a program that lasts; notify.py runs the user's own command,
which keeps its terminal.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Call(Generic[T]):
    """A call in a daemon thread, which is abandoned if it does not return."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._results: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="call", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether the call has not returned yet."""
        return self._thread.is_alive()

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` for the call, and return whether it has returned."""
        self._thread.join(seconds)
        return not self.is_running

    def result(self) -> T:
        """Return what the call returned, or raise what it raised; only after it has returned."""
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(self._function())
        except BaseException as error:  # noqa: BLE001 - `result` raises it
            self._error = error


def within(seconds: float, function: Callable[[], T]) -> T:
    """Return what the function returns, or raise what it raises; TimeoutError after `seconds`."""
    call = Call(function)
    if not call.wait(seconds):
        raise TimeoutError(f"no answer for {seconds:g} s")
    return call.result()


def wait_for_all(calls: Iterable[Call[T]], seconds: float) -> bool:
    """Wait at most `seconds` for all of these calls, and return whether they have returned."""
    end = time.monotonic() + seconds
    return all(call.wait(max(0.0, end - time.monotonic())) for call in calls)
