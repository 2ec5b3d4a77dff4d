"""The mapping on the whole screen: both directions, and what a program selects in addition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Horizontal
from textual.widgets import Input

from gputop.errors import UsageError
from gputop.model.cuda.frameworks import Layers, read_layers
from gputop.model.machine.text import printable
from gputop.protocol.messages import Probe
from gputop.settings import Thresholds
from gputop.tui.pages.mapping_tables import LogicalTable, PhysicalTable
from gputop.tui.panes.editor import Editor, ValueInput, harmless
from gputop.tui.panes.heading import (
    Heading,
    KeyLabel,
    KeyLine,
    described_key,
    key_words,
)
from gputop.tui.panes.lines import Lines
from gputop.tui.panes.mapping import Label, MappingKeys, MappingResultView
from gputop.tui.panes.mapping_state import MappingState
from gputop.tui.panes.page import Page
from gputop.tui.panes.table import Table
from gputop.tui.snapshot import Snapshot
from gputop.tui.terminal.key_queue import keyed


class _Field(NamedTuple):
    """A line to type into, in addition to the value."""

    name: str
    label: str
    example: str
    hint: str = ""
    """What to write, if the error of the field's parser is less helpful."""


_FIELDS = (
    _Field("order", "CUDA_DEVICE_ORDER", "unset; PCI_BUS_ID"),
    _Field("tf-visible", "TF visible devices", "list 1,0; [0,1]: set_visible_devices"),
    _Field("tf-logical", "TF logical devices", "as 0:2048,2048; 1:1024 (MiB)",
           "write it as 0:2048,2048; 1:1024"),
    _Field("jax-visible", "JAX visible devices", "all, or as 0,1; takes 75 % of each"),
    _Field("fraction", "memory fraction", "as 0.4", "a number above 0 and at most 1"),
    _Field("local-rank", "torchrun LOCAL_RANK", "as 1", "a number from 0"),
    _Field("request", "requested device", "as cuda:2", "write cuda:2 or /device:GPU:2"),
)  # fmt: skip
_EDITING = (("Enter", "done"), ("Tab", "next field"), ("Esc", "to the tables"))
_HINTS = {field.name: field.hint for field in _FIELDS if field.hint}
_MORE = 4
"""Lines that the remarks keep, if there is room."""
_LEAST = 3
"""Lines of a table that shows a row."""
_BESIDE = 140
"""From this many cells on the tables may stand side by side."""
_key = partial(described_key, "Mapping", area="whole")


class MappingScreen(MappingKeys):
    """Fields, two tables, and remarks."""

    AUTO_FOCUS = "LogicalTable"

    BINDINGS: ClassVar[list[BindingType]] = [
        _key("escape,q,M", "back", "Back", "Leave a field; back", "Esc"),
        _key(
            "m", "edit", "Edit", "Edit CUDA_VISIBLE_DEVICES and what a program sets", "m"
        ),
        _key("o", "order", "Order", "Change CUDA_DEVICE_ORDER", "o"),
        _key("U", "unset", "Unset", "Unset CUDA_VISIBLE_DEVICES", "U"),
        _key("v", "verify", "Verify", "Check with the CUDA driver", "v"),
        _key("y", "copy", "Copy", "Copy the export line (OSC 52)", "y"),
    ]  # fmt: skip

    def __init__(
        self,
        state: MappingState,
        request: Callable[[Probe], None],
        shown: Snapshot | None,
        thresholds: Thresholds,
    ) -> None:
        super().__init__()
        self.mapping, self._request = state, request
        self._shown, self._thresholds = shown, thresholds

    def compose(self) -> ComposeResult:
        yield Heading(self._thresholds)
        with Horizontal(classes="field"):
            yield Label(id="whole-name")
            yield ValueInput(self.mapping, self.show_mapping)
        for field in _FIELDS:
            with Horizontal(classes="field"):
                yield KeyLabel("", field.label, id=f"{field.name}-label")
                editor = Editor(harmless(self._typed(field.name)), max_length=1024, id=field.name)
                editor.placeholder = field.example
                yield editor
                yield Label(id=f"{field.name}-error")
        with Container(id="tables"):
            yield LogicalTable(self.mapping)
            yield PhysicalTable(self.mapping)
        yield MappingResultView(self.mapping, with_devices=False)
        yield KeyLine(self._words, with_notes=True)

    @property
    def _words(self) -> list[tuple[str, str]]:
        return [*key_words(keyed(self.app, self.BINDINGS)), ("Tab", "next table")]

    def show_frame(self, shown: Snapshot) -> None:
        """Show another frame, which the state has taken in already."""
        self._shown = shown
        if self.is_mounted:
            self.query_one(Heading).show_frame(shown.frame, shown.interval)
            self.show_mapping()

    def on_mount(self) -> None:
        self._open_fields(False)
        if self._shown is not None:
            self.query_one(Heading).show_frame(self._shown.frame, self._shown.interval)
        self.call_after_refresh(self.show_mapping)

    def on_resize(self) -> None:
        self.call_after_refresh(self.show_mapping)

    def on_descendant_focus(self) -> None:
        is_editing = isinstance(self.focused, Editor)
        self._open_fields(is_editing)
        self.query_one(KeyLine).show(_EDITING if is_editing else self._words)
        self.show_mapping()  # an offer can be accepted now

    def ask_driver(self, probe: Probe) -> None:
        self._request(probe)

    def show_mapping(self) -> None:
        query, editor = self.mapping.query, self.query_one(ValueInput)
        editor.show_state()
        with self.prevent(Input.Changed):
            self.query_one("#order", Editor).value = query.order or ""
        name = "Shell line" if self.mapping.result.is_line else "CUDA_VISIBLE_DEVICES"
        name = "CUDA_VISIBLE_DEVICES is unset" if query.text is None else name
        self.query_one("#whole-name", Label).show([(f" {name:<27} ", "text")])
        self.query_one(LogicalTable).show_result()
        self.query_one(PhysicalTable).show_result()
        self.query_one(MappingResultView).show_result(editor.offer)
        self._arrange()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Ask anew after every change, or show beside the field what is wrong."""
        name, text = event.input.id or "", event.value
        if name != "order":
            self._read(name, text)
        elif text == harmless(self.mapping.query.order or ""):
            return
        else:
            self.mapping.ask(order=text or None)
        self.show_mapping()

    def on_input_submitted(self) -> None:
        self.action_leave()

    def action_edit(self) -> None:
        """Open the fields: Tab then goes through these and nowhere else."""
        self._open_fields(True)
        self.query_one(ValueInput).invite()

    def _open_fields(self, is_open: bool) -> None:
        for editor in self.query(Editor):
            editor.can_focus = is_open
        for part in (*self.query(Table), *self.query(Page)):
            part.can_focus = not is_open

    def action_leave(self) -> None:
        """Go from a field back to the tables."""
        self._open_fields(False)
        self.set_focus(self.query_one(LogicalTable))

    def action_back(self) -> None:
        """Go from a field to the tables, from the tables to where this was opened."""
        if isinstance(self.focused, Editor):
            self.action_leave()
        else:
            self.dismiss(None)

    def _read(self, name: str, text: str) -> None:
        fields = {**self.mapping.fields, name: text.strip()}
        try:
            layers = _layers(fields)
        except (UsageError, ValueError) as error:
            self._show_error(name, _HINTS.get(name, str(error)))
            return
        self._show_error(name, "")
        self.mapping.fields = fields
        self.mapping.ask(layers=layers)

    def _show_error(self, name: str, message: str) -> None:
        text = Lines.glyphs.text(printable(message, 200))
        pieces = [(f" {Lines.glyphs.warning} {text}", "alarm")] if message else []
        self.query_one(f"#{name}-error", Label).show(pieces)

    def _typed(self, name: str) -> str:
        state = self.mapping
        return state.query.order or "" if name == "order" else state.fields.get(name, "")

    def _arrange(self) -> None:
        """Share the lines: the fields first, then all rows, if they fit."""
        _, *fields = self.query(".field")
        room = self.size.height - 3 - len(fields)
        has_fields = room >= 2 * _MORE
        for field in fields:
            field.display = has_fields
        if not has_fields:
            room += len(fields)
        logical, physical = self.query_one(LogicalTable), self.query_one(PhysicalTable)
        most = max(1, room - max(1, min(_MORE, room // 3)))
        needs = [logical.needed, physical.needed]
        beside = sum(needs) > most and self.size.width >= _BESIDE
        if beside:
            shares = [min(max(needs), most)] * 2
        elif sum(needs) > most:
            first = min(needs[0], max(_LEAST, most // 2, most - needs[1]))
            shares = [first, most - first] if most - first >= _LEAST else [most, 0]
        else:
            shares = needs
        logical.styles.height, physical.styles.height = shares
        tables = self.query_one("#tables")
        tables.set_class(beside, "-beside")
        tables.styles.height = shares[0] if beside else sum(shares)


def _layers(fields: dict[str, str]) -> Layers:
    """Return what the fields say that have a text. UsageError, ValueError for no number."""
    typed = defaultdict(str, fields)
    return read_layers(
        typed["tf-visible"] or None,
        [gpu.strip() for gpu in typed["tf-logical"].split(";") if gpu.strip()],
        float(typed["fraction"]) if typed["fraction"] else None,
        jax_visible=typed["jax-visible"] or None,
        local_rank=int(typed["local-rank"]) if typed["local-rank"] else None,
        device=typed["request"] or None,
    )
