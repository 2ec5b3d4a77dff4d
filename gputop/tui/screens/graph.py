"""Graphs on the whole screen: one metric of all GPUs, or all of one GPU."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from gputop.model.frame import Frame
from gputop.model.gpu_metrics import GPU
from gputop.model.history import KEPT, History
from gputop.model.logical_names import LogicalNames
from gputop.tui.themes import USER_COLOURS
from gputop.tui.widgets.bars import PageKeys
from gputop.tui.widgets.graph import Curve, Graph, curve

_GROUP = Binding.Group("Graphs")


class GraphScreen(Screen[None]):
    """Of all GPUs a metric, or of one GPU (its key) every metric that it has."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,G,backspace", "leave", "Back", tooltip="Without cursor; from the graphs",
                id="graph.leave", key_display="Esc", group=_GROUP),
        Binding("g", "metric(1)", "Next metric", tooltip="In the graphs: the next metric",
                id="graph.metric", key_display="g", group=_GROUP),
        Binding("b", "metric(-1)", "Metric before", tooltip="In the graphs: the metric before",
                id="graph.metric-back", show=False, group=_GROUP),
        Binding("s", "stack", "Stack", tooltip="In the graphs: a strip each, or one plot for all",
                id="graph.stack", key_display="s", group=_GROUP),
        Binding("plus,equals_sign", "zoom(1)", "Longer", tooltip="In the graphs: 5, 15 minutes",
                id="graph.longer", key_display="+", group=_GROUP),
        Binding("minus", "zoom(-1)", "Shorter", tooltip="In the graphs: 5 minutes, 1 minute",
                id="graph.shorter", key_display="-", group=_GROUP),
        Binding("left", "cursor(-1)", "Cursor", tooltip="In the graphs: the values at a time",
                id="graph.cursor", key_display="left", group=_GROUP),
        Binding("right", "cursor(1)", "Cursor right", tooltip="In the graphs: the cursor back",
                id="graph.cursor-right", show=False, group=_GROUP),
        Binding("shift+left,pageup", "cursor(-10)", "Cursor far", tooltip="Ten cells at once",
                id="graph.cursor-far", show=False, group=_GROUP),
        Binding("shift+right,pagedown", "cursor(10)", "Cursor far right",
                tooltip="Ten cells at once", id="graph.cursor-far-right", show=False,
                group=_GROUP),
        Binding("down,j", "front(1)", "In front", tooltip="In the graphs: one before the others",
                id="graph.front", key_display="down", group=_GROUP),
        Binding("up,k", "front(-1)", "In front, back", tooltip="In the graphs: the one above",
                id="graph.front-back", show=False, group=_GROUP),
    ]  # fmt: skip

    def __init__(self, metric: str, gpu: str | None = None) -> None:
        super().__init__()
        self._metric, self._gpu = metric, gpu
        self._frame: Frame | None = None
        self._history = History()

    def compose(self) -> ComposeResult:
        """The graph, and the keys."""
        yield Graph(id="graph")
        yield PageKeys(
            [(one.key_display, one.description.lower()) for one in self.BINDINGS
             if isinstance(one, Binding) and one.key_display],
            id="keys",
        )  # fmt: skip

    def on_mount(self) -> None:
        """A frame may have come before the graph was made."""
        self.query_one(Graph).stacked = self._gpu is not None
        self._show()

    def show_frame(self, frame: Frame, names: LogicalNames, history: History) -> None:
        """Another frame."""
        self._frame, self._history = frame, history
        if self.is_mounted:
            self._show()

    def action_leave(self) -> None:
        """Back to a graph without a cursor, then to where it was asked for."""
        if not self.query_one(Graph).put_away():
            self.dismiss(None)

    def action_metric(self, step: int) -> None:
        """The next of those of which there are values; of one GPU, into the front."""
        graph = self.query_one(Graph)
        if self._gpu is not None:
            graph.bring_forward(step)
            return
        known = self._known() or [self._metric]
        at = known.index(self._metric) if self._metric in known else -1
        self._metric = known[(at + step) % len(known)]
        self._show()

    def action_stack(self) -> None:
        """A strip each, or all in one plot; of different things there is no plot."""
        graph = self.query_one(Graph)
        graph.stacked = self._gpu is not None or not graph.stacked
        graph.draw()

    def action_zoom(self, step: int) -> None:
        """A longer or a shorter time."""
        self.query_one(Graph).zoom(step)

    def action_cursor(self, step: int) -> None:
        """To another time."""
        self.query_one(Graph).move(step)

    def action_front(self, step: int) -> None:
        """Another curve before the others."""
        self.query_one(Graph).bring_forward(step)

    def _known(self) -> list[str]:
        gpus = self._frame.gpus if self._frame else ()
        keys = [gpu.key for gpu in gpus if self._gpu in (None, gpu.key)]
        return [id_ for id_ in KEPT if any(self._history.knows(key, id_) for key in keys)]

    def _show(self) -> None:
        if self._frame is None:
            return
        graph, metric = self.query_one(Graph), GPU[self._metric]
        gpus = {gpu.key: gpu for gpu in self._frame.gpus}
        curves: list[Curve] = []
        if self._gpu is None:
            graph.heading = [(f" {metric.label}", "heading"), (f"  {metric.help}", "quiet")]
            curves = [curve(gpu.index, key, self._metric, f"GPU {gpu.index}")
                      for key, gpu in gpus.items()]  # fmt: skip
        elif self._gpu in gpus:
            index = gpus[self._gpu].index
            graph.heading = [(f" GPU {index}", "heading"), ("  all that has a past", "quiet")]
            curves = [curve(n % USER_COLOURS, self._gpu, id_, GPU[id_].label)
                      for n, id_ in enumerate(self._known())]  # fmt: skip
        graph.show_curves(curves, self._frame, self._history)
