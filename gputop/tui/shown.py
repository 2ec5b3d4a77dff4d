"""What the app shows: a single machine, or all hosts and perhaps one of them."""

from __future__ import annotations

from collections.abc import Callable

from gputop.model.machine.frame import Frame
from gputop.sources.feed import Feed, close_all
from gputop.tui.hosts import HostsScreen
from gputop.tui.machine import WatchedMachine
from gputop.tui.table_screen import TableScreen
from gputop.tui.timeline import Timeline


class Shown:
    """The machine that is open, the screen of all hosts, and the machines that they read."""

    def __init__(self, first: Timeline | HostsScreen) -> None:
        """`first` is shown at the start: a single machine, or all hosts."""
        self.view = first if isinstance(first, Timeline) else None
        """The machine that is open; None while all hosts are shown."""
        self.all_hosts = first if isinstance(first, HostsScreen) else None
        """The screen of all hosts; None if there is a single machine."""

    @property
    def current(self) -> Timeline | HostsScreen:
        """The machine that is open, otherwise all hosts."""
        current = self.view or self.all_hosts
        assert current is not None
        return current

    @property
    def screen(self) -> TableScreen:
        """The screen of tables that is shown, or that pages and dialogs are over."""
        current = self.current
        return current.main if isinstance(current, Timeline) else current

    @property
    def frame(self) -> Frame | None:
        snapshot = None if self.view is None else self.view.snapshot
        return snapshot and snapshot.frame

    @property
    def machines(self) -> list[WatchedMachine]:
        if self.all_hosts is not None:
            return self.all_hosts.hosts.machines
        return [] if self.view is None else [self.view.machine]

    def machine_of(self, feed: Feed) -> WatchedMachine | None:
        """Return the machine that a connection is to; None if that was replaced."""
        return next((machine for machine in self.machines if machine.feed is feed), None)

    def view_of(self, machine: WatchedMachine) -> Timeline | None:
        return self.view if self.view is not None and self.view.machine is machine else None

    def open(self, host: str, view: Callable[[WatchedMachine], Timeline]) -> Timeline:
        """Open one of all hosts; `view` makes its view."""
        assert self.all_hosts is not None
        self.all_hosts.paused_for = None
        self.view = view(self.all_hosts.hosts.open(host))
        if self.all_hosts.hosts.shares_interval:
            self.view.interval = self.all_hosts.interval
        return self.view

    def leave(self) -> HostsScreen | None:
        """Go back from a host to all; return their screen, or None if no host was open."""
        view, screen = self.view, self.all_hosts
        if view is None or screen is None:
            return None
        self.view = None
        screen.hosts.leave(view.machine)
        if screen.hosts.shares_interval:
            screen.interval = view.interval
        return screen

    def close(self) -> None:
        """End all sources, which may not be those of the start."""
        close_all([machine.feed.source for machine in self.machines])
