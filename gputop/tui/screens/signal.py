"""The dialog before and after a signal.

It is for the processes that it was opened for, and never told what the table shows.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input

from gputop.model.frame import Frame
from gputop.model.meant import Meant
from gputop.model.protocol import Signal
from gputop.model.signalling import GRACE, WORD, Signalling
from gputop.model.text import duration, short_command
from gputop.tui.screens.signalname import SignalNameScreen
from gputop.tui.themes import user_role
from gputop.tui.widgets.bars import KeyLine
from gputop.tui.widgets.choice import Choice
from gputop.tui.widgets.columns import sized
from gputop.tui.widgets.editor import Editor
from gputop.tui.widgets.lines import Lines, Piece
from gputop.tui.widgets.page import Line, Page

_AROUND = 4
"""Lines of the dialog besides the processes."""


class Processes(Page, can_focus=False):
    """The list; the keys of the dialog scroll it."""


class Note(Lines):
    """What there is to say of all of them."""

    said: Piece = ("", "text")

    def say(self, piece: Piece) -> None:
        """Something else."""
        self.said = piece
        self.sync()

    def pieces(self, y: int) -> list[Piece]:
        """A line of it."""
        text = (f" {self.glyphs.text(self.said[0])}", self.said[1])
        return sized([text], self.size.width, self.glyphs.ellipsis, left=True)


class SignalScreen(ModalScreen[None]):
    """Whom, which signal, and what became of them. `send` hands an order to the agent of now."""

    AUTO_FOCUS = "#cancel"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "leave", "Close", id="signal.leave", show=False),
        Binding("s", "choose", "Signal", id="signal.choose", show=False),
        Binding("d", "started", "Descendants", id="signal.started", show=False),
        Binding("right", "app.focus_next", "Next", id="signal.next", show=False),
        Binding("left", "app.focus_previous", "Before", id="signal.previous", show=False),
        Binding("down,j", "move(1)", "Down", id="signal.down", show=False),
        Binding("up,k", "move(-1)", "Up", id="signal.up", show=False),
        Binding("pagedown,ctrl+f", "page(1)", "Page down", id="signal.page-down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "Page up", id="signal.page-up", show=False),
    ]

    def __init__(self, signalling: Signalling, send: Callable[[Signal], None]) -> None:
        super().__init__()
        self._signalling = signalling
        self._send = send
        self._left = GRACE

    def compose(self) -> ComposeResult:
        """The processes, what is to be said of them, the word, what can be done."""
        with Vertical(id="signal"):
            yield Processes(id="signal-processes")
            yield Note(id="signal-note")
            with Horizontal(id="signal-choices"):
                yield Choice("Cancel", id="cancel")
                with Horizontal(id="signal-word"):
                    yield KeyLine([("", f"type {WORD}:")], id="signal-word-label")
                    yield Editor("", most=16, id="word")
                yield Choice("Send", id="send")
                yield KeyLine(
                    [("Tab", "next"), ("s", "signal"), ("d", "with what they started")],
                    id="signal-keys",
                )

    def on_mount(self) -> None:
        """Ask what stands against it."""
        self._order(self._signalling.check(uuid.uuid4().hex))
        self.set_interval(1.0, self._second)
        self.call_after_refresh(self._show)

    def on_resize(self) -> None:
        """Other lines."""
        self.call_after_refresh(self._show)

    def show_frame(self, frame: Frame) -> None:
        """What a frame tells of the processes."""
        offered = bool(self._signalling.living)
        self._signalling.take(frame)
        if self._signalling.living and not offered:  # so that no Enter of before means SIGKILL
            self.set_focus(self.query_one("#cancel"))
        self._show()

    def lose(self) -> bool:
        """The agent has ended; whether that is new."""
        is_new = self._signalling.lose()
        self._show()
        return is_new

    def action_leave(self) -> None:
        """Close it; what is under way goes on."""
        self.dismiss(None)

    def action_choose(self) -> None:
        """Another signal."""
        if not self._signalling.sent:
            self.app.push_screen(SignalNameScreen(self._signalling.number), self._chosen)

    def _chosen(self, number: int | None) -> None:
        if number is not None and not self._signalling.sent:
            self._signalling.number = number
        self._show()

    def action_started(self) -> None:
        """With what they have started, or without."""
        if not self._signalling.sent:
            self._signalling.with_started = not self._signalling.with_started
            self._show()

    def action_move(self, step: int) -> None:
        """Scroll."""
        self.query_one(Processes).action_move(step)

    def action_page(self, step: int) -> None:
        """Scroll by screenfuls."""
        self.query_one(Processes).action_page(step)

    @on(Choice.Taken, "#cancel")
    def _cancel(self) -> None:
        self.action_leave()

    @on(Choice.Taken, "#send")
    def _go(self) -> None:
        order_id, word = uuid.uuid4().hex, self.query_one(Editor).value
        if self._signalling.living:
            self._order(self._signalling.kill(order_id))
        else:
            self._order(self._signalling.send(order_id, word))
        self._show()

    def on_input_changed(self, event: Input.Changed) -> None:
        """The word may be whole."""
        self._show()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter leads on, and sends nothing by itself."""
        event.stop()
        self.focus_next()

    def _order(self, order: Signal | None) -> None:
        if order is None:
            return
        self._left = GRACE
        if order.number:  # what was under the finger is not there any more
            self.set_focus(self.query_one("#cancel"))
        self._send(order)

    def _second(self) -> None:
        if self._signalling.waiting:
            self._left = max(0.0, self._left - 1.0)
            self._show()

    def _show(self) -> None:
        if not self.is_mounted:
            return
        state, page = self._signalling, self.query_one(Processes)
        count = len(state.processes)
        title = f"{state.name} to {count} process{'es' * (count != 1)}"
        self.query_one("#signal").border_title = Content(title)
        self.query_one("#signal-word").display = state.cautious and state.ready
        lines = [line for one in state.processes for line in self._lines(one)]
        page.styles.height = max(1, min(len(lines), self.size.height - _AROUND))
        page.show_lines(lines)
        self.query_one(Note).say(state.note(self._left))
        self._show_choices()

    def _show_choices(self) -> None:
        state, send = self._signalling, self.query_one("#send", Choice)
        self.query_one("#cancel", Choice).say("Close" if state.sent else "Cancel")
        killing = len(state.living)
        send.say(f"SIGKILL to {killing}" if killing else f"Send {state.name}")
        send.display = state.ready or bool(killing)
        self.query_one("#signal-keys").display = not (state.sent or state.lost or state.obstacle)
        if self.focused is None or (self.focused is send and not send.display):
            self.set_focus(self.query_one("#cancel"))

    def _lines(self, one: Meant) -> Iterator[Line]:
        page = self.query_one(Processes)
        user, command = one.user or "-", short_command(one.command)
        started = self._signalling.started(one)
        yield [
            (f" {one.pid:>7} ", "key"),
            *sized([(page.glyphs.text(user), user_role(user))], 9, page.glyphs.ellipsis, left=True),
            (f"{duration(one.age):>7} ", "text"),
            *([(f" with {started} started ", "notice")] if started else []),
            (f" {page.glyphs.text(command)}", "text"),
        ]
        if one.held:
            yield from page.wrapped(one.holds(), 9, "quiet")
        words, role = self._signalling.says(one)
        if words:
            yield from page.wrapped(words, 9, role)
