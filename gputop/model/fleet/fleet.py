"""All hosts that are watched, at one instant."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from gputop.model.fleet.host_row import HostRow, HostState, host_row
from gputop.model.fleet.host_summary import HostSummary, summary_of
from gputop.model.machine.frame import Frame
from gputop.model.machine.text import ranges
from gputop.model.processes.views import ViewRow


class FleetTotals(NamedTuple):
    """The fleet in a few numbers."""

    hosts: int
    seen: int
    """Hosts of which there is a frame that counts."""
    alarms: int
    """Hosts that need attention."""
    gpus: int
    free: int | None
    """None where none is, and of some hosts that is not known."""
    users: int | None
    """None where nobody is seen, and who is on some GPUs cannot be."""


class Fleet:
    """The rows of all hosts. What a frame says is worked out once, when it is new."""

    def __init__(self, idle_after: float) -> None:
        """`idle_after`: as `lamp` takes it."""
        self._idle_after = idle_after
        self._summaries: dict[str, HostSummary] = {}
        self.rows: list[HostRow] = []

    def take(self, states: Sequence[HostState]) -> None:
        """Take in how the hosts are now."""
        first: dict[Hashable, str] = {}
        rows = []
        for state in states:
            summary = self._summary_of(state)
            machine = None if summary is None else _machine(summary.frame)
            twin = None if machine is None else first.setdefault(machine, state.host)
            rows.append(host_row(state, summary, None if twin == state.host else twin))
        self.rows = rows

    @property
    def processes(self) -> list[ViewRow]:
        """The processes of all hosts, in the order of these; of a machine once."""
        return [row for summary in self._counted for row in summary.processes]

    @property
    def totals(self) -> FleetTotals:
        """The sums over all hosts; a machine counts once."""
        counted = list(self._counted)
        free = sum(len(row.free_indices) for row in self.rows)
        users = len({user for summary in counted for user in summary.users})
        return FleetTotals(
            hosts=len(self.rows),
            seen=sum(row.summary is not None for row in self.rows),
            alarms=sum(row.level == "alarm" for row in self.rows),
            gpus=sum(len(summary.lamps) for summary in counted),
            free=free if free or self._is_free_known else None,
            users=users if users or _are_users_known(counted) else None,
        )

    @property
    def _is_free_known(self) -> bool:
        rows = [row for row in self.rows if row.summary is not None and row.twin is None]
        return bool(rows) and all(row.free is not None for row in rows)

    @property
    def _counted(self) -> Iterator[HostSummary]:
        return (row.summary for row in self.rows if row.summary is not None and row.twin is None)

    def _summary_of(self, state: HostState) -> HostSummary | None:
        frame = state.frame
        if frame is None or state.link.state != "connected":
            self._summaries.pop(state.host, None)
            return None
        summary = self._summaries.get(state.host)
        if summary is None or summary.frame is not frame:
            summary = self._summaries[state.host] = summary_of(state.host, frame, self._idle_after)
        return summary


def free_gpus(rows: Sequence[HostRow]) -> list[tuple[str, str]]:
    """Return the hosts with free GPUs and their indices, as `0-2,5`."""
    return [(row.host, ranges(row.free_indices)) for row in rows if row.free_indices]


def _are_users_known(summaries: Sequence[HostSummary]) -> bool:
    gpus = [gpu for summary in summaries for gpu in summary.frame.gpus]
    return bool(summaries) and all(gpu.processes_known is not False for gpu in gpus)


def _machine(frame: Frame) -> Hashable:
    """Return what two frames of one machine have in common; None where that cannot be told.

    Two containers of one machine have its boot id, and their own GPUs.
    """
    uuids = tuple(gpu.uuid for gpu in frame.gpus)
    if frame.host.boot_id is None or not uuids or None in uuids:
        return None
    return frame.host.boot_id, uuids
