"""The machines of the fleet, and the screen that shows all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from gputop.settings import Session
from gputop.tui.fleet import FleetScreen
from gputop.tui.fleet_keys import FLEET_BINDINGS
from gputop.tui.machine import WatchedMachine

TICK = 0.25
"""Seconds between two looks at what has come; nobody is woken for each frame of each machine."""
_STEADY = 4
"""Ticks between two pictures, unless a host has come or gone."""


class FleetControl:
    """Keeps the screen of the fleet up to date."""

    bindings = FLEET_BINDINGS

    def __init__(
        self,
        machines: Sequence[WatchedMachine],
        settings: Session,
        open_host: Callable[[str, int | None], Awaitable[None]],
        login: Callable[[str], None],
    ) -> None:
        """The last two as `FleetScreen` takes them."""
        self.screen = FleetScreen(settings, open_host, login)
        self._machines = machines
        self._phases: list[object] = []
        """Of each machine as it is shown, what does not change with every frame."""
        self._ticks = 0
        for machine in machines:
            machine.leave()

    def tick(self, interval: float, is_shown: bool) -> None:
        """Take what has come, and show it: at once where a host has come or gone."""
        self._ticks += 1
        for machine in self._machines:
            machine.take_arrived()
        if is_shown and (self._ticks % _STEADY == 0 or self._phases_now != self._phases):
            self.show(interval)

    def show(self, interval: float) -> None:
        self._phases = self._phases_now
        self.screen.show_states([machine.state for machine in self._machines], interval)

    @property
    def _phases_now(self) -> list[object]:
        return [machine.phase for machine in self._machines]
