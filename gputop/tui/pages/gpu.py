"""One GPU: its metrics by section, its history, its links and its processes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

from textual.binding import BindingType

from gputop.model.machine.gpu import Gpu
from gputop.tui.pages.base import PageScreen, ShownFrame
from gputop.tui.pages.gpu_lines import GRAPHED, gpu_lines
from gputop.tui.pages.graph import GraphScreen
from gputop.tui.panes.heading import described_key
from gputop.tui.panes.lines import StyledLine
from gputop.tui.panes.page import Page

_key = partial(described_key, "GPU", area="gpu")


class GpuScreen(PageScreen["str | None"]):
    """The page of a GPU; it answers with the key of a GPU whose processes are wanted alone."""

    BINDINGS: ClassVar[list[BindingType]] = [
        _key("escape,enter,backspace", "leave", "Back", "GPU: back", "Esc"),
        _key("G", "graphs", "Graphs", "GPU: all its graphs", "G"),
        _key("f", "only", "Its processes", "GPU: only its processes, on the main screen", "f"),
        _key("right,n", "other(1)", "Next GPU", "GPU: the next GPU", "n", name="next"),
        _key("left,b", "other(-1)", "Previous GPU", "GPU: the previous GPU", name="before"),
    ]  # fmt: skip

    def __init__(self, key: str, idle_after: float) -> None:
        super().__init__()
        self._key, self._idle_after = key, idle_after
        self._gpu: Gpu | None = None
        """As it was when it was last listed."""
        self._gone = False

    def action_only(self) -> None:
        self.dismiss(self._key)

    def action_other(self, step: int) -> None:
        """Go to the next GPU by index, or to the one before."""
        keys = [gpu.key for gpu in self.shown.frame.gpus] if self.shown else []
        if self.shown is not None and self._key in keys:
            self._key = keys[(keys.index(self._key) + step) % len(keys)]
            self.show_frame(self.shown)
            self.query_one(Page).action_end(0)

    def action_graphs(self) -> None:
        page = GraphScreen(GRAPHED[0], self._key)
        if self.shown is not None:
            page.show_frame(self.shown)
        self.app.push_screen(page)

    def show_frame(self, shown: ShownFrame) -> None:
        gpu = next((gpu for gpu in shown.frame.gpus if gpu.key == self._key), None)
        self._gpu, self._gone = gpu or self._gpu, gpu is None
        super().show_frame(shown)

    def lines(self, page: Page, shown: ShownFrame) -> Iterator[StyledLine]:
        if self._gpu is not None:
            yield from gpu_lines(page, shown, self._gpu, self._idle_after, gone=self._gone)
