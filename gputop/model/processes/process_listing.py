"""The processes of a machine as its table lists them: filtered, sorted, grouped, tagged."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import replace

from gputop.model.cuda.logical_names import LogicalNames
from gputop.model.machine.frame import Frame, ProcessKey
from gputop.model.machine.limits import no_process_text
from gputop.model.machine.signals import Verdict
from gputop.model.metrics.process import COLUMNS
from gputop.model.processes import process_rows
from gputop.model.processes.ended import EndedProcess, RecentlyEnded
from gputop.model.processes.filter import FilterError, absent_gpus, parse
from gputop.model.processes.views import View, ViewRow, unaccounted_rows


class ProcessListing:
    """Which processes are shown, in which order, and which are tagged.

    It does not know which row is selected: a method that acts on a row is given the row.
    """

    def __init__(
        self,
        sort_id: str = "gpu",
        *,
        me: str | None = None,
        user: str | None = None,
        idle_after: float | None = None,
    ) -> None:
        """`sort_id`: the column to sort by; `me`: the user whose row is the first choice among
        users; `user`: the only user to begin with; `idle_after`: seconds without work after which
        memory is idle."""
        self.sort_id = sort_id
        self.descending = _descends_by_default(sort_id)
        self.filter = ""
        self.view = View(whose=() if user is None else (user,))
        self.frame: Frame | None = None
        self.time = 0.0
        """Of the newest frame, in seconds since the epoch."""
        self.rows: list[ViewRow] = []
        """The rows that are shown, from the first to the last."""
        self.every: list[ViewRow] = []
        """The processes without filter and view, in the order of `process_rows.rows`."""
        self.fitting = 0
        """How many processes of `every` pass the filter and the view."""
        self.arranged: Callable[[], None] = lambda: None
        """Called whenever `rows` has been made anew, or others are tagged."""
        self._me, self._idle_after = me, idle_after
        self._before = View()
        """The view that `leave_view` returns to."""
        self._opened: set[Hashable] = set()
        self._tags: dict[ProcessKey, None] = {}
        self._recently_ended = RecentlyEnded()
        self._with_ended = True
        self._unaccounted: list[ViewRow] = []

    # What is shown.

    def show_frame(self, frame: Frame, names: LogicalNames) -> None:
        """Show the processes of another frame; `names` has their mappings."""
        self.frame = frame
        rows = process_rows.rows(frame, names, self._idle_after)
        keys = process_rows.row_keys(frame, rows)
        self._recently_ended.handle(frame, rows, keys)
        self._unaccounted = unaccounted_rows(frame)
        self.show_rows(list(map(ViewRow, rows, keys)), frame.time)

    def show_rows(self, rows: Sequence[ViewRow], time: float) -> None:
        """Show other processes, given in the usual order; `time` is that of the newest frame."""
        self.every, self.time = list(rows), time
        self._arrange()

    def show_verdicts(self, verdicts: Iterable[Verdict]) -> None:
        """Show for each process that a signal of ours ended which signal it was."""
        self._recently_ended.handle_verdicts(verdicts)
        self._arrange()

    def toggle_ended(self) -> None:
        """Show processes that have ended, or leave them out."""
        self._with_ended = not self._with_ended
        self._arrange()

    def why_empty(self) -> tuple[str, bool]:
        """Return why there is no row, and whether that is certain and as expected; no words before
        the first frame."""
        if self.every:
            what = "the filter; Esc drops it" if self.view == View() else "this view; Esc goes back"
            absent = absent_gpus(self.filter, self.frame.gpus) if self.frame else None
            said = "" if absent is None else f"there is no GPU {absent}: "
            return f"{said}no process matches {what}", absent is None
        if self.frame is None:
            return "", True
        return no_process_text(self.frame), all(gpu.listed == "all" for gpu in self.frame.gpus)

    # The order.

    @property
    def order(self) -> tuple[str, bool]:
        """The metric that the rows are sorted by, and whether it descends."""
        return self.view.order(self.sort_id, self.descending)

    def sort_by(self, metric_id: str) -> None:
        """Sort by a column, or reverse the order if it is that of the list already. Text starts
        with A, GPUs with the first, numbers with the greatest."""
        if metric_id == self.sort_id:
            self.descending = not self.descending
        else:
            self.sort_id, self.descending = metric_id, _descends_by_default(metric_id)
        self._arrange()

    # Filter and views.

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

    def show_users(self) -> int:
        """Show a row for each user, the one with most memory first; return the index of the row of
        the user of the view before, or else of the user's own, or else 0."""
        whose = (*self.view.whose, self._me)
        everyone = replace(self.view, whose=())
        self._show_view(replace(everyone, shape="users"), everyone)
        users = [line.row.process.user for line in self.rows]
        return next((users.index(user) for user in whose if user in users), 0)

    def toggle_tree(self) -> None:
        """Show processes under their parents, or no longer."""
        self._show_view(replace(self.view, shape="flat" if self.view.shape == "tree" else "tree"))

    def only_gpu(self, key: str, instance: tuple[int, int] | None = None) -> None:
        """Show the processes of one GPU, or of one MIG device of it."""
        view = replace(self.view, gpu=key, instance=instance)
        self._show_view(view, replace(self.view, gpu=None, instance=None))

    def only_gpu_of(self, line: ViewRow) -> bool:
        """Show the processes of the GPU or MIG device that a row is on. Return False if the row is
        on none, or on several."""
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

    def open(self, line: ViewRow | None) -> bool:
        """Open or close a group: the processes of a user replace the row of that user. Return
        False if the row is no group."""
        if line is None or not line.members:
            return False
        if self.view.shape == "users":
            user = line.row.process.user
            self._show_view(replace(self.view, shape="flat", whose=(user,)), self.view)
        else:
            self._opened ^= {line.key}
            self._arrange()
        return True

    def leave_view(self) -> bool:
        """Go back to all processes, or to the view before; return False if all are shown."""
        if self.view == View():
            return False
        self._show_view(self._before)
        return True

    # Tags, and what an action applies to.

    @property
    def tagged(self) -> list[ProcessKey]:
        """The tagged processes that are on a GPU, in the order in which they were tagged; some
        may not be in sight."""
        if self.frame is None or not self._tags:
            return []
        listed = {self.frame.key(process) for process in self.frame.processes}
        return [key for key in self._tags if key in listed]

    def keys_of(self, line: ViewRow | None) -> list[ProcessKey]:
        """Return the process of a row, or all those of a group; ended processes do not count."""
        if line is None or line.kind in ("ended", "unaccounted") or self.frame is None:
            return []
        return [self.frame.key(row.process) for row in line.members or (line.row,)]

    def targets(self, line: ViewRow | None) -> list[ProcessKey]:
        """Return the processes that a signal is for: only the tagged ones if there are tags,
        otherwise those of the selected row."""
        return self.tagged if self._tags else self.keys_of(line)

    def is_tagged(self, line: ViewRow) -> bool:
        keys = self.keys_of(line) if self._tags else []
        return bool(keys) and self._tags.keys() >= set(keys)

    def tag(self, line: ViewRow) -> None:
        """Tag or untag the process of a row, or all those of a group. An ended process is never
        tagged."""
        self._tag(self.keys_of(line))

    def _tag(self, keys: Collection[ProcessKey]) -> None:
        """Tag processes, or untag them if all of them are tagged."""
        if self._tags.keys() >= set(keys):
            self._tags = {key: None for key in self._tags if key not in keys}
        else:
            self._tags.update(dict.fromkeys(keys))
        self.arranged()

    def tag_all(self) -> None:
        """Tag all processes that are shown; if all of them are tagged already, untag them."""
        self._tag([key for line in self.rows for key in self.keys_of(line)])

    def untag(self) -> bool:
        """Remove all tags; return whether a process on a GPU had one."""
        were_any = bool(self.tagged)
        self._tags.clear()
        self.arranged()
        return were_any

    # PIDs.

    def find_pid(self, digits: str, ellipsis: str) -> tuple[int | None, str]:
        """Return the index of the row of the process with that PID, or of the first whose PID
        begins so, if there is one, and a note on the result."""
        pids = {str(line.row.process.pid): index
                for index, line in reversed(list(enumerate(self.rows)))
                if line.kind in ("process", "ended")}  # fmt: skip
        if digits in pids:
            return pids[digits], f"PID {digits}"
        if beginning := [index for pid, index in pids.items() if pid.startswith(digits)]:
            return min(beginning), f"PID {digits}{ellipsis}"
        if any(str(line.row.process.pid) == digits for line in self.every):
            return None, f"PID {digits} is not in this view"
        return None, f"no PID {digits}"

    def _show_view(self, view: View, before: View | None = None) -> None:
        """Show another view; `leave_view` returns from it to `before`."""
        self.view, self._before = view, before or View()
        self._arrange()

    def _arrange(self) -> None:
        rows = self.every
        ended = self._recently_ended.ended if self._with_ended else []
        if ended:  # among equal rows, they keep their place
            rows = [*rows, *map(_ended_row, ended)]
            rows.sort(key=lambda line: process_rows.row_order(line.row))
        rows, unaccounted = self._matching(rows), self._matching(self._unaccounted)
        self.fitting = sum(line.kind != "ended" for line in rows)
        self.rows = self.view.lines(rows, self.order, self._opened)
        if unaccounted:
            self.rows = self.view.with_unaccounted(self.rows, unaccounted, self.order)
        self.arranged()

    def _matching(self, rows: list[ViewRow]) -> list[ViewRow]:
        if self.filter:
            fits = parse(self.filter)
            rows = [line for line in rows if fits(line.row)]
        if self.view.whose or self.view.gpu is not None:
            rows = [line for line in rows if self.view.holds(line.row)]
        return rows


def _descends_by_default(metric_id: str) -> bool:
    """Return whether rows sorted by this column begin with the greatest."""
    return metric_id != "gpu" and not COLUMNS[metric_id].left


def _ended_row(process: EndedProcess) -> ViewRow:
    note = f"ended ({process.how})" if process.how else "ended"
    return ViewRow(process.row, process.key, note=note, kind="ended")
