"""How much of another machine is read: nobody there can keep gputop busy, or fill its memory."""

from __future__ import annotations

import time

from gputop.errors import SourceError
from gputop.sources.agent_process import MAX_LINE

BYTES = (2 * MAX_LINE, 4 << 20)
"""At once, and a second: forty times what 8 GPUs with 1,000 processes send."""
LINES = (3000, 100)
"""The verdicts of a signal to a thousand processes come at once; frames ten times a second at the
most, replies when something was asked."""


class Allowance:
    """What may still come: so much at once, and after that so much a second."""

    def __init__(self, at_once: float, a_second: float) -> None:
        self._most, self._a_second = at_once, a_second
        self._left = at_once
        self._time = time.monotonic()

    def take(self, amount: float) -> None:
        """Count what has come. SourceError for more than a machine has to say."""
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._time) * self._a_second) - amount
        self._time = now
        if self._left < 0:
            raise SourceError("the host sends more than an agent has to say: it is left alone")
