"""Which GPU memory came back when a process ended, as the frames before and after tell."""

from __future__ import annotations

from typing import NamedTuple

from gputop.model.frame import Frame, Process
from gputop.model.signals import Freed, Target
from gputop.model.text import size


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
    found = []
    for gpu in frame.gpus:
        rows = [row for row in _rows(target, frame) if row.gpu_uuid == gpu.uuid]
        known = [row.gpu_memory for row in rows if row.gpu_memory is not None]
        if rows and gpu.uuid is not None:
            held = sum(known) if len(known) == len(rows) else None
            shared = len(rows) < sum(row.gpu_uuid == gpu.uuid for row in frame.processes)
            if held is None and shared:
                continue  # of what it shares with others nobody can tell how much is its
            found.append(Held(gpu.uuid, gpu.index, held, gpu.memory_used))
    return tuple(found)


def returned(
    held: tuple[Held, ...], target: Target, frame: Frame | None
) -> tuple[bool, tuple[Freed, ...], str]:
    """Whether all came back, how much did on which GPU, and in words.

    What comes back is at most what a GPU has less in use than before: somebody else may take it
    at once, and then it is not told.
    """
    if frame is None or not held:
        return True, (), ""
    gpus = {gpu.uuid: gpu for gpu in frame.gpus}
    listed = {row.gpu_uuid for row in _rows(target, frame)}
    freed, missing = [], []
    for one in held:
        gpu = gpus.get(one.uuid)
        used = None if gpu is None or gpu.stale_for is not None else gpu.memory_used
        if used is None or one.used is None or one.uuid in listed:
            missing.append(one)
            continue
        fall = max(0, one.used - used)
        back = fall if one.bytes is None else min(fall, one.bytes)
        if back:
            freed.append((one, back))
        if fall < (1 if one.bytes is None else one.bytes):
            missing.append(one)
    said = [f"{size(back)} came back on GPU {one.gpu}" for one, back in freed]
    told = {one for one, _ in freed}
    said += [f"memory of GPU {one.gpu} is not seen to come back" for one in missing
             if one not in told]  # fmt: skip
    words = "".join(f"; {part}" for part in said)
    return not missing, tuple(Freed(one.uuid, back) for one, back in freed), words


def _rows(target: Target, frame: Frame) -> list[Process]:
    """Of that process; it has no start time once it has ended."""
    times = (target.start_time, None)
    return [row for row in frame.processes if row.pid == target.pid and row.start_time in times]
