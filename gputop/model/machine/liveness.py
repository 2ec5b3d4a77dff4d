"""Whether processes still run, on a GPU or not.

A question without a start is about whichever process has the PID now.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from gputop.model.machine.process_id import ProcessId

LivenessState = Literal["running", "ended", "unknown"]
"""
running  it is there
ended    it certainly is not: no process or another one has its PID, or it is a zombie
unknown  it could not be checked, so it may run
"""


class ProcessLiveness(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a process that was asked about."""

    process: ProcessId
    """As it was asked about; of a running process always with its start."""
    state: LivenessState
    start_time: float | None = None
    """Seconds since the epoch. Only of a running process, like the fields below."""
    user: str | None = None
    """Only if the question had the PID alone; `command` likewise."""
    command: str | None = None
