"""How much of another machine is read: nobody there can keep gputop busy, or fill its memory."""

from __future__ import annotations

import time

from gputop.errors import SourceError
from gputop.sources.agent_process import MAX_LINE

_BYTES_A_SECOND = 4 << 20
"""Forty times what 8 GPUs with 1,000 processes send."""
_BYTES_AT_ONCE = 2 * MAX_LINE
_LINES_A_SECOND = 100
"""Frames come ten times a second at the most, replies when something was asked."""
_LINES_AT_ONCE = 3000
"""The verdicts of a signal to a thousand processes come at once."""


class Allowance:
    """What may still come: so much at once, and after that so much a second."""

    def __init__(self, at_once: float, a_second: float) -> None:
        self._most, self._a_second = at_once, a_second
        self._left = at_once
        self._time = time.monotonic()

    def take(self, amount: float) -> bool:
        """Whether that much may come now."""
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._time) * self._a_second) - amount
        self._time = now
        return self._left >= 0


class Bounds:
    """The allowances of a connection; SourceError for more than a machine has to say."""

    def __init__(self) -> None:
        self._bytes = Allowance(_BYTES_AT_ONCE, _BYTES_A_SECOND)
        self._lines = Allowance(_LINES_AT_ONCE, _LINES_A_SECOND)

    def take_bytes(self, count: int) -> None:
        """Count what was read."""
        if not self._bytes.take(count):
            raise _flood()

    def take_line(self) -> None:
        if not self._lines.take(1):
            raise _flood()


def _flood() -> SourceError:
    return SourceError("the host sends more than an agent has to say: it is left alone")
