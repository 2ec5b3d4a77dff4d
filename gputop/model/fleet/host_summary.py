"""What the newest frame of a host says, worked out once a frame."""

from __future__ import annotations

from typing import NamedTuple

from gputop.model.fleet.lamps import LampKind, lamp
from gputop.model.health.findings import FindingLevel, worst_of
from gputop.model.health.free import count_of_free
from gputop.model.machine import summary
from gputop.model.machine.frame import Frame
from gputop.model.processes import process_rows
from gputop.model.processes.views import ViewRow


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
