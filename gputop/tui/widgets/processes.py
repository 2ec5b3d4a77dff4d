"""The process table."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace

from gputop.model import query
from gputop.model.filter import FilterError, parse
from gputop.model.finished import Ended, Finished
from gputop.model.frame import Frame, ProcessKey
from gputop.model.grouping import Entry, View, unexplained
from gputop.model.logical_names import LogicalNames
from gputop.model.process_metrics import COLUMNS, ProcessRow
from gputop.settings import Session
from gputop.tui.widgets.columns import Fitted, cut, heading, row
from gputop.tui.widgets.lines import Piece, spread
from gputop.tui.widgets.processcolumns import ProcessColumns, longest
from gputop.tui.widgets.table import Table

_SHIFT = 16
_ROLES = {"ended": "quiet", "unexplained": "notice"}


class ProcessTable(Table[Entry]):
    """Every process on every GPU: filtered, sorted, grouped, the cursor bound to its process."""

    HELP = "Processes with memory or work on a GPU; one on two GPUs has two rows."

    head_lines = 2

    def __init__(self, settings: Session, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.sort_id, self.descending = (
            settings.processes.sort,
            not COLUMNS[settings.processes.sort].left,
        )
        self.filter = ""
        self.view = View(whose=() if settings.user is None else (settings.user,))
        self.above = ""
        """What the rule says of the pane above it."""
        self.names: LogicalNames | None = None
        """What the processes of the frame call their GPUs."""
        self._me = settings.me
        self._before = View()
        """Where Esc leads from the view of now."""
        self._opened: set[Hashable] = set()
        self._tags: dict[ProcessKey, None] = {}
        self._finished = Finished()
        self._with_finished = True
        self._frame: Frame | None = None
        self._every: list[Entry] = []
        self._unexplained: list[Entry] = []
        self._total = self._fitting = 0
        self._longest: dict[str, int] = {}  # texts, by column
        self._told = 0  # lines at the end that are no processes
        self._cells = ProcessColumns(settings.processes.columns, settings.processes.idle_after)
        self._columns: Fitted[Entry] = []

    @property
    def selected(self) -> ProcessRow | None:
        """The process under the cursor; None for a group, and for one that has ended."""
        entry = self.current
        return entry.row if entry is not None and entry.kind == "process" else None

    @property
    def tagged(self) -> list[ProcessKey]:
        """The tagged processes that are on a GPU, in the order in which they were tagged; some
        may not be in sight."""
        if self._frame is None or not self._tags:
            return []
        there = {self._frame.key(process) for process in self._frame.processes}
        return [key for key in self._tags if key in there]

    @property
    def meant(self) -> list[ProcessKey]:
        """What a signal is for: the tagged processes, and with tags nothing else; else the one
        under the cursor, or all of a group."""
        if self._tags:
            return self.tagged
        return [] if self.current is None else self._processes(self.current)

    def say_above(self, text: str) -> None:
        """Say something of the pane above, in the rule between the two."""
        self.above = text
        self.sync()

    def show_frame(self, frame: Frame) -> None:
        """Another frame."""
        self._frame = frame
        self.names = LogicalNames(frame, self.names)
        rows = query.rows(frame, self.names)
        keys = query.row_keys(frame, rows)
        self._finished.take(frame, rows, keys)
        self._every = list(map(Entry, rows, keys))
        self._unexplained = unexplained(frame)
        self._total = len(rows)
        self._longest = longest(rows)
        self._arrange()

    def sort_by(self, metric_id: str) -> None:
        """Sort by a column; by the same again, the other way round. Text starts with A."""
        if metric_id == self.sort_id:
            self.descending = not self.descending
        else:
            self.sort_id, self.descending = metric_id, not COLUMNS[metric_id].left
        self._arrange()

    @property
    def chosen_columns(self) -> tuple[str, ...]:
        """The ids of the columns that were chosen; empty: those that are usual are shown."""
        return self._cells.chosen

    def show_columns(self, columns: tuple[str, ...]) -> None:
        """Other columns, or in another order."""
        self._cells.chosen = columns
        self._fit()
        self.sync()

    def filter_by(self, text: str) -> FilterError | None:
        """Show only rows that fit; a filter that says nothing is answered with what is wrong,
        and the one before stays."""
        try:
            parse(text)
        except FilterError as error:
            return error
        self.filter = text
        self._arrange()
        return None

    def go_round(self) -> None:
        """All, mine, by user."""
        self._look(self.view.after(self._me))

    def toggle_tree(self) -> None:
        """Folded under the parents, or not."""
        self._look(replace(self.view, shape="flat" if self.view.shape == "tree" else "tree"))

    def toggle_finished(self) -> None:
        """With those that have ended, or without."""
        self._with_finished = not self._with_finished
        self._arrange()

    def only_gpu(self, key: str, instance: tuple[int, int] | None = None) -> None:
        """The processes of one GPU, or of one MIG device of it."""
        view = replace(self.view, gpu=key, instance=instance)
        self._look(view, replace(self.view, gpu=None, instance=None))

    def open(self) -> bool:
        """Open or close the group under the cursor; whether there is one."""
        entry = self.current
        if entry is None or not entry.members:
            return False
        if self.view.shape == "users":
            user = entry.row.process.user
            self._look(replace(self.view, shape="flat", whose=(user,)), self.view)
        else:
            self._opened ^= {entry.key}
            self._arrange()
        return True

    def leave_view(self) -> bool:
        """Back to all, or to where this view was opened; whether there was one to leave."""
        if self.view == View():
            return False
        self._look(self._before)
        return True

    def tag(self) -> None:
        """Tag the process under the cursor, or all of a group, and go on to the next; again: not
        any more. Nothing is tagged that has ended."""
        entry = self.current
        if entry is None:
            self.action_move(0)
            return
        keys = self._processes(entry)
        if self._tags.keys() >= set(keys):
            self._tags = {key: None for key in self._tags if key not in keys}
        else:
            self._tags.update(dict.fromkeys(keys))
        self.sync()
        self.action_move(1)

    def untag(self) -> bool:
        """Take all tags away; whether there were any."""
        were_any = bool(self.tagged)
        self._tags.clear()
        self.sync()
        return were_any

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

    def _look(self, view: View, before: View | None = None) -> None:
        """Another view; Esc leads from it to the one `before`."""
        self.view, self._before = view, before or View()
        self._arrange()

    def _processes(self, entry: Entry) -> list[ProcessKey]:
        """What a tag on an entry is put on."""
        if entry.kind in ("ended", "unexplained") or self._frame is None:
            return []
        return [self._frame.key(row_.process) for row_ in entry.members or (entry.row,)]

    def _arrange(self) -> None:
        """The lines of now: of those that fit, in order."""
        found, past = self._every, self._finished.ended if self._with_finished else []
        if past:  # where they were, among equal ones
            found = [*found, *map(_past, past)]
            found.sort(key=lambda entry: query.place(entry.row))
        found, strange = self._fit_view(found), self._fit_view(self._unexplained)
        self._fitting = len(found) - (sum(entry.kind == "ended" for entry in found) if past else 0)
        lines = self.view.lines(found, (self.sort_id, self.descending), self._opened)
        lines, self._told = lines + strange, len(strange)
        self._fit()
        self.show(lines, [entry.key for entry in lines])

    def _fit_view(self, entries: list[Entry]) -> list[Entry]:
        if self.filter:
            fits = parse(self.filter)
            entries = [entry for entry in entries if fits(entry.row)]
        if self.view.whose or self.view.gpu is not None:
            entries = [entry for entry in entries if self.view.holds(entry.row)]
        return entries

    def _fit(self) -> None:
        self._columns = self._cells.fitted(
            self.size.width, self._gap, self._longest, self.sort_id, self.glyphs
        )


def _past(one: Ended) -> Entry:
    how = f"ended ({one.how})" if one.how else "ended"
    return Entry(one.row, one.key, note=how, kind="ended")
