"""One process of a signal request, from the signal to its end, and the memory that came back."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from gputop.agent.gpu.memory_watch import GpuMemory
from gputop.agent.process.stat import started
from gputop.agent.signals.handle import ProcessHandle
from gputop.model.machine.frame import Frame
from gputop.model.machine.process_id import ProcessId
from gputop.model.machine.signals import Freed, SignalOutcome, Target, Verdict, signal_name
from gputop.model.machine.text import size
from gputop.protocol.messages import Signal

KEPT = 60.0
"""Seconds that a process is watched after the last change of its verdict."""
LOOK = 0.1
"""Seconds between two checks of whether the memory came back and the parent reaped it."""

FreedMemory = tuple[bool, tuple[Freed, ...], str]
"""Whether all memory came back, how much did on which GPU, and the same in words."""


class Held(NamedTuple):
    """The memory that a process held on a GPU, and all that was in use there; bytes."""

    uuid: str
    gpu: int
    bytes: int | None
    used: int | None


class Attempt:
    """The state of an attempt. `sent`, `ended` and `changed` are monotonic times."""

    def __init__(self, request: Signal, target: Target, command: str | None) -> None:
        self.target = target
        self.grace = max(0.0, request.grace)
        self.process: ProcessHandle | None = None
        self.held: tuple[Held, ...] = ()
        self.listed = False
        """Whether a GPU lists it."""
        self.freed: FreedMemory = (True, (), "")
        self.may_end = False
        """Whether the signal can be what ends it."""
        self.sent: float | None = None
        self.ended: float | None = None
        self.changed = time.monotonic()
        self.noted: SignalOutcome | None = None
        start = target.process.start_ticks
        self.verdict = Verdict(
            request_id=request.id,
            process=target.process,
            start_time=None if start is None else started(start),
            command=command,
            signal=request.number,
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
        """Note that the process has ended; the signal ended it only if `may_end` is set."""
        self.ended = time.monotonic()
        if self.may_end:
            self.say("waiting", "it has ended; waiting for its memory", ended=True)
            return
        name, outcome = signal_name(self.verdict.signal), self.verdict.outcome
        did = f"it ignored {name}" if outcome == "ignored" else f"{name} was sent"
        self.say(outcome, f"{did}, and it has ended since", ended=True)
        self.close()

    def give_up(self, number: int) -> None:
        """Give up: another signal was sent after this one, so its end would not be this one's."""
        if self.verdict.outcome == "waiting":
            seconds = time.monotonic() - (self.sent or 0.0)
            words = f"it had {seconds:.1f} s to end after {signal_name(self.verdict.signal)}"
            self.say("alive", f"{words} when {signal_name(number)} was sent")
        self.close()

    def due(self, now: float) -> float:
        """Return when to check it next unless the process ends before; monotonic."""
        if self.verdict.outcome != "waiting" or self.sent is None:
            return self.changed + KEPT
        return now + LOOK if self.ended is not None else self.sent + self.grace

    def close(self) -> None:
        if self.process is not None:
            self.process.close()
            self.process = None


def held_by(process: ProcessId, frame: Frame) -> tuple[Held, ...]:
    """Return what a process holds in a frame; MIG instances of one GPU are added up."""
    ids = (process, ProcessId(process.pid))  # without a start once it has ended
    own = [row for row in frame.processes if row.id in ids]
    holdings = []
    for gpu in frame.gpus:
        rows = [row for row in own if row.gpu_uuid == gpu.uuid]
        amounts = [row.gpu_memory for row in rows if row.gpu_memory is not None]
        if rows and gpu.uuid is not None:
            held = sum(amounts) if len(amounts) == len(rows) else None
            shared = len(rows) < sum(row.gpu_uuid == gpu.uuid for row in frame.processes)
            if held is None and shared:
                continue  # its part of memory shared with others is not known
            holdings.append(Held(gpu.uuid, gpu.index, held, gpu.memory_used))
    return tuple(holdings)


def freed_memory(held: tuple[Held, ...], pid: int, memory: Mapping[str, GpuMemory]) -> FreedMemory:
    """Compare what a process held with the memory of GPUs after its end, by UUID.

    At most the fall of a GPU's memory in use counts as freed: if another process takes the memory
    at once, it is not reported.
    """
    freed, missing = [], []
    for share in held:
        gpu = memory.get(share.uuid)
        if gpu is None or gpu.used is None or share.used is None or pid in gpu.pids:
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
    said += [f"the memory on GPU {share.gpu} has not come back yet" for share in missing
             if share not in partly]  # fmt: skip
    words = "".join(f"; {part}" for part in said)
    return not missing, tuple(Freed(share.uuid, back) for share, back in freed), words
