"""What the screens of a fleet and of a cluster share: the heading, and a table of hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from textual.message import Message

from gputop.model.fleet.cluster import ClusterNode
from gputop.model.fleet.host_row import HostRow
from gputop.tui.panes.columns import Column, row
from gputop.tui.panes.heading import HeadingLine
from gputop.tui.panes.lines import Piece
from gputop.tui.panes.table import Table

Facts = Iterable[list[Piece]]


class HostsHeading(HeadingLine):
    """The numbers of hosts, GPUs and users, the order of the hosts, and the interval."""

    _facts: Callable[[int], Facts] = staticmethod(lambda width: ())
    _order = _right = ""

    def show_facts(self, facts: Callable[[int], Facts], order: str, right: str) -> None:
        """Show other facts. `facts` returns them for a line of so many cells, the most important
        first; `order` says how the hosts are sorted, and `right` ends the line."""
        self._facts, self._order, self._right = facts, order, right
        self.repaint_changed()

    def pieces(self, y: int) -> Iterable[Piece]:
        """Return the facts that fit; as the line gets shorter, it loses them from the right."""
        between: Piece = (f" {self.glyphs.separator} ", "quiet")
        facts = enumerate(self._facts(self.size.width))
        parted = ([between, *fact] if number else fact for number, fact in facts)
        order = f"  {self._order}" if self._order else ""
        return self.filled(self.start(), parted, order, [(f"  {self._right} ", "quiet")])


H = TypeVar("H", bound=HostRow | ClusterNode)
_LEAST_NAME, _MOST_NAME = 8, 40
"""The least and the greatest width of the names, in cells."""


class HostTable(Table[H]):
    """A row for each host: its name and columns, or a sentence instead of values."""

    @dataclass
    class HostChosen(Message):
        """Posted when the user opens the screen of a host."""

        host: str

    nothing = "no host"
    """The text shown if there is no row."""

    def __init__(self, sentence: Callable[[H], Piece | None], most_name: int = _MOST_NAME) -> None:
        """`sentence` returns what to say of a host that has no values, None if it has some;
        `most_name` is the greatest width of the names, in cells."""
        super().__init__()
        self._sentence, self._most_name = sentence, most_name
        self._all = self._named(_LEAST_NAME)

    def show_hosts(self, hosts: Sequence[H], columns: Sequence[Column[H]]) -> None:
        """Show the current state of hosts, in this order, in these columns after their names."""
        longest = max((len(host.host) for host in hosts), default=0)
        every = self._named(min(max(_LEAST_NAME, longest), self._most_name), *columns)
        if every != self._all:
            self._all = every
            self.fit()
        self.show(hosts, [host.host for host in hosts])

    def columns(self) -> Sequence[Column[H]]:
        return self._all

    def open_row(self, host: H) -> None:
        self.post_message(self.HostChosen(host.host))

    def empty(self) -> Iterable[Piece]:
        return [(f"  {self.glyphs.text(self.nothing)}", "quiet")]

    def cells(self, host: H) -> Sequence[Piece]:
        sentence = self._sentence(host)
        if sentence is None:
            return super().cells(host)
        said, (name, width) = [sentence], self._columns[0]
        room = max(1, self.size.width - 1 - width - self.gap)
        rest: Column[H] = Column("", "", room, room, 0, lambda *_: said, left=True)
        return row([(name, width), (rest, room)], host, self.gap, self.glyphs.ellipsis)

    def _named(self, width: int, *columns: Column[H]) -> list[Column[H]]:
        """Return columns with that of the names, which is up to `width` cells wide, before them."""
        return [
            Column("host", "HOST", min(width, 16), width, -1, self._host, left=True),
            *columns,
        ]

    def _host(self, host: H, width: int) -> Sequence[Piece]:
        role = "text" if self._sentence(host) is None else "quiet"
        return [(self.glyphs.text(host.host), role)]
