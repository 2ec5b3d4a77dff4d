"""A GPU in one word: what a lamp says."""

from __future__ import annotations

from typing import Literal

from gputop.model.health.findings import blocking, is_hung
from gputop.model.health.free import not_free, objections
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu

LampKind = Literal["free", "used", "idle", "hung", "sick", "unknown"]

WORDS: dict[LampKind, str] = {
    "free": "free",
    "used": "in use, or reserved",
    "idle": "held by somebody who does nothing on it",
    "hung": "it does not answer",
    "sick": "it needs attention",
    "unknown": "whether it is free cannot be told",
}
"""Every lamp, and what it means."""


def lamp(frame: Frame, gpu: Gpu, idle_after: float) -> LampKind:
    """Return what a GPU of a frame is: the gravest that fits. `idle_after`: seconds without work
    after which what it holds is held for nothing."""
    if is_hung(gpu):
        return "hung"
    if blocking(frame, gpu) is not None:
        return "sick"
    objection = not_free(frame, gpu)
    if objection is None:
        return "free"
    if not objection.known and not any(more.known for more in objections(frame, gpu)):
        return "unknown"
    is_idle = gpu.idle_for is not None and gpu.idle_for >= idle_after
    return "idle" if is_idle and objection.kind not in ("mode", "reserved") else "used"
