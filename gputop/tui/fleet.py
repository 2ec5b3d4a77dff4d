"""A fleet: the hosts that were named, each with a source of its own that is always read."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from textual.geometry import Size

from gputop.model.conditions.marks import Marks
from gputop.model.fleet.fleet import Fleet, free_gpus
from gputop.model.fleet.host_row import ORDERS, HostOrder, HostRow, ordered
from gputop.model.metrics.process import ProcessRow
from gputop.model.processes.filter import FilterError, names_host, parse
from gputop.protocol.messages import Refresh
from gputop.settings import Session
from gputop.tui.keys import following
from gputop.tui.machine import WatchedMachine
from gputop.tui.panes.fleet import FleetColumns, FleetProcesses, FreeLine, fleet_facts
from gputop.tui.panes.hosts import HostsHeading, HostTable
from gputop.tui.themes import show_users

TICK = 0.25
"""Seconds between two checks for new frames; the screen does not wake up for each frame."""
_STEADY = 4
"""Ticks between two redraws, unless a host has come or gone."""
_TINY = 14
"""On screens of fewer lines, free GPUs have no line of their own."""
_MOST_NAME = 32


class FleetHosts:
    """The hosts of a fleet: below their table are the free GPUs, and the processes of all."""

    above = ()
    lacks = ("search",)
    shares_interval = True

    def __init__(self, settings: Session, machines: Sequence[WatchedMachine]) -> None:
        self.machines, self.interval = list(machines), settings.interval
        self._columns = FleetColumns(settings.thresholds)
        self.table: HostTable[Any] = HostTable(self._columns.sentence, _MOST_NAME)
        self.table.nothing = "no host fits the filter; Esc drops it"
        self._free = FreeLine()
        self._processes = FleetProcesses(settings)
        self._processes.is_marked = self._is_marked
        self.below = (self._free, self._processes)
        self._fleet = Fleet(settings.processes.idle_after)
        self._order: HostOrder = "worst"
        self._phases: list[object] = []
        """The phase of each machine as it was last shown."""
        self._ticks = 0
        self._due: int | None = None
        """The tick at which hosts have had time to answer `refresh`; None if that is over."""
        self._marks: dict[str | None, Marks] = {machine.host: machine.marks for machine in machines}
        for machine in machines:
            machine.set_open(False)

    def receive(self) -> bool:
        """Take in new frames; it is time to show them every second, or if a phase has changed."""
        self._ticks += 1
        for machine in self.machines:
            machine.take_arrived()
        return self._ticks % _STEADY == 0 or self._phases_now != self._phases

    @property
    def has_answer(self) -> bool:
        """Whether what was asked for should have come, and is yet to be shown."""
        return self._due is not None and self._ticks >= self._due

    def show(self, heading: HostsHeading, is_held: bool) -> None:
        """Show the hosts, the free GPUs and the processes: as they are, or as they were shown."""
        if not is_held:
            self._phases, self._due = self._phases_now, None
            self._fleet.take([machine.state for machine in self.machines])
        totals = self._fleet.totals
        self._processes.show_fleet(self._fleet)
        rows = self._fitting(self._fleet.rows)
        show_users(user for row in rows if row.summary for user in row.summary.users)
        is_demo = any(row.summary is not None and row.summary.frame.demo for row in rows)
        facts = list(fleet_facts(totals, len(rows), is_demo))
        heading.show_facts(lambda width: facts, ORDERS[self._order], f"{self.interval:g}s")
        self.table.show_hosts(
            ordered(rows, self._order), self._columns.of(rows, self.table.size.width)
        )
        self._free.show_free(free_gpus(rows), totals.free is not None)
        in_sight = {row.host for row in self.table.rows_in_sight}
        self._note_sight(in_sight | {line.row.host for line in self._processes.rows_in_sight})

    def _note_sight(self, in_sight: Container[str | None]) -> None:
        for machine in self.machines:
            machine.note_sight(machine.host in in_sight)

    def _fitting(self, rows: list[HostRow]) -> list[HostRow]:
        """Return the hosts that the filter leaves: by their names, or for a process there."""
        listing = self._processes.listing
        if not listing.filter:
            return rows
        fits, fits_by_name = parse(listing.filter), names_host(listing.filter)
        there = {line.row.host for line in listing.every if fits(line.row)}
        return [row for row in rows if row.host in there or fits_by_name(row.host)]

    def _is_marked(self, row: ProcessRow) -> bool:
        return self._marks[row.host].has_process(row.process.pid)

    @property
    def _phases_now(self) -> list[object]:
        return [machine.phase for machine in self.machines]

    def share_lines(self, size: Size, processes: int) -> None:
        """Share the lines: hosts get what processes leave, and half of them if they need it."""
        self._free.display = size.height >= _TINY
        self._free.styles.height = lines = self._free.wanted(size.width)
        room = size.height - 2 - lines * self._free.display
        wanted = self._processes.head_lines + max(1, processes)
        hosts = self.table.head_lines + max(1, len(self.machines))
        self.table.styles.height = max(2, min(hosts, max(room - wanted, (room + 1) // 2)))

    def filter(self, text: str) -> FilterError | None:
        """Show only the processes that match; `show` then leaves out hosts, too."""
        return self._processes.listing.filter_by(text)

    def next_order(self) -> None:
        self._order = following(self._order, ORDERS)

    def open(self, host: str) -> WatchedMachine:
        """Keep a full history of a host from now on, and return it."""
        self._note_sight({host})
        machine = next(machine for machine in self.machines if machine.host == host)
        machine.set_open(True)
        return machine

    def leave(self, machine: WatchedMachine) -> None:
        """Keep a brief history again."""
        machine.set_open(False)

    def refresh(self) -> None:
        """Ask each host that is connected for a frame."""
        self._due = self._ticks + _STEADY
        for machine in self.machines:
            if not machine.ended:
                machine.request(Refresh())
