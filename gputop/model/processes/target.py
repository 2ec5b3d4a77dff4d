"""The processes that an action on the table applies to, copied when its key is pressed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gputop.model.machine.frame import Frame, ProcessKey
from gputop.model.machine.gpu import GpuPart
from gputop.model.machine.grouped import grouped
from gputop.model.machine.process_id import ProcessId
from gputop.model.machine.text import size
from gputop.model.metrics.process import PROCESS, ProcessRow
from gputop.model.processes import process_rows
from gputop.model.processes.views import View


class SignalTarget(NamedTuple):
    """A process as it was when the key was pressed."""

    id: ProcessId
    user: str | None
    command: str | None
    age: float | None = None
    state: str | None = None
    held: tuple[tuple[str, int | None], ...] = ()
    """The bytes on each GPU or MIG device, as the table names it."""

    def holds(self) -> str:
        """Return what it holds, as `195G on GPU 0,1`."""
        amounts = [bytes_ for _, bytes_ in self.held]
        total = None if None in amounts else sum(amount or 0 for amount in amounts)
        return f"{size(total)} on GPU {','.join(gpu for gpu, _ in self.held)}" if amounts else ""


def signal_targets(frame: Frame, keys: Iterable[ProcessKey]) -> tuple[SignalTarget, ...]:
    """Return the processes of a frame that have these keys, each once and in their order."""
    rows = grouped(process_rows.rows(frame), lambda row: frame.key(row.process))
    return tuple(_target(rows[key]) for key in dict.fromkeys(keys) if key in rows)


def own_on(frame: Frame, part: GpuPart, me: str | None) -> list[ProcessKey]:
    """Return the processes of the user `me` on a GPU or a MIG device; for root, those of everybody,
    which the dialog asks the word for."""
    if me is None:
        return []
    gpu, instance = part.key
    view = View(whose=() if me == "root" else (me,), gpu=gpu, instance=instance)
    return [frame.key(row.process) for row in process_rows.rows(frame) if view.holds(row)]


def _target(rows: Sequence[ProcessRow]) -> SignalTarget:
    process = rows[0].process
    held = tuple((PROCESS["gpu"].text(row), row.process.gpu_memory) for row in rows)
    return SignalTarget(
        process.id,
        process.user,
        process.command,
        rows[0].age,
        process.state,
        held,
    )
