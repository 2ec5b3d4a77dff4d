"""Which panes the main screen shows, and how they share its lines."""

from __future__ import annotations

from textual.screen import Screen

from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import parts_of
from gputop.settings import PANES, Pane
from gputop.tui.panes.gpus import GpuPane
from gputop.tui.panes.history import HistoryPane
from gputop.tui.panes.mapping import MappingPane, MappingResultView
from gputop.tui.panes.processes import ProcessTable

_TINY = 14
"""On a screen with fewer lines, the mapping is hidden until the user opens it."""
_HEADED = 20
"""From this many lines on, GPUs have a heading even if not all of them are in sight."""
_SOME = 8
"""The processes that must fit before GPUs have a heading; also the most devices of a mapping."""
_REMARKS = 3
"""Lines for the remarks on a mapping."""


class PaneLayout:
    """Controls the panes of a screen: GPUs first, then processes, and history in what is left."""

    def __init__(self, screen: Screen[None], panes: tuple[Pane, ...]) -> None:
        self._screen = screen
        self._gpus, self._rows = 1, 1
        """The number of GPUs, and of rows for them and their MIG devices."""
        self.processes = 0
        """The number of process rows, or a few more."""
        self._history = 0
        """The least number of lines that the history takes; 0 if there is none."""
        self.shown = panes or PANES
        self.mapping_open = False
        """Whether the mapping takes more than a line."""
        self._mapping_lines: int | None = None
        """Lines of the mapping once its value is kept; None while it is edited."""

    def show(self, panes: tuple[Pane, ...]) -> None:
        self.shown = panes
        self.arrange()

    def open_mapping(self, is_open: bool) -> None:
        """Show the whole mapping, or one line of it."""
        self.mapping_open, self._mapping_lines = is_open, None
        self.arrange()

    def fit_mapping(self, is_edited: bool) -> None:
        """Share the lines anew if the mapping needs more or fewer. While it is edited it has all it
        may take, since the editor must not move; then as many as the result. While a process is
        followed it does not shrink, since the result changes with each process under the cursor."""
        pane = self._screen.query_one(MappingPane)
        least = (self._mapping_lines or 0) if pane.follows else 0
        wanted = None if is_edited else max(least, pane.lines)
        if self.mapping_open and wanted != self._mapping_lines:
            self._mapping_lines = wanted
            self.arrange()

    def fit(self, frame: Frame) -> None:
        """Share the lines anew if the GPUs, their rows or the history need more or fewer."""
        history = self._screen.query_one(HistoryPane).least(self._screen.size.width)
        counts = len(frame.gpus), len(parts_of(frame.gpus)), history
        if counts != (self._gpus, self._rows, self._history):
            self._gpus, self._rows, _ = counts
            self.arrange()

    def arrange(self) -> None:
        """Share the lines among the panes, but leave some to the processes."""
        find = self._screen.query_one
        gpus, processes, history = find(GpuPane), find(ProcessTable), find(HistoryPane)
        self._history = history.least(self._screen.size.width)
        gpus.display, processes.display = "gpus" in self.shown, "processes" in self.shown
        room = self._screen.size.height - 2 - self._arrange_mapping(find(MappingPane))
        wanted = processes.head_lines + max(1, self.processes) if processes.display else 0
        some = min(wanted, processes.head_lines + _SOME)
        is_headed = self._rows + 1 + some <= room or self._screen.size.height >= _HEADED
        gpus.head_lines = 1 if is_headed else 0
        some = min(some, processes.head_lines + max(1, self._screen.size.height // 3))
        lines = min(self._rows + gpus.head_lines, max(1, room - some)) if gpus.display else 0
        left = room - lines - wanted
        history.display = "history" in self.shown and 0 < self._history <= left
        history.styles.height = max(1, left)
        gpus.leave_out(history.metric_ids if history.display else frozenset())
        if not processes.display and not history.display:
            lines = max(1, room)
        gpus.styles.height = lines

    def _arrange_mapping(self, mapping: MappingPane) -> int:
        height, lines = self._screen.size.height, 1
        mapping.open(self.mapping_open)
        mapping.display = "mapping" in self.shown and (self.mapping_open or height >= _TINY)
        if self.mapping_open:
            most = min(min(self._gpus, _SOME) + 3 + _REMARKS, max(4, height // 3))
            lines = most if self._mapping_lines is None else min(most, self._mapping_lines)
        mapping.query_one(MappingResultView).styles.height = max(1, lines - 1)
        return lines if mapping.display else 0
