"""Whether GPUs have done next to nothing for a while."""

from __future__ import annotations

from collections.abc import Iterable

from gputop.model.machine.gpu import Gpu


class IdleSpan:
    """How long the utilization of GPUs has been below a limit in every frame.

    Unknown utilization (no answer, MIG mode, a driver that is gone) ends the span, and so does a
    gap between frames: time that was not observed does not count as idle.
    """

    def __init__(self, limit: float, longest_gap: float) -> None:
        """`limit`: a ratio; `longest_gap`: seconds between two frames."""
        self._limit, self._longest_gap = limit, longest_gap
        self._since: float | None = None
        self._last: float | None = None

    def receive(self, gpus: Iterable[Gpu] | None, now: float) -> float | None:
        """Take the GPUs of a frame, or None without any; `now` never goes back. Return the seconds
        of the span so far, None if it has not begun."""
        is_late = self._last is not None and now - self._last > self._longest_gap
        self._last = now
        loads = [gpu.utilization if gpu.state == "answers" else None for gpu in gpus or ()]
        if not loads or any(load is None or load >= self._limit for load in loads):
            self._since = None
            return None
        if self._since is None or is_late:
            self._since = now
        return now - self._since
