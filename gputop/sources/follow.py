"""A source that is followed for as long as it lasts, and begun anew where it breaks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from gputop.errors import GputopError, LoginError, SourceError
from gputop.model.machine.text import printable
from gputop.sources.source import Source

T = TypeVar("T")


def follow(
    source: Source,
    messages: Callable[[Source], Iterable[T]],
    put: Callable[[T | GputopError], None],
) -> None:
    """Hand over what `messages` takes of a source, as `frames_of`, and begin anew where it breaks,
    unless somebody has to log in: to try that again and again may lock the account. It ends where
    the source was closed."""
    from gputop.sources.ssh.source import backoff

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
