"""The process table."""

from __future__ import annotations

from collections.abc import Iterable

from gputop.model.grouping import Entry, View
from gputop.model.process_metrics import COLUMNS
from gputop.settings import Session
from gputop.tui.widgets.columns import Fitted, cut, heading, row
from gputop.tui.widgets.lines import Piece, spread
from gputop.tui.widgets.processcolumns import ProcessColumns
from gputop.tui.widgets.processlines import ProcessLines

_SHIFT = 16
_ROLES = {"ended": "quiet", "unexplained": "notice"}


class ProcessTable(ProcessLines):
    """The lines under their labels, and the rule above them that says what is shown."""

    HELP = "Processes with memory or work on a GPU; one on two GPUs has two rows."

    head_lines = 2

    def __init__(self, settings: Session, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(settings, id=id)
        self.above = ""
        """What the rule says of the pane above it."""
        self._cells = ProcessColumns(settings.processes.columns, settings.processes.idle_after)
        self._columns: Fitted[Entry] = []

    def say_above(self, text: str) -> None:
        """Say something of the pane above, in the rule between the two."""
        self.above = text
        self.sync([0])

    @property
    def chosen_columns(self) -> tuple[str, ...]:
        """The ids of the columns that were chosen; empty: those that are usual are shown."""
        return self._cells.chosen

    def show_columns(self, columns: tuple[str, ...]) -> None:
        """Other columns, or in another order."""
        self._cells.chosen = columns
        self._fit()
        self.sync()

    def action_shift(self, direction: int) -> None:
        """Scroll the command line sideways, until the end of the longest is in sight."""
        end = max((len(self._cells.command(entry)) for entry in self._rows), default=0)
        seen = next((width for column, width in self._columns if column.id == "command"), 1)
        shift = self._cells.shift + direction * _SHIFT
        self._cells.shift = min(max(0, shift), max(0, end - seen))
        self._fit()
        self.sync()

    def action_toggle_command(self) -> None:
        """The script first, or the whole line."""
        self._cells.full_command = not self._cells.full_command
        self._cells.shift = 0
        self._fit()
        self.sync()

    def on_resize(self) -> None:
        """Another width: other columns."""
        self._fit()
        super().on_resize()

    def head(self, y: int) -> Iterable[Piece]:
        """The rule with what is shown, and the labels."""
        if y == 1:
            mark = self.glyphs.descending if self.descending else self.glyphs.ascending
            return [(" ", "quiet"), *heading(self._columns, self._gap, self.sort_id, mark)]
        return self._rule()

    def row_pieces(self, row_: Entry, selected: bool) -> Iterable[Piece]:
        """One process on one GPU, or a group."""
        role = "cursor" if selected else _ROLES.get(row_.kind)
        if row_.kind == "unexplained":
            pieces = self._cells.across(row_, max(1, self.size.width - 1), role or "text")
        else:
            pieces = row(self._columns, row_, self._gap, self.glyphs.ellipsis, role)
        lead, lead_role = self.glyphs.cursor if selected else " ", role or "text"
        if self._tags and (keys := self._processes(row_)) and self._tags.keys() >= set(keys):
            lead, lead_role = self.glyphs.tag, role or "notice"
        return [(lead, lead_role), *pieces]

    def empty(self) -> Iterable[Piece]:
        """Why there is no row."""
        if self._frame is None:
            return ()
        if self._total:
            what = "the filter; Esc drops it" if self.view == View() else "this view; Esc goes back"
            return [(f"  no process fits {what}", "quiet")]
        if any(gpu.processes_known is False for gpu in self._frame.gpus):
            why = ": Windows runs it (WSL)" if self._frame.host.wsl else ""
            return [(f"  the driver does not list the processes here{why}", "notice")]
        return [("  no process is on a GPU", "quiet")]

    @property
    def _gap(self) -> int:
        return 2 if self.size.width >= 110 else 1

    def _rule(self) -> list[Piece]:
        line = self.glyphs.rule
        first, last, shown = (min(place, len(self._rows) - self._told) for place in self.span)
        whole = self._fitting == self._total and not self.filter
        count = f"{self._total}" if whole else f"{self._fitting} of {self._total}"
        if last - first + 1 < shown:
            lines = f"{first}-{last} of {shown}"
            count = lines if count == f"{shown}" else f"{lines} ({count})"
        mark = self.glyphs.descending if self.descending else self.glyphs.ascending
        left: list[Piece] = [(f"{line} ", "track")]
        for text, role in self._said():
            left += [(f"{text} ", role), (f"{line * 2} ", "track")]
        right: list[Piece] = [
            (f" sort: {COLUMNS[self.sort_id].label} {mark} ", "quiet"),
            (line * 2, "track"),
            (f" {count} ", "quiet"),
            (line, "track"),
        ]
        pieces = spread(left[:-1], right, self.size.width, line)
        return [(text, "track" if text.strip(line) == "" else role) for text, role in pieces]

    def _said(self) -> Iterable[Piece]:
        """What the rule says of the pane above, of tags, view and filter."""
        tagged = len(self.tagged)
        texts = (
            (self.above, "notice"),
            ("Processes", "heading"),
            (f"{tagged} tagged" if tagged else "", "notice"),
            (self.view.words(self._frame.gpus if self._frame else ()), "notice"),
            (self.filter and f"filter: {self.filter}", "notice"),
        )
        most = max(16, self.size.width // 3 + 8)
        return [
            (cut(self.glyphs.text(text), most, self.glyphs.ellipsis), role)
            for text, role in texts
            if text
        ]

    def _fit(self) -> None:
        self._columns = self._cells.fitted(
            self.size.width, self._gap, self._longest, self.sort_id, self.glyphs
        )
