"""The screen of many hosts: a row per host, what is free, and the processes of all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from textual.app import ComposeResult

from gputop.model.fleet.fleet import Fleet, free_gpus
from gputop.model.fleet.host_row import ORDERS, HostOrder, ordered
from gputop.settings import Session
from gputop.tui.dialogs.signal_state import READ_ONLY
from gputop.tui.keys import FLEET_BINDINGS, following
from gputop.tui.machine import WatchedMachine
from gputop.tui.messages import Note
from gputop.tui.panes.filter_line import FilterLine
from gputop.tui.panes.fleet import FleetHeading, FleetProcesses, FreeLine, HostTable
from gputop.tui.table_screen import ProcessTableScreen
from gputop.tui.themes import show_users

TICK = 0.25
"""Seconds between two checks for new frames; the screen does not wake up for each frame."""
_STEADY = 4
"""Ticks between two redraws, unless a host has come or gone."""
_TINY = 14
"""On screens of fewer lines, free GPUs have no line of their own."""
_SLACK = 4
"""Lines that the processes may leave empty: the hosts above do not move for every change."""


class FleetScreen(ProcessTableScreen):
    """All hosts at a glance. Actions on a machine are on its own screen."""

    AUTO_FOCUS = "#hosts"

    BINDINGS = FLEET_BINDINGS

    FIRST = 5

    def __init__(
        self,
        settings: Session,
        machines: Sequence[WatchedMachine],
        open_host: Callable[[str, int | None], Awaitable[None]],
        login: Callable[[str], None],
    ) -> None:
        """`open_host` opens the screen of a host, at a process if there is a PID; `login` logs in
        to a host by hand."""
        super().__init__(settings)
        self._machines, self._open_host, self._login = machines, open_host, login
        self._fleet = Fleet(settings.processes.idle_after)
        self._order: HostOrder = "worst"
        self._interval = settings.interval
        self._note = "read only" if settings.readonly else ""
        """What the heading says when it has no passing note."""
        self._rows = 0
        """The number of rows that processes have room for; a few may be empty."""
        self._phases: list[object] = []
        """The phase of each machine as it was last shown."""
        self._ticks = 0
        for machine in machines:
            machine.leave()

    def compose(self) -> ComposeResult:
        yield FleetHeading(self._note, id="heading")
        yield HostTable(self.settings, id="hosts")
        yield FreeLine(id="free")
        yield FleetProcesses(self.settings, id="processes")
        yield from super().compose()

    def on_mount(self) -> None:
        self.processes.on_arranged = self.arranged

    @property
    def hosts(self) -> HostTable:
        return self.query_one(HostTable)

    @property
    def processes(self) -> FleetProcesses:
        return self.query_one(FleetProcesses)

    def tick(self, interval: float, is_shown: bool) -> None:
        """Take in new frames, and show them from time to time; at once if a phase has changed."""
        self._ticks += 1
        for machine in self._machines:
            machine.take_arrived()
        if is_shown and (self._ticks % _STEADY == 0 or self._phases_now != self._phases):
            self.show(interval)

    def show(self, interval: float) -> None:
        """Show the current state of all machines."""
        self._phases, self._interval = self._phases_now, interval
        is_more = len(self._machines) != len(self._fleet.rows)
        self._fleet.take([machine.state for machine in self._machines])
        show_users(user for row in self._fleet.rows if row.summary for user in row.summary.users)
        if self.query(FreeLine):  # it is made, and not taken apart at the end
            if is_more:
                self.share_lines()
            self._show_hosts()
            self.processes.listing.show_rows(self._fleet.processes)

    @property
    def _phases_now(self) -> list[object]:
        return [machine.phase for machine in self._machines]

    def say(self, words: str) -> None:
        heading = self.query_one(FleetHeading)
        heading.note = self.hosts.glyphs.text(words) or self._note
        heading.sync()

    def _show_hosts(self) -> None:
        rows = self._fleet.rows
        is_demo = any(row.summary is not None and row.summary.frame.demo for row in rows)
        heading, totals = self.query_one(FleetHeading), self._fleet.totals
        heading.show_totals(totals, ORDERS[self._order], self._interval, is_demo)
        self.hosts.show_hosts(ordered(rows, self._order))
        self.query_one(FreeLine).show_free(free_gpus(rows), totals.free is not None)

    def share_lines(self) -> None:
        """Share the lines: hosts get what processes leave, and half of them if they need it."""
        height = self.size.height
        free = self.query_one(FreeLine)
        free.display = height >= _TINY
        room = height - 2 - free.display
        wanted = self.processes.head_lines + max(1, self._rows)
        hosts = self.hosts.head_lines + max(1, len(self._fleet.rows))
        self.hosts.styles.height = max(2, min(hosts, max(room - wanted, (room + 1) // 2)))

    def make_room(self, count: int) -> None:
        if not self._rows - _SLACK < count <= self._rows:
            self._rows = count
            self.share_lines()

    async def action_open(self) -> None:
        """Open the group, or the host of the selected row."""
        if self.focused is not self.processes:
            self.hosts.action_choose()
            return
        table = self.processes
        table.select_first()
        row = None if table.listing.open(table.current) else table.selected
        if row is not None and row.host is not None:
            await self._open_host(row.host, row.process.pid)

    async def on_machine_table_machine_chosen(self, message: HostTable.MachineChosen) -> None:
        await self._open_host(message.host, None)

    async def on_process_table_opened(self) -> None:
        await self.action_open()

    async def action_signal(self) -> None:
        """Open the host of the selected process: its own screen can signal it."""
        row = self.processes.selected if self.focused is self.processes else None
        if self.settings.readonly:
            self.post_message(Note(READ_ONLY))
        elif row is not None and row.host is not None:
            await self._open_host(row.host, row.process.pid)
        else:
            self.post_message(Note("to signal: select a process, or open its host with Enter"))

    def action_login(self) -> None:
        """Log in to the selected host; if there is none, select the first."""
        row = self.hosts.current
        if row is None:
            self.set_focus(self.hosts)
            self.hosts.action_move(0)
        elif row.link.state == "login":
            self._login(row.host)
        else:
            self.post_message(Note(f"{row.host} wants no login"))

    def action_sort(self) -> None:
        """Sort hosts in the next order, or ask for the column to sort processes by."""
        if self.focused is self.processes:
            super().action_sort()
        else:
            self._order = following(self._order, ORDERS)
            self._show_hosts()

    def action_back(self) -> None:
        """Undo one step: the process cursor, the view, the filter, the focus, the host cursor."""
        table = self.processes
        if self.focused is table and table.current is not None:
            table.deselect()
        elif table.listing.leave_view():
            return
        elif table.listing.filter:
            self.query_one(FilterLine).clear()
        elif self.focused is not self.hosts:
            self.set_focus(self.hosts)
        else:
            self.hosts.deselect()
