"""The mapping pane: the editor of the variable, what its value means, and what keys do to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import Screen

from gputop.model.machine.text import printable
from gputop.protocol.messages import Probe
from gputop.tui.messages import Note, ResultShown
from gputop.tui.panes.editor import ValueInput
from gputop.tui.panes.lines import Lines, Piece, width_of
from gputop.tui.panes.mapping_lines import (
    certainty,
    mapping_line,
    result_lines,
    ruled,
    setting,
    shell_line,
    variable,
)
from gputop.tui.panes.mapping_state import MappingState
from gputop.tui.panes.page import Page
from gputop.tui.panes.paper import Paper

_LEAST_EDITOR = 24
"""The order is left out if the editor would have fewer cells than this."""
_NARROW_EDITOR = 12
"""All but a short label is left out if the editor would have fewer cells than this."""


class Label(Lines):
    """A label, as wide as its pieces."""

    _pieces: list[Piece] = []

    def show(self, pieces: list[Piece]) -> None:
        before, self._pieces = width_of(self._pieces), pieces
        if width_of(pieces) != before:
            self.styles.width = width_of(pieces)
        self.repaint_changed()

    def pieces(self, y: int) -> Iterable[Piece]:
        return self._pieces


class MappingResultView(Page, can_focus=False):
    """The mapping, a line for each device, then the remarks on it; the line for a shell is last.

    The keys of the editor scroll it.
    """

    def __init__(self, state: MappingState, *, with_devices: bool = True) -> None:
        """`with_devices`: whether it has a line for each device, as no table has."""
        super().__init__()
        self._state, self._with_devices = state, with_devices
        self._offer: str | None = None

    def on_resize(self) -> None:
        super().on_resize()
        self.show_result(self._offer)

    def show_result(self, offer: str | None) -> None:
        """Show the current result; `offer` is the completion that the editor suggests."""
        self._offer = offer
        self.show_lines(list(result_lines(self._state, self.paper, offer, self._with_devices)))
        self.post_message(ResultShown())

    @property
    def visible_lines(self) -> int:
        """The number of visible rows; if there is more than one line, the last is the shell's."""
        return max(1, self.size.height - 1) if self.size.height else 0

    def pieces(self, y: int) -> Iterable[Piece]:
        if y == min(len(self.lines), self.size.height - 1) and self.size.height > 1:
            return shell_line(self._state, self.paper, self.span)
        return super().pieces(y)


class MappingPane(Vertical):
    """The value, the order, and what they mean; one line until the user opens it.

    Tab does not reach the editor: `edit` opens it, and it closes when the focus leaves it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab,shift+tab", "stay", "Nothing", id="value.stay", show=False),
        Binding("pagedown", "page(1)", "Rest of the answer", id="value.page-down", show=False),
        Binding("pageup", "page(-1)", "Beginning of the answer", id="value.page-up", show=False),
    ]

    def __init__(self, state: MappingState) -> None:
        super().__init__()
        self._state = state
        self.is_open = True
        """Whether it takes more than a line."""

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Label(id="mapping-name")
            editor = ValueInput(self._state, self.show_result)
            editor.can_focus = False
            yield editor
            yield Label(id="mapping-state")
        yield MappingResultView(self._state)

    def on_mount(self) -> None:
        self._show_head()

    def on_resize(self) -> None:
        self._show_head()

    def on_descendant_focus(self) -> None:
        self.show_result()  # an offer can be accepted now

    def on_descendant_blur(self) -> None:
        editor = self.query_one(ValueInput)
        if self.screen.focused is not editor:
            editor.can_focus = False
        self.show_result()

    def open(self, is_open: bool) -> None:
        """Show the editor and the result, or one line."""
        if self.is_open != is_open:
            self.is_open = is_open
            self.set_class(not is_open, "-line")
            self._show_head()

    @property
    def lines(self) -> int:
        """How many lines the editor and the result take."""
        return 2 + len(self.query_one(MappingResultView).lines)

    @property
    def follows(self) -> bool:
        """Whether the result is that of the process under the cursor."""
        return self._state.followed is not None

    def action_stay(self) -> None:
        """Stay in the editor if Tab has nothing to accept."""

    def action_page(self, step: int) -> None:
        self.query_one(MappingResultView).action_page(step)

    def edit(self) -> None:
        """Put the cursor into the value, which a process that was followed had hidden: a layout
        takes the focus from what is not displayed yet."""
        self.show_result()
        self.query_one(ValueInput).invite()

    def show_result(self) -> None:
        """Show the current result; other screens may have changed the query."""
        editor = self.query_one(ValueInput)
        editor.show_state()
        self._show_head()
        if self.is_open:
            self.query_one(MappingResultView).show_result(editor.offer)

    def _show_head(self) -> None:
        self.query_one(ValueInput).display = self.is_open and self._state.followed is None
        if self.is_open:
            label, right = self._head()
        else:
            label, right = mapping_line(self._state, Paper(self.size.width, Lines.glyphs)), []
        self.query_one("#mapping-name", Label).show(label)
        self.query_one("#mapping-state", Label).show(right)

    def _head(self) -> tuple[list[Piece], list[Piece]]:
        """Return what stands before the editor, and after it."""
        state, followed, rule = self._state, self._state.followed, Lines.glyphs.rule
        name = "Shell line: " if state.result.is_line else "CUDA_VISIBLE_DEVICES="
        name = "CUDA_VISIBLE_DEVICES is unset " if state.query.text is None else name
        name = name if followed is None else variable(state)
        label: list[Piece] = [(f"{rule} ", "track"), ("Mapping ", "heading")]
        label += [(f"{rule * 2} ", "track"), (Lines.glyphs.text(name), "text")]
        between = (f" {rule * 2} ", "track")
        order = Lines.glyphs.text(setting("CUDA_DEVICE_ORDER", state.mapping.order, 64))
        ordered = [between, (order, "text")]
        right = [between, certainty(state), (f" {rule}", "track")]
        is_read = followed is None or not followed.mapping.unread
        if is_read and width_of([*label, *ordered, *right]) + _LEAST_EDITOR <= self.size.width:
            right = [*ordered, *right]
        if followed is not None:  # one label: if its width stays the same, no layout is needed
            label, right = ruled(label, right, Paper(self.size.width, Lines.glyphs)), []
        elif width_of([*label, *right]) + _NARROW_EDITOR > self.size.width:
            short = "unset " if state.query.text is None else "value "
            label, right = [(f"{rule} ", "track"), (short, "heading")], []
        return label, right


class MappingKeys(Screen[None]):
    """A screen with the keys that change the query of a mapping."""

    mapping: MappingState

    def ask_driver(self, probe: Probe) -> None:
        """Send a probe to the agent."""
        raise NotImplementedError

    def show_mapping(self) -> None:
        """Show the result as it is now."""
        raise NotImplementedError

    def action_order(self) -> None:
        self.mapping.next_order()
        self.show_mapping()

    def action_unset(self) -> None:
        """Unset CUDA_VISIBLE_DEVICES, which is not the same as emptying it."""
        self.mapping.ask(text=None)
        self.show_mapping()

    def action_verify(self) -> None:
        """Ask the driver what the variables mean."""
        probe = self.mapping.probe()
        if isinstance(probe, str):
            self._say_below(probe)
        else:
            self.ask_driver(probe)
            self.show_mapping()

    def action_copy(self) -> None:
        """Hand the line for the shell to the terminal, which may keep it (OSC 52)."""
        line = self.mapping.export
        if line:
            self.app.copy_to_clipboard(line)
        self._say_below(f"copied (OSC 52): {line}" if line else self.mapping.why_no_export)

    def _say_below(self, note: str) -> None:
        """Say it below the mapping, which stays in sight."""
        self.post_message(Note(printable(note), among_keys=True))
