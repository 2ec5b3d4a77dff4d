"""Follows a source for as long as it lasts, and reconnects when it breaks."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from gputop.errors import GputopError, LoginError, SourceError
from gputop.model.machine.frame import Frame, Host, Problem
from gputop.model.machine.text import printable
from gputop.sources.source import Source

T = TypeVar("T")

_LEAST_PAUSE = 1.0
_MOST_PAUSE = 30.0


def follow(
    source: Source,
    messages: Callable[[Source], Iterable[T]],
    put: Callable[[T | GputopError], None],
    closed: threading.Event | None = None,
) -> None:
    """Put what `messages` takes from a source, as `frames_of` does, and reconnect when it breaks,
    unless a login is needed: repeated attempts may lock the account. Errors are put too. It returns
    when the source is closed; with `closed`, set before that, also from a wait."""
    attempt, closed = 0, closed or threading.Event()
    while True:
        try:
            if attempt:
                source.reconnect()
            for message in messages(source):
                attempt = 0
                put(message)
            return
        except GputopError as error:
            put(error)
            if isinstance(error, LoginError):
                return
        except Exception as error:  # noqa: BLE001 - it is reported, as in `Feed`
            words = printable(f"{type(error).__name__}: {error}", 200)
            put(SourceError(f"cannot read a frame: {words}"))
        attempt += 1
        if closed.wait(backoff(attempt)):
            return


def broken_frame(host: Host, error: GputopError, login: str) -> Frame:
    """Return a frame that shows why a machine that `follow` reads is not read just now; `login`:
    what to do if a login is needed."""
    advice = login if isinstance(error, LoginError) else "it is tried again"
    problem = Problem(code="agent_ended", text=str(error), advice=advice)
    return Frame(host=host, time=time.time(), problem=problem)


def backoff(attempt: int) -> float:
    """Return the seconds from an attempt, 1 and up, to the next: 1 to 30, and random, so that
    machines that went down together are not all tried at once."""
    whole = min(_MOST_PAUSE, _LEAST_PAUSE * 2.0 ** min(attempt, 8))
    return whole * random.uniform(0.5, 1.0)
