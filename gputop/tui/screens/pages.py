"""The keys that lead from the main screen to a page: of a process, of a GPU, of graphs."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.screen import Screen

from gputop.model.frame import Frame, ProcessKey
from gputop.model.history import History
from gputop.settings import Session
from gputop.tui.inquiry import Inquiry
from gputop.tui.screens.gpu import GpuScreen
from gputop.tui.screens.graph import GraphScreen
from gputop.tui.screens.process import ProcessScreen
from gputop.tui.screens.views import ViewScreen
from gputop.tui.widgets.gpus import GpuPane
from gputop.tui.widgets.processes import ProcessTable

PAGES = (ProcessScreen, GpuScreen, GraphScreen)
"""Screens that are shown each frame while they are on top."""
_GPUS = Binding.Group("GPUs")


class PagesScreen(ViewScreen):
    """A screen with GPUs and processes, of which there is more to tell."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *ViewScreen.BINDINGS,
        Binding("enter", "process", "Details", tooltip="All of it; open the group",
                id="main.process", show=False, group=Binding.Group("Processes")),
        Binding("g", "history", "History", tooltip="What the short history of each GPU shows",
                id="main.history", show=False, group=_GPUS),
        Binding("G", "graphs", "Graphs", tooltip="The past of all GPUs, on the whole screen",
                id="main.graphs", show=False, group=_GPUS),
        Binding("f", "only", "Its processes", tooltip="The processes of the selected GPU alone",
                id="main.only", show=False, group=_GPUS),
    ]  # fmt: skip

    def __init__(self, inquiry: Inquiry, settings: Session) -> None:
        super().__init__(inquiry, settings)
        self._frame: Frame | None = None
        self._history = History()

    def show_page(self, page: Screen[Any]) -> None:
        """Give a page the frame of now; other screens are none of them."""
        names = self.query_one(ProcessTable).names
        if isinstance(page, PAGES) and self._frame is not None and names is not None:
            page.show_frame(self._frame, names, self._history)

    def action_process(self) -> None:
        """The page of the selected process; of none, the first in sight is selected."""
        table = self.query_one(ProcessTable)
        if table.open():
            return
        if table.selected is None or self._frame is None:
            table.action_move(0)
            return
        self._open(self.page(self._frame.key(table.selected.process)))

    def page(self, key: ProcessKey) -> ProcessScreen:
        """The page of a process."""
        return ProcessScreen(key)

    def action_history(self) -> None:
        """Another metric in the short history; said where the pane has no labels."""
        self.query_one(GpuPane).next_history()
        self.say_unsaid()

    def say_unsaid(self) -> None:
        """Say of the pane of GPUs what it has no room for."""
        self.query_one(ProcessTable).say_above(self.unsaid)

    @property
    def unsaid(self) -> str:
        """What the pane of GPUs has no room for."""
        return self.query_one(GpuPane).unsaid

    def action_graphs(self) -> None:
        """Of what the short history shows."""
        self._open(GraphScreen(self.query_one(GpuPane).history_id))

    def action_only(self) -> None:
        """The processes of the GPU under the cursor; of none, the first is selected."""
        pane = self.query_one(GpuPane)
        if pane.current is None:
            self.set_focus(pane)
            pane.action_move(0)
        else:
            gpu, device, _ = pane.current
            self.only_gpu(gpu.key, device.place if device else None)

    def on_gpu_pane_chosen(self, message: GpuPane.Chosen) -> None:
        """The page of that GPU."""
        page = GpuScreen(message.key, self.settings.processes.idle_after)
        self.show_page(page)
        self.app.push_screen(page, self._left)

    def _left(self, only: str | None) -> None:
        """From the page of a GPU, whose processes are wanted perhaps."""
        if only is not None:
            self.only_gpu(only)

    def _open(self, page: Screen[None]) -> None:
        self.show_page(page)
        self.app.push_screen(page)
