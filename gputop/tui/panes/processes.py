"""The process table: filtered, sorted, grouped, tagged."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace

from textual.message import Message

from gputop.model.cuda.logical_names import LogicalNames
from gputop.model.machine.frame import Frame, Process, ProcessKey
from gputop.model.machine.limits import nobody
from gputop.model.machine.signals import Verdict
from gputop.model.machine.text import plural
from gputop.model.metrics.process import COLUMNS, ProcessRow
from gputop.model.processes import process_rows
from gputop.model.processes.ended import EndedProcess, RecentlyEnded
from gputop.model.processes.filter import FilterError, absent_gpus, parse
from gputop.model.processes.views import View, ViewRow, unaccounted_rows
from gputop.settings import Session
from gputop.tui.panes.columns import column_at, cut, heading, row
from gputop.tui.panes.lines import Piece, spread
from gputop.tui.panes.process_columns import ProcessColumns, longest, longest_sums
from gputop.tui.panes.table import ColumnTable

_SHIFT = 16
"""Characters by which a key scrolls the command."""
_ROLES = {"ended": "quiet", "unaccounted": "notice"}


class ProcessTable(ColumnTable[ViewRow]):
    """Every process on every GPU, under a rule that says what is shown. The cursor is bound to its
    process."""

    head_lines = 2

    class Opened(Message):
        """Posted when the user opens a row with Enter or a double click."""

    @dataclass
    class HeadingClicked(Message):
        """Posted when the user clicks on the heading of a column, to sort by it."""

        column: str

    def __init__(self, settings: Session, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.sort_id = settings.processes.sort
        self.descending = _falls(self.sort_id)
        self.filter = ""
        self.view = View(whose=() if settings.user is None else (settings.user,))
        self.above: Callable[[], str] = str
        """Returns what the rule says of the pane above it; called whenever the rule is drawn."""
        self.on_arranged: Callable[[int], None] = lambda count: None
        """Called with the number of rows whenever they are arranged anew."""
        self.is_marked: Callable[[Process], bool] = lambda process: False
        """Returns whether the user waits for the end of a process."""
        self._me = settings.me
        self._before = View()
        """The view that Esc returns to."""
        self._opened: set[Hashable] = set()
        self._tags: dict[ProcessKey, None] = {}
        self._recently_ended = RecentlyEnded()
        self._with_ended = True
        self._frame: Frame | None = None
        self._every: list[ViewRow] = []
        self._unaccounted: list[ViewRow] = []
        self._total = self._fitting = 0
        self._longest: dict[str, int] = {}
        """The length of the longest text, by column id."""
        self._cells = ProcessColumns(settings.processes.columns)
        self._idle_after = settings.processes.idle_after

    @property
    def selected(self) -> ProcessRow | None:
        """The process under the cursor; None for a group or an ended process."""
        current = self.current
        return current.row if current is not None and current.kind == "process" else None

    @property
    def tagged(self) -> list[ProcessKey]:
        """The tagged processes that are on a GPU, in the order in which they were tagged; some
        may not be in sight."""
        if self._frame is None or not self._tags:
            return []
        listed = {self._frame.key(process) for process in self._frame.processes}
        return [key for key in self._tags if key in listed]

    @property
    def under_cursor(self) -> list[ProcessKey]:
        """The process under the cursor, or all those of a group; ended processes do not count."""
        return [] if self.current is None else self._processes(self.current)

    @property
    def targets(self) -> list[ProcessKey]:
        """The processes that a signal is for: only the tagged ones if there are tags, otherwise the
        one under the cursor or all those of a group."""
        if self._tags:
            return self.tagged
        return self.under_cursor

    def show_frame(self, frame: Frame, names: LogicalNames) -> None:
        """Show another frame; `names` has the mappings of its processes."""
        self._frame = frame
        rows = process_rows.rows(frame, names, self._idle_after)
        keys = process_rows.row_keys(frame, rows)
        self._recently_ended.handle(frame, rows, keys)
        self._every = list(map(ViewRow, rows, keys))
        self._unaccounted = unaccounted_rows(frame)
        self._total = len(rows)
        self._longest = longest(rows)
        self._cells.show_rows(rows, frame.time)
        self._arrange()

    def show_verdicts(self, verdicts: Iterable[Verdict]) -> None:
        """Show for each process that a signal of ours ended which signal it was."""
        self._recently_ended.handle_verdicts(verdicts)
        if self._frame is not None:
            self._arrange()

    def sort_by(self, metric_id: str) -> None:
        """Sort by a column, or reverse the order if it is that of the table already. Text starts
        with A, GPUs with the first, numbers with the greatest."""
        if metric_id == self.sort_id:
            self.descending = not self.descending
        else:
            self.sort_id, self.descending = metric_id, _falls(metric_id)
        self._arrange()

    def filter_by(self, text: str) -> FilterError | None:
        """Show only rows that match. If the filter is wrong, return what is wrong and keep the one
        before."""
        try:
            parse(text)
        except FilterError as error:
            return error
        self.filter = text
        self._arrange()
        return None

    def next_view(self) -> None:
        """Go to the next view: all users, the user's own processes, a row for each user."""
        self._show_view(self.view.after(self._me))

    def toggle_tree(self) -> None:
        """Show processes under their parents, or no longer."""
        self._show_view(replace(self.view, shape="flat" if self.view.shape == "tree" else "tree"))

    def toggle_ended(self) -> None:
        """Show processes that have ended, or leave them out."""
        self._with_ended = not self._with_ended
        self._arrange()

    def only_gpu(self, key: str, instance: tuple[int, int] | None = None) -> None:
        """Show the processes of one GPU, or of one MIG device of it."""
        view = replace(self.view, gpu=key, instance=instance)
        self._show_view(view, replace(self.view, gpu=None, instance=None))

    def only_gpu_of(self, line: ViewRow) -> bool:
        """Show the processes of the GPU or MIG device that a row is on; the cursor stays on it.
        Return False if the row is on none, or on several."""
        parts = {
            (row.gpu.key, row.process.gpu_instance, row.process.compute_instance)
            for row in line.members or (line.row,)
            if row.gpu is not None
        }
        if len(parts) != 1:
            return False
        [(key, gi, ci)] = parts
        self.only_gpu(key, None if gi is None or ci is None else (gi, ci))
        return True

    def open(self) -> bool:
        """Open or close the group under the cursor; return whether there is one."""
        current = self.current
        if current is None or not current.members:
            return False
        if self.view.shape == "users":
            user = current.row.process.user
            self._show_view(replace(self.view, shape="flat", whose=(user,)), self.view)
        else:
            self._opened ^= {current.key}
            self._arrange()
        return True

    def open_row(self, _: ViewRow) -> None:
        self.post_message(self.Opened())

    def click_head(self, x: int, y: int) -> None:
        column = column_at(self._columns, x - 1, self.gap)
        if y == 1 and column is not None:
            self.post_message(self.HeadingClicked(column))

    def leave_view(self) -> bool:
        """Go back to all processes, or to the view before; return False if all are shown."""
        if self.view == View():
            return False
        self._show_view(self._before)
        return True

    def tag(self) -> None:
        """Tag or untag the process under the cursor, or all those of a group, and go on to the next
        row. An ended process is never tagged."""
        self.select_first()
        current = self.current
        if current is None:
            return
        keys = self._processes(current)
        if self._tags.keys() >= set(keys):
            self._tags = {key: None for key in self._tags if key not in keys}
        else:
            self._tags.update(dict.fromkeys(keys))
        self.sync()
        self.action_move(1)

    def untag(self) -> bool:
        """Remove all tags; return whether a process on a GPU had one."""
        were_any = bool(self.tagged)
        self._tags.clear()
        self.sync()
        return were_any

    def select_pid(self, pid: int) -> None:
        """Select the process with that PID, or none."""
        if self.find_pid(str(pid)) and (self.selected is None or self.selected.process.pid != pid):
            self.deselect()

    def find_pid(self, digits: str) -> str:
        """Select the process with that PID, or the first whose PID begins so; if there is none,
        leave the cursor alone. Return a note on the result."""
        pids = {str(view_row.row.process.pid): index
                for index, view_row in reversed(list(enumerate(self._rows)))
                if view_row.kind in ("process", "ended")}  # fmt: skip
        if digits in pids:
            self._choose(pids[digits])
            return f"PID {digits}"
        if beginning := [index for pid, index in pids.items() if pid.startswith(digits)]:
            self._choose(min(beginning))
            return f"PID {digits}{self.glyphs.ellipsis}"
        if any(str(view_row.row.process.pid) == digits for view_row in self._every):
            return f"PID {digits} is not in this view"
        return f"no PID {digits}"

    def say_above(self) -> None:
        """Redraw the rule, with what there is to say of the pane above it."""
        self.sync([0])

    @property
    def chosen_columns(self) -> tuple[str, ...]:
        """The ids of the columns that were chosen; empty for the usual ones."""
        return self._cells.chosen

    def show_columns(self, columns: tuple[str, ...]) -> None:
        self._cells.chosen = columns
        self.fit()
        self.sync()

    def shift(self, direction: int) -> None:
        """Scroll the command line sideways, at most until the end of the longest is in sight."""
        self._scroll_command(self._cells.shift + direction * _SHIFT)

    def shift_to(self, end: int) -> None:
        """Scroll the command line to its start (0) or to the end of the longest."""
        self._scroll_command(end * self._longest_command)

    def _scroll_command(self, shift: int) -> None:
        width = next((width for column, width in self._columns if column.id == "command"), 1)
        self._cells.shift = min(max(0, shift), max(0, self._longest_command - width))
        self.fit()
        self.sync()

    @property
    def _longest_command(self) -> int:
        return max((len(self._cells.command(view_row)) for view_row in self._rows), default=0)

    def toggle_command(self) -> None:
        """Show commands short, with the script first, or whole."""
        self._cells.full_command = not self._cells.full_command
        self._cells.shift = 0
        self.fit()
        self.sync()

    def head(self, y: int) -> Iterable[Piece]:
        if y == 1:
            sort_id, _ = self.view.order(self.sort_id, self.descending)
            return [(" ", "quiet"), *heading(self._columns, self.gap, sort_id, self._mark)]
        return self._rule()

    def row_pieces(self, row_: ViewRow, selected: bool) -> Iterable[Piece]:
        lead, cursor = self.cursor_of(selected)
        role = cursor or _ROLES.get(row_.kind, "")
        if row_.kind == "unaccounted":
            pieces = self._cells.across(row_, max(1, self.size.width - 1), role or "text")
        else:
            pieces = row(self._columns, row_, self.gap, self.glyphs.ellipsis, role)
        lead_role = role or "text"
        if row_.kind == "process" and self.is_marked(row_.row.process):
            lead = self.glyphs.mark
        if self._tags and (keys := self._processes(row_)) and self._tags.keys() >= set(keys):
            lead, lead_role = self.glyphs.tag, role or "notice"
        return [(lead, lead_role), *pieces]

    def empty(self) -> Iterable[Piece]:
        if self._total:
            what = "the filter; Esc drops it" if self.view == View() else "this view; Esc goes back"
            gpus = self._frame.gpus if self._frame else ()
            if self.filter and (absent := absent_gpus(self.filter, gpus)):
                return [(f"  there is no GPU {absent}: no process matches {what}", "notice")]
            return [(f"  no process matches {what}", "quiet")]
        if self._frame is None:
            return ()
        is_sure = all(gpu.listed == "all" for gpu in self._frame.gpus)
        return [(f"  {nobody(self._frame)}", "quiet" if is_sure else "notice")]

    def _rule(self) -> list[Piece]:
        line = self.glyphs.rule
        first, last, shown = self.span
        whole = self._fitting == self._total and not self.filter
        count = f"{self._total}" if whole else f"{self._fitting} of {self._total}"
        if last - first + 1 < shown and count == f"{shown}":
            count = f"{first}-{last} of {shown}"
        elif last - first + 1 < shown:
            count = f"rows {first}-{last} of {shown}, {count} {plural(self._total, 'process')}"
        left: list[Piece] = [(f"{line} ", "track")]
        for text, role in self._words():
            left += [(f"{text} ", role), (f"{line * 2} ", "track")]
        right: list[Piece] = [
            (f" by {self._order} ", "quiet"),
            (line * 2, "track"),
            (f" {count} ", "quiet"),
            (line, "track"),
        ]
        return spread(left[:-1], right, self.size.width, (line, "track"))

    @property
    def _order(self) -> str:
        metric_id, _ = self.view.order(self.sort_id, self.descending)
        return f"{COLUMNS[metric_id].label} {self._mark}".rstrip()

    @property
    def _mark(self) -> str:
        """The sign of the direction of sorting; empty for the usual order, by GPU or host."""
        order = self.view.order(self.sort_id, self.descending)
        if order in (("gpu", False), ("host", False)):
            return ""
        return self.glyphs.descending if order[1] else self.glyphs.ascending

    def _words(self) -> Iterable[Piece]:
        tagged = len(self.tagged)
        texts = (
            (self.above(), "notice"),
            ("Processes", "heading" if self.is_active else "quiet"),
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

    def fit(self) -> None:
        marked, _ = self.view.order(self.sort_id, self.descending) if self._mark else ("", False)
        self._columns = self._cells.fitted(
            self.size.width, self.gap, self._longest, marked, self.glyphs
        )

    def _show_view(self, view: View, before: View | None = None) -> None:
        """Show another view; Esc returns from it to `before`."""
        self.view, self._before = view, before or View()
        self._arrange()

    def _processes(self, view_row: ViewRow) -> list[ProcessKey]:
        if view_row.kind in ("ended", "unaccounted") or self._frame is None:
            return []
        rows = view_row.members or (view_row.row,)
        return [self._frame.key(row.process) for row in rows]

    def _arrange(self) -> None:
        rows = self._every
        ended = self._recently_ended.ended if self._with_ended else []
        if ended:  # among equal rows, they keep their place
            rows = [*rows, *map(_ended_row, ended)]
            rows.sort(key=lambda view_row: process_rows.row_order(view_row.row))
        rows, unaccounted = self._matching(rows), self._matching(self._unaccounted)
        self._fitting = sum(view_row.kind != "ended" for view_row in rows)
        order = self.view.order(self.sort_id, self.descending)
        lines = self.view.lines(rows, order, self._opened)
        if unaccounted:
            lines = self.view.with_unaccounted(lines, unaccounted, order)
        self._longest |= longest_sums(lines)
        self._cells.by_user = self.view.shape == "users"
        self.fit()
        self.show(lines, [line.key for line in lines])
        self.on_arranged(len(lines))

    def _matching(self, rows: list[ViewRow]) -> list[ViewRow]:
        if self.filter:
            fits = parse(self.filter)
            rows = [view_row for view_row in rows if fits(view_row.row)]
        if self.view.whose or self.view.gpu is not None:
            rows = [view_row for view_row in rows if self.view.holds(view_row.row)]
        return rows


def _falls(metric_id: str) -> bool:
    """Return whether rows sorted by this column begin with the greatest."""
    return metric_id != "gpu" and not COLUMNS[metric_id].left


def _ended_row(process: EndedProcess) -> ViewRow:
    note = f"ended ({process.how})" if process.how else "ended"
    return ViewRow(process.row, process.key, note=note, kind="ended")
