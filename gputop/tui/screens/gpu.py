"""One GPU, whole: what is known of it by section, its past, its links and its processes."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from gputop.model.frame import Frame
from gputop.model.history import History
from gputop.model.logical_names import LogicalNames
from gputop.tui.screens.graph import GraphScreen
from gputop.tui.screens.pagescreen import PageScreen
from gputop.tui.widgets.gpupage import GRAPHED, Subject, gpu_lines
from gputop.tui.widgets.page import Page

_GROUP = Binding.Group("GPU")


class GpuScreen(PageScreen["str | None"]):
    """The page of a GPU; the answer is the key of one whose processes are wanted alone."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,backspace", "leave", "Back", tooltip="From the page of a GPU",
                id="gpu.leave", key_display="Esc", group=_GROUP),
        Binding("G", "graphs", "Graphs", tooltip="On the page of a GPU: all its graphs",
                id="gpu.graphs", key_display="G", group=_GROUP),
        Binding("f", "only", "Its processes", tooltip="On the page of a GPU: its processes alone",
                id="gpu.only", key_display="f", group=_GROUP),
        Binding("right,n", "other(1)", "Next GPU", tooltip="On the page of a GPU: the next one",
                id="gpu.next", key_display="n", group=_GROUP),
        Binding("left,b", "other(-1)", "GPU before", tooltip="On the page of a GPU: the one before",
                id="gpu.before", show=False, group=_GROUP),
    ]  # fmt: skip

    def __init__(self, key: str, idle_after: float) -> None:
        super().__init__()
        self._subject = Subject(key, idle_after)

    def action_only(self) -> None:
        """Back, and the processes of this GPU alone."""
        self.dismiss(self._subject.key)

    def action_other(self, step: int) -> None:
        """The page of a neighbour, by index."""
        subject = self._subject
        keys = [gpu.key for gpu in subject.frame.gpus] if subject.frame else []
        if subject.key in keys:
            subject.key = keys[(keys.index(subject.key) + step) % len(keys)]
            self._take()
            self.query_one(Page).action_end(0)

    def action_graphs(self) -> None:
        """All that has a past, of this GPU."""
        subject = self._subject
        page = GraphScreen(GRAPHED[0], subject.key)
        if subject.frame is not None and subject.names is not None:
            page.show_frame(subject.frame, subject.names, subject.history)
        self.app.push_screen(page)

    def show_frame(self, frame: Frame, names: LogicalNames, history: History) -> None:
        """Another frame."""
        self._subject.frame, self._subject.names = frame, names
        self._subject.history = history
        self._take()

    def _take(self) -> None:
        subject = self._subject
        found = (
            [gpu for gpu in subject.frame.gpus if gpu.key == subject.key] if subject.frame else []
        )
        subject.gone = not found
        if found:
            [subject.gpu] = found
        self._show()

    def _show(self) -> None:
        if self.is_mounted:
            page = self.query_one(Page)
            page.show_lines(list(gpu_lines(page, self._subject)))
