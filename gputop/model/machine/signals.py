"""Signals to processes: what is asked for, and what became of it.

Whoever asks names processes by identity (pid and start time); the agent on that machine sends, and
replies how it went on. An order has an id that its asker chose: the same one twice is done once.
All verdicts of an order are in each reply, in its order.

An order of signal 0 sends nothing: its verdicts tell who is there (`alive`) and may be signalled,
with `caution` where a person has to confirm that. With `descendants` they tell the list to
confirm, which is then the targets of the order that sends.
"""

from __future__ import annotations

import signal
from typing import Literal

import msgspec

SignalOutcome = Literal[
    "waiting",
    "exited",
    "alive",
    "ignored",
    "uninterruptible",
    "zombie",
    "not_permitted",
    "identity_changed",
    "gone",
    "unknown",
    "other_namespace",
    "refused",
]
"""What became of a process.

waiting           sent, and its end is awaited, or that its memory comes back
exited            it ended after `seconds`, of this signal: the last one that could end it
alive             it lives on, as it may: the signal does not end a process, or no time was given
                  (it got another signal meanwhile)
ignored           it lives on although the signal should have ended it
uninterruptible   it waits in the kernel (state D), where no signal reaches it
zombie            it has ended, and its parent has not taken notice
not_permitted     it is somebody else's
identity_changed  another process has this number now; nothing was sent
gone              it had ended before, which is certain; nothing was sent
unknown           it could not be looked at, so it may live; nothing was sent
other_namespace   its number is of another PID namespace; nothing was sent
refused           gputop does not do that; nothing was sent
"""

Caution = Literal["foreign", "container", "unreadable", "first", "ancestor"]
"""Why a person has to confirm.

foreign     it is another user's
container   it is in another PID or user namespace or container than gputop, whatever its user
unreadable  what it belongs to, or has open, cannot be read
first       it is process 1
ancestor    gputop runs under it
"""

FOREIGN: frozenset[Caution] = frozenset({"foreign", "container", "unreadable"})
"""Cautions that make it somebody else's."""

MOST_TARGETS = 200
"""Of an order: more are left alone."""

_HARMLESS = {"CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "WINCH"}
"""Signals that do not end a process that has no handler for them (signal(7))."""


class Target(msgspec.Struct, frozen=True):
    """A process, whatever becomes of its number."""

    pid: int
    start_time: float | None
    """Seconds since the epoch, as `Process.start_time`; without it nothing is sent."""
    forced: bool = False
    """Whether a person has confirmed what its `caution` says."""


class Candidate(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person may choose a process on a GPU by, beside what a Frame has."""

    pid: int
    start_time: float | None
    gpu_uuid: str | None
    uid: int | None = None
    """The real user."""
    idle_for: float | None = None
    """As `Process.idle_for`, with what other agents of this user know."""
    ancestors: tuple[Target, ...] = ()
    """What has started it, its parent first; empty where that was not asked for."""


class Freed(msgspec.Struct, frozen=True):
    """Memory that came back when a process ended, as the frames before and after tell."""

    gpu_uuid: str
    bytes: int


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one process of an order, so far; not final while it is `waiting`."""

    order: str
    """The id of the order."""
    pid: int
    start_time: float | None
    command: str | None = None
    user: str | None = None
    parent: int | None = None
    """The pid of its parent, when the order came."""
    signal: int
    """Its number."""
    outcome: SignalOutcome
    caution: Caution | None = None
    seconds: float | None = None
    """From the signal to the end, or to now; None where nothing was sent."""
    ended: bool = False
    """Whether it has ended since the signal, of whatever."""
    ignored: tuple[int, ...] = ()
    """In a check, the signals that it is known to ignore."""
    freed: tuple[Freed, ...] = ()
    noting: bool = False
    """Whether it is on its way into the audit log."""
    unnoted: str = ""
    """Why it is not in the audit log, as a sentence that is harmless to print."""
    words: str = ""
    """The outcome as a sentence, harmless to print; with what to do where something can be done."""


def signal_name(number: int) -> str:
    """As `SIGTERM`; of a real-time signal as `SIGRTMIN+3`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def signal_number(text: str) -> int | None:
    """Of `TERM`, `sigterm`, `15`, `RTMIN+3`; None for what is no signal."""
    word = text.strip().upper()
    names = {
        signal_name(number).removeprefix("SIG"): int(number) for number in signal.valid_signals()
    }
    if word.isascii() and word.isdecimal():
        return int(word) if len(word) < 3 and int(word) in names.values() else None
    return names.get(word.removeprefix("SIG"))


def ends_processes(number: int) -> bool:
    """Whether a process without a handler dies of it."""
    return number > 0 and signal_name(number).removeprefix("SIG") not in _HARMLESS
