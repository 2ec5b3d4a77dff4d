"""Signals to processes: what is asked for, and what became of it.

A reader names processes by their ProcessId; the agent on that machine sends the signal, and replies
with what became of them. The reader chooses the id of a request: one that comes twice is carried
out once. Each reply lists the verdict on every target, in the order of the request.

A request for signal 0 sends nothing: its verdicts say which processes run (`alive`) and may be
signalled, with a `caution` if a person must confirm that. With `descendants` they are the list to
confirm, which then becomes the targets of the request that sends.
"""

from __future__ import annotations

import signal
from typing import Literal

import msgspec

from gputop.model.machine.process_id import ProcessId

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

waiting           sent; its end, or the return of its memory, is awaited
exited            it ended after `seconds`, by this signal: the last one that could end it
alive             it still runs, as it may: the signal does not end a process, or no time was given
                  (it got another signal meanwhile)
ignored           it still runs although the signal should have ended it
uninterruptible   it waits in the kernel (state D), where no signal reaches it
zombie            it has ended, but its parent has not reaped it
not_permitted     it is another user's
identity_changed  another process has this PID now; nothing was sent
gone              it had certainly ended before; nothing was sent
unknown           it could not be checked, so it may still run; nothing was sent
other_namespace   its PID is of another PID namespace; nothing was sent
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
"""Cautions for a process that counts as another user's."""

MOST_TARGETS = 200
"""Most targets of a request; further ones are left alone."""

_HARMLESS = {"CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "WINCH"}
"""Signals that do not end a process that has no handler for them (signal(7))."""


class Target(msgspec.Struct, frozen=True):
    """A process to signal."""

    process: ProcessId
    """Without a known start nothing is sent."""
    forced: bool = False
    """Whether a person has confirmed what its `caution` says."""


class Candidate(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person may choose a process on a GPU by, besides what a Frame has."""

    process: ProcessId
    gpu_uuid: str | None
    uid: int | None = None
    """The real user."""
    idle_for: float | None = None
    """As `Process.idle_for`, with what other agents of this user know."""
    ancestors: tuple[ProcessId, ...] = ()
    """Its ancestors, the parent first; empty if they were not asked for."""


class Freed(msgspec.Struct, frozen=True):
    """Memory that came back when a process ended, by the frames before and after."""

    gpu_uuid: str
    bytes: int


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one target of a request, so far; not final while it is `waiting`."""

    request_id: str
    """The id of the request."""
    process: ProcessId
    start_time: float | None = None
    """Seconds since the epoch."""
    command: str | None = None
    user: str | None = None
    parent: int | None = None
    """The pid of its parent, when the request came."""
    signal: int
    """Its number."""
    outcome: SignalOutcome
    caution: Caution | None = None
    seconds: float | None = None
    """From the signal to the end, or to now; None if nothing was sent."""
    ended: bool = False
    """Whether it has ended since the signal, for whatever reason."""
    ignored: tuple[int, ...] = ()
    """In a check, the signals that it is known to ignore."""
    freed: tuple[Freed, ...] = ()
    audit_error: str = ""
    """Why it is not in the audit log, as a sentence that is harmless to print."""
    words: str = ""
    """The outcome as a sentence, harmless to print, with what to do if anything helps."""


def signal_name(number: int) -> str:
    """Return the name of a signal, as `SIGTERM`, or `SIGRTMIN+3` for a real-time one."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def signal_number(text: str) -> int | None:
    """Return the number of `TERM`, `sigterm`, `15`, `RTMIN+3`; None for what is no signal."""
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
