"""One process of an order, from the signal to its end."""

from __future__ import annotations

import math
import time

import msgspec

from gputop.agent.signals.audit import AuditNote
from gputop.agent.signals.freed_memory import FreedMemory, Held
from gputop.agent.signals.handle import ProcessHandle
from gputop.model.machine.signals import SignalOutcome, Target, Verdict, signal_name
from gputop.protocol.messages import Signal

KEPT = 60.0
"""Seconds that a process is watched after its last news."""
LOOK = 0.1
"""Seconds between two looks whether memory came back and the parent took notice."""


class Attempt:
    """What is known of it. `sent`, `ended` and `changed` are monotonic times."""

    def __init__(self, order: Signal, target: Target, command: str | None) -> None:
        self.target = target
        self.grace = max(0.0, order.grace)
        self.process: ProcessHandle | None = None
        self.held: tuple[Held, ...] = ()
        self.listed = False
        """Whether a GPU names it."""
        self.freed: FreedMemory = (True, (), "")
        self.counts = False
        """Whether the signal can be what ends it."""
        self.sent: float | None = None
        self.ended: float | None = None
        self.changed = time.monotonic()
        self.noted: SignalOutcome | None = None
        self.notes: list[AuditNote] = []
        """Of the audit log."""
        self.verdict = Verdict(
            order=order.id,
            pid=target.pid,
            start_time=target.start_time,
            command=command,
            signal=order.number,
            outcome="waiting",
        )

    def say(self, outcome: SignalOutcome, words: str, **more: object) -> None:
        seconds = self.verdict.seconds
        if self.sent is not None:
            seconds = round((self.ended or time.monotonic()) - self.sent, 2)
        facts = {"outcome": outcome, "words": words, "seconds": seconds, **more}
        self.verdict = msgspec.structs.replace(self.verdict, **facts)
        self.changed = time.monotonic()

    def end(self) -> None:
        """Take in that the process has ended; the signal did that only if it counts."""
        self.ended = time.monotonic()
        if self.counts:
            self.say("waiting", "it has ended; waiting for its memory", ended=True)
            return
        name, outcome = signal_name(self.verdict.signal), self.verdict.outcome
        did = f"it ignored {name}" if outcome == "ignored" else f"{name} was sent"
        self.say(outcome, f"{did}, and it has ended since", ended=True)
        self.close()

    def yield_to(self, number: int) -> None:
        """Give up: whatever ends the process now, another signal was sent after this one."""
        if self.verdict.outcome == "waiting":
            seconds = time.monotonic() - (self.sent or 0.0)
            words = f"it had {seconds:.1f} s to end of {signal_name(self.verdict.signal)}"
            self.say("alive", f"{words} when {signal_name(number)} was sent")
        self.close()

    def check_notes(self) -> None:
        """Have the verdict tell whether it is in the audit log."""
        noting = any(note.pending for note in self.notes)
        unnoted = next((words for note in self.notes if (words := note.words())), "")
        if (noting, unnoted) != (self.verdict.noting, self.verdict.unnoted):
            self.verdict = msgspec.structs.replace(self.verdict, noting=noting, unnoted=unnoted)

    def due(self, now: float) -> float:
        """When there is something to look at unless the process ends; monotonic."""
        due = now + LOOK
        if self.verdict.outcome != "waiting" or self.sent is None:
            due = self.changed + KEPT
        elif self.ended is None:
            due = self.sent + self.grace
        return min(due, *(note.due for note in self.notes if note.pending), math.inf)

    def close(self) -> None:
        """Watch it no more."""
        if self.process is not None:
            self.process.close()
            self.process = None
