"""The screen of thousands of machines: sums of all, and a table of the nodes asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from textual.app import ComposeResult

from gputop.model.fleet.cluster import MOST_COUNT, NODE_ORDERS, ClusterState, NodePage
from gputop.model.machine.text import printable
from gputop.settings import Session
from gputop.tui.keys import CLUSTER_BINDINGS, following
from gputop.tui.panes.cluster import ClusterHeading, ClusterNote, ClusterSums, NodeTable
from gputop.tui.panes.filter_line import FilterLine
from gputop.tui.table_screen import TableScreen

if TYPE_CHECKING:
    from gputop.sources.prometheus.watch import ClusterWatch

_LEAST_NODES = 6
"""The sums are shown only if the table keeps at least this many lines."""


class ClusterScreen(TableScreen):
    """All machines that a Prometheus server knows. Actions on a machine are on its own screen."""

    AUTO_FOCUS = "#nodes"

    BINDINGS = CLUSTER_BINDINGS
    FIRST = 3

    def __init__(
        self, settings: Session, watch: ClusterWatch, open_host: Callable[[str], Awaitable[None]]
    ) -> None:
        """`open_host` opens the screen of a machine."""
        super().__init__(settings)
        self._watch, self._open_host = watch, open_host
        self._server = printable(watch.client.url, 100)
        self._state: ClusterState | None = None
        """The state that is shown, with its age in whole seconds."""
        self._page = NodePage()
        """The nodes that are wanted; those on the screen may still be of the page before."""
        watch.start()

    def compose(self) -> ComposeResult:
        yield ClusterHeading(self._server, id="heading")
        yield ClusterNote(id="note")
        yield ClusterSums(self.settings.thresholds, id="sums")
        yield NodeTable(self.settings, id="nodes")
        yield from super().compose()

    def on_mount(self) -> None:
        self.nodes.on_scrolled = self._ask_for_more

    @property
    def nodes(self) -> NodeTable:
        return self.query_one(NodeTable)

    table = nodes

    @property
    def _state_now(self) -> ClusterState:
        state = self._watch.state
        return state._replace(age=None if state.age is None else float(int(state.age)))

    def tick(self, interval: float, is_shown: bool) -> None:
        """Show the newest state and its age, if they have changed."""
        if is_shown and self._state_now != self._state:
            self.show(interval)

    def show(self, interval: float) -> None:
        """Show the newest state, and take the interval for what follows."""
        self._watch.set_interval(interval)
        if not self.is_mounted:
            return
        before, self._state = self._state, self._state_now
        state = self._state
        order = NODE_ORDERS[self._page.order]
        self.query_one(ClusterHeading).show_state(state, order, self._watch.interval)
        self.query_one(ClusterNote).show_state(state)
        if before is None or before._replace(age=state.age) != state:
            self.query_one(ClusterSums).show_state(state)
            self.share_lines()
            self._show_nodes(state)

    def say(self, words: str) -> None:
        heading = self.query_one(ClusterHeading)
        heading.note = self.nodes.glyphs.text(words)
        heading.sync()

    def _show_nodes(self, state: ClusterState) -> None:
        table = self.nodes
        if state.page is None:
            table.nothing = "" if state.error else f"asking {self._server}"
        elif self._page.matching:
            table.nothing = f"no host has {self._page.matching!r} in its name; Esc drops the filter"
        else:
            table.nothing = "no host"
        table.show_machines(state.cluster.nodes if state.cluster is not None else ())
        self._ask_for_more()

    def _ask_for_more(self) -> None:
        """Ask for twice as many nodes if the last one is in sight and there may be more."""
        state, page = self._state, self._page
        if state is None or state.cluster is None or state.page != page or page.most >= MOST_COUNT:
            return
        _, last, total = self.nodes.span
        is_full = sum(node.up for node in state.cluster.nodes) >= page.most
        if is_full and last >= total:
            self._want(page._replace(most=min(MOST_COUNT, page.most * 2)))

    def _want(self, page: NodePage) -> None:
        self._page = page
        self._watch.show(page)

    def share_lines(self) -> None:
        """Show the sums in full, or not at all if the table would get too few lines."""
        sums = self.query_one(ClusterSums)
        wanted = sums.wanted(self.size.width)
        sums.display = self.size.height - 3 - wanted >= _LEAST_NODES
        sums.styles.height = wanted

    def filter(self, text: str) -> None:
        """Show the hosts with this text in their names; the server searches for them."""
        if text != self._page.matching:
            self._want(NodePage(self._page.order, matching=text))

    def action_open(self) -> None:
        self.nodes.action_choose()

    async def on_machine_table_machine_chosen(self, message: NodeTable.MachineChosen) -> None:
        await self._open_host(message.host)

    def action_sort(self) -> None:
        """Sort the nodes in the next order."""
        self._want(self._page._replace(order=following(self._page.order, NODE_ORDERS)))

    def action_back(self) -> None:
        """Go one step back: the cursor, the filter."""
        if self.nodes.current is not None:
            self.nodes.deselect()
        else:
            self.query_one(FilterLine).clear()
