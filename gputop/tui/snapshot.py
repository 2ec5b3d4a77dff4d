"""What every screen shows of a machine at one instant."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from gputop.model.cuda.logical_names import LogicalNames
from gputop.model.machine.frame import Frame
from gputop.model.metrics.history import History
from gputop.sources.source import Moment

Instant: TypeAlias = Moment | Literal["paused"]
"""A moment, or now held by a pause."""


class Snapshot(NamedTuple):
    """A frame, and the past that leads up to it."""

    frame: Frame
    history: History
    names: LogicalNames
    """What its processes call their GPUs."""
    moment: Moment = "now"
    is_paused: bool = False
    interval: float = 1.0
    """Seconds between two frames."""

    @property
    def instant(self) -> Instant:
        return "paused" if self.is_paused else self.moment
