"""The hosts: a line each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from textual.binding import Binding
from textual.message import Message

from gputop.model.fleet.host_row import HostRow
from gputop.model.fleet.host_summary import LampKind
from gputop.model.machine.text import GIB, MISSING, duration, percent
from gputop.settings import Session
from gputop.tui.glyphs import GlyphSet
from gputop.tui.panes.columns import Column, Fitted, cut, fit, heading, row, sized
from gputop.tui.panes.gpu_cells import load_role, value
from gputop.tui.panes.lines import Piece, width_of
from gputop.tui.panes.table import Table
from gputop.tui.themes import user_role

_LEAST_HOST, _MOST_HOST = 8, 32
"""Cells of a name."""
_LEAST_LAMPS, _MOST_LAMPS = 4, 16
_ROLES: dict[LampKind, str] = {
    "free": "good", "used": "load", "idle": "notice", "hung": "alarm", "sick": "alarm",
    "unknown": "quiet",
}  # fmt: skip


def lamp_sign(kind: LampKind, glyphs: GlyphSet) -> str:
    """Return the sign of a lamp, a cell wide."""
    signs: dict[LampKind, str] = {
        "free": glyphs.lamp_free,
        "used": glyphs.lamp_used,
        "idle": glyphs.lamp_idle,
        "hung": glyphs.stale,
        "sick": glyphs.warning,
        "unknown": glyphs.not_available,
    }
    return signs[kind]


class HostTable(Table[HostRow]):
    """A row a host: lamps of its GPUs, who is there, what needs attention; or why there is nothing
    to see."""

    BINDINGS = [Binding("enter", "choose", "Open", id="hosts.choose", show=False)]

    @dataclass
    class HostChosen(Message):
        """The screen of a host is wanted."""

        host: str

    def __init__(self, settings: Session, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._thresholds = settings.thresholds
        self._fitted: Fitted[HostRow] = []
        self._longest, self._most_gpus, self._are_remote = 0, 0, False

    def show_hosts(self, rows: Sequence[HostRow]) -> None:
        """Show how the hosts are now, in this order."""
        before = self._longest, self._most_gpus, self._are_remote
        self._longest = max((len(row_.host) for row_ in rows), default=0)
        self._most_gpus = max((len(row_.summary.lamps) for row_ in rows if row_.summary), default=0)
        self._are_remote = any(row_.link.round_trip is not None for row_ in rows)
        if before != (self._longest, self._most_gpus, self._are_remote):
            self._fit()
        self.show(rows, [row_.host for row_ in rows])

    def on_resize(self) -> None:
        self._fit()
        super().on_resize()

    def open_row(self, row_: HostRow) -> None:
        self.post_message(self.HostChosen(row_.host))

    def head(self, y: int) -> Iterable[Piece]:
        return [(" ", "quiet"), *heading(self._fitted, self.gap)]

    def row_pieces(self, row_: HostRow, selected: bool) -> Iterable[Piece]:
        lead, cursor = self.cursor_of(selected)
        if row_.summary is not None:
            pieces = row(self._fitted, row_, self.gap, self.glyphs.ellipsis, cursor or None)
        else:
            pieces = self._across(row_, cursor)
        return [(lead, cursor or "text"), *pieces]

    def empty(self) -> Iterable[Piece]:
        return [("  no host", "quiet")]

    def _across(self, row_: HostRow, cursor: str) -> list[Piece]:
        """Return the name, and a sentence where the values of others are."""
        width = self._fitted[0][1] if self._fitted else 0
        mark = f"{self.glyphs.warning} " if row_.level == "alarm" else ""
        words = [(f"{mark}{self.glyphs.text(row_.remark)}", cursor or row_.level or "quiet")]
        name = sized([self._host(row_, width)[0]], width, self.glyphs.ellipsis, left=True)
        if cursor:
            name = [(text, cursor) for text, _ in name]
        room = max(1, self.size.width - 1 - width - self.gap)
        gap: Piece = (" " * self.gap, cursor or "text")
        return [*name, gap, *sized(words, room, self.glyphs.ellipsis, left=True)]

    def _fit(self) -> None:
        name = min(max(_LEAST_HOST, self._longest), _MOST_HOST)
        lamps = min(max(_LEAST_LAMPS, self._most_gpus), _MOST_LAMPS)
        columns: list[Column[HostRow]] = [
            Column("host", "HOST", min(name, 16), name, 0, self._host, left=True),
            Column("gpus", "GPUS", lamps, max(lamps, self._most_gpus), 0, self._lamps, left=True),
            Column("free", "FREE", 5, 5, 1, self._free),
            Column("who", "WHO", 10, 28, 2, self._who, left=True),
            Column("cpu", "CPU", 4, 4, 4, self._cpu),
            Column("memory", "RAM", 9, 9, 5, self._memory),
            Column("age", "AGE", 4, 4, 3, self._age),
            Column("round_trip", "RTT", 6, 6, 6, self._round_trip),
            Column("remark", "ATTENTION", 12, 24, 1, self._remark, left=True),
        ]
        if not self._are_remote:
            columns = [column for column in columns if column.id != "round_trip"]
        self._fitted = fit(columns, max(1, self.size.width - 1), self.gap)

    def _host(self, row_: HostRow, width: int) -> Sequence[Piece]:
        return [(self.glyphs.text(row_.host), "text" if row_.summary is not None else "quiet")]

    def _lamps(self, row_: HostRow, width: int) -> Sequence[Piece]:
        lamps = row_.summary.lamps if row_.summary else ()
        return [
            (lamp_sign(kind, self.glyphs) * len(list(run)), "quiet" if row_.late else _ROLES[kind])
            for kind, run in groupby(lamps)
        ]

    def _free(self, row_: HostRow, width: int) -> Sequence[Piece]:
        if row_.summary is None or row_.free is None:
            return [value(MISSING, self.glyphs)]
        role = "good" if row_.free else "text"
        return [(f"{row_.free}", role), (f"/{len(row_.summary.lamps)}", "quiet")]

    def _who(self, row_: HostRow, width: int) -> Sequence[Piece]:
        """Return as many users as there is room for, and how many there are besides."""
        users = row_.summary.users if row_.summary else ()
        pieces: list[Piece] = []
        for number, user in enumerate(users):
            others = len(users) - number - 1
            more = f" +{others}" if others else ""
            text = (" " if pieces else "") + self.glyphs.text(user)
            room = width - width_of(pieces)
            if width_of([(text, "")]) + len(more) > room:
                if pieces:
                    return [*pieces, (f" +{others + 1}", "quiet")]
                text = cut(text, max(1, room - len(more)), self.glyphs.ellipsis)
            pieces.append((text, user_role(user)))
        return pieces

    def _cpu(self, row_: HostRow, width: int) -> Sequence[Piece]:
        share = row_.summary.frame.host.cpu if row_.summary else None
        if share is None:
            return [value(MISSING, self.glyphs)]
        return [(f"{percent(share)}%", load_role(share, self._thresholds))]

    def _memory(self, row_: HostRow, width: int) -> Sequence[Piece]:
        host = row_.summary.frame.host if row_.summary else None
        if host is None or host.memory_used is None or not host.memory_total:
            return [value(MISSING, self.glyphs)]
        role = load_role(host.memory_used / host.memory_total, self._thresholds)
        used, total = host.memory_used / GIB, host.memory_total / GIB
        return [(f"{used:.0f}", role), (f"/{total:.0f}G", "quiet")]

    def _age(self, row_: HostRow, width: int) -> Sequence[Piece]:
        text = MISSING if row_.link.age is None else duration(row_.link.age)
        return [value(text, self.glyphs, "alarm" if row_.late else "quiet")]

    def _round_trip(self, row_: HostRow, width: int) -> Sequence[Piece]:
        seconds = row_.link.round_trip
        if seconds is None:
            return [value(MISSING, self.glyphs)]
        digits = 1 if seconds < 0.00995 else 0
        return [(f"{seconds * 1000:.{digits}f}ms", "quiet")]

    def _remark(self, row_: HostRow, width: int) -> Sequence[Piece]:
        mark = f"{self.glyphs.warning} " if row_.level else ""
        return [(f"{mark}{self.glyphs.text(row_.remark)}", row_.level or "quiet")]
