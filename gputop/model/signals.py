"""Signals to processes: what is asked for, and what became of it.

Whoever asks names processes by identity (pid and start time); the agent on that machine sends, and
tells in its frames how it went on. An order has an id that its asker chose: the same one twice is
done once.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Outcome = Literal[
    "waiting",
    "exited",
    "alive",
    "ignored",
    "uninterruptible",
    "zombie",
    "not_permitted",
    "identity_changed",
    "gone",
    "other_namespace",
    "refused",
]
"""What became of a process.

waiting           sent, and its end is awaited
exited            it ended after `seconds`
alive             it lives on, as it may: the signal does not end a process, or no time was given
ignored           it lives on although the signal should have ended it
uninterruptible   it waits in the kernel (state D), where no signal reaches it
zombie            it has ended, and its parent has not taken notice
not_permitted     it is somebody else's
identity_changed  another process has this number now; nothing was sent
gone              it had ended before; nothing was sent
other_namespace   its number is of another PID namespace; nothing was sent
refused           gputop does not do that; nothing was sent
"""


class Target(msgspec.Struct, frozen=True):
    """A process, whatever becomes of its number."""

    pid: int
    start_time: float
    """Seconds since the epoch, as `Process.start_time`."""


class Freed(msgspec.Struct, frozen=True):
    """Memory that came back when a process ended, as the frames before and after tell."""

    gpu_uuid: str
    bytes: int


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one process of an order, so far."""

    order: str
    """The id of the order."""
    pid: int
    start_time: float
    command: str | None = None
    signal: int
    """Its number."""
    outcome: Outcome
    seconds: float | None = None
    """From the signal to the end, or to now; None where nothing was sent."""
    freed: tuple[Freed, ...] = ()
    words: str = ""
    """The outcome as a sentence, harmless to print; with what to do where something can be done."""
