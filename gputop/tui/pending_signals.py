"""The signals that were sent and are not over."""

from __future__ import annotations

from gputop.protocol.messages import Reply, Signal


class PendingSignals:
    """All that this gputop sent, whether the dialogs are open or not."""

    def __init__(self) -> None:
        self._waiting: dict[str, int] = {}
        self._unknown = 0

    def add(self, order: Signal) -> None:
        """Await an order; a check sends nothing and is not awaited."""
        if order.number:
            self._waiting[order.id] = len(order.targets)
            self._unknown = 0

    def handle(self, reply: Reply) -> int | None:
        """Return how many of an order may still end; None for an order that is not awaited."""
        if reply.request not in self._waiting:
            return None
        waiting = sum(verdict.outcome == "waiting" for verdict in reply.verdicts)
        if waiting:
            self._waiting[reply.request] = waiting
        else:
            del self._waiting[reply.request]
        return waiting

    def lose(self) -> bool:
        """Give all up, since the agent ended; whether anything was awaited."""
        lost = sum(self._waiting.values())
        self._waiting, self._unknown = {}, lost or self._unknown
        return bool(lost)

    def words(self) -> str:
        """Return what the heading says of them; empty where nothing is awaited."""
        count = sum(self._waiting.values())
        if count:
            return f"{count} signal{'s' * (count != 1)} under way"
        lost = self._unknown
        return f"agent ended: end of {lost} signal{'s' * (lost != 1)} unknown" if lost else ""
