"""Which processes are shown, and in which order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from gputop.model.frame import Frame, Gpu, ProcessKey
from gputop.model.logical_names import LogicalNames
from gputop.model.metrics import PROCESS, ProcessRow

RowKey = tuple[ProcessKey, str | None, int | None, int | None]
"""Identity of a row: the process, and the GPU or MIG instance it is on."""

_GPU_WORD = re.compile(r"gpu:?([0-9]+)\Z", re.ASCII)


def rows(frame: Frame, names: LogicalNames | None = None) -> list[ProcessRow]:
    """The rows of a frame in the order of GPUs and pids; `names` are those of the same frame."""
    names = LogicalNames(frame) if names is None else names
    gpus: dict[str | None, Gpu] = {gpu.uuid: gpu for gpu in frame.gpus if gpu.uuid}
    found = []
    for process in frame.processes:
        start = process.start_time
        age = None if start is None else max(0.0, frame.time - start)
        found.append(ProcessRow(process, gpus.get(process.gpu_uuid), age, names))
    found.sort(key=_place)
    return found


def row_key(frame: Frame, row: ProcessRow) -> RowKey:
    """What stays the same while the row moves."""
    process = row.process
    return (
        frame.key(process),
        process.gpu_uuid,
        process.gpu_instance,
        process.compute_instance,
    )


def ordered(found: Sequence[ProcessRow], metric_id: str, descending: bool) -> list[ProcessRow]:
    """By one metric; unknown values last either way, equal ones in the order of `rows`."""
    read = PROCESS[metric_id].read
    known = [row for row in found if read(row) is not None]
    unknown = [row for row in found if read(row) is None]
    known.sort(key=read, reverse=descending)
    return known + unknown


def matching(found: Iterable[ProcessRow], text: str) -> list[ProcessRow]:
    """The rows that every word of `text` fits: a part of the user, the command or the pid, or the
    number of a GPU (`gpu:1`). Letter case is ignored."""
    tests = [_test(word) for word in text.casefold().split()]
    return [row for row in found if all(test(row) for test in tests)]


def _test(word: str) -> Callable[[ProcessRow], bool]:
    if match := _GPU_WORD.match(word):
        index = match[1].lstrip("0") or "0"
        return lambda row: row.gpu is not None and str(row.gpu.index) == index
    return lambda row: (
        word in _haystack(row) or (row.gpu is not None and word == str(row.gpu.index))
    )


def _haystack(row: ProcessRow) -> str:
    process = row.process
    return f"{process.user or ''}\n{process.pid}\n{process.command or ''}".casefold()


def _place(row: ProcessRow) -> tuple[int, int, int, int]:
    process = row.process
    return (
        row.gpu.index if row.gpu else -1,
        process.gpu_instance or 0,
        process.compute_instance or 0,
        process.pid,
    )
