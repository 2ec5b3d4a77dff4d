"""One process of an order, from the signal to its end, and which GPU memory came back then."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from gputop.agent.gpu.memory_watch import GpuMemory
from gputop.agent.signals.audit import AuditNote
from gputop.agent.signals.handle import ProcessHandle
from gputop.model.machine.frame import Frame
from gputop.model.machine.signals import Freed, SignalOutcome, Target, Verdict, signal_name
from gputop.model.machine.text import size
from gputop.protocol.messages import Signal

KEPT = 60.0
"""Seconds that a process is watched after its last news."""
LOOK = 0.1
"""Seconds between two looks whether memory came back and the parent took notice."""

FreedMemory = tuple[bool, tuple[Freed, ...], str]
"""Whether all came back, how much did on which GPU, and that in words."""


class Held(NamedTuple):
    """What a process held of a GPU, and what was used of it altogether; bytes."""

    uuid: str
    gpu: int
    bytes: int | None
    used: int | None


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


def held_by(target: Target, frame: Frame | None) -> tuple[Held, ...]:
    """What it holds in a frame; several MIG instances of a GPU are one."""
    if frame is None:
        return ()
    times = (target.start_time, None)  # it has none once it has ended
    own = [row for row in frame.processes if row.pid == target.pid and row.start_time in times]
    holdings = []
    for gpu in frame.gpus:
        rows = [row for row in own if row.gpu_uuid == gpu.uuid]
        amounts = [row.gpu_memory for row in rows if row.gpu_memory is not None]
        if rows and gpu.uuid is not None:
            held = sum(amounts) if len(amounts) == len(rows) else None
            shared = len(rows) < sum(row.gpu_uuid == gpu.uuid for row in frame.processes)
            if held is None and shared:
                continue  # of what it shares with others nobody can tell how much is its
            holdings.append(Held(gpu.uuid, gpu.index, held, gpu.memory_used))
    return tuple(holdings)


def freed_memory(
    held: tuple[Held, ...], target: Target, memory: Mapping[str, GpuMemory]
) -> FreedMemory:
    """Compare what a process held with what GPUs say after its end, by UUID.

    What comes back is at most what a GPU has less in use than before: somebody else may take it
    at once, and then it is not told.
    """
    freed, missing = [], []
    for share in held:
        gpu = memory.get(share.uuid)
        if gpu is None or gpu.used is None or share.used is None or target.pid in gpu.pids:
            missing.append(share)
            continue
        fall = max(0, share.used - gpu.used)
        back = fall if share.bytes is None else min(fall, share.bytes)
        if back:
            freed.append((share, back))
        if fall < (1 if share.bytes is None else share.bytes):
            missing.append(share)
    said = [f"{size(back)} came back on GPU {share.gpu}" for share, back in freed]
    partly = {share for share, _ in freed}
    said += [f"memory of GPU {share.gpu} is not seen to come back" for share in missing
             if share not in partly]  # fmt: skip
    words = "".join(f"; {part}" for part in said)
    return not missing, tuple(Freed(share.uuid, back) for share, back in freed), words
