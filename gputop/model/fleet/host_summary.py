"""What the newest frame of a host says, worked out once a frame."""

from __future__ import annotations

from typing import Literal, NamedTuple

from gputop.model.health.findings import FindingLevel, blocking, is_hung, worst_of
from gputop.model.health.free import count_of_free, not_free, objections
from gputop.model.machine import summary
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu
from gputop.model.processes import process_rows
from gputop.model.processes.views import ViewRow

LampKind = Literal["free", "used", "idle", "hung", "sick", "unknown"]

LAMPS: dict[LampKind, str] = {
    "free": "free",
    "used": "in use, or reserved",
    "idle": "held by somebody who does nothing on it",
    "hung": "it does not answer",
    "sick": "it needs attention",
    "unknown": "whether it is free cannot be told",
}
"""Every lamp, and what it means."""


class HostSummary(NamedTuple):
    """A frame, as the fleet has it."""

    frame: Frame
    lamps: tuple[LampKind, ...]
    """Of the GPUs, in their order."""
    free: int | None
    """None where none is, and who is on some cannot be seen."""
    free_indices: tuple[int, ...]
    users: tuple[str, ...]
    """Who computes there, those with most memory first."""
    level: FindingLevel | None
    """Of the worst finding; None where all is well."""
    remark: str
    """The worst finding and where: `XID 79 GPU 6`."""
    processes: tuple[ViewRow, ...]
    """By GPU."""


def summary_of(host: str, frame: Frame, idle_after: float) -> HostSummary:
    """Return what a frame says of the host that was asked for by that name."""
    lamps = tuple(lamp(frame, gpu, idle_after) for gpu in frame.gpus)
    worst = worst_of(frame)
    rows = process_rows.rows(frame, idle_after=idle_after, host=host)
    keys = process_rows.row_keys(frame, rows)
    return HostSummary(
        frame=frame,
        lamps=lamps,
        free=count_of_free(frame),
        free_indices=tuple(
            gpu.index for gpu, kind in zip(frame.gpus, lamps, strict=True) if kind == "free"
        ),
        users=tuple(summary.users(frame)),
        level=worst.level,
        remark=worst.remark,
        processes=tuple(ViewRow(row, (host, key)) for row, key in zip(rows, keys, strict=True)),
    )


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
