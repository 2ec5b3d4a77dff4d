"""The parts of the screen of a fleet: facts, what is free, columns of hosts, processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from gputop.model.fleet.fleet import Fleet, FleetTotals
from gputop.model.fleet.host_row import HostRow
from gputop.model.fleet.host_summary import LAMPS, LampKind
from gputop.model.machine.frame import Frame, ProcessKey
from gputop.model.machine.text import GIB, MISSING, counted, duration, size
from gputop.settings import Session, Thresholds
from gputop.tui.glyphs import GlyphSet
from gputop.tui.panes.columns import Column
from gputop.tui.panes.gpu_cells import load_piece, load_role, percent_piece, value
from gputop.tui.panes.gpu_who import names
from gputop.tui.panes.hosts import Facts
from gputop.tui.panes.lines import Lines, Piece, spread, width_of
from gputop.tui.panes.process_columns import RANKS, ProcessColumns
from gputop.tui.panes.processes import ProcessTable
from gputop.tui.themes import LEVEL_ROLES

_LEAST_LAMPS, _MOST_LAMPS = 4, 16
_LEAST_FREE = 5
_ROLES: dict[LampKind, str] = {
    "free": "good", "used": "load", "idle": "notice", "hung": "alarm", "sick": "alarm",
    "unknown": "quiet",
}  # fmt: skip
_RANKS = {"host": 0, **RANKS, "user": 1, "gpu_memory": 2, "pid": 3}
del _RANKS["cuda"]  # it would be worked out for every host every second
_WIDE = 150
"""From this width on, in cells, the legend stands beside the free GPUs, otherwise below; and there
is room for what is the same on most hosts."""
_GAP = 4
"""Cells between the free GPUs and the legend."""
_MAX_MODEL_WIDTH = 16


def fleet_facts(totals: FleetTotals, shown: int, is_demo: bool) -> Facts:
    """Yield the known facts of a fleet, the most important first; `shown`: how many of its hosts
    the filter leaves."""
    hosts, seen = totals.hosts, totals.seen
    of = "" if shown == hosts else f"{shown} of "
    demo: list[Piece] = [("DEMO  ", "notice")] if is_demo else []
    yield [
        *demo,
        (of + counted(hosts, "host") + (f", {seen} seen" if seen < hosts else ""), "text"),
    ]
    if totals.alarms:
        yield [(counted(totals.alarms, "alarm"), "alarm")]
    if not seen:
        return
    gpus, role = counted(totals.gpus, "GPU"), "good" if totals.free else "text"
    free: list[Piece] = [] if totals.free is None else [(f"{totals.free} free", role)]
    if totals.slices.words:
        free.append((f"{totals.slices.words} free", "good" if totals.slices.free else "text"))
    yield [(gpus, "text"), *(piece for part in free for piece in ((", ", "text"), part))]
    yield [("users unknown" if totals.users is None else counted(totals.users, "user"), "text")]


class FreeLine(Lines):
    """The free GPUs as `host:index`, as many as fit, and what the lamps mean: beside them if there
    is room, otherwise in a second line."""

    _free: Sequence[str] = ()
    _is_known = False

    def show_free(self, free: Sequence[str], is_known: bool) -> None:
        """Show the hosts with free GPUs, each with their indices. If there are none, `is_known`
        says whether that is certain."""
        self._free, self._is_known = free, is_known
        self.repaint_changed()

    def wanted(self, width: int) -> int:
        """Return how many lines it takes at this width, in cells."""
        return 1 if width >= _WIDE else 2

    def pieces(self, y: int) -> Iterable[Piece]:
        legend, width = [piece for kind in LAMPS for piece in self._lamp(kind)], self.size.width
        if y:
            return [(" ", "text"), *legend]
        if width < _WIDE:
            return self._hosts(width)
        return spread([*self._hosts(width - width_of(legend) - _GAP)], legend, width)

    def _lamp(self, kind: LampKind) -> list[Piece]:
        return [(lamp_sign(kind, self.glyphs), _ROLES[kind]), (f" {kind}  ", "quiet")]

    def _hosts(self, room: int) -> Iterable[Piece]:
        """Return the hosts with free GPUs, as many as there is room for, in cells."""
        if not self._free:
            words = "no host has a free GPU" if self._is_known else "free  unknown"
            return [(f" {words}", "quiet")]
        pieces: list[Piece] = [(" free  ", "quiet")]
        room -= width_of(pieces)
        for number, host in enumerate(self._free):
            left = len(self._free) - number - 1
            more = f"+{counted(left, 'host')}" if left else ""
            piece = f"{self.glyphs.text(host)}  "
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

    def of(self, rows: Sequence[HostRow], width: int) -> list[Column[HostRow]]:
        """Return the columns for these rows on a screen of `width` cells."""
        most = max((len(row.summary.lamps) for row in rows if row.summary), default=0)
        lamps = min(max(_LEAST_LAMPS, most), _MOST_LAMPS)
        model = min(_MAX_MODEL_WIDTH, _widest(self._model, rows, len("MODEL")))
        free = _widest(self._free, rows, _LEAST_FREE)
        memory, age = _widest(self._memory, rows, 9), _widest(self._age, rows, 4)
        driver = _widest(self._driver, rows, len("DRIVER"))
        columns = [
            Column("gpus", "GPUS", lamps, max(lamps, most), 0, self._lamps, left=True),
            Column("free", "FREE", free, free, 1, self._free),
            Column("model", "MODEL", min(model, 8), model, 5, self._model, left=True),
            Column("utilization", "UTIL", 4, 4, 3, self._utilization),
            Column("gpu_memory", "MEM-FREE", 8, 8, 4, self._memory_free),
            Column("who", "WHO", 10, 28, 2, self._who, left=True),
            Column("cpu", "CPU", 4, 4, 7, self._cpu),
            Column("memory", "RAM", memory, memory, 8, self._memory),
            Column("driver", "DRIVER", driver, driver, 10, self._driver, left=True),
            Column("age", "AGE", age, age, 6, self._age),
            Column("round_trip", "RTT", 6, 6, 9, self._round_trip),
            Column("remark", "ATTENTION", 12, 24, 1, self._remark, left=True),
        ]
        if width < _WIDE:
            columns = [column for column in columns if column.id != "driver"]
        if all(row.link.round_trip is None for row in rows):
            columns = [column for column in columns if column.id != "round_trip"]
        return columns

    def _lamps(self, row: HostRow, width: int) -> Sequence[Piece]:
        lamps = row.summary.lamps if row.summary else ()
        return [
            (lamp_sign(kind, Lines.glyphs) * len(list(run)), "quiet" if row.late else _ROLES[kind])
            for kind, run in groupby(lamps)
        ]

    def _free(self, row: HostRow, width: int) -> Sequence[Piece]:
        if row.summary is None or row.late:
            return [value(MISSING)]
        pieces: list[Piece] = []
        if row.summary.has_whole_gpus:
            pieces = self._free_gpus(row.free, len(row.summary.frame.gpus))
        if words := row.summary.slices.words:
            pieces += [(", ", "quiet")] * bool(pieces)
            pieces.append((words, "good" if row.summary.slices.free else "text"))
        return pieces or [value(MISSING)]

    def _free_gpus(self, free: int | None, total: int) -> list[Piece]:
        if free is None:
            return [value(MISSING)]
        return [(f"{free}", "good" if free else "text"), (f"/{total}", "quiet")]

    def _who(self, row: HostRow, width: int) -> Sequence[Piece]:
        return names(row.summary.users if row.summary else (), 0, width)

    def _model(self, row: HostRow, width: int) -> Sequence[Piece]:
        """Return the model of a host's GPUs, and how many others there are."""
        models = row.summary.models if row.summary else ()
        text = f"{models[0]} +{len(models) - 1}" if len(models) > 1 else "".join(models) or MISSING
        return [value(Lines.glyphs.text(text))]

    def _driver(self, row: HostRow, width: int) -> Sequence[Piece]:
        version = row.summary.frame.driver_version if row.summary else None
        return [value(Lines.glyphs.text(version or MISSING), "quiet")]

    def _utilization(self, row: HostRow, width: int) -> Sequence[Piece]:
        share = row.summary.utilization if row.summary else None
        return [percent_piece(share, "quiet") if row.late else load_piece(share, self._thresholds)]

    def _memory_free(self, row: HostRow, width: int) -> Sequence[Piece]:
        free = row.summary.memory_free if row.summary else None
        return [value(size(free), "quiet" if row.late else "text")]

    def _cpu(self, row: HostRow, width: int) -> Sequence[Piece]:
        share = row.summary.frame.host.cpu if row.summary else None
        return [load_piece(share, self._thresholds)]

    def _memory(self, row: HostRow, width: int) -> Sequence[Piece]:
        host = row.summary.frame.host if row.summary else None
        if host is None or host.memory_used is None or not host.memory_total:
            return [value(MISSING)]
        role = load_role(host.memory_used / host.memory_total, self._thresholds)
        used, total = host.memory_used / GIB, host.memory_total / GIB
        return [(f"{used:.0f}", role), (f"/{total:.0f}G", "quiet")]

    def _age(self, row: HostRow, width: int) -> Sequence[Piece]:
        return [value(duration(row.link.age), "alarm" if row.late else "quiet")]

    def _round_trip(self, row: HostRow, width: int) -> Sequence[Piece]:
        seconds = row.link.round_trip
        if seconds is None:
            return [value(MISSING)]
        digits = 1 if seconds < 0.00995 else 0
        return [(f"{seconds * 1000:.{digits}f}ms", "quiet")]

    def _remark(self, row: HostRow, width: int) -> Sequence[Piece]:
        mark = f"{Lines.glyphs.warning} " if row.level else ""
        return [(f"{mark}{Lines.glyphs.text(row.remark)}", LEVEL_ROLES[row.level])]


def _widest(
    draw: Callable[[HostRow, int], Sequence[Piece]], rows: Sequence[HostRow], least: int
) -> int:
    """Return how many cells the longest content of a column takes, at least `least`."""
    return max([least, *(width_of(draw(row, 0)) for row in rows)])


class FleetProcesses(ProcessTable):
    """The processes of all hosts, with the host in the first column. To act on one, the user opens
    the screen of its machine."""

    def __init__(self, settings: Session) -> None:
        super().__init__(settings, "host")
        self._cells = ProcessColumns((), _RANKS)
        self._frames: dict[str | None, Frame] = {}

    def show_fleet(self, fleet: Fleet) -> None:
        """Show the processes of all hosts."""
        self._frames = {row.host: row.summary.frame for row in fleet.rows if row.summary}
        newest = max((frame.time for frame in self._frames.values()), default=0.0)
        self.listing.show_rows(fleet.processes, newest)

    @property
    def chosen(self) -> tuple[str, ProcessKey] | None:
        """The host and the key of the process under the cursor; None for a group."""
        row = self.selected
        if row is None or row.host is None:
            return None
        return row.host, self._frames[row.host].key(row.process)

    def empty(self) -> Iterable[Piece]:
        if self.listing.every:
            return super().empty()
        return [("  no processes on the GPUs that gputop sees", "quiet")]
