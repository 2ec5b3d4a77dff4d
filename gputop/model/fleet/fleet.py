"""All hosts that are watched, at one instant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from gputop.model.fleet.host_row import HostRow, HostState, host_row
from gputop.model.fleet.host_summary import HostSummary, summary_of
from gputop.model.health.free import FreeSlices
from gputop.model.machine.text import ranges
from gputop.model.processes import process_rows
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
    """None if no GPU is seen to be free, but those of some hosts are not known, or if all are in
    MIG mode."""
    slices: FreeSlices
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
        summaries = [self._summary_of(state) for state in states]
        machines = [None if summary is None else summary.machine for summary in summaries]
        hosts: defaultdict[Hashable, list[str]] = defaultdict(list)
        for state, machine in zip(states, machines, strict=True):
            hosts[machine].append(state.host)
        self.rows = [
            host_row(state, summary, () if machine is None else hosts[machine])
            for state, summary, machine in zip(states, summaries, machines, strict=True)
        ]

    @property
    def processes(self) -> list[ViewRow]:
        """The processes of all hosts in their order; those of a machine appear once."""
        processes: dict[Hashable, ViewRow] = {}
        for row in self.rows:
            if row.summary is None:
                continue
            keys: Sequence[Hashable] = [process.key for process in row.summary.processes]
            if row.same_machine_as is not None:  # a host that only claims to be it hides none of it
                shown = [process.row for process in row.summary.processes]
                keys = process_rows.row_keys(row.summary.frame, shown)
            for key, process in zip(keys, row.summary.processes, strict=True):
                processes.setdefault(key, process)
        return list(processes.values())

    @property
    def totals(self) -> FleetTotals:
        """The sums over all hosts. The GPUs of a machine count once; if two hosts claim to be it,
        they do not count as free."""
        summaries = [row.summary for row in self.rows if row.summary is not None]
        firsts = [row.summary for row in self.rows if row.summary is not None and row.is_first]
        free = sum(len(row.free_indices) for row in self.rows)
        are_whole = not all(gpu.mig_mode for summary in firsts for gpu in summary.frame.gpus)
        users = len({user for summary in summaries for user in summary.users})
        return FleetTotals(
            hosts=len(self.rows),
            seen=sum(row.summary is not None for row in self.rows),
            alarms=sum(row.level == "error" for row in self.rows),
            gpus=sum(len(s.frame.gpus) for s in firsts),
            free=free if free or (are_whole and self._is_free_known) else None,
            slices=self._slices(firsts),
            users=users if users or _are_users_known(summaries) else None,
        )

    def _slices(self, machines: Sequence[HostSummary]) -> FreeSlices:
        free = sum(row.slices.free or 0 for row in self.rows)
        divided = [row for row in self.rows if row.summary is not None and row.summary.slices.total]
        is_known = all(row.slices.free is not None for row in divided)
        total = sum(summary.slices.total for summary in machines)
        return FreeSlices(free if free or is_known else None, total)

    @property
    def _is_free_known(self) -> bool:
        rows = [row for row in self.rows if row.summary is not None and row.same_machine_as is None]
        return bool(rows) and all(row.free is not None for row in rows)

    def _summary_of(self, state: HostState) -> HostSummary | None:
        frame = state.frame
        if frame is None or state.link.state != "connected":
            self._summaries.pop(state.host, None)
            return None
        summary = self._summaries.get(state.host)
        if summary is None or summary.frame is not frame:
            summary = self._summaries[state.host] = summary_of(state.host, frame, self._idle_after)
        return summary


def free_gpus(rows: Sequence[HostRow]) -> list[str]:
    """Return the hosts with free GPUs, as `node1:0-2,5`, or slices, as `node2: 1 of 7 slices`."""
    free = []
    for row in rows:
        slices = f" {row.slices.words}" if row.slices.free else ""
        if row.free_indices or slices:
            gpus = ranges(row.free_indices)
            free.append(f"{row.host}:{gpus}{',' * bool(gpus and slices)}{slices}")
    return free


def _are_users_known(summaries: Sequence[HostSummary]) -> bool:
    gpus = [gpu for summary in summaries for gpu in summary.frame.gpus]
    return bool(summaries) and all(gpu.listed == "all" for gpu in gpus)
