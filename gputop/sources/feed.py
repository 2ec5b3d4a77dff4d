"""Reads a source in a thread of its own, for a screen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias

from gputop.deadline import Call, wait_for_all
from gputop.errors import SourceError
from gputop.model.machine.frame import Frame
from gputop.model.machine.text import printable
from gputop.protocol.messages import Preview, Reply
from gputop.sources.source import Source

Message: TypeAlias = Frame | Reply | SourceError
Listener = Callable[[Message], None]


NO_THREAD = (
    "no thread can be started: this user (ulimit -u) or this container (pids.max) has as many as "
    "it may have; end some of its processes"
)
_CLOSING = 2.0
"""Seconds for all sources of a screen to end."""


def close_all(sources: Sequence[Source]) -> None:
    """Close all sources at the same time: each may take a moment."""
    if len(sources) == 1:
        sources[0].close()
        return
    calls = []
    for source in sources:
        try:
            calls.append(Call(source.close))
        except RuntimeError:  # no thread can be started
            source.close()
    wait_for_all(calls, _CLOSING)


class Feed:
    """Reads a source, and hands its messages to one listener, in the thread that reads.

    A new listener replaces the one before. It first gets the last frame, or the error that ended
    the source.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._lock = threading.Lock()
        self._listener: Listener | None = None
        self._last: Frame | SourceError | None = None
        self._thread: threading.Thread | None = None

    def listen(self, listener: Listener) -> None:
        """Hand messages to this listener from now on; the first one starts the thread."""
        with self._lock:
            self._listener, last = listener, self._last
        if last is not None:  # without the lock, as below
            listener(last)
        if self._thread is None:
            self._thread = threading.Thread(target=self._read, name="source", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:
                self._hand_over(SourceError(NO_THREAD))

    def _read(self) -> None:
        """Read the source. No caller waits for this thread, so the listener gets every error."""
        try:
            for message in self.source.frames():
                self._hand_over(message)
        except SourceError as error:
            self._hand_over(error)
        except Exception as error:  # noqa: BLE001 - it is shown, and r begins anew
            words = printable(f"{type(error).__name__}: {error}", 200)
            self._hand_over(SourceError(f"cannot read a frame: {words}"))

    def _hand_over(self, message: Message) -> None:
        """Call the listener without the lock: it may hang, and then the next one replaces it."""
        with self._lock:
            if not isinstance(message, Reply | Preview):
                self._last = message
            listener = self._listener
        if listener is not None:
            listener(message)
