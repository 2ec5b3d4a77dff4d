"""The processes of all hosts, or a row a user."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gputop.model.processes.views import ViewRow
from gputop.settings import Session
from gputop.tui.panes.lines import Piece
from gputop.tui.panes.process_columns import ProcessColumns, longest
from gputop.tui.panes.processes import ProcessTable

_COLUMNS = ("host", "gpu", "user", "gpu_memory", "sm_utilization", "idle_for", "pid")
_WIDE_ONLY = ("cpu", "age")
_WIDE = 100
"""Cells from which there is room for these."""


class FleetProcesses(ProcessTable):
    """The table of processes, with a host in the first column. Nothing is done to a process here:
    that is done on the screen of its machine."""

    def __init__(self, settings: Session, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(settings, id=id)
        self.sort_id, self.descending = "host", False
        self._cells = ProcessColumns((*_COLUMNS, *_WIDE_ONLY))

    def show_rows(self, rows: Sequence[ViewRow]) -> None:
        """Show other processes, in the order of their hosts."""
        self._every = list(rows)
        self._total = len(rows)
        self._longest = longest(view_row.row for view_row in rows)
        self._arrange()

    def on_resize(self) -> None:
        more = _WIDE_ONLY if self.size.width >= _WIDE else ()
        self._cells.chosen = (*_COLUMNS, *more)
        super().on_resize()

    def empty(self) -> Iterable[Piece]:
        if self._total:
            return super().empty()
        return [("  no process on the GPUs that are seen", "quiet")]
