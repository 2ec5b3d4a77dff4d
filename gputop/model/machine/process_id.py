"""Which process: the one identity that gputop knows processes by."""

from __future__ import annotations

from typing import Annotated

import msgspec

Ticks = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""Clock ticks, the hundredths of a second of proc_pid_stat(5)."""


class ProcessId(msgspec.Struct, frozen=True):
    """A process of one boot of one machine: a PID is reused, this is not.

    The start is the kernel's own number, so two readers of a process never differ about it. Seconds
    since the epoch would: they move when the clock is set, and each reader computes them anew.
    """

    pid: int
    start_ticks: Ticks | None = None
    """From the boot to its start; None if unknown."""
