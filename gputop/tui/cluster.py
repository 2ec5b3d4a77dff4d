"""A cluster: thousands of hosts as a Prometheus server sums them up, read while they are open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.geometry import Size
from textual.message import Message

from gputop.model.fleet.cluster import MOST_COUNT, NODE_ORDERS, ClusterNode, ClusterState, NodePage
from gputop.model.machine.text import duration, printable
from gputop.settings import Session
from gputop.sources.feed import Feed
from gputop.tui.keys import following
from gputop.tui.machine import WatchedMachine
from gputop.tui.panes.cluster import NodeColumns, cluster_facts, cluster_note, cluster_sums
from gputop.tui.panes.hosts import HostsHeading, HostTable
from gputop.tui.panes.text_lines import TextLines

if TYPE_CHECKING:
    from gputop.sources.prometheus.watch import ClusterWatch

_LEAST_NODES = 6
"""The sums are shown only if the table keeps at least this many lines."""


class ClusterHosts:
    """The hosts of a cluster: above the table of those that were asked for are sums of all."""

    below = ()
    lacks = ("filter", "user", "login", "signal", "on_host", "invert", "command", "shift")
    shares_interval = False

    def __init__(
        self, settings: Session, watch: ClusterWatch, post: Callable[[Message], object]
    ) -> None:
        """`post` takes messages to the app, from any thread."""
        self._settings, self._watch, self._post = settings, watch, post
        self.machines: list[WatchedMachine] = []
        self._columns = NodeColumns(settings.thresholds)
        self.table: HostTable[Any] = HostTable(self._columns.sentence)
        self.table.scrolled = self._ask_for_more
        self._note = TextLines(id="note")
        self._sums = TextLines()
        self.above = (self._note, self._sums)
        self._server = printable(watch.client.url, 100)
        self._state: ClusterState | None = None
        """The state that is shown, with its age in whole seconds."""
        self._page = NodePage()
        """The nodes that are wanted; those on the screen may still be of the page before."""
        self._replaced: Sequence[ClusterNode] | None = None
        """The nodes that others, which were asked for, will replace; None if none were."""
        watch.start()

    @property
    def interval(self) -> float:
        """Seconds between two refreshes, not fewer than a server is asked in."""
        return self._watch.interval

    @interval.setter
    def interval(self, seconds: float) -> None:
        self._watch.set_interval(seconds)

    @property
    def _state_now(self) -> ClusterState:
        state = self._watch.state
        return state._replace(age=None if state.age is None else float(int(state.age)))

    def receive(self) -> bool:
        """Return whether the newest state or its age differs from what is shown."""
        return self._state_now != self._state

    @property
    def has_answer(self) -> bool:
        """Whether what was asked for has come, and is yet to be shown."""
        if self._replaced is None or self._watch.state.page != self._page:
            return False
        return self._newest_nodes is not self._replaced

    @property
    def _newest_nodes(self) -> Sequence[ClusterNode]:
        """The nodes of the last answer, which are other objects than those of the one before."""
        cluster = self._watch.state.cluster
        return () if cluster is None else cluster.nodes

    def show(self, heading: HostsHeading, is_held: bool) -> None:
        """Show the newest state, or the one that is held."""
        before, state = self._state, self._state_now
        if before is not None and is_held:
            state = before
        else:
            self._state, self._replaced = state, None
        cluster = state.cluster
        heading.show_facts(
            partial(cluster_facts, cluster, self._server),
            "" if cluster is None else NODE_ORDERS[self._page.order],
            ("" if state.age is None else f"{duration(state.age)} old  ")
            + f"every {self._watch.interval:g}s",
        )
        self._note.display = bool(state.error)
        self._note.say([[cluster_note(state)]])
        if before is None or before._replace(age=state.age) != state:
            self._sums.say(cluster_sums(cluster, self._settings.thresholds))
            self._show_nodes(state)

    def _show_nodes(self, state: ClusterState) -> None:
        table = self.table
        if state.page is None:
            table.nothing = "" if state.error else f"asking {self._server}"
        elif self._page.matching:
            table.nothing = f"no host has {self._page.matching!r} in its name; Esc drops the filter"
        else:
            table.nothing = "no host"
        table.show_hosts(() if state.cluster is None else state.cluster.nodes, self._columns.all)
        self._ask_for_more()

    def _ask_for_more(self) -> None:
        """Ask for twice as many nodes if the last one is in sight and there may be more."""
        state, page = self._state, self._page
        if state is None or state.cluster is None or state.page != page or page.most >= MOST_COUNT:
            return
        _, last, total = self.table.span
        is_full = sum(not node.problem for node in state.cluster.nodes) >= page.most
        if is_full and last >= total:
            self._want(page._replace(most=min(MOST_COUNT, page.most * 2)))

    def _want(self, page: NodePage) -> None:
        self._page, self._replaced = page, self._newest_nodes
        self._watch.show(page)

    def share_lines(self, size: Size, processes: int) -> None:
        """Show the sums in full, or not at all if the table would get too few lines."""
        self._sums.display = size.height - 3 - self._sums.count >= _LEAST_NODES

    def filter(self, text: str) -> None:
        """Show the hosts with this text in their names; the server searches for them."""
        if text != self._page.matching:
            self._want(NodePage(self._page.order, matching=text))

    def next_order(self) -> None:
        self._want(self._page._replace(order=following(self._page.order, NODE_ORDERS)))

    def open(self, host: str) -> WatchedMachine:
        """Begin to read a host over ssh, otherwise as the server knows it, and return it."""
        source = self._watch.source_of(host, self._settings.interval)
        machine = WatchedMachine(Feed(source), self._post)
        self.machines = [machine]
        machine.listen()
        return machine

    def leave(self, machine: WatchedMachine) -> None:
        machine.feed.source.close()
        self.machines = []

    def refresh(self) -> None:
        """Ask the server for everything now."""
        self._replaced = self._newest_nodes
        self._watch.refresh()
