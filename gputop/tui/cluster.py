"""The screen of thousands of machines: their sums, and those that were asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from textual.app import ComposeResult
from textual.screen import Screen

from gputop.model.fleet.cluster import MOST_COUNT, NODE_ORDERS, ClusterState, NodePage
from gputop.model.machine.text import printable
from gputop.settings import Session
from gputop.tui.cluster_keys import CLUSTER_BINDINGS, FIRST
from gputop.tui.panes.cluster_heading import ClusterHeading, ClusterNote, ClusterSums
from gputop.tui.panes.cluster_nodes import NodeTable
from gputop.tui.panes.filter_line import FilterLine
from gputop.tui.panes.heading import KeyLine, key_words
from gputop.tui.saving import NOTE_SECONDS, save
from gputop.tui.terminal.key_queue import keyed

_LEAST_NODES = 6
"""Lines that the table has in any case before there are sums."""


class ClusterScreen(Screen[None]):
    """All machines that a server knows. Whatever is done to one is done on its own screen."""

    AUTO_FOCUS = "#nodes"

    BINDINGS = CLUSTER_BINDINGS

    def __init__(
        self,
        server: str,
        settings: Session,
        ask: Callable[[NodePage], None],
        open_host: Callable[[str], Awaitable[None]],
    ) -> None:
        """`ask` has other nodes fetched; `open_host` opens the screen of a machine."""
        super().__init__()
        self.settings = settings
        self._server, self._ask, self._open_host = printable(server, 100), ask, open_host
        self._state = ClusterState()
        self._shown: ClusterState | None = None
        """The last but for its age, which moves by itself."""
        self._page = NodePage()
        """Which nodes are wanted; those that are shown may be of the one before."""

    def compose(self) -> ComposeResult:
        yield ClusterHeading(self._server, id="heading")
        yield ClusterNote(id="note")
        yield ClusterSums(self.settings.thresholds, id="sums")
        yield NodeTable(self.settings, id="nodes")
        yield FilterLine(self._filter, self._close_filter, id="filter-line")
        yield KeyLine(self._key_words(), needed=("open", "help"), id="keys")

    def on_mount(self) -> None:
        self.nodes.on_scrolled = self._ask_for_more
        self._arrange()

    def on_resize(self) -> None:
        self._arrange()

    @property
    def nodes(self) -> NodeTable:
        return self.query_one(NodeTable)

    def show_state(self, state: ClusterState, interval: float) -> None:
        """Show what is known now."""
        if not self.is_mounted:
            return
        is_new = state._replace(age=None) != self._shown
        self._state, self._shown = state, state._replace(age=None)
        order = NODE_ORDERS[self._page.order]
        self.query_one(ClusterHeading).show_state(state, order, interval)
        self.query_one(ClusterNote).show_state(state)
        if is_new:
            self.query_one(ClusterSums).show_state(state)
            self._arrange()
            self._show_nodes()

    def save(self, chosen: Mapping[str, Any]) -> None:
        """Save what was chosen in the settings; say for a while where that fails."""
        if words := save(self.settings, chosen):
            self._say(words)
            self.set_timer(NOTE_SECONDS, lambda: self._say(""))

    def _say(self, note: str) -> None:
        heading = self.query_one(ClusterHeading)
        heading.note = self.nodes.glyphs.text(note)
        heading.sync()

    def _show_nodes(self) -> None:
        table, cluster = self.nodes, self._state.cluster
        asking = f"asking {self._server}"
        if self._state.page is None:
            table.nothing = "" if self._state.error else asking
        elif self._page.matching:
            table.nothing = f"no host has {self._page.matching!r} in its name; Esc drops the filter"
        else:
            table.nothing = "no host"
        table.show_machines(cluster.nodes if cluster is not None else ())
        self._ask_for_more()

    def _ask_for_more(self) -> None:
        """Ask for twice as many nodes where the last one is in sight, and it is not all."""
        cluster, page = self._state.cluster, self._page
        if cluster is None or self._state.page != page or page.most >= MOST_COUNT:
            return
        _, last, total = self.nodes.span
        is_full = sum(node.up for node in cluster.nodes) >= page.most
        if is_full and last >= total:
            self._want(page._replace(most=min(MOST_COUNT, page.most * 2)))

    def _want(self, page: NodePage) -> None:
        self._page = page
        self._ask(page)

    def _arrange(self) -> None:
        """Give the sums what the table does not need, in whole."""
        sums = self.query_one(ClusterSums)
        wanted = sums.wanted(self.size.width)
        sums.display = self.size.height - 3 - wanted >= _LEAST_NODES
        sums.styles.height = wanted

    def _key_words(self) -> list[tuple[str, str]]:
        own = keyed(self.settings.keys, self.BINDINGS)
        first, more = own[:FIRST], own[FIRST:]
        return key_words([*first, *keyed(self.settings.keys, self.app.BINDINGS), *more])

    def _filter(self, text: str) -> None:
        """Show the hosts with this text in their names; the server looks for them."""
        if text != self._page.matching:
            self._want(NodePage(self._page.order, matching=text))

    def _close_filter(self) -> None:
        self.query_one("#keys").display = True
        self.set_focus(self.nodes)

    def action_filter(self) -> None:
        self.query_one("#keys").display = False
        self.query_one(FilterLine).edit()

    def action_open(self) -> None:
        self.nodes.action_choose()

    async def on_machine_table_machine_chosen(self, message: NodeTable.MachineChosen) -> None:
        await self._open_host(message.host)

    def action_sort(self) -> None:
        """Put nodes into the next order."""
        orders = list(NODE_ORDERS)
        order = orders[(orders.index(self._page.order) + 1) % len(orders)]
        self._want(self._page._replace(order=order))

    def action_back(self) -> None:
        """Go one step back: the cursor, the filter."""
        if self.nodes.current is not None:
            self.nodes.deselect()
        else:
            self.query_one(FilterLine).clear()
