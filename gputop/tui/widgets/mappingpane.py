"""The mapping pane: the editor of the variable, and its result."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Input

from gputop.model.frame import Frame
from gputop.model.inventory import frame_devices
from gputop.model.visibility import FASTEST_FIRST, PCI_BUS_ID, Mapping, resolve
from gputop.tui.widgets.editor import Editor, harmless
from gputop.tui.widgets.lines import Lines, Piece, width_of
from gputop.tui.widgets.mapping import (
    MappingLine,
    MappingResult,
    certainty,
    order_text,
)

_ORDERS = (None, PCI_BUS_ID, FASTEST_FIRST)
_LEAST_EDITOR = 24
"""Cells of the editor without which the order is left out."""


class _Label(Lines):
    """Pieces of fixed content, as wide as they are."""

    def show(self, pieces: list[Piece]) -> None:
        self._pieces = pieces
        self.styles.width = width_of(pieces)
        self._painted.clear()
        self.refresh()

    _pieces: list[Piece] = []

    def pieces(self, y: int) -> Iterable[Piece]:
        return self._pieces


class ValueInput(Editor):
    """The value of CUDA_VISIBLE_DEVICES. Empty is a value too: it hides every GPU."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.leave", "Back to the processes", id="value.leave", show=False),
    ]


class MappingPane(Vertical):
    """Value, order, and what they mean; one line where the terminal is short."""

    def __init__(self, value: str | None, order: str | None, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._value, self._order = value, order
        self._frame: Frame | None = None
        self._asked: object = None
        self._mapping = resolve(value, (), order=order)

    def compose(self) -> ComposeResult:
        """Head with the editor, result; or the line."""
        with Horizontal(id="mapping-head"):
            yield _Label(id="mapping-name")
            yield ValueInput(self._value or "", most=4096, id="mapping-value")
            yield _Label(id="mapping-state")
        yield MappingResult(id="mapping-result")
        yield MappingLine(id="mapping-line")

    def on_mount(self) -> None:
        """The head is there before the first frame."""
        self._show_head()

    @property
    def mapping(self) -> Mapping:
        """The answer of now."""
        return self._mapping

    def show_frame(self, frame: Frame) -> None:
        """Another frame: the answer changes only with the GPUs, what is said of them always."""
        self._frame = frame
        self._update()

    def edit(self) -> None:
        """Put the cursor into the value."""
        editor = self.query_one(ValueInput)
        editor.focus()
        editor.cursor_position = len(editor.value)

    def unset(self) -> None:
        """Unset the variable, which is not the same as to empty it."""
        with self.prevent(Input.Changed):
            self.query_one(ValueInput).value = ""
        self._value = None
        self._update()

    def next_order(self) -> None:
        """Go round the values of CUDA_DEVICE_ORDER."""
        place = _ORDERS.index(self._order) if self._order in _ORDERS else -1
        self._order = _ORDERS[(place + 1) % len(_ORDERS)]
        self._update()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Every key gives an answer. The first event is no key: it tells of the value at the
        start, which may hold what the editor does not."""
        event.stop()
        if self._value is not None and event.value == harmless(self._value):
            return
        self._value = event.value
        self._update()

    def _update(self) -> None:
        frame = self._frame
        if frame is None:
            return
        devices, version = frame_devices(frame), frame.driver_version
        asked = (self._value, self._order, devices, version)
        if asked != self._asked:
            self._asked = asked
            self._mapping = resolve(self._value, devices, order=self._order, driver_version=version)
            self._show_head()
        self.query_one(MappingLine).show_mapping(self._mapping, frame)
        self.query_one(MappingResult).show_mapping(self._mapping, frame)

    def _show_head(self) -> None:
        result = self.query_one(MappingResult)
        rule, mapping = result.glyphs.rule, self._mapping
        name = (
            "CUDA_VISIBLE_DEVICES is unset " if mapping.value is None else "CUDA_VISIBLE_DEVICES="
        )
        label: list[Piece] = [(f"{rule} ", "track"), ("Mapping ", "heading")]
        label += [(f"{rule * 2} ", "track"), (name, "text")]
        self.query_one("#mapping-name", _Label).show(label)
        order = result.glyphs.text(order_text(mapping))
        ordered: list[Piece] = [(f" {rule * 2} ", "track"), (order, "text")]
        state: list[Piece] = [(f" {rule * 2} ", "track"), certainty(mapping), (f" {rule}", "track")]
        if width_of([*label, *ordered, *state]) + _LEAST_EDITOR <= self.size.width:
            state = [*ordered, *state]
        self.query_one("#mapping-state", _Label).show(state)

    def on_resize(self) -> None:
        """The order is shown where there is room."""
        if self._frame is not None:
            self._show_head()
