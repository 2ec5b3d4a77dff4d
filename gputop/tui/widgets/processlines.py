"""Which lines the process table has: filtered, sorted, grouped, tagged."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from gputop.model import query
from gputop.model.filter import FilterError, parse
from gputop.model.finished import Ended, Finished
from gputop.model.frame import Frame, ProcessKey
from gputop.model.grouping import Entry, View, unexplained
from gputop.model.logical_names import LogicalNames
from gputop.model.process_metrics import COLUMNS, ProcessRow
from gputop.settings import Session
from gputop.tui.widgets.processcolumns import longest
from gputop.tui.widgets.table import Table


class ProcessLines(Table[Entry]):
    """Every process on every GPU, the cursor bound to its process. A subclass draws the lines, and
    gives `_fit`."""

    def __init__(self, settings: Session, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.sort_id = settings.processes.sort
        self.descending = not COLUMNS[self.sort_id].left
        self.filter = ""
        self.view = View(whose=() if settings.user is None else (settings.user,))
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
        """Make the columns fit what is in the lines."""
        raise NotImplementedError


def _past(one: Ended) -> Entry:
    how = f"ended ({one.how})" if one.how else "ended"
    return Entry(one.row, one.key, note=how, kind="ended")
