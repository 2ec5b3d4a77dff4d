"""The parts of the screen of a fleet: facts, what is free, columns of hosts, processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from gputop.model.fleet.fleet import FleetTotals
from gputop.model.fleet.host_row import HostRow
from gputop.model.fleet.host_summary import LampKind
from gputop.model.machine.text import GIB, MISSING, counted, duration, percent
from gputop.settings import Session, Thresholds
from gputop.tui.glyphs import GlyphSet
from gputop.tui.panes.columns import Column
from gputop.tui.panes.gpu_cells import load_role, value
from gputop.tui.panes.gpu_who import names
from gputop.tui.panes.hosts import Facts
from gputop.tui.panes.lines import Lines, Piece, width_of
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


def fleet_facts(totals: FleetTotals, is_demo: bool) -> Facts:
    """Yield the known facts of a fleet, the most important first."""
    hosts, seen = totals.hosts, totals.seen
    demo: list[Piece] = [("DEMO  ", "notice")] if is_demo else []
    yield [*demo, (counted(hosts, "host") + (f", {seen} seen" if seen < hosts else ""), "text")]
    if totals.alarms:
        yield [(counted(totals.alarms, "alarm"), "alarm")]
    if not seen:
        return
    gpus, role = counted(totals.gpus, "GPU"), "good" if totals.free else "text"
    if totals.free is None:
        yield [(gpus, "text")]
    else:
        yield [(f"{gpus}, ", "text"), (f"{totals.free} free", role)]
    yield [("users unknown" if totals.users is None else counted(totals.users, "user"), "text")]


class FreeLine(Lines):
    """The free GPUs as `host:index`, as many as fit."""

    _free: Sequence[tuple[str, str]] = ()
    _is_known = False

    def show_free(self, free: Sequence[tuple[str, str]], is_known: bool) -> None:
        """Show the hosts with free GPUs, each with their indices. If there are none, `is_known`
        says whether that is certain."""
        self._free, self._is_known = free, is_known
        self.repaint_changed()

    def pieces(self, y: int) -> Iterable[Piece]:
        if not self._free:
            words = "no host has a free GPU" if self._is_known else "free  unknown"
            return [(f" {words}", "quiet")]
        pieces: list[Piece] = [(" free  ", "quiet")]
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


class FleetColumns:
    """The columns of a fleet: the GPUs of a host as lamps, its users, what needs attention."""

    def __init__(self, thresholds: Thresholds) -> None:
        self._thresholds = thresholds

    def sentence(self, row: HostRow) -> Piece | None:
        """Return why nothing is seen of a host; None if it has values."""
        if row.summary is not None:
            return None
        mark = f"{Lines.glyphs.warning} " if row.level == "error" else ""
        return f"{mark}{Lines.glyphs.text(row.remark)}", LEVEL_ROLES[row.level]

    def of(self, rows: Sequence[HostRow]) -> list[Column[HostRow]]:
        """Return the columns for these rows."""
        most = max((len(row.summary.lamps) for row in rows if row.summary), default=0)
        lamps = min(max(_LEAST_LAMPS, most), _MOST_LAMPS)
        columns = [
            Column("gpus", "GPUS", lamps, max(lamps, most), 0, self._lamps, left=True),
            Column("free", "FREE", 5, 5, 1, self._free),
            Column("who", "WHO", 10, 28, 2, self._who, left=True),
            Column("cpu", "CPU", 4, 4, 4, self._cpu),
            Column("memory", "RAM", 9, 9, 5, self._memory),
            Column("age", "AGE", 4, 4, 3, self._age),
            Column("round_trip", "RTT", 6, 6, 6, self._round_trip),
            Column("remark", "ATTENTION", 12, 24, 1, self._remark, left=True),
        ]
        are_remote = any(row.link.round_trip is not None for row in rows)
        return [column for column in columns if are_remote or column.id != "round_trip"]

    def _lamps(self, row: HostRow, width: int) -> Sequence[Piece]:
        lamps = row.summary.lamps if row.summary else ()
        return [
            (lamp_sign(kind, Lines.glyphs) * len(list(run)), "quiet" if row.late else _ROLES[kind])
            for kind, run in groupby(lamps)
        ]

    def _free(self, row: HostRow, width: int) -> Sequence[Piece]:
        if row.summary is None or row.free is None:
            return [value(MISSING, Lines.glyphs)]
        role = "good" if row.free else "text"
        return [(f"{row.free}", role), (f"/{len(row.summary.lamps)}", "quiet")]

    def _who(self, row: HostRow, width: int) -> Sequence[Piece]:
        return names(row.summary.users if row.summary else (), 0, width, Lines.glyphs)

    def _cpu(self, row: HostRow, width: int) -> Sequence[Piece]:
        share = row.summary.frame.host.cpu if row.summary else None
        if share is None:
            return [value(MISSING, Lines.glyphs)]
        return [(f"{percent(share)}%", load_role(share, self._thresholds))]

    def _memory(self, row: HostRow, width: int) -> Sequence[Piece]:
        host = row.summary.frame.host if row.summary else None
        if host is None or host.memory_used is None or not host.memory_total:
            return [value(MISSING, Lines.glyphs)]
        role = load_role(host.memory_used / host.memory_total, self._thresholds)
        used, total = host.memory_used / GIB, host.memory_total / GIB
        return [(f"{used:.0f}", role), (f"/{total:.0f}G", "quiet")]

    def _age(self, row: HostRow, width: int) -> Sequence[Piece]:
        text = MISSING if row.link.age is None else duration(row.link.age)
        return [value(text, Lines.glyphs, "alarm" if row.late else "quiet")]

    def _round_trip(self, row: HostRow, width: int) -> Sequence[Piece]:
        seconds = row.link.round_trip
        if seconds is None:
            return [value(MISSING, Lines.glyphs)]
        digits = 1 if seconds < 0.00995 else 0
        return [(f"{seconds * 1000:.{digits}f}ms", "quiet")]

    def _remark(self, row: HostRow, width: int) -> Sequence[Piece]:
        mark = f"{Lines.glyphs.warning} " if row.level else ""
        return [(f"{mark}{Lines.glyphs.text(row.remark)}", LEVEL_ROLES[row.level])]


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
