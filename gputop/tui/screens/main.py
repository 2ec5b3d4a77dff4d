"""The main screen: GPUs, processes, mapping."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from gputop.model.frame import Frame
from gputop.model.history import History
from gputop.model.process_metrics import COLUMNS, PROCESS
from gputop.settings import Session
from gputop.tui.inquiry import Followed, Inquiry
from gputop.tui.keys import keyed
from gputop.tui.screens.health import HealthScreen
from gputop.tui.screens.mapping import MappingScreen
from gputop.tui.screens.panes import PanesScreen
from gputop.tui.screens.sort import SortScreen
from gputop.tui.widgets.bars import Heading, KeyLine
from gputop.tui.widgets.filterline import FilterInput, FilterLine, FilterNote
from gputop.tui.widgets.gpucells import lines_of
from gputop.tui.widgets.gpus import GpuPane
from gputop.tui.widgets.mappingpane import MappingPane
from gputop.tui.widgets.processes import ProcessTable
from gputop.tui.widgets.table import Table


def _key(
    keys: str, action: str, description: str, tooltip: str, *, group: str, label: str = ""
) -> Binding:
    """A binding with all that help, palette and the line of keys say of it."""
    return Binding(
        keys, action, description, tooltip=tooltip, id=f"main.{action.partition('(')[0]}",
        show=bool(label), key_display=label or None, group=Binding.Group(group),
    )  # fmt: skip


class MainScreen(PanesScreen):
    """Everything at a glance. It shows the frames that it is given and owns its keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        _key("slash", "filter", "Filter", "Words, gpu:1, mem>10G, !, or", group="Processes",
             label="/"),
        _key("s,f6", "sort", "Sort", "Sort by a column; again: the other way", group="Processes",
             label="s"),
        _key("I", "invert", "Invert", "Sort the other way round", group="Processes"),
        _key("c", "command", "Command", "Script first, or the whole line", group="Processes",
             label="c"),
        *PanesScreen.BINDINGS,
        _key("right", "shift(1)", "Scroll right", "Scroll the command", group="Processes"),
        Binding("left", "shift(-1)", "Scroll left", tooltip="Scroll the command back",
                id="main.shift-back", show=False, group=Binding.Group("Processes")),
        _key("m", "mapping", "Mapping", "Edit CUDA_VISIBLE_DEVICES", group="Mapping", label="m"),
        _key("o", "order", "Order", "Go round CUDA_DEVICE_ORDER", group="Mapping"),
        _key("U", "unset", "Unset", "Unset CUDA_VISIBLE_DEVICES", group="Mapping"),
        _key("v", "verify", "Verify", "Ask the CUDA driver what the value means", group="Mapping"),
        _key("y", "copy", "Copy", "Copy the export line (OSC 52)", group="Mapping"),
        _key("M", "whole", "Whole mapping", "The mapping on the whole screen", group="Mapping"),
        _key("H", "health", "Health", "What of the GPUs needs a person", group="GPUs"),
        _key("escape", "back", "Back", "Untag, close, deselect, all, no filter", group="Screen"),
    ]  # fmt: skip

    AUTO_FOCUS = "#processes"

    def __init__(self, value: str | None, order: str | None, settings: Session) -> None:
        super().__init__(Inquiry(value, order), settings)
        self._following = True
        self._state = (1.0, False)
        """Interval, and whether it is paused."""

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield Heading("read only" if self.settings.readonly else "", id="heading")
        yield GpuPane(self.settings, id="gpus")
        yield ProcessTable(self.settings, id="processes")
        yield MappingPane(self.inquiry, id="mapping")
        yield FilterLine(id="filter-line")
        yield KeyLine(self._shown_keys(), id="keys")

    def on_mount(self) -> None:
        """Share the lines before the first frame."""
        self._lay_out()
        self.query_one(GpuPane).on_scrolled = self.say_unsaid
        for table in self.query(Table):
            table.on_moved = self._cursor_moved

    def show_frame(self, frame: Frame, history: History, interval: float, paused: bool) -> None:
        """Another frame, or the same one in another state."""
        before = self._frame and (self._count, self._lines)
        self._frame, self._history, self._state = frame, history, (interval, paused)
        self._lines = len(lines_of(frame))
        if before != (self._count, self._lines):
            self._lay_out()
        self.query_one(Heading).show_frame(frame, interval, paused)
        self._show_panes()

    def _show_panes(self) -> None:
        """A pane that is not shown costs nothing."""
        if self._frame is None:
            return
        if self._has("gpus"):
            self.query_one(GpuPane).show_frame(self._frame, self._history)
        if self._has("processes"):
            self.query_one(ProcessTable).show_frame(self._frame)
        self.inquiry.take(self._frame)
        self._follow()
        self.show_answer()

    def show_note(self, note: str) -> None:
        """Something to say in the heading."""
        heading = self.query_one(Heading)
        if note != heading.note:
            heading.note = note
            heading.sync()

    def _cursor_moved(self) -> None:
        """The mapping is that of the process under the cursor, until somebody edits."""
        self._following = True
        self._follow()
        self.show_answer()

    def _follow(self) -> None:
        """Show the mapping of the selected process in place of the question's."""
        table = self.query_one(ProcessTable)
        row = table.selected if self._following else None
        mapping = None if row is None or table.names is None else table.names.mapping(row.process)
        self.inquiry.followed = None
        if row is not None and mapping is not None:
            label = f"PID {row.process.pid} {PROCESS['command'].text(row).split(' ')[0]}:"
            self.inquiry.followed = Followed(label, mapping)

    def _ask_again(self) -> None:
        """The question, not the process."""
        self._following, self.inquiry.followed = False, None

    def show_answer(self) -> None:
        """The answer of now."""
        if self._has("mapping"):
            self.query_one(MappingPane).show_answer()

    def on_screen_resume(self) -> None:
        """The question may be another one after the whole mapping."""
        self.inquiry.note = ""
        if self._frame is not None:
            self.show_answer()

    def on_resize(self) -> None:
        """Another size: other shares."""
        self._lay_out()

    def action_filter(self) -> None:
        """Edit the filter, below."""
        self.query_one("#filter-line").display = True
        self.query_one("#keys").display = False
        self.query_one(FilterInput).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Every key filters."""
        self.query_one(FilterNote).say(self.query_one(ProcessTable).filter_by(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter, close the line; a bad one is to be mended first."""
        if self.query_one(FilterNote).error is not None:
            return
        self.query_one("#filter-line").display = False
        self.query_one("#keys").display = True
        self.set_focus(self.query_one(ProcessTable))

    def action_sort(self) -> None:
        """Choose a column."""
        table = self.query_one(ProcessTable)
        self.app.push_screen(SortScreen(table.sort_id), self._sorted)

    def _sorted(self, metric_id: str | None) -> None:
        if metric_id in COLUMNS:
            self.query_one(ProcessTable).sort_by(metric_id)
            self.keep({"processes.sort": metric_id})

    def action_invert(self) -> None:
        """The other way round."""
        table = self.query_one(ProcessTable)
        table.sort_by(table.sort_id)

    def action_command(self) -> None:
        """Script first, or the whole line."""
        self.query_one(ProcessTable).action_toggle_command()

    def action_shift(self, direction: int) -> None:
        """Scroll the command."""
        self.query_one(ProcessTable).action_shift(direction)

    def action_mapping(self) -> None:
        """Open the pane if it is a line, and edit."""
        if not self._has("mapping"):
            self.action_pane("mapping")
        self._ask_again()
        self.show_answer()
        self._mapping_open = self._short
        self._lay_out()
        self.query_one(MappingPane).edit()

    def action_order(self) -> None:
        """Another CUDA_DEVICE_ORDER, of the question."""
        self._ask_again()
        super().action_order()

    def action_unset(self) -> None:
        """Unset CUDA_VISIBLE_DEVICES, of the question."""
        self._ask_again()
        super().action_unset()

    def action_whole(self) -> None:
        """The mapping on the whole screen."""
        self._ask_again()
        self.app.push_screen(MappingScreen(self.inquiry, *self._state))

    def action_health(self) -> None:
        """What of the GPUs needs a person."""
        if self._frame is not None:
            self.app.push_screen(HealthScreen(self._frame))

    def action_leave(self) -> None:
        """From an editor back to the processes, what was edited stays."""
        self.set_focus(self.query_one(ProcessTable))

    def action_back(self) -> None:
        """One step back: tags, the editor, the mapping, the cursor, the view, the filter."""
        table = self.query_one(ProcessTable)
        if table.untag():
            return
        if self._mapping_open:
            self._mapping_open = False
            self._lay_out()
            self.set_focus(table)
        elif self.focused is not table:
            self.query_one(GpuPane).deselect()
            self.set_focus(table)
        elif table.current is not None:
            table.deselect()
        elif not table.leave_view():
            table.deselect()
            self.query_one(FilterInput).value = ""

    def _shown_keys(self) -> list[tuple[str, str]]:
        """Key and word of every binding that asks for it: help first, then ours, then the rest."""
        first, *rest = self.app.BINDINGS
        return [
            (binding.key_display or binding.key.partition(",")[0], binding.description.lower())
            for binding in keyed(self.settings.keys, (first, *self.BINDINGS, *rest))
            if binding.show
        ]
