"""Follows a source for as long as it lasts, and reconnects when it breaks."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from gputop.errors import GputopError, LoginError, SourceError
from gputop.model.machine.text import printable
from gputop.sources.source import Source

T = TypeVar("T")

_LEAST_PAUSE = 1.0
_MOST_PAUSE = 30.0


def follow(
    source: Source,
    messages: Callable[[Source], Iterable[T]],
    put: Callable[[T | GputopError], None],
) -> None:
    """Put what `messages` takes from a source, as `frames_of` does, and reconnect when it breaks,
    unless a login is needed: repeated attempts may lock the account. Errors are put too. It returns
    when the source is closed."""
    attempt = 0
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
        time.sleep(backoff(attempt))


def backoff(attempt: int) -> float:
    """Return the seconds from an attempt, 1 and up, to the next: 1 to 30, and random, so that
    machines that went down together are not all tried at once."""
    whole = min(_MOST_PAUSE, _LEAST_PAUSE * 2.0 ** min(attempt, 8))
    return whole * random.uniform(0.5, 1.0)
