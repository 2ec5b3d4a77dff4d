"""A machine that the screen watches: where its frames come from, and all that is kept of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gputop.model.machine.frame import Frame
from gputop.model.metrics.history import History
from gputop.protocol.messages import Refresh, Reply, Request, Signal
from gputop.sources.feed import Feed, Listener
from gputop.tui.pending_signals import PendingSignals


class Picture(NamedTuple):
    """What the screen shows: a frame, and the past that leads up to it."""

    frame: Frame
    history: History


class WatchedMachine:
    """One machine: its source, newest frame, history and the signals that were sent there."""

    def __init__(self, feed: Feed, note: Callable[[str], None]) -> None:
        """`note` says in the heading what there is to say of signals."""
        self.feed = feed
        self._frame: Frame | None = None
        self._history = History()
        self._frozen: Picture | None = None
        """What a pause holds, while frames go on into the history."""
        self.ended = False
        """Whether the source has broken."""
        self.seconds = 0
        """Since something has come from the source, or since it was started."""
        self._note = note
        self._signals = PendingSignals()

    def request(self, request: Request) -> None:
        """Send a request; signals are remembered until all is known of them."""
        if isinstance(request, Signal):
            self._signals.add(request)
            self._note(self._signals.words())
        self.feed.source.request(request)

    def handle_frame(self, frame: Frame) -> None:
        """Take another frame."""
        self._frame = frame
        self._history.append(frame)

    @property
    def picture(self) -> Picture | None:
        """What is to be shown: that of now, or the one that is frozen; None before any frame."""
        if self._frozen is not None or self._frame is None:
            return self._frozen
        return Picture(self._frame, self._history)

    @property
    def age(self) -> float | None:
        """Seconds between the frozen picture and the newest frame; None where none is frozen."""
        if self._frozen is None or self._frame is None:
            return None
        return max(0.0, self._frame.time - self._frozen.frame.time)

    def freeze(self) -> None:
        """Hold the picture of now, from which the history goes on apart."""
        if self._frame is not None:
            self._frozen = Picture(self._frame, self._history.copy())

    def thaw(self) -> None:
        """Show what comes again."""
        self._frozen = None

    def handle(self, reply: Reply) -> None:
        """Take what became of a signal; the frame after the last of it need not be waited for."""
        waiting = self._signals.handle(reply)
        if waiting is not None:
            self._note(self._signals.words())
        if waiting == 0:
            self.request(Refresh())

    def lose_signals(self) -> bool:
        """Nobody will tell what became of them. Return whether any were sent."""
        lost = self._signals.lose()
        if lost:
            self._note(self._signals.words())
        return lost

    def reconnect(self, listener: Callable[[Feed], Listener]) -> None:
        """Begin anew with the same source; what its last connection still says comes too late."""
        self.feed = Feed(self.feed.source)
        self.feed.source.reconnect()
        self._history = History()
        self._frozen = None
        self.ended, self.seconds = False, 0
        self.feed.listen(listener(self.feed))
