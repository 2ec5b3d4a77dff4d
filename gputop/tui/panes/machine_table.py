"""The machines of a fleet or a cluster: one line for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from textual.binding import Binding
from textual.message import Message

from gputop.settings import Session
from gputop.tui.panes.columns import Column, sized
from gputop.tui.panes.lines import Piece
from gputop.tui.panes.table import ColumnTable


class MachineRow(Protocol):
    """What is known of a machine."""

    @property
    def host(self) -> str:
        """The name of the machine."""


M = TypeVar("M", bound=MachineRow)
_LEAST_NAME = 8
"""The least width of the names, in cells."""


class MachineTable(ColumnTable[M]):
    """A row for each machine, with its name in the first column. A subclass defines `columns` and
    `sentence`."""

    BINDINGS = [Binding("enter", "choose", "Open", id="machines.choose", show=False)]

    @dataclass
    class MachineChosen(Message):
        """Posted when the user opens the screen of a machine."""

        host: str

    nothing = "no host"
    """The text shown if there is no row."""
    most_name = 40

    def __init__(self, settings: Session, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._thresholds = settings.thresholds
        self._facts: tuple[object, ...] = ()
        self.name_width = _LEAST_NAME

    def sentence(self, machine: M) -> Piece | None:
        """Return a sentence to show instead of values; None if there are values."""
        raise NotImplementedError

    def show_machines(self, machines: Sequence[M], *facts: object) -> None:
        """Show the current state of machines, in this order; columns are fitted anew if the longest
        name or one of the `facts` has changed."""
        longest = max((len(machine.host) for machine in machines), default=0)
        if (longest, *facts) != self._facts:
            self._facts = (longest, *facts)
            self.name_width = min(max(_LEAST_NAME, longest), self.most_name)
            self.fit()
        self.show(machines, [machine.host for machine in machines])

    def open_row(self, machine: M) -> None:
        self.post_message(self.MachineChosen(machine.host))

    def empty(self) -> Iterable[Piece]:
        return [(f"  {self.glyphs.text(self.nothing)}", "quiet")]

    def row_pieces(self, machine: M, selected: bool) -> Iterable[Piece]:
        sentence = self.sentence(machine)
        if sentence is None:
            return super().row_pieces(machine, selected)
        lead, cursor = self.cursor_of(selected)
        width = self._columns[0][1] if self._columns else 0
        room = max(1, self.size.width - 1 - width - self.gap)
        pieces: list[Piece] = [
            (lead, "text"),
            *sized([(self.glyphs.text(machine.host), "quiet")], width, self.glyphs.ellipsis, True),
            (" " * self.gap, "text"),
            *sized([sentence], room, self.glyphs.ellipsis, True),
        ]
        return [(text, cursor) for text, _ in pieces] if cursor else pieces

    def host_column(self) -> Column[M]:
        """Return the column of names."""
        least = min(self.name_width, 16)
        return Column("host", "HOST", least, self.name_width, 0, self._host, left=True)

    def _host(self, machine: M, width: int) -> Sequence[Piece]:
        return [(self.glyphs.text(machine.host), "text")]
