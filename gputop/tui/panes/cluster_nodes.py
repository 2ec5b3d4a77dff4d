"""The machines of a cluster, of which the server told: a line each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from textual.binding import Binding
from textual.message import Message

from gputop.model.fleet.cluster import ClusterNode
from gputop.model.machine.text import MISSING, duration, percent, size
from gputop.settings import Session
from gputop.tui.panes.columns import Column, Fitted, fit, heading, row, sized
from gputop.tui.panes.gpu_cells import load_role, metered, value
from gputop.tui.panes.lines import Piece, width_of
from gputop.tui.panes.table import Table
from gputop.tui.themes import user_role

_LEAST_HOST, _MOST_HOST = 8, 40
"""Cells of a name."""
_LATE = 120.0
"""Seconds from which on values are called old: scrapes are a minute apart at most places."""
DOWN = "down: its exporter does not answer"


class NodeTable(Table[ClusterNode]):
    """A row a machine: its GPUs, who is there, whether it needs attention; or that it is down."""

    BINDINGS = [Binding("enter", "choose", "Open", id="nodes.choose", show=False)]

    @dataclass
    class NodeChosen(Message):
        """The screen of a machine is wanted."""

        host: str

    def __init__(self, settings: Session, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._thresholds = settings.thresholds
        self._fitted: Fitted[ClusterNode] = []
        self._longest = 0
        self.nothing = ""
        """What is said where there is no row."""

    def show_nodes(self, nodes: Sequence[ClusterNode]) -> None:
        """Show how machines are now, in this order."""
        longest = max((len(node.host) for node in nodes), default=0)
        if longest != self._longest:
            self._longest = longest
            self._fit()
        self.show(nodes, [node.host for node in nodes])

    def on_resize(self) -> None:
        self._fit()
        super().on_resize()

    def open_row(self, node: ClusterNode) -> None:
        self.post_message(self.NodeChosen(node.host))

    def head(self, y: int) -> Iterable[Piece]:
        return [(" ", "quiet"), *heading(self._fitted, self.gap)]

    def row_pieces(self, node: ClusterNode, selected: bool) -> Iterable[Piece]:
        lead, cursor = self.cursor_of(selected)
        if node.up:
            pieces = row(self._fitted, node, self.gap, self.glyphs.ellipsis, cursor or None)
        else:
            pieces = self._down(node, cursor)
        return [(lead, cursor or "text"), *pieces]

    def empty(self) -> Iterable[Piece]:
        return [(f"  {self.glyphs.text(self.nothing)}", "quiet")]

    def _down(self, node: ClusterNode, cursor: str) -> list[Piece]:
        width = self._fitted[0][1] if self._fitted else 0
        host = (self.glyphs.text(node.host), cursor or "quiet")
        words = (f"{self.glyphs.warning} {DOWN}", cursor or "alarm")
        gap: Piece = (" " * self.gap, cursor or "text")
        room = max(1, self.size.width - 1 - width - self.gap)
        name = sized([host], width, self.glyphs.ellipsis, left=True)
        pieces = [*name, gap, *sized([words], room, self.glyphs.ellipsis, left=True)]
        return [(text, cursor) for text, _ in pieces] if cursor else pieces

    def _fit(self) -> None:
        name = min(max(_LEAST_HOST, self._longest), _MOST_HOST)
        columns: list[Column[ClusterNode]] = [
            Column("host", "HOST", min(name, 16), name, 0, self._host, left=True),
            Column("free", "FREE", 5, 7, 1, self._free),
            Column("utilization", "UTIL", 4, 24, 2, self._utilization),
            Column("memory", "GPU-MEM", 12, 28, 4, self._memory),
            Column("who", "WHO", 10, 32, 5, self._who, left=True),
            Column("age", "AGE", 5, 5, 3, self._age),
            Column("level", "ATTENTION", 9, 9, 1, self._level, left=True),
        ]
        self._fitted = fit(columns, max(1, self.size.width - 1), self.gap)

    def _host(self, node: ClusterNode, width: int) -> Sequence[Piece]:
        return [(self.glyphs.text(node.host), "text")]

    def _free(self, node: ClusterNode, width: int) -> Sequence[Piece]:
        total = (f"/{MISSING if node.gpus is None else node.gpus}", "quiet")
        if node.free is None:
            return [(self.glyphs.not_available, "quiet"), total]
        return [(f"{node.free}", "good" if node.free else "text"), total]

    def _utilization(self, node: ClusterNode, width: int) -> Sequence[Piece]:
        share = node.utilization
        if share is None:
            return [value(MISSING, self.glyphs)]
        role = load_role(share, self._thresholds)
        return metered(share, role, [(f"{percent(share)}%", role)], width, 4, self.glyphs)

    def _memory(self, node: ClusterNode, width: int) -> Sequence[Piece]:
        used, total = node.memory_used, node.memory_total
        if used is None or not total:
            return [value(MISSING, self.glyphs)]
        share = min(1.0, used / total)
        role = load_role(share, self._thresholds)
        number = [(size(int(used)), role), (f"/{size(int(total))}", "quiet")]
        return metered(share, role, number, width, 12, self.glyphs)

    def _who(self, node: ClusterNode, width: int) -> Sequence[Piece]:
        """Return as many users as there is room for, and how many there are besides."""
        pieces: list[Piece] = []
        for number, user in enumerate(node.users):
            left = len(node.users) - number
            text = (" " if pieces else "") + self.glyphs.text(user)
            more = f" +{left - 1}" if left > 1 else ""
            if pieces and width_of([*pieces, (text + more, "")]) > width:
                return [*pieces, (f" +{left}", "quiet")]
            pieces.append((text, user_role(user)))
        return pieces

    def _age(self, node: ClusterNode, width: int) -> Sequence[Piece]:
        if node.age is None:
            return [value(MISSING, self.glyphs)]
        role = "alarm" if node.age >= _LATE else "quiet"
        return [(duration(node.age), role)]

    def _level(self, node: ClusterNode, width: int) -> Sequence[Piece]:
        if node.level is None:
            return [("", "text")]
        return [(f"{self.glyphs.warning} {node.level}", node.level)]
