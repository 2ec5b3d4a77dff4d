"""The GPU rows: one line for each GPU, and one for each of its MIG devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import GpuPart, PartKey, parts_of
from gputop.model.metrics.history import History
from gputop.settings import Session
from gputop.tui.panes.gpu_columns import GpuColumns
from gputop.tui.panes.lines import Piece
from gputop.tui.panes.short_history import HISTORIES, ShortHistory
from gputop.tui.panes.table import Table


class GpuPane(Table[GpuPart]):
    """All GPUs with their MIG devices; `head_lines` is 0 if lines are scarce."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "This GPU", id="gpus.choose", show=False),
    ]

    @dataclass
    class Chosen(Message):
        """Posted when the user opens the page of a GPU or MIG device."""

        key: PartKey

    def __init__(self, settings: Session) -> None:
        super().__init__()
        self._settings = settings
        self._history = ShortHistory(settings.thresholds)
        self._cells: GpuColumns | None = None
        """The cells of the frame that is shown."""
        self.is_marked: Callable[[GpuPart], bool] = lambda line: False
        """Returns whether the user waits for the GPU or MIG device of a row to be free."""

    def show_frame(self, frame: Frame, history: History) -> None:
        self._history.show(frame, history)
        full = self._cells.full if self._cells else ()
        self._cells = GpuColumns(frame, self._history, self._settings, full)
        self.fit()
        parts = parts_of(frame.gpus)
        self.show(parts, [(part.key, part.subject.uuid) for part in parts])

    def open_row(self, line: GpuPart) -> None:
        self.post_message(self.Chosen(line.key))

    @property
    def graphed_id(self) -> str:
        """The metric that graphs of all GPUs begin with."""
        return self._history.graphed_id

    def leave_out(self, metrics: frozenset[str]) -> None:
        """Show none of these metrics in the short history: they are drawn below."""
        self._history.leave_out(metrics)
        self.fit()
        self.repaint_changed()

    def next_history(self) -> None:
        """Show the next metric that some GPU has in the short history."""
        self._history.choose_next()
        self.fit()
        self.repaint_changed()

    @property
    def unsaid(self) -> str:
        """What the pane has no room to say: which GPUs are in sight if not all are, and what the
        short history shows if there are no labels."""
        first, last, total = self.span
        words = []
        if last - first + 1 < total:
            if any(line.device for line in self._rows):
                words.append(f"GPU rows {first}-{last} of {total}")
            else:
                low, high = (self._rows[n - 1].gpu.index for n in (first, last))
                words.append(f"GPU {low if low == high else f'{low}-{high}'} of {total}")
        if not self.head_lines and self._history.metric_id != HISTORIES[0]:
            words.append(f"history: {self._history.words}")
        return ", ".join(words)

    def head(self, y: int) -> Iterable[Piece]:
        role = "heading" if self.is_active else "quiet"
        return [(text, role) for text, _ in super().head(y)]

    def cells(self, line: GpuPart) -> Sequence[Piece]:
        return self._cells.row(line) if self._cells else ()

    def sign(self, line: GpuPart) -> Piece | None:
        return (self.glyphs.mark, "text") if self.is_marked(line) else None

    def fit(self) -> None:
        if self._cells is not None:
            self._columns = self._cells.fit(self.size.width, self.gap)
