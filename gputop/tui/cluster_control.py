"""The cluster that is watched, and the screen that shows it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gputop.model.fleet.cluster import ClusterState
from gputop.settings import Session
from gputop.sources.feed import Feed
from gputop.sources.prometheus.watch import LEAST_INTERVAL, ClusterWatch
from gputop.tui.cluster import ClusterScreen
from gputop.tui.cluster_keys import CLUSTER_BINDINGS


class ClusterControl:
    """Keeps the screen of a cluster up to date, as FleetControl does that of a fleet."""

    bindings = CLUSTER_BINDINGS

    def __init__(
        self,
        watch: ClusterWatch,
        settings: Session,
        open_host: Callable[[str], Awaitable[None]],
    ) -> None:
        """`open_host` opens the screen of a machine."""
        self._watch = watch
        self.screen = ClusterScreen(watch.client.url, settings, watch.show, open_host)
        self._shown: tuple[object, ...] = ()
        watch.start()

    @property
    def interval(self) -> float:
        """Seconds between refreshes."""
        return self._watch.interval

    def tick(self, interval: float, is_shown: bool) -> None:
        """Show what has come, and how old it is by now."""
        if is_shown and self._picture(self._watch.state) != self._shown:
            self.show(interval)

    def show(self, interval: float) -> None:
        """Show what is known now; another interval counts from now on."""
        if max(LEAST_INTERVAL, interval) != self.interval:
            self._watch.set_interval(interval)
        state = self._watch.state
        self._shown = self._picture(state)
        self.screen.show_state(state, self.interval)

    def refresh(self) -> None:
        """Ask for all now."""
        self._watch.refresh()

    def feed_of(self, host: str, interval: float) -> Feed:
        """Return the frames of a machine."""
        return Feed(self._watch.source_of(host, interval))

    def close(self) -> None:
        """End."""
        self._watch.close()

    def _picture(self, state: ClusterState) -> tuple[object, ...]:
        """Return what makes another picture."""
        age = None if state.age is None else int(state.age)
        return id(state.cluster), state.page, state.error, len(state.past), age
