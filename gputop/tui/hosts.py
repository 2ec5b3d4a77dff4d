"""The screen of many hosts: a row for each, and what else there is to see of all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from gputop.model.machine.frame import ProcessKey
from gputop.model.processes.filter import FilterError
from gputop.settings import Session
from gputop.tui.cluster import ClusterHosts
from gputop.tui.dialogs.signal_state import READ_ONLY
from gputop.tui.fleet import FleetHosts
from gputop.tui.keys import HOST_ONLY, HOSTS_BINDINGS
from gputop.tui.messages import Note
from gputop.tui.panes.filter_line import FilterLine
from gputop.tui.panes.fleet import FleetProcesses
from gputop.tui.panes.heading import KeyLine, paused
from gputop.tui.panes.hosts import HostsHeading, HostTable
from gputop.tui.panes.processes import ProcessTable
from gputop.tui.panes.table import Table
from gputop.tui.table_screen import TableScreen

_OF_A_MACHINE = ("step", "skip")
"""Actions of the app that need a past, which only a machine that is open has."""


class HostsScreen(TableScreen):
    """All hosts at a glance. Actions on a machine are on its own screen."""

    AUTO_FOCUS = "HostTable"

    BINDINGS: ClassVar[list[BindingType]] = [*HOSTS_BINDINGS, *HOST_ONLY]
    FIRST = 6

    def __init__(
        self,
        settings: Session,
        hosts: FleetHosts | ClusterHosts,
        open_host: Callable[[str, ProcessKey | None, str], Awaitable[None]],
        login: Callable[[str], None],
    ) -> None:
        """`open_host` opens the screen of a host, and with the key of a process does an action on
        it there; `login` logs in to a host by hand."""
        super().__init__(settings)
        self.hosts, self._open_host, self._login = hosts, open_host, login
        self._note = "read only" if settings.readonly else ""
        """What the heading says when it has no passing note."""
        self._heading = HostsHeading()
        self._heading.note = self._note
        self.paused_for: int | None = None
        """For how many seconds the picture has stood still; None if it does not."""

    def compose(self) -> ComposeResult:
        yield from (self._heading, *self.hosts.above, self.hosts.table, *self.hosts.below)
        yield from super().compose()

    def on_mount(self) -> None:
        for processes in self.query(ProcessTable):
            processes.arranged = self.arranged

    @property
    def home(self) -> Table[Any]:
        return next(iter(self.query(ProcessTable)), self.hosts.table)

    def share_lines(self) -> None:
        self.hosts.share_lines(self.size, self.rows)

    def say(self, words: str) -> None:
        self._heading.note = self._heading.glyphs.text(words) or self._note
        self._heading.repaint_changed()

    def filter(self, text: str) -> FilterError | None:
        error = self.hosts.filter(text)
        self.show()
        return error

    @property
    def interval(self) -> float:
        """Seconds between two looks at all hosts."""
        return self.hosts.interval

    @interval.setter
    def interval(self, seconds: float) -> None:
        self.hosts.interval = seconds

    # What is shown: now, or a pause.

    @property
    def words(self) -> str:
        """How the heading names the pause; empty for now."""
        return "" if self.paused_for is None else paused(self.paused_for)

    def pause(self) -> None:
        self.paused_for = 0 if self.paused_for is None else None

    def pass_second(self) -> None:
        if self.paused_for is not None:
            self.paused_for += 1

    def refresh_values(self) -> None:
        """Ask for new values where there is a connection, and show them even in a pause."""
        self.hosts.refresh()

    def tick(self, is_shown: bool) -> None:
        """Take in what has come, and show it when it is time; in a pause, when it was asked for."""
        is_time = self.hosts.receive()
        if self.paused_for is not None and self.hosts.has_answer:
            self.paused_for = 0
            self._show(is_held=False)
        elif self.paused_for is None and is_time and is_shown:
            self.show()

    def show(self) -> None:
        """Show the newest picture, or in a pause the one that is held."""
        self._show(is_held=self.paused_for is not None)

    def _show(self, is_held: bool) -> None:
        for keys in self.query(KeyLine):  # they are made, and not taken apart
            self.hosts.show(self._heading, is_held)
            self.share_lines()
            keys.show(self.key_words())

    # What keys do.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        is_here = action not in self.hosts.lacks and action not in _OF_A_MACHINE
        return is_here and super().check_action(action, parameters)

    def offers(self, binding: Binding) -> bool:
        if binding.action.startswith("elsewhere"):
            return False
        is_wanted = binding.action != "login" or any(
            machine.link.state == "login" for machine in self.hosts.machines
        )
        return is_wanted and super().offers(binding)

    def action_search(self) -> None:
        self.action_filter()

    async def action_open(self) -> None:
        """Open the host or the group of the selected row, or the host of the selected process."""
        table = self.focused
        if not isinstance(table, FleetProcesses):
            self.hosts.table.action_choose()
            return
        table.select_first()
        if not table.listing.open(table.current):
            await self._open_chosen(table)

    async def _open_chosen(self, table: FleetProcesses, action: str = "") -> None:
        if (chosen := table.chosen) is not None:
            await self._open_host(*chosen, action)

    async def on_host_table_host_chosen(self, message: HostTable.HostChosen) -> None:
        await self._open_host(message.host, None, "")

    async def on_process_table_opened(self) -> None:
        await self.action_open()

    async def action_signal(self) -> None:
        if self.settings.readonly:
            self.post_message(Note(READ_ONLY))
        else:
            await self.action_on_host("signal")

    async def action_on_host(self, action: str) -> None:
        """Open the host of the selected process, whose own screen then acts on the process."""
        table = self.focused
        if isinstance(table, FleetProcesses) and table.chosen is not None:
            await self._open_chosen(table, action)
        else:
            self.post_message(Note("select a process first, or open its host with Enter"))

    def action_elsewhere(self, words: str) -> None:
        """Say that a key works on the screen of a host."""
        self.post_message(Note(f"{words.lower()}: open a host first, with Enter"))

    def action_login(self) -> None:
        """Log in to the selected host; if there is none, select the first."""
        table = self.hosts.table
        row = table.current
        if row is None:
            self.set_focus(table)
            table.action_move(0)
        elif row.link.state == "login":
            self._login(row.host)
        else:
            self.post_message(Note(f"{row.host} needs no login"))

    def action_sort(self) -> None:
        """Sort hosts in the next order, or ask for the column to sort processes by."""
        if isinstance(self.focused, ProcessTable):
            super().action_sort()
        else:
            self.hosts.next_order()
            self.show()

    def action_back(self) -> None:
        """Undo one step: the cursor, the view of processes, the filter, the focus."""
        steps = [processes.back for processes in self.query(ProcessTable)]
        if not isinstance(self.focused, ProcessTable):
            steps.insert(0, self.hosts.table.deselect)
        if not any(step() for step in steps) and not self.query_one(FilterLine).clear():
            self.set_focus(self.hosts.table)
