"""Which process: the one identity that gputop knows processes by, and whether it still runs."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Ticks = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""Clock ticks, the hundredths of a second of proc_pid_stat(5)."""
LivenessState = Literal["running", "ended", "unknown"]
"""
running  it is there
ended    it certainly is not: no process or another one has its PID, or it is a zombie
unknown  it could not be checked, so it may run
"""


class ProcessId(msgspec.Struct, frozen=True, gc=False):
    """A process of one boot of one machine: a PID is reused, this is not.

    The start is the kernel's own number, so two readers of a process never differ about it. Seconds
    since the epoch would: they move when the clock is set, and each reader computes them anew.
    """

    pid: int
    start_ticks: Ticks | None = None
    """From the boot to its start; None if unknown."""


class ProcessLiveness(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a process that was asked about, on a GPU or not."""

    process: ProcessId
    """As it was asked about, without a start for whichever has the PID now; of a running process
    always with its start."""
    state: LivenessState
    start_time: float | None = None
    """Seconds since the epoch. Only of a running process, like the fields below."""
    user: str | None = None
    """Only if the question had the PID alone; `command` likewise."""
    command: str | None = None
