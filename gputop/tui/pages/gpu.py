"""One GPU or MIG device: what it does and for whom, its processes, its history, its metrics."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

from textual.binding import BindingType

from gputop.model.machine.gpu import PartKey, parts_of
from gputop.tui.keys import following
from gputop.tui.pages.base import PageScreen
from gputop.tui.pages.gpu_lines import GRAPHED, gpu_lines, mig_lines
from gputop.tui.pages.graph import GraphScreen
from gputop.tui.panes.heading import described_key
from gputop.tui.panes.lines import StyledLine
from gputop.tui.panes.page import Page
from gputop.tui.panes.paper import Paper
from gputop.tui.snapshot import Snapshot

_key = partial(described_key, "GPU", area="gpu")


class GpuScreen(PageScreen[PartKey | None]):
    """The page of a GPU or MIG device; it answers with that if only its processes are wanted."""

    BINDINGS: ClassVar[list[BindingType]] = [
        _key("escape,enter,backspace", "leave", "Back", "Back", "Esc"),
        _key("G", "graphs", "Graphs", "All its graphs", "G"),
        _key("f", "only", "Its processes", "Only its processes, on the main screen", "f"),
        _key("right,n", "other(1)", "Next GPU", "The next GPU", "n", name="next"),
        _key("left,b", "other(-1)", "Previous GPU", "The previous GPU", name="before"),
    ]  # fmt: skip

    def __init__(self, part: PartKey, idle_after: float) -> None:
        super().__init__()
        self._part, self._idle_after = part, idle_after
        self._last: Snapshot | None = None
        """The last that lists the GPU or MIG device."""

    def action_only(self) -> None:
        self.dismiss(self._part)

    def action_other(self, step: int) -> None:
        """Go to the next GPU or MIG device in the order of the table, or to the one before."""
        parts = [part.key for part in parts_of(self.shown.frame.gpus)] if self.shown else []
        if self.shown is not None and self._part in parts:
            self._part = following(self._part, parts, step)
            self.show_frame(self.shown)
            self.query_one(Page).action_end(0)

    def action_graphs(self) -> None:
        page = GraphScreen(GRAPHED[0], self._part[0])
        if self.shown is not None:
            page.show_frame(self.shown)
        self.app.push_screen(page)

    def show_frame(self, shown: Snapshot) -> None:
        if self._part in [part.key for part in parts_of(shown.frame.gpus)]:
            self._last = shown
        super().show_frame(shown)

    def lines(self, paper: Paper, shown: Snapshot) -> Iterator[StyledLine]:
        last, (key, instance) = self._last, self._part
        if last is None:
            return iter(())
        gone = last is not shown
        gpu = next(gpu for gpu in last.frame.gpus if gpu.key == key)
        if instance is None:
            return gpu_lines(paper, last, gpu, gone, self._idle_after)
        device = next(part for part in gpu.mig or () if part.instance_ids == instance)
        return mig_lines(paper, last, gpu, device, gone, self._idle_after)
