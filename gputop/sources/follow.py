"""Follows a source for as long as it lasts, and reconnects when it breaks."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from gputop.errors import GputopError, LoginError, PermanentError, SourceError
from gputop.model.machine.frame import Frame, Host, Problem
from gputop.model.machine.text import printable
from gputop.sources.source import Source

T = TypeVar("T")

_LEAST_PAUSE = 1.0
_MOST_PAUSE = 30.0
_PERMANENT_PAUSES = 300.0, 3600.0


def follow(
    source: Source,
    messages: Callable[[Source], Iterable[T]],
    put: Callable[[T | GputopError], None],
    closed: threading.Event | None = None,
) -> None:
    """Put what `messages` takes from a source, as `frames_of` does, and reconnect when it breaks,
    unless a login is needed: repeated attempts may lock the account. Errors are put too. It returns
    when the source is closed; with `closed`, set before that, also from a wait."""
    closed = closed or threading.Event()
    backoff, is_again = Backoff(), False
    while True:
        failure: GputopError
        try:
            if is_again:
                source.reconnect()
            for message in messages(source):
                backoff = Backoff()
                put(message)
            return
        except GputopError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - it is reported, as in `Feed`
            words = printable(f"{type(error).__name__}: {error}", 200)
            failure = SourceError(f"cannot read a frame: {words}")
        put(failure)
        if isinstance(failure, LoginError) or closed.wait(backoff.pause(failure)):
            return
        is_again = True


def broken_frame(host: Host, error: GputopError, login: str) -> Frame:
    """Return a frame that shows why a machine that `follow` reads is not read just now; `login`:
    what to do if a login is needed."""
    advice = login if isinstance(error, LoginError) else "it is tried again"
    problem = Problem(code="agent_ended", text=str(error), advice=advice)
    return Frame(host=host, time=time.time(), problem=problem)


class Backoff:
    """How long to wait after each of several failures in a row. All pauses are random, so that
    machines that went down together are not all tried at once."""

    def __init__(self) -> None:
        self._failures = self._permanent = 0

    def pause(self, failure: GputopError) -> float:
        """Return the seconds from a failure to the next attempt: 1 to 30; minutes after a second
        PermanentError, and up to an hour after the following ones."""
        self._failures += 1
        whole = min(_MOST_PAUSE, _LEAST_PAUSE * 2.0 ** min(self._failures, 8))
        if isinstance(failure, PermanentError):
            self._permanent += 1
            if self._permanent > 1:
                whole = _PERMANENT_PAUSES[self._permanent > 2]
        return whole * random.uniform(0.5, 1.0)
