"""One process, whole: what it is, where it runs, and what it calls its GPUs, with the reasoning."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from gputop.model import query
from gputop.model.frame import Frame, ProcessKey
from gputop.model.history import History
from gputop.model.logical_names import LogicalNames
from gputop.model.protocol import Detail, Stack
from gputop.tui.messages import RequestWanted
from gputop.tui.screens.pagescreen import PageScreen
from gputop.tui.widgets.detaillines import STACK, detail_lines
from gputop.tui.widgets.page import Page
from gputop.tui.widgets.processpage import Subject, process_lines, title

_EVERY = 5.0
"""Seconds of the frames' time between two questions, at least: none are asked in a pause."""
_GROUP = Binding.Group("Details")


class ProcessScreen(PageScreen[None]):
    """The page of a process; it stays, with its last figures, when the process ends."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,backspace", "leave", "Back", tooltip="From the details to the table",
                id="process.leave", key_display="Esc", group=_GROUP),
        Binding("e", "values", "Values", tooltip="In the details: values of all variables, or not",
                id="process.values", key_display="e", group=_GROUP),
        Binding("t", "stack", "Stack", tooltip="In the details: where it is, asked of py-spy",
                id="process.stack", key_display="t", group=_GROUP),
    ]  # fmt: skip

    def __init__(self, key: ProcessKey) -> None:
        super().__init__()
        self._subject = Subject(key)
        self._asked: float | None = None
        """Time of the frame at which more was asked for."""

    def on_mount(self) -> None:
        """More is asked for at once."""
        self._ask_in_time()

    def action_values(self) -> None:
        """The values of the variables that are not about GPUs, or their names only."""
        self._subject.with_values = not self._subject.with_values
        self._ask()
        self._show()

    def action_stack(self) -> None:
        """Have py-spy asked, and go to where the answer will be."""
        subject = self._subject
        if self._there and not subject.stack_wanted:
            subject.stack_wanted = True
            self.post_message(RequestWanted(Stack(*self._identity)))
        self._show(at=STACK)

    def show_frame(self, frame: Frame, names: LogicalNames, history: History) -> None:
        """Another frame."""
        subject = self._subject
        rows = [row for row in query.rows(frame, names) if frame.key(row.process) == subject.key]
        subject.ended = not rows
        if rows:
            subject.frame, subject.rows = frame, rows
            subject.pasts = [history.of_process(row.process) for row in rows]
            subject.mapping = names.mapping(rows[0].process)
        if self.is_mounted:
            self._ask_in_time()
            self._show()

    def show_answers(self, frame: Frame) -> None:
        """What a frame tells because it was asked for; of another process it is not shown."""
        subject, detail, stack = self._subject, frame.detail, frame.stack
        if detail is not None and (detail.pid, detail.start_time) == self._identity:
            subject.gone = detail.gone
            if not detail.gone:
                subject.detail = detail
            self._show()
        if stack is not None and (stack.pid, stack.start_time) == self._identity:
            subject.stack, subject.stack_wanted = stack, False
            self._show(at=STACK)

    @property
    def _identity(self) -> tuple[int, float]:
        return self._subject.key.pid, self._subject.key.start_time or 0.0

    @property
    def _there(self) -> bool:
        """Whether there is somebody to ask about."""
        return self._subject.key.start_time is not None and not self._subject.ended

    def _ask_in_time(self) -> None:
        frame = self._subject.frame
        if frame is not None and (self._asked is None or abs(frame.time - self._asked) >= _EVERY):
            self._ask()

    def _ask(self) -> None:
        if self._there and self._subject.frame is not None:
            self._asked = self._subject.frame.time
            self.post_message(RequestWanted(Detail(*self._identity, self._subject.with_values)))

    def _show(self, at: str | None = None) -> None:
        """All lines; `at` is the section to go to."""
        if not self._subject.rows or not self.is_mounted:
            return
        page = self.query_one(Page)
        lines = [*process_lines(page, self._subject), *detail_lines(page, self._subject)]
        page.show_lines(lines)
        if at is not None:
            page.go_to(lines.index(list(title(at))[1]))
