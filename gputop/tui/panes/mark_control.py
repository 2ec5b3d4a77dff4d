"""Marks before the rows of what the user waits for."""

from __future__ import annotations

from collections.abc import Callable

from textual.screen import Screen

from gputop.model.conditions.marks import Marks, name_of
from gputop.model.machine.frame import Frame
from gputop.sources.source import Moment
from gputop.tui.messages import Note
from gputop.tui.panes.gpu_cells import GpuLine
from gputop.tui.panes.gpus import GpuPane
from gputop.tui.panes.processes import ProcessTable


class MarkControl:
    """Controls the marks of the machine that is shown. They outlive this screen."""

    def __init__(self, screen: Screen[None]) -> None:
        self._screen = screen
        self._marks = Marks()
        self._ask: Callable[[], None] = lambda: None

    def watch(self, marks: Marks, ask: Callable[[], None]) -> None:
        """Take the marks of another machine; `ask` asks its agent about the marked processes."""
        self._marks, self._ask = marks, ask

    def attach(self) -> None:
        """Have the panes draw the marks; they must exist already."""
        self._gpus.is_marked = self._is_marked
        self._processes.is_marked = lambda row: self._marks.has_process(row.process.pid)

    def toggle(self, frame: Frame, moment: Moment) -> None:
        """Mark or unmark the selected GPU, the selected process, or all processes of a group."""
        table = self._processes
        (self._gpus if self._gpus.is_active else table).select_first()
        line = self._gpus.current
        if moment != "now":
            self._screen.post_message(Note("only live processes and GPUs can be marked"))
        elif self._gpus.is_active:
            if line is not None and not self._marks.toggle_gpu(frame, line.gpu, line.device):
                self._screen.post_message(Note(f"{name_of(line.gpu, line.device)} is free now"))
            self._gpus.repaint_changed()
        else:
            self._marks.toggle_processes(frame, table.listing.keys_of(table.current))
            self._ask()
            table.repaint_changed()

    def _is_marked(self, line: GpuLine) -> bool:
        return self._marks.has_gpu(line.gpu, line.device)

    @property
    def _gpus(self) -> GpuPane:
        return self._screen.query_one(GpuPane)

    @property
    def _processes(self) -> ProcessTable:
        return self._screen.query_one(ProcessTable)
