"""Whether processes still run, on a GPU or not.

A process is identified by its PID and its start in clock ticks since the boot. Seconds since the
epoch would not do over days: they move when the clock is set, and each agent computes them anew.
"""

from __future__ import annotations

from typing import Literal

import msgspec

LivenessState = Literal["running", "ended", "unknown"]
"""
running  it is there
ended    it certainly is not: no process or another one has its PID, or it is a zombie
unknown  it could not be checked, so it may run
"""


class ProcessStart(msgspec.Struct, frozen=True):
    """A process to ask an agent about."""

    pid: int
    start_ticks: int | None = None
    """As proc_pid_stat(5) has it; None: whichever process has the PID now."""


class ProcessLiveness(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a process that was asked about."""

    pid: int
    state: LivenessState
    start_ticks: int | None = None
    """Only of a running process, like the fields below."""
    start_time: float | None = None
    """Seconds since the epoch, as `Process.start_time` by the same agent."""
    user: str | None = None
    """Only if the question had the PID alone; `command` likewise."""
    command: str | None = None
