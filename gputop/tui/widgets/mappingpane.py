"""The mapping pane: the editor of the variable, and its result."""

from __future__ import annotations

from collections.abc import Iterable

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Input

from gputop.tui.inquiry import Inquiry
from gputop.tui.widgets.columns import sized
from gputop.tui.widgets.editor import ValueInput, harmless
from gputop.tui.widgets.lines import Lines, Piece, spread, width_of
from gputop.tui.widgets.mapping import MappingLine, MappingResult
from gputop.tui.widgets.sentences import order_text, state, variable

_LEAST_EDITOR = 24
"""Cells of the editor without which the order is left out."""


class Label(Lines):
    """Pieces of fixed content, as wide as they are."""

    def show(self, pieces: list[Piece]) -> None:
        """Other pieces."""
        before, self._pieces = width_of(self._pieces), pieces
        if width_of(pieces) != before:
            self.styles.width = width_of(pieces)
        self.sync()

    _pieces: list[Piece] = []

    def pieces(self, y: int) -> Iterable[Piece]:
        """The same always."""
        return self._pieces


class MappingPane(Vertical):
    """Value, order, and what they mean; one line where the terminal is short."""

    def __init__(self, inquiry: Inquiry, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._inquiry = inquiry

    def compose(self) -> ComposeResult:
        """Head with the editor, result; or the line."""
        value = self._inquiry.question.text or ""
        with Horizontal(id="mapping-head"):
            yield Label(id="mapping-name")
            yield ValueInput(value, self._inquiry.past, id="mapping-value")
            yield Label(id="mapping-state")
        yield MappingResult(self._inquiry, id="mapping-result")
        yield MappingLine(self._inquiry, id="mapping-line")

    def on_mount(self) -> None:
        """The head is there before the first frame."""
        self._show_head()

    def edit(self) -> None:
        """Put the cursor into the value."""
        self.query_one(ValueInput).invite()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Every key gives an answer. The first event is no key: it tells of the value at the
        start, which may hold what the editor does not."""
        event.stop()
        if event.value != harmless(self._inquiry.question.text or ""):
            self._inquiry.ask(text=event.value)
            self.query_one(ValueInput).invited = True
            self.show_answer()

    def on_descendant_focus(self) -> None:
        """What is offered can be taken now."""
        self.show_answer()

    def on_descendant_blur(self) -> None:
        """Or no more."""
        self.show_answer()

    def show_answer(self) -> None:
        """The answer of now, of which other views may have changed the question."""
        editor, text = self.query_one(ValueInput), self._inquiry.question.text
        if editor.value != harmless(text or ""):
            editor.set_text(text or "")
        editor.show_offer(self._inquiry.complete(editor.value) if editor.invited else None)
        self._show_head()
        if self.has_class("-line"):
            self.query_one(MappingLine).sync()
        else:
            self.query_one(MappingResult).show_answer(editor.offer)

    def _show_head(self) -> None:
        rule, found, followed = Lines.glyphs.rule, self._inquiry.answer, self._inquiry.followed
        name = "Shell line: " if found.is_line else "CUDA_VISIBLE_DEVICES="
        name = "CUDA_VISIBLE_DEVICES is unset " if self._inquiry.question.text is None else name
        name = name if followed is None else variable(self._inquiry)
        self.query_one(ValueInput).display = followed is None
        label: list[Piece] = [(f"{rule} ", "track"), ("Mapping ", "heading")]
        label += [(f"{rule * 2} ", "track"), (Lines.glyphs.text(name), "text")]
        between = (f" {rule * 2} ", "track")
        ordered = [between, (Lines.glyphs.text(order_text(self._inquiry.mapping)), "text")]
        shown = [between, state(self._inquiry), (f" {rule}", "track")]
        known = followed is None or not followed.mapping.unread
        if known and width_of([*label, *ordered, *shown]) + _LEAST_EDITOR <= self.size.width:
            shown = [*ordered, *shown]
        if followed is not None:  # as one label: what is as wide as before needs no layout
            label, shown = [*self._across(label, shown), *shown], []
        self.query_one("#mapping-name", Label).show(label)
        self.query_one("#mapping-state", Label).show(shown)

    def _across(self, label: list[Piece], state_: list[Piece]) -> list[Piece]:
        """What stands in place of the editor as well."""
        width = max(1, self.size.width - width_of(state_))
        cut_ = sized(label, min(width, width_of(label)), Lines.glyphs.ellipsis, left=True)
        return spread([*cut_, (" ", "track")], [], width, Lines.glyphs.rule)

    def on_resize(self) -> None:
        """The order is shown where there is room."""
        self._show_head()
