"""One process: what it is, where it runs, and what it calls its GPUs, with the reasoning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar

from textual.binding import Binding, BindingType

from gputop.model.machine.detail import ProcessStack
from gputop.model.machine.frame import Frame, ProcessKey
from gputop.protocol.messages import Detail, Reply, Request, Stack
from gputop.tui.messages import ReplyReceiver
from gputop.tui.pages.base import PageScreen
from gputop.tui.pages.process_lines import (
    ENVIRONMENT,
    STACK,
    detail_lines,
    process_lines,
)
from gputop.tui.pages.process_state import ProcessPageState
from gputop.tui.panes.heading import PageKeys, described_key
from gputop.tui.panes.lines import StyledLine
from gputop.tui.panes.page import Page
from gputop.tui.panes.paper import Paper
from gputop.tui.snapshot import Snapshot

_EVERY = 5.0
"""The least time between two requests, in seconds of the frames: a pause sends none."""
_key = partial(described_key, "Details", area="process")


class ProcessScreen(PageScreen[None]):
    """The page of a process; it stays, with its last figures, when the process ends."""

    BINDINGS: ClassVar[list[BindingType]] = [
        _key("escape,enter,backspace", "leave", "Back", "Back", "Esc"),
        _key("e", "values", "Values", "Show or hide the values of variables", "e"),
        _key("t", "stack", "Stack", "Its Python stack, by py-spy", "t"),
        _key("f9,K", "signal", "Signal", "Kill it, or send another signal", "F9"),
    ]  # fmt: skip

    def __init__(
        self,
        key: ProcessKey,
        request: Callable[[Request, ReplyReceiver], None],
        signal: Callable[[Frame, list[ProcessKey]], None],
        at_environment: bool = False,
        readonly: bool = False,
    ) -> None:
        """`signal` opens the dialog for processes of a frame, or says why it does not: gputop may
        be `readonly`, and then its key is not offered."""
        super().__init__()
        self._readonly = readonly
        self._request, self._signal = request, signal
        self._state = ProcessPageState(key)
        self._state.with_values = self._at_environment = at_environment
        pid = key.process.pid
        self._detail_id, self._stack_id = f"details of {pid}", f"stack of {pid}"
        self._asked: float | None = None
        """Time of the frame at which details were asked for."""

    def offers(self, binding: Binding) -> bool:
        action, state = binding.action, self._state
        if action in ("signal", "stack", "values") and state.moment != "now":
            return False
        if action == "stack" and not state.can_be_read:
            return False
        return not (self._readonly and action == "signal")

    def action_signal(self) -> None:
        state = self._state
        if state.frame is not None:
            self._signal(state.frame, [] if state.ended else [state.key])

    def action_values(self) -> None:
        """Show the values of the variables that are not about GPUs, or their names only."""
        self._state.with_values = not self._state.with_values
        self._ask()
        self.draw()

    def action_stack(self) -> None:
        """Ask for the Python stack (py-spy), and go to where it will appear."""
        state = self._state
        if state.can_be_read and not state.stack_wanted:
            state.stack_wanted = True
            self._request(Stack(state.key.process, self._stack_id), self._receive)
        self.draw()
        self.query_one(Page).go_to_section(STACK)

    def show_frame(self, shown: Snapshot) -> None:
        state = self._state
        could_be_read = state.can_be_read
        state.show(shown)
        if shown.moment != "now":
            self._asked = None
        is_due = self._asked is None or abs(shown.frame.time - self._asked) >= _EVERY
        if is_due and state.refused is None:
            self._ask()
        super().show_frame(shown)
        if self.is_mounted and state.can_be_read != could_be_read:
            self.query_one(PageKeys).show(self._all_keys)

    def _receive(self, reply: Reply) -> None:
        """Show details or the stack, if they are those of this process, or why there are none:
        another process may have had its PID."""
        state, detail, stack = self._state, reply.detail, reply.stack
        if state.moment != "now" or not self.is_attached:
            return
        if reply.error is not None and reply.request == self._stack_id:
            stack = ProcessStack(state.key.process, problem=reply.error)
        elif reply.error is not None:
            state.refused = reply.error
        has_detail, has_stack = state.take_detail(detail), state.take_stack(stack)
        self.draw()
        if has_detail and self._at_environment:
            self.query_one(Page).go_to_section(ENVIRONMENT)
            self._at_environment = False
        if has_stack:
            self.query_one(Page).go_to_section(STACK)

    def reset(self) -> None:
        """Stop waiting for an agent that is gone, so that the next frame asks a new agent."""
        self._asked = self._state.refused = None
        self._state.stack_wanted = False

    def lines(self, paper: Paper, shown: Snapshot) -> Iterator[StyledLine]:
        if self._state.rows:
            yield from process_lines(paper, self._state)
            yield from detail_lines(paper, self._state)

    def _ask(self) -> None:
        state = self._state
        if state.can_be_read and state.frame is not None:
            self._asked, state.refused = state.frame.time, None
            detail = Detail(state.key.process, state.with_values, self._detail_id)
            self._request(detail, self._receive)
