"""Which processes are shown, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from gputop.model.filter import parse
from gputop.model.frame import Frame, ProcessKey
from gputop.model.gpu import Gpu
from gputop.model.logical_names import LogicalNames
from gputop.model.process_metrics import COLUMNS, ProcessRow

R = TypeVar("R")

RowKey = tuple[ProcessKey, str | None, int | None, int | None]
"""Identity of a row: the process, and the GPU or MIG instance it is on."""


def rows(frame: Frame, names: LogicalNames | None = None) -> list[ProcessRow]:
    """The rows of a frame in the order of GPUs and pids; `names` are those of the same frame."""
    names = LogicalNames(frame) if names is None else names
    gpus: dict[str | None, Gpu] = {gpu.uuid: gpu for gpu in frame.gpus if gpu.uuid}
    found = []
    for process in frame.processes:
        start = process.start_time
        age = None if start is None else max(0.0, frame.time - start)
        found.append(ProcessRow(process, gpus.get(process.gpu_uuid), age, names))
    found.sort(key=place)
    return found


def row_keys(frame: Frame, found: Iterable[ProcessRow]) -> list[RowKey]:
    """What of each row stays the same while it moves."""
    boot = frame.host.boot_id
    return [
        (
            ProcessKey(boot, one.pid, one.start_time),
            one.gpu_uuid,
            one.gpu_instance,
            one.compute_instance,
        )
        for one in [row.process for row in found]
    ]


def ordered(found: Sequence[ProcessRow], metric_id: str, descending: bool) -> list[ProcessRow]:
    """By one metric; unknown values last either way, equal ones in the order of `rows`."""
    read = COLUMNS[metric_id].read
    return by_value(found, [read(row) for row in found], descending)


def by_value(found: Sequence[R], values: Sequence[Any], descending: bool) -> list[R]:
    """Those with a value in its order, then those without; equal ones in the order they have."""
    known = [k for k, value in enumerate(values) if value is not None]
    known.sort(key=values.__getitem__, reverse=descending)
    unknown = [one for one, value in zip(found, values, strict=True) if value is None]
    return [*(found[k] for k in known), *unknown]


def matching(found: Iterable[ProcessRow], text: str) -> list[ProcessRow]:
    """The rows that fit a filter; its language is described in `model.filter`. FilterError."""
    fits = parse(text)
    return [row for row in found if fits(row)]


def place(row: ProcessRow) -> tuple[int, int, int, int]:
    """The order of `rows`."""
    process = row.process
    return (
        row.gpu.index if row.gpu else -1,
        process.gpu_instance or 0,
        process.compute_instance or 0,
        process.pid,
    )
