"""Which GPU memory came back when a process ended, by the frame before and what GPUs say since."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gputop.agent.gpu.memory_watch import GpuMemory
from gputop.model.machine.frame import Frame
from gputop.model.machine.signals import Freed, Target
from gputop.model.machine.text import size


class Held(NamedTuple):
    """What a process held of a GPU, and what was used of it altogether; bytes."""

    uuid: str
    gpu: int
    bytes: int | None
    used: int | None


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


FreedMemory = tuple[bool, tuple[Freed, ...], str]
"""Whether all came back, how much did on which GPU, and that in words."""


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
