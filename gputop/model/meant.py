"""Which processes an action on the table means, copied when its key is pressed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gputop.model import query
from gputop.model.frame import Frame, ProcessKey
from gputop.model.logical_names import LogicalNames
from gputop.model.process_metrics import PROCESS, ProcessRow
from gputop.model.text import size

Identity = tuple[int, float | None]
"""Pid and start time."""


class Meant(NamedTuple):
    """A process as it was when the key was pressed."""

    pid: int
    start_time: float | None
    user: str | None
    command: str | None
    age: float | None = None
    state: str | None = None
    held: tuple[tuple[str, int | None], ...] = ()
    """Of each GPU or MIG device, as the table names it, the bytes."""

    @property
    def identity(self) -> Identity:
        """What it is, whatever becomes of its number."""
        return self.pid, self.start_time

    def holds(self) -> str:
        """As `97.4G on GPU 0, 97.4G on GPU 1`."""
        return ", ".join(f"{size(bytes_)} on GPU {place}" for place, bytes_ in self.held)


def meant(
    frame: Frame, keys: Iterable[ProcessKey], names: LogicalNames | None = None
) -> tuple[Meant, ...]:
    """The processes of a frame that have these keys, each once and in their order."""
    rows: dict[ProcessKey, list[ProcessRow]] = {}
    for row in query.rows(frame, names):
        rows.setdefault(frame.key(row.process), []).append(row)
    return tuple(_meant(rows[key]) for key in dict.fromkeys(keys) if key in rows)


def own_on(
    frame: Frame, gpu_key: str, me: str | None, instance: tuple[int, int] | None = None
) -> list[ProcessKey]:
    """One's own processes on a GPU, or on one MIG device of it."""
    uuids = {gpu.uuid for gpu in frame.gpus if gpu.key == gpu_key and gpu.uuid}
    mine = (one for one in frame.processes if me is not None and one.user == me)
    return [
        frame.key(one)
        for one in mine
        if one.gpu_uuid in uuids and instance in (None, (one.gpu_instance, one.compute_instance))
    ]


def _meant(rows: Sequence[ProcessRow]) -> Meant:
    one = rows[0].process
    held = tuple((PROCESS["gpu"].text(row), row.process.gpu_memory) for row in rows)
    return Meant(one.pid, one.start_time, one.user, one.command, rows[0].age, one.state, held)
