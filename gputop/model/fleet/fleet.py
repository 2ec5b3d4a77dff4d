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
    """Hosts with a usable frame."""
    alarms: int
    """Hosts that need attention."""
    gpus: int
    free: int | None
    """None if no GPU is seen to be free, but those of some hosts are not known."""
    users: int | None
    """None if no user is seen, but those on some GPUs cannot be."""


class Fleet:
    """The rows of all hosts. A frame is summed up once, when it is new."""

    def __init__(self, idle_after: float) -> None:
        """`idle_after`: seconds, as in `lamp`."""
        self._idle_after = idle_after
        self._summaries: dict[str, HostSummary] = {}
        self.rows: list[HostRow] = []

    def take(self, states: Sequence[HostState]) -> None:
        """Make the rows anew from the states of all hosts."""
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
        """The processes of all hosts in their order; those of a machine appear once."""
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
    return bool(summaries) and all(gpu.lists_all for gpu in gpus)


def _machine(frame: Frame) -> Hashable:
    """Return what identifies the machine of a frame; None if that is not known.

    Two containers on one machine share its boot id, but have different GPUs.
    """
    uuids = tuple(gpu.uuid for gpu in frame.gpus)
    if frame.host.boot_id is None or not uuids or None in uuids:
        return None
    return frame.host.boot_id, uuids
