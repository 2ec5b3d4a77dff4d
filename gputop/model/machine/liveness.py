"""Whether processes still run, be they on a GPU or not.

A process is told by its PID and its start in clock ticks since the boot. Seconds since the epoch
would not do over days: they move when the clock is set, and each agent reckons them anew.
"""

from __future__ import annotations

from typing import Literal

import msgspec

LivenessState = Literal["running", "ended", "unknown"]
"""
running  it is there
ended    it is not, which is certain: nobody has its number, another process has, or it is a zombie
unknown  it could not be looked at, so it may run
"""


class ProcessStart(msgspec.Struct, frozen=True):
    """A process that is asked about."""

    pid: int
    start_ticks: int | None = None
    """As proc_pid_stat(5) has it; None: whichever process has the PID now."""


class ProcessLiveness(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a process that was asked about."""

    pid: int
    state: LivenessState
    start_ticks: int | None = None
    """Of one that is running, as the rest."""
    start_time: float | None = None
    """Seconds since the epoch, as `Process.start_time` by the same agent."""
    user: str | None = None
    """Only of one that was asked for by its PID alone, as the next."""
    command: str | None = None
