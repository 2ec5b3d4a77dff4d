"""Graphs on the whole screen: one metric of all GPUs, or all of one GPU."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from gputop.model.metrics.gpu import GPU
from gputop.model.metrics.history import KEPT
from gputop.tui.pages.base import PageScreen
from gputop.tui.panes.graph import Curve, Graph

_GROUP = Binding.Group("Graphs")


class GraphScreen(PageScreen[None]):
    """One metric of all GPUs, or of one GPU (its key) every metric that it has."""

    MORE_KEYS = ()

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,G,backspace", "leave", "Back", tooltip="Graphs: remove the cursor; back",
                id="graph.leave", key_display="Esc", group=_GROUP),
        Binding("g", "metric(1)", "Next metric", tooltip="Graphs: the next metric",
                id="graph.metric", key_display="g", group=_GROUP),
        Binding("b", "metric(-1)", "Previous metric", tooltip="Graphs: the previous metric",
                id="graph.metric-back", show=False, group=_GROUP),
        Binding("s", "overlay", "Overlay", tooltip="Graphs: one plot for all, or one each",
                id="graph.overlay", key_display="s", group=_GROUP),
        Binding("plus,equals_sign", "zoom(1)", "Longer", tooltip="Graphs: a longer time",
                id="graph.longer", key_display="+", group=_GROUP),
        Binding("minus", "zoom(-1)", "Shorter", tooltip="Graphs: a shorter time",
                id="graph.shorter", key_display="-", group=_GROUP),
        Binding("left", "cursor(-1)", "Cursor", tooltip="Graphs: the values at a moment",
                id="graph.cursor", key_display="left right", group=_GROUP),
        Binding("right", "cursor(1)", "Cursor right", tooltip="Graphs: the cursor to the right",
                id="graph.cursor-right", show=False, group=_GROUP),
        Binding("shift+left,pageup", "cursor(-10)", "Cursor far", tooltip="Graphs: by ten cells",
                id="graph.cursor-far", show=False, group=_GROUP),
        Binding("shift+right,pagedown", "cursor(10)", "Cursor far right",
                tooltip="Graphs: by ten cells", id="graph.cursor-far-right", show=False,
                group=_GROUP),
        Binding("down,j", "front(1)", "Highlight", tooltip="Graphs: highlight the next curve",
                id="graph.front", key_display="up down", group=_GROUP),
        Binding("up,k", "front(-1)", "Highlight back", tooltip="Graphs: highlight the one before",
                id="graph.front-back", show=False, group=_GROUP),
    ]  # fmt: skip

    def __init__(self, metric: str, gpu: str | None = None) -> None:
        super().__init__()
        self._metric, self._gpu = metric, gpu

    def body(self) -> Graph:
        return Graph(id="graph")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Several metrics of one GPU share no plot, and are all in sight."""
        return self._gpu is None or action.partition("(")[0] not in ("metric", "overlay")

    @property
    def graph(self) -> Graph:
        return self.query_one(Graph)

    def action_leave(self) -> None:
        """Go back to a graph without a cursor, then to where it was opened."""
        if not self.graph.put_away():
            self.dismiss(None)

    def action_metric(self, step: int) -> None:
        """Go to the next metric that has values."""
        metrics = self._metrics() or [self._metric]
        at = metrics.index(self._metric) if self._metric in metrics else -1
        self._metric = metrics[(at + step) % len(metrics)]
        self.draw()

    def action_overlay(self) -> None:
        """Draw a strip each, or all in one plot."""
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
            self.graph.heading = [(f" {metric.label}", "heading"), (f"  {metric.help}", "quiet")]
            curves = [Curve(gpu.index, key, self._metric, f"GPU {gpu.index}")
                      for key, gpu in gpus.items()]  # fmt: skip
        elif self._gpu in gpus:
            index = gpus[self._gpu].index
            self.graph.heading = [(f" GPU {index}", "heading"), ("  all recorded metrics", "quiet")]
            curves = [Curve(n, self._gpu, id_, GPU[id_].label)
                      for n, id_ in enumerate(self._metrics())]  # fmt: skip
        self.graph.show_curves(curves, self.shown.frame, self.shown.history)

    def _metrics(self) -> list[str]:
        if self.shown is None:
            return []
        keys = [gpu.key for gpu in self.shown.frame.gpus if self._gpu in (None, gpu.key)]
        return [id_ for id_ in KEPT if any(self.shown.history.knows(key, id_) for key in keys)]
