"""The mapping on the whole screen: both directions, and what a program selects on top."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal
from textual.widgets import Input

from gputop.errors import UsageError
from gputop.model.frame import Frame
from gputop.model.selections import Layers, read_layers
from gputop.model.text import printable
from gputop.tui.inquiry import Inquiry
from gputop.tui.screens.asking import AskingScreen
from gputop.tui.widgets.bars import Heading, KeyLine
from gputop.tui.widgets.editor import Editor, ValueInput, harmless
from gputop.tui.widgets.lines import Lines
from gputop.tui.widgets.mapping import MappingResult
from gputop.tui.widgets.mappingpane import Label
from gputop.tui.widgets.mappingtables import LogicalTable, PhysicalTable

_FIELDS = (
    ("order", "CUDA_DEVICE_ORDER"),
    ("tf-visible", "TF visible devices"),
    ("tf-logical", "TF logical devices"),
    ("jax-visible", "JAX visible devices"),
    ("fraction", "memory fraction"),
    ("local-rank", "torchrun LOCAL_RANK"),
    ("request", "device that is asked for"),
)
_EXAMPLES = {
    "order": "unset; PCI_BUS_ID",
    "tf-visible": "list 1,0; [0,1]: set_visible_devices",
    "tf-logical": "as 0:2048,2048; 1:1024 (MiB)",
    "jax-visible": "all, or as 0,1; takes 75 % of each",
    "fraction": "as 0.4",
    "local-rank": "as 1",
    "request": "as cuda:2",
}
_HINTS = {
    "tf-logical": "write it as 0:2048,2048; 1:1024",
    "fraction": "a number above 0 and at most 1",
    "local-rank": "a number from 0",
    "request": "write cuda:2 or /device:GPU:2",
}
_MORE = 4
"""Lines of what is to be said, at the least."""
_LEAST = 3
"""Lines of a table that shows a row."""
_BESIDE = 140
"""Cells from which the tables may stand side by side."""


def _key(keys: str, action: str, description: str, tooltip: str, *, show: bool = True) -> Binding:
    return Binding(keys, action, description, tooltip=tooltip, id=f"whole.{action}", show=show,
                   key_display=keys if len(keys) == 1 else "Esc",
                   group=Binding.Group("Mapping"))  # fmt: skip


class SentenceResult(MappingResult):
    """What there is to say besides the tables."""

    with_devices = False


class MappingScreen(AskingScreen):
    """Fields, two tables, and what is to be said."""

    BINDINGS: ClassVar[list[BindingType]] = [
        _key("escape,M", "back", "Back", "To the main screen"),
        _key("m", "edit", "Edit", "Edit CUDA_VISIBLE_DEVICES"),
        _key("o", "order", "Order", "Go round CUDA_DEVICE_ORDER"),
        _key("U", "unset", "Unset", "Unset CUDA_VISIBLE_DEVICES"),
        _key("v", "verify", "Verify", "Ask the CUDA driver what the value means"),
        _key("y", "copy", "Copy", "Copy the export line (OSC 52)"),
    ]

    AUTO_FOCUS = "LogicalTable"

    def __init__(self, inquiry: Inquiry, interval: float, paused: bool) -> None:
        super().__init__(inquiry)
        self._start = (interval, paused)

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        inquiry = self.inquiry
        yield Heading(id="whole-heading")
        with Horizontal(classes="field"):
            yield Label(id="whole-name")
            yield ValueInput(inquiry.question.text or "", inquiry.past, id="value")
        for name, label in _FIELDS:
            with Horizontal(classes="field"):
                yield KeyLine([("", label)], id=f"{name}-label")
                editor = Editor(harmless(self._written(name)), most=1024, id=name)
                editor.placeholder = _EXAMPLES[name]
                yield editor
                yield Label(id=f"{name}-error")
        with Container(id="tables"):
            yield LogicalTable(inquiry, id="logical")
            yield PhysicalTable(inquiry, id="physical")
        yield SentenceResult(inquiry, id="sentences")
        words = [(b.key_display or "", b.description.lower()) for b in self.BINDINGS
                 if isinstance(b, Binding)]  # fmt: skip
        yield KeyLine([*words, ("Tab", "next field")], id="whole-keys")

    def show_frame(self, frame: Frame, interval: float, paused: bool) -> None:
        """Another frame, which the inquiry has taken already."""
        if self.is_mounted:
            self.query_one(Heading).show_frame(frame, interval, paused)
            self.show_answer()

    def on_mount(self) -> None:
        """The answer is there already."""
        self.query_one(Heading).show_frame(self.inquiry.frame, *self._start)
        self.call_after_refresh(self.show_answer)

    def on_resize(self) -> None:
        """Another size: other shares."""
        self.call_after_refresh(self.show_answer)

    def show_answer(self) -> None:
        """The answer of now."""
        question = self.inquiry.question
        editor = self.query_one(ValueInput)
        if editor.value != harmless(question.text or ""):
            editor.set_text(question.text or "")
        editor.show_offer(self.inquiry.complete(editor.value) if editor.invited else None)
        order = self.query_one("#order", Editor)
        if order.value != harmless(question.order or ""):
            with self.prevent(Input.Changed):
                order.value = harmless(question.order or "")
        name = "Shell line" if self.inquiry.answer.is_line else "CUDA_VISIBLE_DEVICES"
        name = "CUDA_VISIBLE_DEVICES is unset" if question.text is None else name
        self.query_one("#whole-name", Label).show([(f" {name:<27} ", "text")])
        self.query_one(LogicalTable).show_answer()
        self.query_one(PhysicalTable).show_answer()
        self.query_one(SentenceResult).show_answer(editor.offer)
        self._lay_out()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Every key gives an answer, or an error beside its field and nothing else."""
        name, text = event.input.id or "", event.value
        if name == "value":
            if text == harmless(self.inquiry.question.text or ""):
                return
            self.inquiry.ask(text=text)
            self.query_one(ValueInput).invited = True
        elif name == "order":
            if text == harmless(self.inquiry.question.order or ""):
                return
            self.inquiry.ask(order=text or None)
        else:
            self._read(name, text)
        self.show_answer()

    def on_input_submitted(self) -> None:
        """Back to the tables."""
        self.action_leave()

    def on_descendant_focus(self) -> None:
        """What is offered can be taken now."""
        self.show_answer()

    def action_edit(self) -> None:
        """Into the value."""
        self.query_one(ValueInput).invite()

    def action_leave(self) -> None:
        """Out of a field."""
        self.set_focus(self.query_one(LogicalTable))

    def action_back(self) -> None:
        """To the main screen."""
        self.dismiss(None)

    def _read(self, name: str, text: str) -> None:
        """Take a field over, or say what is wrong with it."""
        fields = {**self.inquiry.fields, name: text.strip()}
        try:
            layers = _layers(fields)
        except UsageError as error:
            self._say_error(name, _HINTS.get(name, str(error)))
            return
        self._say_error(name, "")
        self.inquiry.fields = fields
        self.inquiry.ask(layers=layers)

    def _say_error(self, name: str, message: str) -> None:
        text = Lines.glyphs.text(printable(message, 200))
        pieces = [(f" {Lines.glyphs.warning} {text}", "alarm")] if message else []
        self.query_one(f"#{name}-error", Label).show(pieces)

    def _written(self, name: str) -> str:
        question = self.inquiry.question
        return question.order or "" if name == "order" else self.inquiry.fields[name]

    def _lay_out(self) -> None:
        """Share the lines: the fields first, then all rows, if they fit."""
        fields = list(self.query(".field"))
        room = self.size.height - 2 - len(fields)
        for number, field in enumerate(fields):
            field.display = number == 0 or room >= 2 * _MORE
        if room < 2 * _MORE:
            room += len(fields) - 1
        logical, physical = self.query_one(LogicalTable), self.query_one(PhysicalTable)
        more = max(1, min(_MORE, room // 3))
        most = max(1, room - more)
        needs = [logical.needed, physical.needed]
        beside = sum(needs) > most and self.size.width >= _BESIDE
        self.query_one("#tables").set_class(beside, "-beside")
        if beside:
            shares = [min(max(needs), most)] * 2
        elif sum(needs) > most:
            first = min(needs[0], max(_LEAST, most // 2, most - needs[1]))
            shares = [first, most - first] if most - first >= _LEAST else [most, 0]
        else:
            shares = needs
        logical.styles.height, physical.styles.height = shares
        self.query_one("#tables").styles.height = shares[0] if beside else sum(shares)


def _layers(fields: dict[str, str]) -> Layers:
    """Read the fields; UsageError with what is wrong."""
    try:
        fraction = float(fields["fraction"]) if fields["fraction"] else None
        rank = int(fields["local-rank"]) if fields["local-rank"] else None
    except ValueError as error:
        raise UsageError(str(error)) from None
    return read_layers(
        fields["tf-visible"] or None,
        [one.strip() for one in fields["tf-logical"].split(";") if one.strip()],
        fraction,
        jax_visible=fields["jax-visible"] or None,
        local_rank=rank,
        device=fields["request"] or None,
    )
