"""What the newest frame of a host says, worked out once a frame."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gputop.model.fleet.lamps import LampKind, lamp
from gputop.model.health.findings import Finding, FindingLevel, findings
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
    worst = [(found[0], gpu.index) for gpu in frame.gpus if (found := findings(frame, gpu))]
    worst.sort(key=lambda item: item[0].level != "alarm")
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
        level=worst[0][0].level if worst else None,
        remark=_remark(worst),
        processes=tuple(ViewRow(row, (host, key)) for row, key in zip(rows, keys, strict=True)),
    )


def spans(numbers: Iterable[int]) -> str:
    """Return ascending numbers in short: `0-2,5`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def _remark(worst: Sequence[tuple[Finding, int]]) -> str:
    """Name the first of what was found, the GPUs that have it, and how many have something else."""
    if not worst:
        return ""
    code = worst[0][0].code
    same = [index for finding, index in worst if finding.code == code]
    others = len(worst) - len(same)
    return f"{code} GPU {spans(sorted(same))}" + (f" +{others}" if others else "")
