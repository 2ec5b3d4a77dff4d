"""A thread that makes one blocking call at a time, so that its caller never blocks.

It repeats one call, and the last answer counts, however old. For a call whose answer is wanted now
or not at all see deadline.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Generic, TypeVar

from gputop.agent.errors import log_once

T = TypeVar("T")

_QUICK = 0.003
"""Seconds below which a call is quick: the next may wait for it."""


class Worker(Generic[T]):
    """Runs `call` in a daemon thread whenever asked; `latest` is its last answer.

    A driver call may never come back: then the thread is stuck, `busy` stays true, and only this
    worker's answer grows old. `answered` is in monotonic seconds.

    An error replaces the last answer: `failed` makes an answer of its text, without `failed` there
    is none. The next call may succeed.
    """

    def __init__(
        self, name: str, call: Callable[[], T], failed: Callable[[str], T] | None = None
    ) -> None:
        self.latest: T | None = None
        self.asked = time.monotonic()
        self.answered: float | None = None
        self._name, self._call, self._failed = name, call, failed
        self._is_started = self._ended = False
        # Bare locks, which any thread may release: a semaphore and an event take many times as long
        # to wake a thread, and a tick wakes a dozen.
        self._wanted, self._idle = threading.Lock(), threading.Lock()
        self._wanted.acquire()

    @property
    def busy(self) -> bool:
        return self._idle.locked()

    @property
    def is_quick(self) -> bool:
        return self.answered is not None and self.answered - self.asked < _QUICK

    def ask(self) -> None:
        """Start a call, with the first the thread, unless one is under way: they never overlap."""
        if not self._is_started:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
            self._is_started = True
        if self._idle.acquire(blocking=False):
            self.asked = time.monotonic()
            self._wanted.release()

    def wait(self, deadline: float) -> bool:
        """Wait until idle or `deadline` (monotonic seconds); return whether it is idle."""
        if not self._idle.acquire(timeout=max(0.0, deadline - time.monotonic())):
            return False
        self._idle.release()
        return True

    def end(self) -> None:
        """End the thread as soon as its call comes back. Call it once."""
        self._ended = True
        with suppress(RuntimeError):  # it is asked already, and had no core since
            self._wanted.release()

    def _run(self) -> None:
        while True:
            self._wanted.acquire()
            if self._ended:
                return
            try:
                self.latest = self._call()
            except Exception as error:  # noqa: BLE001 - whatever it is, others wait for the thread
                words = log_once(self._name, error)
                self.latest = None if self._failed is None else self._failed(words)
            self.answered = time.monotonic()
            self._idle.release()


def ask_all(workers: Iterable[Worker[T]], seconds: float) -> None:
    """Ask all workers, and wait `seconds` at most for those that were idle.

    A worker that is still busy is not waited for, so that one stuck GPU delays one cycle, not all.
    """
    deadline = time.monotonic() + seconds
    asked = [worker for worker in workers if not worker.busy]
    asked.sort(key=lambda worker: worker.is_quick)
    for worker in asked:
        quick = worker.is_quick
        worker.ask()
        # Slow workers all at once, then quick ones one after another: threads that compete for the
        # interpreter cost as much as the calls do.
        if quick:
            worker.wait(min(deadline, time.monotonic() + _QUICK))
    for worker in asked:
        worker.wait(deadline)
