"""Which processes are shown, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from gputop.model.cuda.logical_names import LogicalNames
from gputop.model.machine.frame import Frame, ProcessIdentity, identity_of
from gputop.model.machine.gpu import Gpu
from gputop.model.metrics.process import ProcessRow

R = TypeVar("R")

RowKey = tuple[str | None, ProcessIdentity]
"""The key of a row: the boot of its machine, the process, and the GPU or MIG instance it is on."""


def rows(
    frame: Frame,
    names: LogicalNames | None = None,
    idle_after: float | None = None,
    host: str | None = None,
) -> list[ProcessRow]:
    """Return the rows of a frame in the order of GPUs and PIDs. `names`: those of the same frame;
    `idle_after`: seconds without work after which memory counts as idle; `host`: the machine, if
    several are watched."""
    names = LogicalNames(frame) if names is None else names
    gpus: dict[str | None, Gpu] = {gpu.uuid: gpu for gpu in frame.gpus if gpu.uuid}
    all_rows = []
    for process in frame.processes:
        start = process.start_time
        age = None if start is None else max(0.0, frame.time - start)
        idle = None
        if idle_after is not None and process.idle_for is not None:
            idle = process.gpu_memory if process.idle_for >= idle_after else 0
        all_rows.append(ProcessRow(process, gpus.get(process.gpu_uuid), age, names, idle, host))
    all_rows.sort(key=row_order)
    return all_rows


def row_keys(frame: Frame, shown: Iterable[ProcessRow]) -> list[RowKey]:
    """Return the identity of each row, which stays while it moves."""
    boot = frame.host.boot_id
    return [(boot, identity_of(row.process)) for row in shown]


def by_value(items: Sequence[R], values: Sequence[Any], descending: bool) -> list[R]:
    """Return items in the order of their values, then those without; equal ones stay in place."""
    ranked = [k for k, value in enumerate(values) if value is not None]
    ranked.sort(key=values.__getitem__, reverse=descending)
    unknown = [item for item, value in zip(items, values, strict=True) if value is None]
    return [*(items[k] for k in ranked), *unknown]


def row_order(row: ProcessRow) -> tuple[int, int, int, int]:
    """Return the sort key of `rows`."""
    process = row.process
    return (
        row.gpu.index if row.gpu else -1,
        process.gpu_instance or 0,
        process.compute_instance or 0,
        process.pid,
    )
