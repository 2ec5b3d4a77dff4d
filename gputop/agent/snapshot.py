"""One frame of this machine, for an agent that is asked for no more."""

from __future__ import annotations

from gputop.agent.collector import Collector
from gputop.agent.idle_record import with_idle_times
from gputop.model.machine.frame import Frame

_TIMEOUT = 5.0
"""Seconds for a driver that is silent."""


def one_frame() -> Frame:
    """With the CPU use of its processes measured, and what other agents know of idle ones."""
    return with_idle_times(Collector().collect(None, _TIMEOUT, settle=True))
