"""Between the dialogs and the agent of now: orders one way, what became of them the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from textual.screen import Screen

from gputop.model.frame import Frame
from gputop.model.protocol import Signal
from gputop.model.underway import UnderWay
from gputop.tui.screens.signal import SignalScreen


class Sending:
    """Hands each order on once; knows what is under way, with its dialog open or closed."""

    def __init__(self, request: Callable[[Signal], None], note: Callable[[str], None]) -> None:
        """`request` reaches the agent, `note` the heading."""
        self._request = request
        self._note = note
        self._under_way = UnderWay()

    def send(self, order: Signal) -> None:
        """An order of a dialog."""
        self._under_way.add(order)
        self._note(self._under_way.words())
        self._request(order)

    def take(self, frame: Frame, screens: Iterable[Screen[object]]) -> None:
        """What a frame tells, be it paused or without GPUs."""
        if self._under_way.take(frame.verdicts):
            self._note(self._under_way.words())
        for screen in screens:
            if isinstance(screen, SignalScreen):
                screen.show_frame(frame)

    def lose(self, screens: Iterable[Screen[object]]) -> bool:
        """The agent has ended; whether somebody waits for what it would tell."""
        lost = self._under_way.lose()
        asked = [screen.lose() for screen in screens if isinstance(screen, SignalScreen)]
        if lost:
            self._note(self._under_way.words())
        return lost or any(asked)
