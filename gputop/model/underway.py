"""The signals that were sent and are not over."""

from __future__ import annotations

from collections.abc import Iterable

from gputop.model.protocol import Signal
from gputop.model.signals import Verdict


class UnderWay:
    """All that this gputop sent, whether the dialogs are open or not."""

    def __init__(self) -> None:
        self._waiting: dict[str, int] = {}
        self._unknown = 0

    def add(self, order: Signal) -> None:
        """Another one; a check is none."""
        if order.number:
            self._waiting[order.order] = len(order.targets)
            self._unknown = 0

    def take(self, verdicts: Iterable[Verdict]) -> bool:
        """What a frame tells; whether it is about any."""
        if not self._waiting:
            return False
        of: dict[str, int] = {}
        for one in verdicts:
            of[one.order] = of.get(one.order, 0) + (one.outcome == "waiting")
        for order in [order for order in self._waiting if order in of]:
            self._waiting[order] = of[order]
            if not of[order]:
                del self._waiting[order]
        return True

    def lose(self) -> bool:
        """The agent has ended; whether anything was under way."""
        lost = sum(self._waiting.values())
        self._waiting, self._unknown = {}, lost or self._unknown
        return bool(lost)

    def words(self) -> str:
        """For the heading; empty where nothing is under way."""
        count = sum(self._waiting.values())
        if count:
            return f"{count} signal{'s' * (count != 1)} under way"
        lost = self._unknown
        return f"agent ended: end of {lost} signal{'s' * (lost != 1)} unknown" if lost else ""
