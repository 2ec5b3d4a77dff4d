"""Graphs on the whole screen: one metric of all GPUs, or all of one GPU."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from textual.binding import BindingType

from gputop.model.metrics.gpu import GPU
from gputop.model.metrics.history import KEPT
from gputop.tui.keys import following
from gputop.tui.pages.base import PageScreen
from gputop.tui.panes.graph import Curve, Graph
from gputop.tui.panes.heading import described_key
from gputop.tui.panes.paper import headline

_key = partial(described_key, "Graphs", area="graph")


class GraphScreen(PageScreen[None]):
    """One metric of all GPUs, or every metric that one GPU has; the GPU is given by its key."""

    MORE_KEYS = ()

    BINDINGS: ClassVar[list[BindingType]] = [
        _key("escape,G,backspace", "leave", "Back", "Remove the cursor; back", "Esc"),
        _key("g", "metric(1)", "Next metric", "The next metric", "g"),
        _key("b", "metric(-1)", "Previous metric", "The previous metric",
             name="metric-back"),
        _key("s", "overlay", "Overlay", "One plot for all, or one each", "s"),
        _key("plus,equals_sign", "zoom(1)", "Longer", "A longer time", "+", name="longer"),
        _key("minus", "zoom(-1)", "Shorter", "A shorter time", "-", name="shorter"),
        _key("left", "cursor(-1)", "Cursor", "The values at a moment", "left right"),
        _key("right", "cursor(1)", "Cursor right", "The cursor to the right",
             name="cursor-right"),
        _key("shift+left,pageup", "cursor(-10)", "Cursor far", "By ten cells",
             name="cursor-far"),
        _key("shift+right,pagedown", "cursor(10)", "Cursor far right", "By ten cells",
             name="cursor-far-right"),
        _key("down,j", "front(1)", "Highlight", "Highlight the next curve", "up down"),
        _key("up,k", "front(-1)", "Highlight back", "Highlight the one before",
             name="front-back"),
    ]  # fmt: skip

    def __init__(self, metric: str, gpu: str | None = None) -> None:
        super().__init__()
        self._metric, self._gpu = metric, gpu

    def body(self) -> Graph:
        return Graph()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Turn off some keys for one GPU: its metrics share no plot, and are all in sight."""
        return self._gpu is None or action not in ("metric", "overlay")

    @property
    def graph(self) -> Graph:
        return self.query_one(Graph)

    def action_leave(self) -> None:
        """Remove the cursor; without one, go back to where the page was opened."""
        if not self.graph.put_away():
            self.dismiss(None)

    def action_metric(self, step: int) -> None:
        """Go to the next metric that has values."""
        self._metric = following(self._metric, self._metrics() or [self._metric], step)
        self.draw()

    def action_overlay(self) -> None:
        self.graph.stacked = not self.graph.stacked
        self.graph.draw()

    def action_zoom(self, step: int) -> None:
        self.graph.zoom(step)

    def action_cursor(self, step: int) -> None:
        self.graph.move(step)

    def action_front(self, step: int) -> None:
        self.graph.bring_forward(step)

    def draw(self) -> None:
        if self.shown is None or not self.is_mounted:
            return
        gpus = {gpu.key: gpu for gpu in self.shown.frame.gpus}
        curves: list[Curve] = []
        if self._gpu is None:
            metric = GPU[self._metric]
            title = headline(self.shown.frame, metric.label)
            self.graph.heading = [*title, (f"  {metric.help}", "quiet")]
            curves = [Curve(gpu.index, key, self._metric, f"GPU {gpu.index}")
                      for key, gpu in gpus.items()]  # fmt: skip
        elif self._gpu in gpus:
            index = gpus[self._gpu].index
            title = headline(self.shown.frame, f"GPU {index}")
            self.graph.heading = [*title, ("  all recorded metrics", "quiet")]
            curves = [Curve(n, self._gpu, id_, GPU[id_].label)
                      for n, id_ in enumerate(self._metrics())]  # fmt: skip
        self.graph.show_curves(curves, self.shown.frame, self.shown.history)

    def _metrics(self) -> list[str]:
        if self.shown is None:
            return []
        keys = [gpu.key for gpu in self.shown.frame.gpus if self._gpu in (None, gpu.key)]
        return [id_ for id_ in KEPT if any(self.shown.history.knows(key, id_) for key in keys)]
