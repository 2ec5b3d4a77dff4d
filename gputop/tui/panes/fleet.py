"""The parts of the screen of many hosts: the heading, what is free, hosts and processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from gputop.model.fleet.fleet import FleetTotals
from gputop.model.fleet.host_row import HostRow
from gputop.model.fleet.host_summary import LampKind
from gputop.model.machine.text import GIB, MISSING, counted, duration, percent
from gputop.settings import Session
from gputop.tui.glyphs import GlyphSet
from gputop.tui.panes.columns import Column
from gputop.tui.panes.gpu_cells import load_role, value
from gputop.tui.panes.gpu_who import names
from gputop.tui.panes.heading import HeadingLine
from gputop.tui.panes.lines import Lines, Piece, spread, width_of
from gputop.tui.panes.machine_table import MachineTable
from gputop.tui.panes.process_columns import ProcessColumns
from gputop.tui.panes.processes import ProcessTable
from gputop.tui.themes import LEVEL_ROLES

_LEAST_LAMPS, _MOST_LAMPS = 4, 16
_ROLES: dict[LampKind, str] = {
    "free": "good", "used": "load", "idle": "notice", "hung": "alarm", "sick": "alarm",
    "unknown": "quiet",
}  # fmt: skip
_COLUMNS = ("host", "gpu", "user", "gpu_memory", "sm_utilization", "idle_for", "pid")
_WIDE_ONLY = ("cpu", "age")
_WIDE = 100
"""From this width on, in cells, there is room for the columns above."""


class FleetHeading(HeadingLine):
    """The numbers of hosts, GPUs and users, and the number of alarms."""

    def __init__(self, note: str = "", *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.note = note
        self._totals: FleetTotals | None = None
        self._order, self._interval, self._demo = "", 1.0, False

    def show_totals(self, totals: FleetTotals, order: str, interval: float, demo: bool) -> None:
        """Show new totals. `order` says how hosts are sorted; `interval` is in seconds."""
        self._totals, self._order, self._interval, self._demo = totals, order, interval, demo
        self.sync()

    def pieces(self, y: int) -> Iterable[Piece]:
        """Return the facts that fit; as the line gets shorter, it loses them from the right."""
        pieces = self.start()
        if self._demo:
            pieces.append(("DEMO  ", "notice"))
        right: list[Piece] = [(f"  {self._interval:g}s ", "quiet")]
        if self._totals is None:
            return spread(pieces, right, self.size.width)
        return self.filled(pieces, self._facts(self._totals), f"  {self._order}", right)

    def _facts(self, totals: FleetTotals) -> Iterable[list[Piece]]:
        """Return the known facts, the most important first."""
        between: Piece = (f" {self.glyphs.separator} ", "quiet")
        hosts, seen = totals.hosts, totals.seen
        yield [(counted(hosts, "host") + (f", {seen} seen" if seen < hosts else ""), "text")]
        if totals.alarms:
            yield [between, (counted(totals.alarms, "alarm"), "alarm")]
        if not seen:
            return
        gpus, role = counted(totals.gpus, "GPU"), "good" if totals.free else "text"
        if totals.free is None:
            yield [between, (gpus, "text")]
        else:
            yield [between, (f"{gpus}, ", "text"), (f"{totals.free} free", role)]
        users = "users unknown" if totals.users is None else counted(totals.users, "user")
        yield [between, (users, "text")]


class FreeLine(Lines):
    """The free GPUs as `host:index`, as many as fit."""

    _free: Sequence[tuple[str, str]] = ()
    _is_known = False

    def show_free(self, free: Sequence[tuple[str, str]], is_known: bool) -> None:
        """Show the hosts with free GPUs, each with their indices. If there are none, `is_known`
        says whether that is certain."""
        self._free, self._is_known = free, is_known
        self.sync()

    def pieces(self, y: int) -> Iterable[Piece]:
        pieces: list[Piece] = [(" free  ", "quiet")]
        if not self._free:
            return [*pieces, ("none" if self._is_known else "unknown", "text")]
        room = self.size.width - width_of(pieces)
        for number, (host, indices) in enumerate(self._free):
            left = len(self._free) - number - 1
            more = f"+{counted(left, 'host')}" if left else ""
            piece = f"{self.glyphs.text(host)}:{indices}  "
            if width_of([(piece, "")]) + len(more) > room:
                return [*pieces, (f"+{counted(left + 1, 'host')}", "quiet")]
            pieces.append((piece, "good"))
            room -= width_of(pieces[-1:])
        return pieces


def lamp_sign(kind: LampKind, glyphs: GlyphSet) -> str:
    """Return the sign of a lamp, one cell wide."""
    signs: dict[LampKind, str] = {
        "free": glyphs.lamp_free,
        "used": glyphs.lamp_used,
        "idle": glyphs.lamp_idle,
        "hung": glyphs.stale,
        "sick": glyphs.warning,
        "unknown": glyphs.not_available,
    }
    return signs[kind]


class HostTable(MachineTable[HostRow]):
    """A row for each host: its GPUs as lamps, its users, what needs attention; or why it has no
    values."""

    most_name = 32

    def __init__(self, settings: Session, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(settings, id=id)
        self._most_gpus, self._are_remote = 0, False

    def show_hosts(self, rows: Sequence[HostRow]) -> None:
        """Show the current state of the hosts, in this order."""
        self._most_gpus = max((len(row_.summary.lamps) for row_ in rows if row_.summary), default=0)
        self._are_remote = any(row_.link.round_trip is not None for row_ in rows)
        self.show_machines(rows, self._most_gpus, self._are_remote)

    def sentence(self, row_: HostRow) -> Piece | None:
        if row_.summary is not None:
            return None
        mark = f"{self.glyphs.warning} " if row_.level == "error" else ""
        return f"{mark}{self.glyphs.text(row_.remark)}", LEVEL_ROLES[row_.level]

    def columns(self) -> list[Column[HostRow]]:
        lamps = min(max(_LEAST_LAMPS, self._most_gpus), _MOST_LAMPS)
        columns = [
            self.host_column(),
            Column("gpus", "GPUS", lamps, max(lamps, self._most_gpus), 0, self._lamps, left=True),
            Column("free", "FREE", 5, 5, 1, self._free),
            Column("who", "WHO", 10, 28, 2, self._who, left=True),
            Column("cpu", "CPU", 4, 4, 4, self._cpu),
            Column("memory", "RAM", 9, 9, 5, self._memory),
            Column("age", "AGE", 4, 4, 3, self._age),
            Column("round_trip", "RTT", 6, 6, 6, self._round_trip),
            Column("remark", "ATTENTION", 12, 24, 1, self._remark, left=True),
        ]
        return [column for column in columns if self._are_remote or column.id != "round_trip"]

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
        return names(row_.summary.users if row_.summary else (), 0, width, self.glyphs)

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
        return [(f"{mark}{self.glyphs.text(row_.remark)}", LEVEL_ROLES[row_.level])]


class FleetProcesses(ProcessTable):
    """The processes of all hosts, with the host in the first column. To act on one, the user opens
    the screen of its machine."""

    def __init__(self, settings: Session, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(settings, "host", id=id)
        self._cells = ProcessColumns((*_COLUMNS, *_WIDE_ONLY))

    def on_resize(self) -> None:
        more = _WIDE_ONLY if self.size.width >= _WIDE else ()
        self._cells.chosen = (*_COLUMNS, *more)
        super().on_resize()

    def empty(self) -> Iterable[Piece]:
        if self.listing.every:
            return super().empty()
        return [("  no process on the GPUs that are seen", "quiet")]
