"""The GPU rows: one line a GPU, and one for each of its MIG devices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from gputop.model.frame import Frame
from gputop.model.gpu import Gpu
from gputop.model.history import History
from gputop.settings import Session
from gputop.tui.widgets.columns import Fitted, heading, row
from gputop.tui.widgets.gpucells import Line, lines_of
from gputop.tui.widgets.gpucolumns import HISTORIES, GpuColumns
from gputop.tui.widgets.lines import Piece
from gputop.tui.widgets.table import Table


class GpuPane(Table[Line]):
    """All GPUs with their MIG devices; `head_lines` is 0 where lines are scarce."""

    HELP = "One line a GPU and MIG device. Columns appear as the terminal has room for them."

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "This GPU", id="gpus.choose", show=False),
    ]

    @dataclass
    class Chosen(Message):
        """Its page is wanted."""

        key: str

    def __init__(self, settings: Session, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._frame: Frame | None = None
        self._history = History()
        self._cells = GpuColumns(settings)
        self._columns: Fitted[Gpu] = []
        self._parts: Fitted[Line] = []

    def show_frame(self, frame: Frame, history: History) -> None:
        """Another frame."""
        self._frame, self._history = frame, history
        self._fit()
        lines = lines_of(frame)
        self.show(lines, [line.key for line in lines])

    def on_resize(self) -> None:
        """Another width: other columns."""
        self._fit()
        super().on_resize()

    def action_choose(self) -> None:
        """The GPU under the cursor; of none, the first in sight is selected."""
        if self.current is None:
            self.action_move(0)
        else:
            self.post_message(self.Chosen(self.current.gpu.key))

    @property
    def history_id(self) -> str:
        """The metric that the short history shows."""
        return self._cells.history_id

    def next_history(self) -> None:
        """Another metric in the short history: the next of those that some GPU has."""
        gpus = self._frame.gpus if self._frame else ()
        known = [id_ for id_ in HISTORIES
                 if any(self._history.knows(gpu.key, id_) for gpu in gpus)]  # fmt: skip
        if known:
            at = known.index(self.history_id) if self.history_id in known else -1
            self._cells.history_id = known[(at + 1) % len(known)]
        self._fit()
        self.sync()

    @property
    def unsaid(self) -> str:
        """Which GPUs are in sight, where not all of them are; what the short history shows, where
        there are no labels."""
        first, last, total = self.span
        said = []
        if last - first + 1 < total:
            rows = self._rows[first - 1].gpu, self._rows[last - 1].gpu
            where = f"{rows[0].index}-{rows[1].index}"
            said = [f"GPU rows {first}-{last} of {total}" if self._parts
                    else f"GPU {where} of {total}"]  # fmt: skip
        if not self.head_lines and self.history_id != HISTORIES[0]:
            said.append(f"history: {self._cells.history_label}")
        return ", ".join(said)

    def head(self, y: int) -> Iterable[Piece]:
        """The labels."""
        return [(" ", "quiet"), *heading(self._columns, self._gap)]

    def row_pieces(self, row_: Line, selected: bool) -> Iterable[Piece]:
        """One GPU: its values, or what it says instead of them. Or a MIG device."""
        role, gpu = "cursor" if selected else None, row_.gpu
        if row_.device is None and (gpu.error is not None or gpu.name is None):
            return self._cells.silent(gpu, self._gap, role)
        if gpu.stale_for is not None and role is None:
            return [
                (text, own if own in ("alarm", "track") else "quiet")
                for text, own in self._pieces(row_, None)
            ]
        return self._pieces(row_, role)

    @property
    def _gap(self) -> int:
        return 2 if self.size.width >= 110 else 1

    def _pieces(self, line: Line, role: str | None) -> list[Piece]:
        gap, ellipsis = self._gap, self.glyphs.ellipsis
        if line.device is None:
            pieces = row(self._columns, line.gpu, gap, ellipsis, role)
        else:
            pieces = row(self._parts, line, gap, ellipsis, role)
        return [(" ", role or "text"), *pieces]

    def _fit(self) -> None:
        self._columns, self._parts = self._cells.fitted(
            self._frame, self._history, self.size.width, self._gap, self.glyphs
        )
