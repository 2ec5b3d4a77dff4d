"""What is known of the process of a page."""

from __future__ import annotations

from dataclasses import dataclass, field

from gputop.model.cuda.process_mapping import ProcessMapping
from gputop.model.machine.detail import ProcessDetail, ProcessStack
from gputop.model.machine.frame import Frame, ProcessKey
from gputop.model.metrics.history import ProcessHistory
from gputop.model.metrics.process import ProcessRow
from gputop.model.processes import process_rows
from gputop.sources.source import Moment
from gputop.tui.snapshot import Snapshot


@dataclass
class ProcessPageState:
    """All that is known of the process of a page, or was known when it ended."""

    key: ProcessKey
    rows: list[ProcessRow] = field(default_factory=list)
    """One for each GPU or MIG device that it is on."""
    pasts: list[ProcessHistory] = field(default_factory=list)
    mapping: ProcessMapping | None = None
    frame: Frame | None = None
    """The last one that the process is in."""
    ended: bool = False
    moment: Moment = "now"
    before_start: bool = False
    """Whether the time that is shown is before its start."""
    detail: ProcessDetail | None = None
    gone: bool = False
    """Whether it had ended when its details were read."""
    refused: str | None = None
    """Why the agent does not read its details."""
    stack: ProcessStack | None = None
    stack_wanted: bool = False
    """Whether py-spy was asked and has not answered."""
    with_values: bool = False
    """Whether to show values of the variables that are not about GPUs."""

    @property
    def can_be_read(self) -> bool:
        """Whether an agent may be asked for more about it."""
        is_there = self.moment == "now" and not self.ended
        return is_there and self.key.process.start_ticks is not None

    def show(self, shown: Snapshot) -> None:
        """Take a frame. One without the process leaves its last figures; one of the past takes
        away the details of now."""
        frame = shown.frame
        rows = process_rows.rows(frame, shown.names)
        rows = [row for row in rows if frame.key(row.process) == self.key]
        self.ended = not rows
        if shown.moment != "now" and self.moment != shown.moment:
            self.detail = self.stack = None
            self.stack_wanted = False
        self.moment = shown.moment
        if rows:
            self.frame, self.rows = frame, rows
            self.pasts = [shown.history.of_process(row.process) for row in rows]
            self.mapping = shown.names.mapping(rows[0].process)
        start = self.rows[0].process.start_time if self.rows else None
        self.before_start = start is not None and start > frame.time

    def take_detail(self, detail: ProcessDetail | None) -> bool:
        """Take an agent's answer; return False if there is none, or it is of another process."""
        if detail is None or detail.process != self.key.process:
            return False
        self.gone = detail.gone
        if not detail.gone:
            self.detail = detail
        return True

    def take_stack(self, stack: ProcessStack | None) -> bool:
        """Take py-spy's answer; return False if there is none, or it is of another process."""
        if stack is None or stack.process != self.key.process:
            return False
        self.stack, self.stack_wanted = stack, False
        return True
