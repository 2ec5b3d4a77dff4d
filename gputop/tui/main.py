"""The main screen: GPUs, processes, mapping."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.events import Paste

from gputop.model.cuda.logical_names import LogicalNames
from gputop.model.machine.frame import Frame, ProcessKey
from gputop.model.machine.gpu import PartKey
from gputop.model.metrics.process import COLUMNS, PROCESS
from gputop.model.processes.target import own_on, signal_targets
from gputop.protocol.messages import Probe, Reply, Signal
from gputop.settings import Pane, Session
from gputop.sources.source import Moment
from gputop.tui.dialogs.list_dialog import PanesDialog
from gputop.tui.dialogs.signal import SignalScreen
from gputop.tui.dialogs.signal_state import (
    NOT_NOW,
    READ_ONLY,
    TARGET_GONE,
    SignalDialogState,
    why_none,
)
from gputop.tui.keys import MAIN_BINDINGS, NOT_IN_A_REPLAY, ONLY_NOW, first_keys
from gputop.tui.machine import WatchedMachine
from gputop.tui.messages import Note, ReplyReceiver
from gputop.tui.pages.base import PageScreen
from gputop.tui.pages.gpu import GpuScreen
from gputop.tui.pages.graph import GraphScreen
from gputop.tui.pages.health import HealthScreen
from gputop.tui.pages.mapping import MappingScreen
from gputop.tui.pages.process import ProcessScreen
from gputop.tui.panes.editor import ValueInput
from gputop.tui.panes.filter_line import FilterLine
from gputop.tui.panes.gpus import GpuPane
from gputop.tui.panes.heading import Heading, KeyLine
from gputop.tui.panes.history import HistoryPane
from gputop.tui.panes.layout import PaneLayout
from gputop.tui.panes.mapping import MappingKeys, MappingPane
from gputop.tui.panes.mapping_state import FollowedProcess, MappingState
from gputop.tui.panes.processes import ProcessTable
from gputop.tui.panes.table import Table
from gputop.tui.snapshot import Snapshot
from gputop.tui.table_screen import TableScreen
from gputop.tui.themes import show_users

S = TypeVar("S")
_EDITING = (
    ("Enter", "keep the value"), ("Esc", "close"), ("Tab", "accept the suggestion"),
    ("up down", "earlier values"), ("PgDn", "more of the answer"),
)  # fmt: skip


class MainScreen(MappingKeys, TableScreen):
    """The machine at a glance: panes, and controllers for what the keys do to them."""

    AUTO_FOCUS = ""

    BINDINGS = [*MAIN_BINDINGS]
    FIRST = 7
    NEEDED = ("signal", "help", "quit", "hosts", "now", "resume")

    def __init__(
        self,
        settings: Session,
        machine: WatchedMachine,
        leave: Callable[[], None] | None = None,
        return_to_now: Callable[[], bool] = bool,
    ) -> None:
        """`leave` goes back to the screen of all machines, None if there is only this one;
        `return_to_now` leaves the past, and returns whether the past was shown."""
        super().__init__(settings)
        variables = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
        self.mapping = MappingState(*map(os.environ.get, variables))
        self.panes = PaneLayout(self, settings.panes)
        self._leave, self._return_to_now = leave, return_to_now
        self._shown: Snapshot | None = None
        self._heading: Heading | None = None
        self._passing = ""
        """Why a choice was not saved, or why a key does nothing; shown for a while."""
        self.attach(machine)

    def attach(self, machine: WatchedMachine) -> None:
        """Show this machine instead of the current one."""
        self.machine = machine
        machine.status_changed = self._show_status

    def compose(self) -> ComposeResult:
        self._heading = heading = Heading(self.settings.thresholds)
        heading.note = self._note
        is_root = self.settings.me == "root" and not self.settings.readonly
        heading.as_root = is_root and not self.machine.is_remote
        yield heading
        yield GpuPane(self.settings)
        yield ProcessTable(self.settings)
        yield HistoryPane(self.settings.thresholds)
        yield MappingPane(self.mapping)
        yield from super().compose()

    def on_mount(self) -> None:
        self.gpus.scrolled = self._say_above
        self.gpus.is_marked = lambda part: self.machine.marks.has_gpu(part)
        self.processes.is_marked = lambda row: self.machine.marks.has_process(row.process.pid)
        self.processes.above = self._words_above
        self.processes.arranged = self.arranged
        for table in self.query(Table):
            table.moved = self._cursor_moved
        self.set_focus(self.home)

    def share_lines(self) -> None:
        self.panes.processes = self.rows
        self.panes.arrange()
        if self._shown is not None:
            self.show_mapping()

    def on_screen_resume(self) -> None:
        if self._shown is not None:
            self.show_mapping()

    @property
    def gpus(self) -> GpuPane:
        return self.query_one(GpuPane)

    @property
    def home(self) -> Table[Any]:
        """The table that the keys go to at first: the processes, if they are shown."""
        return self.processes if "processes" in self.panes.shown else self.gpus

    def key_words(self) -> list[tuple[str, str]]:
        """Return the keys that move in time, then the others; with many hosts, q is `hosts`."""
        words, instant = super().key_words(), self._shown.instant if self._shown else "now"
        if instant == "paused":
            words = [(key, word) for key, word in words if word != "pause"]
        if self._leave is not None:
            words = [(key, "hosts" if word == "quit" else word) for key, word in words]
        return [*first_keys(instant, self.app), *words]

    def on_descendant_focus(self) -> None:
        """Show the keys that work now, as an editor has its own."""
        self._show_keys()
        self.panes.fit_mapping(isinstance(self.focused, ValueInput))

    def _show_keys(self) -> None:
        is_editing = isinstance(self.focused, ValueInput)
        self.query_one(KeyLine).show(_EDITING if is_editing else self.key_words())

    # What comes from the agent.

    def show_frame(self, snapshot: Snapshot) -> None:
        """Show a frame on every screen, or the same frame again if its names or moment changed."""
        state, before, frame = self.mapping, self._shown, snapshot.frame
        show_users(process.user for process in frame.processes)
        state.show_frame(frame, snapshot.moment)
        names = LogicalNames(frame, before and before.names, state.probed)
        self._shown = snapshot._replace(names=names)
        if before is None or snapshot.instant != before.instant:
            self._show_keys()
        self.query_one(Heading).show_frame(frame, snapshot.interval)
        self._show_panes()
        self.panes.fit(frame)
        for page in self.above(PageScreen):
            page.show_frame(self._shown)
        for mapping in self.above(MappingScreen):
            mapping.show_frame(self._shown)

    def above(self, kind: type[S]) -> Iterator[S]:
        """Yield the screens of a kind that are open over this one."""
        return (screen for screen in self.app.screen_stack if isinstance(screen, kind))

    def reset(self) -> None:
        """Forget what the previous agent was asked."""
        self.mapping.reset()
        for page in self.above(ProcessScreen):
            page.reset()

    def show_notes(self) -> None:
        """Show in the heading the state of signals and marks, what gputop waits for before the
        first frame, and what limits the view of this machine."""
        said = self._note, self.machine.news, self.machine.waiting
        heading = self._heading
        if heading is not None and said != (heading.note, heading.news, heading.waiting):
            heading.note, heading.news, heading.waiting = said
            heading.repaint_changed()

    @property
    def _note(self) -> str:
        own = "read only" if self.settings.readonly else ""
        limits = ", ".join(filter(None, (own, self.machine.limit)))
        above = "" if "processes" in self.panes.shown else self._passing
        return "  ".join(filter(None, (self.machine.note, above, limits)))

    def _show_status(self) -> None:
        self.show_notes()
        for table in self.query(Table):  # some marks are gone
            table.repaint_changed()

    def _show_panes(self) -> None:
        if self._shown is None:
            return
        if "gpus" in self.panes.shown:
            self.gpus.show_frame(self._shown.frame, self._shown.history)
        self.query_one(HistoryPane).show_frame(self._shown.frame, self._shown.history)
        if "processes" in self.panes.shown:
            self.processes.listing.show_frame(self._shown.frame, self._shown.names)
        self._follow()
        self.show_mapping()

    # Which processes are shown, and how.

    def action_pid(self, digits: str) -> None:
        if "processes" in self.panes.shown:
            self.set_focus(self.processes)
            self.processes.search_pid(self.processes.digits + digits)

    def action_pid_back(self) -> None:
        self.processes.search_pid(self.processes.digits[:-1])

    def on_paste(self, event: Paste) -> None:
        """Treat a pasted PID as if it were typed."""
        text = event.text.strip()
        if text.isascii() and text.isdecimal():
            self.processes.stop_search()
            self.action_pid(text)

    def sort(self, metric_id: str | None) -> None:
        super().sort(metric_id)
        if metric_id in COLUMNS:
            self.save({"processes.sort": metric_id})

    def action_mark(self) -> None:
        """Mark or unmark the selected GPU, the selected process, or all processes of a group."""
        if self._shown is None:
            return
        frame, marks, gpus, table = self._shown.frame, self.machine.marks, self.gpus, self.processes
        (gpus if gpus.is_active else table).select_first()
        if self._moment != "now":
            self.post_message(Note("only live processes and GPUs can be marked"))
        elif gpus.is_active:
            if (part := gpus.current) is not None and not marks.toggle_gpu(frame, part):
                self.post_message(Note(f"GPU {part.number} is free now"))
            gpus.repaint_changed()
        else:
            marks.toggle_processes(frame, table.listing.keys_of(table.current))
            self.machine.ask_about_marks()
            table.repaint_changed()

    def action_back(self) -> None:
        """Undo one step: the past, tags, news, the mapping and what was tried in it, the cursor,
        the view, the filter."""
        table = self.home
        if not isinstance(self.focused, ValueInput) and (
            self._return_to_now()
            or self.processes.stop_search()
            or self.processes.listing.untag()
            or self.machine.dismiss_news()
        ):
            return
        if self.panes.mapping_open:
            self.panes.open_mapping(False)
            self.mapping.return_to_own()
            self.show_mapping()
            self.set_focus(table)
        elif self.mapping.return_to_own():
            self.show_mapping()
        elif self.focused is not table:
            self.gpus.deselect()
            self.set_focus(table)
        elif self.processes.back() or table.deselect():
            return
        elif self.processes.listing.filter or self._leave is None:
            table.deselect()
            self.query_one(FilterLine).clear()
        else:
            self._leave()

    async def begin_at(self, key: ProcessKey, action: str) -> None:
        """Select a process that was chosen among those of all hosts, and do what its key does."""
        if "processes" not in self.panes.shown:
            self._show_only_panes((*self.panes.shown, "processes"))
            self.set_focus(self.processes)
        if not self.processes.select_process(key):
            self.post_message(Note(f"PID {key.process.pid}: {TARGET_GONE}"))
        elif action:
            await self.run_action(action)

    # Panes and pages.

    def action_panes(self) -> None:
        self.app.push_screen(PanesDialog(self.panes.shown), self._choose_panes)

    def _choose_panes(self, choice: tuple[tuple[Pane, ...], bool] | None) -> None:
        if choice is not None:
            panes, keep = choice
            self._show_only_panes(panes)
            if keep:
                self.save({"panes": panes})

    def _show_only_panes(self, panes: tuple[Pane, ...]) -> None:
        self.panes.show(panes)
        if "processes" not in panes:  # no signal is for what cannot be seen
            self.processes.deselect()
            self.processes.listing.untag()
        self._show_panes()
        self._say_above()
        if self.focused is None or not self.focused.display:
            self.set_focus(self.home)

    def action_process(self) -> None:
        """Open the group or page of the selected process; if there is none, of the first."""
        table = self.processes
        table.select_first()
        if not table.listing.open(table.current):
            self._open_process()

    def action_environment(self) -> None:
        """Open the page of the selected process, or of the first, at its environment."""
        self.processes.select_first()
        self._open_process(at_environment=True)

    def _open_process(self, at_environment: bool = False) -> None:
        row = self.processes.selected
        if row is not None and self._shown is not None:
            self._open_page_of(self._shown.frame.key(row.process), at_environment)

    def _open_page_of(self, subject: str | ProcessKey, at_environment: bool = False) -> None:
        """Open the page of a process, or of a GPU by its key."""
        if isinstance(subject, str):
            self._open_gpu((subject, None))
        else:
            request, readonly = self.machine.request, self.settings.readonly
            page = ProcessScreen(subject, request, self._open_signals, at_environment, readonly)
            self._open(page)

    def on_process_table_opened(self) -> None:
        self.action_process()

    def action_history(self) -> None:
        self.gpus.next_history()
        self._say_above()

    def action_graphs(self) -> None:
        self._open(GraphScreen(self.gpus.graphed_id))

    def action_health(self) -> None:
        self._open(HealthScreen(self._open_page_of))

    def action_only(self) -> None:
        """Show only the processes of the selected process's GPU, or of the selected GPU; if neither
        is selected, select the first GPU."""
        gpu, row = self.gpus.current, self.processes.current
        if self.processes.is_active and row is not None:
            if not self.processes.listing.only_gpu_of(row):
                self.post_message(Note("on several GPUs: select a process or a GPU"))
        elif gpu is not None:
            self._show_only(gpu.key)
        else:
            self.set_focus(self.gpus)
            self.gpus.action_move(0)

    def on_gpu_pane_chosen(self, message: GpuPane.Chosen) -> None:
        self._open_gpu(message.key)

    def _open_gpu(self, key: PartKey) -> None:
        self._open(GpuScreen(key, self.settings.processes.idle_after), self._show_only)

    def _show_only(self, key: PartKey | None) -> None:
        """Show only the processes of one GPU or MIG device, and focus their table."""
        if key is not None:
            for page in [*self.above(HealthScreen)]:
                page.dismiss()
            if "processes" not in self.panes.shown:
                self._show_only_panes((*self.panes.shown, "processes"))
            self.processes.listing.only_gpu(*key)
            self.set_focus(self.processes)

    def _open(self, page: PageScreen[Any], left: Callable[[Any], None] | None = None) -> None:
        if self._shown is not None:
            page.show_frame(self._shown)
        self.app.push_screen(page, left)

    # The mapping.

    def show_mapping(self) -> None:
        if "mapping" in self.panes.shown:
            self.query_one(MappingPane).show_result()

    def on_result_shown(self) -> None:
        self.panes.fit_mapping(isinstance(self.focused, ValueInput))

    def action_mapping(self) -> None:
        """Open the mapping pane if it is hidden or a single line, and edit the value."""
        if "mapping" not in self.panes.shown:
            self._show_only_panes((*self.panes.shown, "mapping"))
        self.mapping.stop_following()
        self.panes.open_mapping(True)
        self.query_one(MappingPane).edit()

    def action_leave(self) -> None:
        """Go from an editor back to the processes; what was typed stays."""
        self.set_focus(self.home)

    def action_whole(self) -> None:
        self.mapping.stop_following()
        state, thresholds = self.mapping, self.settings.thresholds
        self.app.push_screen(MappingScreen(state, self.ask_driver, self._shown, thresholds))

    def ask_driver(self, probe: Probe) -> None:
        """Ask the CUDA driver; what processes call their GPUs depends on its answer, too."""
        self.machine.request(probe, self._receive_probed)

    def _receive_probed(self, reply: Reply) -> None:
        self.mapping.handle(reply)
        if self.is_attached and self._shown is not None:  # it is never asked before a frame
            self.show_frame(self._shown)

    def _cursor_moved(self) -> None:
        """Show the mapping of the process under the cursor until the value is edited."""
        self.processes.stop_search()
        self.mapping.follows = True
        self._follow()
        self.show_mapping()

    def _follow(self) -> None:
        """Show the mapping of the selected process instead of the query's."""
        row = self.processes.selected if self.mapping.follows else None
        mapping = self._shown.names.mapping(row.process) if row and self._shown else None
        self.mapping.followed = None
        if row is not None and mapping is not None:
            label = f"PID {row.process.pid} {PROCESS['command'].text(row).split(' ')[0]}:"
            self.mapping.followed = FollowedProcess(row.process.pid, label, mapping)

    # Signals.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if self._moment == "replay" and action in NOT_IN_A_REPLAY:
            return False
        return super().check_action(action, parameters)

    def offers(self, binding: Binding) -> bool:
        is_past = self._moment != "now" and binding.action in ONLY_NOW
        return not is_past and super().offers(binding)

    def action_signal(self) -> None:
        """Open the dialog for one's own processes on the selected GPU, otherwise for those that are
        tagged, otherwise for the selected one; later frames change none."""
        if (shown := self._shown) is None:
            return
        if self.gpus.is_active and (part := self.gpus.current) is not None:
            keys = own_on(shown.frame, part, self.machine.user or self.settings.me)
            none = f"no process of yours is on GPU {part.number}"
        else:
            row = self.processes.current
            keys, none = self.processes.listing.targets(row), why_none(row)
        self._open_signals(shown.frame, keys, none)

    @property
    def _moment(self) -> Moment:
        return "now" if self._shown is None else self._shown.moment

    def _open_signals(self, frame: Frame, keys: list[ProcessKey], none: str = TARGET_GONE) -> None:
        """Open the dialog for processes, or say in it why there are `none`. It takes no processes
        of the past: their PIDs may belong to others now."""
        if self.settings.readonly:
            self.post_message(Note(READ_ONLY))
            return
        targets = signal_targets(frame, keys) if self._moment == "now" else ()
        obstacle = NOT_NOW.get(self._moment, "" if targets else none)
        state = SignalDialogState(targets, obstacle, frame)
        state.is_aimed = not self.gpus.is_active and self.processes.is_exact
        self.app.push_screen(SignalScreen(state, self._send))

    def _send(self, request: Signal, receiver: ReplyReceiver) -> None:
        """Send signals; the table takes their verdicts even after their dialog is closed."""
        self.machine.request(request, receiver, self._receive_verdicts)

    def _receive_verdicts(self, reply: Reply) -> None:
        if self.is_attached:
            self.processes.listing.show_verdicts(reply.verdicts)

    # Notes that are shown for a while.

    def say(self, words: str) -> None:
        """Say something in the rule above the processes."""
        self._passing = words
        self._say_above()

    def _say_above(self) -> None:
        self.processes.repaint_changed([0])  # the rule, which says something of the pane above it
        self.show_notes()

    def _words_above(self) -> str:
        """Return the passing note, the PID search, or what the GPU table has no room for."""
        hidden = self.gpus.unsaid if "gpus" in self.panes.shown else ""
        return self._passing or self.processes.search_note or hidden
