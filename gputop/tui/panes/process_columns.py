"""The columns of the process table."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from math import inf

from gputop.model.machine.text import GIB, MISSING, duration, three_digits
from gputop.model.metrics.metric import Metric
from gputop.model.metrics.process import (
    COLUMNS,
    NUMBERS_ON_GPU,
    PROCESS,
    SOMETIMES,
    ProcessRow,
)
from gputop.model.processes.process_listing import ProcessListing
from gputop.model.processes.views import ViewRow
from gputop.tui.glyphs import GlyphSet
from gputop.tui.panes.columns import Column, Fitted, crop_or_pad, fit
from gputop.tui.panes.lines import Piece
from gputop.tui.themes import user_role

RANKS: Mapping[str, int] = {
    "gpu": 1, "cuda": 2, "pid": 0, "user": 2, "type": 7, "gpu_memory": 1, "sm_utilization": 3,
    "idle_for": 3, "cpu": 4, "rss": 6, "state": 8, "age": 5, "command": 1,
}  # fmt: skip
"""The usual columns in their order; where there is no room, the highest rank gives way first."""
_OTHER_RANK = 2
"""That of a column which only the rows of users have."""
_OF_USERS = ("user", "gpu_memory", "idle_memory", "sm_utilization", "cpu", "rss", "age")
_LEAST_COMMAND = 16
_WIDE = 100
"""From this width on, in cells, there is room for the columns that say least."""
_WIDE_ONLY = ("type", "rss", "state")
_MAX_WIDTH = 16
_ORDINARY = {"R", "S", "I", None}
"""The states of processes with nothing wrong."""
_LEAST_IDLE = 60.0
"""A process that has done nothing for less than this, in seconds, is not called idle."""
_TELLING = 60.0
"""Seconds that a column stays after it last had something to show: it rarely comes and goes."""

_OF_DRIVER = {*NUMBERS_ON_GPU, "idle_memory"}
"""Columns whose values are old, and dim, while the GPU does not answer."""


class ProcessColumns:
    """The cells of the process table; commands are short or whole, from character `shift` on."""

    def __init__(self, chosen: tuple[str, ...], ranks: Mapping[str, int] = RANKS) -> None:
        """`ranks`: those of the usual columns, in their order."""
        self._ranks, self.chosen = ranks, chosen
        """Metric ids in the order of the columns, with `?` if they are shown only while they tell
        something; empty for the usual ones."""
        self._latest = {"type": -inf, "state": -inf, "idle_for": -inf}
        """When each column that only sometimes has something to show last had it."""
        self._time = 0.0
        self._longest: dict[str, int] = {}
        """The length of the longest text, by metric id."""
        self._with_idle = False
        self._groups: dict[Hashable, str] = {}
        """The roles of GPU indices by row, where processes of one GPU are below each other: the
        first stands out, and the others recede."""
        self.by_user = False
        """Whether the rows are users."""
        self.shift = 0
        self.full_command = False

    def show(self, listing: ProcessListing) -> None:
        """Take in the rows of a listing, and its processes that are out of sight."""
        self.show_rows([line.row for line in listing.every], listing.time)
        self._longest |= _longest_sums(listing.rows)
        self.by_user = listing.view.shape == "users"
        is_grouped = listing.view.shape == "flat" and listing.order[0] == "gpu"
        self._groups = _group_roles(listing.rows) if is_grouped else {}

    def show_rows(self, rows: Sequence[ProcessRow], time: float) -> None:
        """Note which columns have something to show for these rows, at `time` in seconds, and how
        long it is."""
        self._time, self._longest = time, _longest(rows)
        types = {row.process.type for row in rows}
        tells = {
            "type": len(types) > 1,
            "state": not _ORDINARY.issuperset(row.process.state for row in rows),
            "idle_for": any(row.idle_memory for row in rows),
        }
        self._latest.update({metric_id: time for metric_id in tells if tells[metric_id]})

    def fitted(self, width: int, gap: int, glyphs: GlyphSet) -> Fitted[ViewRow]:
        """Return the columns that fit a width, some as wide as the longest text in them."""
        self._glyphs, longest = glyphs, self._longest
        columns = [
            self._column(id_, max(metric.width, min(_MAX_WIDTH, longest.get(id_, 0))))
            for id_, metric in self._wanted(width)
        ]
        fitted = fit(columns, max(1, width - 1), gap)
        self._with_idle = any(column.id == "idle_for" for column, _ in fitted)
        return fitted

    def _wanted(self, width: int) -> Iterator[tuple[str, Metric[ProcessRow]]]:
        """Return the chosen columns, or otherwise the usual ones; of those with a `?` the ones that
        tell something. The command is always the last."""
        usual = [f"{id_}?" if id_ in SOMETIMES else id_ for id_ in self._ranks]
        for name in _OF_USERS if self.by_user else self.chosen or usual:
            metric_id = name.removesuffix("?")
            if metric_id != "command" and (metric_id == name or self._tells(metric_id, width)):
                yield metric_id, COLUMNS[metric_id]
        yield "command", COLUMNS["command"]

    def _tells(self, metric_id: str, width: int) -> bool:
        """Return whether a column has something to show, or had of late, and there is room."""
        since = self._time - self._latest.get(metric_id, self._time)
        return (width >= _WIDE or metric_id not in _WIDE_ONLY) and 0 <= since <= _TELLING

    def _rank(self, metric_id: str) -> int:
        if self.by_user or not self.chosen:
            return self._ranks.get(metric_id, _OTHER_RANK)
        ids = [name.removesuffix("?") for name in self.chosen]
        return 1 if metric_id == "command" else ids.index(metric_id)

    def command(self, view_row: ViewRow) -> str:
        """Return the command in full, including what is scrolled out of sight."""
        if self.full_command:
            return view_row.row.process.command or ""
        return PROCESS["command"].text(view_row.row)

    def across(self, view_row: ViewRow, width: int) -> list[Piece]:
        """Return a row as a sentence across all columns, if it says more than columns hold."""
        process, gpu = view_row.row.process, PROCESS["gpu"].text(view_row.row)
        held = process.gpu_memory
        amount = "memory" if held is None else f"{three_digits(held / GIB)} GiB"
        if process.pid:
            who = f"PID {process.pid} {process.user or ''}".rstrip()
            amount = f"{view_row.note} {amount}: {who}:"
        text = f"GPU {gpu}: {amount} {process.command or ''}"
        shown = self._glyphs.text(text[self.shift :])
        return crop_or_pad([(shown, "notice")], width, self._glyphs.ellipsis)

    def _column(self, metric_id: str, width: int) -> Column[ViewRow]:
        metric = COLUMNS[metric_id]
        label, width = metric.label, max(width, len(metric.label))
        if metric_id == "command":
            width = _LEAST_COMMAND
            label = "PROCESSES" if self.by_user else label
            label += f" from {self.shift}" if self.shift else ""
        own = {"command": self._command, "user": self._user, "idle_for": self._idle_for}
        draw = own.get(metric_id) or partial(self._plain, metric_id)
        return Column(metric_id, label, width, width, self._rank(metric_id), draw, metric.left)

    def _plain(self, metric_id: str, view_row: ViewRow, width: int) -> Sequence[Piece]:
        text = COLUMNS[metric_id].text(view_row.row)
        if text == MISSING or (metric_id == "pid" and not view_row.row.process.pid):
            return [(self._glyphs.not_available, "quiet")]
        if metric_id == "gpu":
            return [(text, self._groups.get(view_row.key, "text"))]
        gpu = view_row.row.gpu if metric_id in _OF_DRIVER else None
        is_old = gpu is not None and gpu.state != "answers"
        is_why_not = metric_id == "cuda" and not text.startswith("cuda:")
        return [(text, "quiet" if is_why_not or is_old else "text")]

    def _user(self, view_row: ViewRow, width: int) -> Sequence[Piece]:
        user = view_row.row.process.user
        if user is None:
            return [(self._glyphs.not_available, "quiet")]
        return [(self._glyphs.text(user), user_role(user))]

    def _command(self, view_row: ViewRow, width: int) -> Sequence[Piece]:
        row, glyphs = view_row.row, self._glyphs
        pieces: list[Piece] = []
        if view_row.depth:
            branch = glyphs.last_branch if view_row.last else glyphs.branch
            pieces.append(("  " * (view_row.depth - 1) + f"{branch} ", "track"))
        if view_row.note:
            pieces.append((f"{view_row.note} ", "notice"))
        if view_row.row.idle_memory and view_row.kind == "process" and not self._with_idle:
            pieces.append((f"idle {duration(view_row.row.process.idle_for)} ", "notice"))
        if row.misspelt is not None:
            pieces.append((f"{glyphs.warning} {glyphs.text(row.misspelt)} ", "notice"))
        if row.process.command is None:
            why = "not in this /proc: another PID namespace, or it just ended"
            if row.process.elsewhere:
                why = "may be a host PID"
            return [*pieces, (why, "quiet")]
        return [*pieces, (glyphs.text(self.command(view_row)[self.shift :]), "text")]

    def _idle_for(self, view_row: ViewRow, width: int) -> Sequence[Piece]:
        """Return how long a process has done nothing; blank if it works or pauses only briefly."""
        idle = view_row.row.process.idle_for
        if idle is None:
            return [] if view_row.members else [(self._glyphs.not_available, "quiet")]
        if view_row.row.idle_memory:
            return [(duration(idle), "notice")]
        return [(duration(idle), "quiet")] if idle >= _LEAST_IDLE else []


def _group_roles(lines: Iterable[ViewRow]) -> dict[Hashable, str]:
    """Return the roles of GPU indices in groups of several rows."""
    roles: dict[Hashable, str] = {}
    for _, group in groupby(lines, key=lambda line: line.row.gpu and line.row.gpu.key):
        first, *others = (line.key for line in group)
        if others:
            roles |= {first: "heading", **dict.fromkeys(others, "quiet")}
    return roles


def _longest(rows: Iterable[ProcessRow]) -> dict[str, int]:
    """Return the length of the longest text in each column that is as wide as its texts."""
    gpu, users, gpus, hosts = COLUMNS["gpu"].text, {0}, {0}, {0}
    for row in rows:
        users.add(len(row.process.user or ""))
        if row.process.gpu_instance is not None:
            gpus.add(len(gpu(row)))
        if row.host is not None:
            hosts.add(len(row.host))
    return {"user": max(users), "gpu": max(gpus), "host": max(hosts)}


def _longest_sums(lines: Iterable[ViewRow]) -> dict[str, int]:
    """Return the length of the longest sum in each column that groups add up."""
    groups = [line.row for line in lines if line.members]
    return {
        metric_id: max((len(COLUMNS[metric_id].text(row)) for row in groups), default=0)
        for metric_id in ("sm_utilization", "cpu")
    }
