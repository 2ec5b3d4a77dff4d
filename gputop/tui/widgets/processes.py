"""The process table."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

from gputop.model import query
from gputop.model.frame import Frame
from gputop.model.logical_names import LogicalNames
from gputop.model.metrics import PROCESS, ProcessRow
from gputop.model.text import MISSING
from gputop.tui.themes import user_role
from gputop.tui.widgets.columns import Column, cut, fit, heading, row
from gputop.tui.widgets.lines import Piece, spread
from gputop.tui.widgets.table import Table

_RANKS = {
    "gpu": 1, "cuda": 2, "pid": 0, "user": 2, "type": 7, "gpu_memory": 1, "sm_utilization": 3,
    "cpu": 4, "rss": 6, "state": 8, "age": 5, "command": 1,
}  # fmt: skip
_LEAST_COMMAND = 16
_WIDE = 100
"""Cells from which there is room for the columns that say least."""
_WIDE_ONLY = {"type", "rss", "state"}
_SHIFT = 16
_MAX_USER = 16


class ProcessTable(Table[ProcessRow]):
    """Every process on every GPU: filtered, sorted, the cursor bound to its process."""

    HELP = "Processes with memory or work on a GPU; one on two GPUs has two rows."

    head_lines = 2

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.sort_id = "gpu_memory"
        self.descending = True
        self.filter = ""
        self.full_command = False
        self.above = ""
        """What the rule says of the pane above it."""
        self._shift = 0
        self._frame: Frame | None = None
        self.names: LogicalNames | None = None
        """What the processes of the frame call their GPUs."""
        self._total = 0
        self._columns: list[tuple[Column[ProcessRow], int]] = []

    def say_above(self, text: str) -> None:
        """Say something of the pane above, in the rule between the two."""
        self.above = text
        self.sync()

    def show_frame(self, frame: Frame) -> None:
        """Another frame."""
        self._frame = frame
        self.names = LogicalNames(frame, self.names)
        self._arrange()

    def sort_by(self, metric_id: str) -> None:
        """Sort by a column; by the same again, the other way round. Text starts with A."""
        if metric_id == self.sort_id:
            self.descending = not self.descending
        else:
            self.sort_id, self.descending = metric_id, not PROCESS[metric_id].left
        self._arrange()

    def filter_by(self, text: str) -> None:
        """Show only rows that fit; see `query.matching`."""
        self.filter = text
        self._arrange()

    def action_shift(self, direction: int) -> None:
        """Scroll the command line sideways, until the end of the longest is in sight."""
        longest = max((len(self._command_of(row_)) for row_ in self._rows), default=0)
        seen = next((width for column, width in self._columns if column.id == "command"), 1)
        self._shift = min(max(0, self._shift + direction * _SHIFT), max(0, longest - seen))
        self._fit()
        self.sync()

    def action_toggle_command(self) -> None:
        """The script first, or the whole line."""
        self.full_command = not self.full_command
        self._shift = 0
        self._fit()
        self.sync()

    def on_resize(self) -> None:
        """Another width: other columns."""
        self._fit()
        super().on_resize()

    def head(self, y: int) -> Iterable[Piece]:
        """The rule with filter, order and count, then the labels."""
        if y == 1:
            mark = self.glyphs.descending if self.descending else self.glyphs.ascending
            return [(" ", "quiet"), *heading(self._columns, self._gap, self.sort_id, mark)]
        return self._rule()

    def row_pieces(self, row_: ProcessRow, selected: bool) -> Iterable[Piece]:
        """One process on one GPU."""
        role = "cursor" if selected else None
        pieces = row(self._columns, row_, self._gap, self.glyphs.ellipsis, role)
        lead = self.glyphs.cursor if selected else " "
        return [(lead, role or "text"), *pieces]

    def empty(self) -> Iterable[Piece]:
        """Why there is no row."""
        if self._frame is None:
            return ()
        if self._total:
            return [("  no process fits the filter; Esc drops it", "quiet")]
        if any(gpu.processes_known is False for gpu in self._frame.gpus):
            return [("  the driver does not list the processes here", "notice")]
        return [("  no process is on a GPU", "quiet")]

    @property
    def _gap(self) -> int:
        return 2 if self.size.width >= 110 else 1

    def _rule(self) -> list[Piece]:
        line = self.glyphs.rule
        first, last, shown = self.span
        count = f"{shown} of {self._total}" if self.filter else f"{shown}"
        place = f"{first}-{last} of {count}" if last - first + 1 < shown else count
        label = PROCESS[self.sort_id].label
        mark = self.glyphs.descending if self.descending else self.glyphs.ascending
        left: list[Piece] = [(f"{line} ", "track")]
        if self.above:
            left += [(f"{self.above} ", "notice"), (f"{line * 2} ", "track")]
        left.append(("Processes ", "heading"))
        if self.filter:
            most = max(8, self.size.width // 3)
            filter_text = cut(self.glyphs.text(self.filter), most, self.glyphs.ellipsis)
            left += [(f"{line * 2} ", "track"), (f"filter: {filter_text} ", "notice")]
        right: list[Piece] = [
            (f" sort: {label} {mark} ", "quiet"),
            (line * 2, "track"),
            (f" {place} ", "quiet"),
            (line, "track"),
        ]
        pieces = spread(left, right, self.size.width, line)
        return [(text, "track" if text.strip(line) == "" else role) for text, role in pieces]

    def _arrange(self) -> None:
        """The rows of now: matching ones, in order."""
        frame = self._frame
        if frame is None:
            return
        every = query.rows(frame, self.names)
        self._total = len(every)
        found = query.matching(every, self.filter) if self.filter else every
        rows = query.ordered(found, self.sort_id, self.descending)
        keys: list[Hashable] = [query.row_key(frame, row_) for row_ in rows]
        self._fit()
        self.show(rows, keys)

    def _fit(self) -> None:
        user = 8
        if self._frame is not None:
            names = (process.user or "" for process in self._frame.processes)
            user = min(_MAX_USER, max(8, max(map(len, names), default=8)))
        columns = [
            self._column(metric_id, user if metric_id == "user" else metric.width)
            for metric_id, metric in PROCESS.items()
            if self.size.width >= _WIDE or metric_id not in _WIDE_ONLY
        ]
        self._columns = fit(columns, max(1, self.size.width - 1), self._gap)

    def _column(self, metric_id: str, width: int) -> Column[ProcessRow]:
        metric = PROCESS[metric_id]
        draw: Callable[[ProcessRow, int], Sequence[Piece]]
        label = metric.label
        if metric_id == "command":
            least, most, draw = _LEAST_COMMAND, _LEAST_COMMAND, self._command
            label += f" from {self._shift}" if self._shift else ""
        else:
            least = most = max(width, len(metric.label) + (metric_id == self.sort_id))
            draw = self._user if metric_id == "user" else self._plain(metric_id)
        return Column(metric_id, label, least, most, _RANKS[metric_id], draw, metric.left)

    def _plain(self, metric_id: str) -> Callable[[ProcessRow, int], Sequence[Piece]]:
        metric = PROCESS[metric_id]

        def draw(row_: ProcessRow, width: int) -> Sequence[Piece]:
            text = metric.text(row_)
            if text == MISSING:
                return [(self.glyphs.not_available, "quiet")]
            return [(text, "quiet" if metric_id == "cuda" and text.isalpha() else "text")]

        return draw

    def _user(self, row_: ProcessRow, width: int) -> Sequence[Piece]:
        user = row_.process.user
        if user is None:
            return [(self.glyphs.not_available, "quiet")]
        return [(self.glyphs.text(user), user_role(user))]

    def _command(self, row_: ProcessRow, width: int) -> Sequence[Piece]:
        if row_.process.command is None:
            return [("not in this /proc: another PID namespace, or it just ended", "quiet")]
        command = (self.glyphs.text(self._command_of(row_)[self._shift :]), "text")
        if row_.misspelt is None:
            return [command]
        return [(f"{self.glyphs.warning} {self.glyphs.text(row_.misspelt)} ", "notice"), command]

    def _command_of(self, row_: ProcessRow) -> str:
        if self.full_command:
            return row_.process.command or ""
        return PROCESS["command"].text(row_)
