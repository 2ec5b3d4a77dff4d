"""A source that is followed for as long as it lasts, and begun anew where it breaks."""

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
    """Hand over what `messages` takes of a source, as `frames_of`, and begin anew where it breaks,
    unless somebody has to log in: to try that again and again may lock the account. It ends where
    the source was closed."""
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
        except Exception as error:  # noqa: BLE001 - it is told, as in `Feed`
            words = printable(f"{type(error).__name__}: {error}", 200)
            put(SourceError(f"a frame could not be read: {words}"))
        attempt += 1
        time.sleep(backoff(attempt))


def backoff(attempt: int) -> float:
    """Return the seconds between an attempt, 1 and up, and the next: 1 to 30, never quite the
    same, so that machines that went down together do not come back at once."""
    whole = min(_MOST_PAUSE, _LEAST_PAUSE * 2.0 ** min(attempt, 8))
    return whole * random.uniform(0.5, 1.0)
