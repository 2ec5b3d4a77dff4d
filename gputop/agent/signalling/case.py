"""One process of an order, from the signal to its end."""

from __future__ import annotations

import time

import msgspec

from gputop.agent.signalling.pinned import Pinned
from gputop.agent.signalling.returned import Held
from gputop.model.protocol import Signal
from gputop.model.signals import Outcome, Target, Verdict

KEPT = 60.0
"""Seconds that a verdict stays in the frames, and its process is watched."""
LOOK = 0.1
"""Seconds between two looks whether memory came back and the parent took notice."""


class Case:
    """What is known of it. `sent`, `ended` and `changed` are monotonic times."""

    def __init__(self, order: Signal, target: Target, command: str | None) -> None:
        self.target = target
        self.grace = max(0.0, order.grace)
        self.process: Pinned | None = None
        self.held: tuple[Held, ...] = ()
        self.sent: float | None = None
        self.ended: float | None = None
        self.changed = time.monotonic()
        self.noted: Outcome | None = None
        self.verdict = Verdict(
            order=order.order,
            pid=target.pid,
            start_time=target.start_time,
            command=command,
            signal=order.number,
            outcome="waiting",
        )

    def say(self, outcome: Outcome, words: str, **more: object) -> None:
        """Change the verdict."""
        seconds = self.verdict.seconds
        if self.sent is not None:
            seconds = round((self.ended or time.monotonic()) - self.sent, 2)
        facts = {"outcome": outcome, "words": words, "seconds": seconds, **more}
        self.verdict = msgspec.structs.replace(self.verdict, **facts)
        self.changed = time.monotonic()

    def due(self, now: float) -> float:
        """When there is something to look at unless the process ends; monotonic."""
        if self.verdict.outcome != "waiting" or self.sent is None:
            return self.changed + KEPT
        return now + LOOK if self.ended is not None else self.sent + self.grace

    def close(self) -> None:
        """Watch it no more."""
        if self.process is not None:
            self.process.close()
            self.process = None
