"""The newest frame of a host, summed up once per frame."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain
from typing import Literal, NamedTuple

from gputop.model.health.findings import blocking, worst_of
from gputop.model.health.free import (
    FreeSlices,
    count_of_free,
    free_slices,
    has_whole_gpus,
    is_doubtful,
    not_free,
)
from gputop.model.machine import summary
from gputop.model.machine.finding import Finding
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu, MigDevice
from gputop.model.machine.text import short_name
from gputop.model.processes import process_rows
from gputop.model.processes.views import ViewRow, known_sum

LampKind = Literal["free", "used", "idle", "hung", "sick", "unknown"]

LAMPS: dict[LampKind, str] = {
    "free": "free",
    "used": "in use, or reserved",
    "idle": "in use, but its processes do no work",
    "hung": "it does not answer",
    "sick": "it needs attention",
    "unknown": "whether it is free is not known",
}
"""Every lamp of a GPU, or of a slice (MIG device), and what it means."""


class HostSummary(NamedTuple):
    """What the fleet needs from a frame."""

    frame: Frame
    machine: Hashable
    """What identifies its machine; None if that is not known."""
    has_whole_gpus: bool
    """Whether a job could have a GPU there, or else slices only."""
    lamps: tuple[LampKind, ...]
    """One for each GPU, in their order; for a GPU with slices, one for each of them."""
    free: int | None
    """None if none is free, but that is not known of some GPUs."""
    free_indices: tuple[int, ...]
    slices: FreeSlices
    users: tuple[str, ...]
    """Who computes there, those with most memory first."""
    models: tuple[str, ...]
    """The short names of its GPUs' models, each once, in the order of the GPUs."""
    utilization: float | None
    """The mean of the GPUs that report it, 0 to 1."""
    memory_free: int | None
    """Bytes on the GPUs that report it, in all."""
    worst: Finding | None
    """The worst finding, and where in its text: `XID 79 GPU 6`; None if all is well."""
    processes: tuple[ViewRow, ...]
    """In the order of their GPUs."""


def summary_of(host: str, frame: Frame, idle_after: float) -> HostSummary:
    """Sum up a frame; `host` is the name by which its machine was asked for."""
    lamps = [tuple(lamp(frame, gpu, idle_after, part) for part in gpu.mig or (None,))
             for gpu in frame.gpus]  # fmt: skip
    rows = process_rows.rows(frame, idle_after=idle_after, host=host)
    keys = process_rows.row_keys(frame, rows)
    return HostSummary(
        frame=frame,
        machine=_machine(frame),
        has_whole_gpus=has_whole_gpus(frame),
        lamps=tuple(chain.from_iterable(lamps)),
        free=count_of_free(frame),
        free_indices=tuple(
            gpu.index
            for gpu, kinds in zip(frame.gpus, lamps, strict=True)
            if not gpu.mig and kinds == ("free",)
        ),
        slices=free_slices(frame),
        users=tuple(summary.users(frame)),
        models=tuple(dict.fromkeys(short_name(gpu.name) for gpu in frame.gpus if gpu.name)),
        utilization=_mean([gpu.utilization for gpu in frame.gpus if gpu.state == "answers"]),
        memory_free=known_sum([summary.free_memory(frame, gpu) for gpu in frame.gpus]),
        worst=worst_of(frame),
        processes=tuple(ViewRow(row, (host, key)) for row, key in zip(rows, keys, strict=True)),
    )


def _machine(frame: Frame) -> Hashable:
    """Return what identifies the machine of a frame; None if that is not known.

    Two containers on one machine share its boot id, but have different GPUs.
    """
    uuids = tuple(gpu.uuid for gpu in frame.gpus)
    if frame.host.boot_id is None or not uuids or None in uuids:
        return None
    return frame.host.boot_id, uuids


def _mean(values: Sequence[float | None]) -> float | None:
    reported = [value for value in values if value is not None]
    return sum(reported) / len(reported) if reported else None


def lamp(frame: Frame, gpu: Gpu, idle_after: float, device: MigDevice | None = None) -> LampKind:
    """Return the lamp of a GPU or a MIG device of it, the gravest that fits. `idle_after`: seconds
    without work after which a GPU that is in use counts as idle; of a device that is not known."""
    if gpu.state == "silent":
        return "hung"
    if blocking(frame, gpu) is not None:
        return "sick"
    objection = not_free(frame, gpu, device)
    if objection is None:
        return "free"
    if is_doubtful(frame, gpu, device):
        return "unknown"
    is_idle = device is None and gpu.idle_for is not None and gpu.idle_for >= idle_after
    return "idle" if is_idle and objection.code not in ("mode", "reserved", "job") else "used"
