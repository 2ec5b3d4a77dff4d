"""The dialog before and after a signal.

Its processes are those that it was opened for, whatever the table shows later.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input

from gputop.model.machine.frame import Frame
from gputop.model.machine.text import counted, duration, short_command
from gputop.model.processes.target import SignalTarget
from gputop.protocol.messages import Reply, Signal
from gputop.tui.dialogs.key_guard import KeyGuard
from gputop.tui.dialogs.list_dialog import SignalNameDialog
from gputop.tui.dialogs.signal_state import GRACE, WORD, SignalDialogState
from gputop.tui.messages import ReplyReceiver
from gputop.tui.panes.columns import crop_or_pad
from gputop.tui.panes.editor import Editor
from gputop.tui.panes.heading import KeyLabel, KeyLine
from gputop.tui.panes.lines import MOVES, Lines, Piece, StyledLine
from gputop.tui.panes.page import Page
from gputop.tui.panes.text_lines import TextLines
from gputop.tui.terminal.key_queue import IgnoresTypeAhead
from gputop.tui.themes import user_role

_SOON: Piece = ("keys work in a moment", "quiet")
_EARLY = "what was typed too early is ignored"
_NARROW, _WIDE = 48, 72
"""In fewer cells than the first, the word and the button that sends do not fit on one line; from
the second on, what a process holds has room before its command."""
_MOST_HELD = 32
"""Cells for that."""
_END, _NEEDED = ("Esc", "close"), ("SIGKILL", "cancel", "close")
_KEYS = (("9", "SIGKILL"), ("s", "other signals"), ("d", "with children"), ("Esc", "cancel"))
_MOVES = frozenset(
    ("tab", "shift+tab", "left", "right", "up", "down", "j", "k", "pageup", "pagedown", "ctrl+f",
     "ctrl+b", "home", "end")
)  # fmt: skip
"""Keys that do not change what is sent."""


class DialogButton(Lines, can_focus=True):
    """A button. Only Enter presses it: Space tags in the table, and is pressed by accident."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "press", "Press", id="choice.take", show=False),
    ]

    def __init__(self, label: str, pressed: Callable[[], None], *, id: str) -> None:  # noqa: A002
        """`pressed` does what the button is for."""
        super().__init__(id=id)
        self._pressed = pressed
        self.label = ""
        self.say(label)

    def say(self, label: str) -> None:
        if label != self.label:
            self.label = label
            self.styles.width = len(label) + 6
            self.repaint_changed()

    def action_press(self) -> None:
        self._pressed()

    def on_focus(self) -> None:
        self.repaint_changed()

    def on_blur(self) -> None:
        self.repaint_changed()

    def pieces(self, y: int) -> Iterable[Piece]:
        """Return the label in brackets; a sign before it shows the focus, even without colours."""
        if self.has_focus:
            return [(f"{self.glyphs.cursor}[ {self.label} ]", "cursor")]
        return [(f" [ {self.label} ]", "text")]


class WordField(Editor):
    """The field for the word; until that is begun, 9, s and d are the dialog's."""

    def check_consume_key(self, key: str, character: str | None) -> bool:
        return bool(self.value) and super().check_consume_key(key, character)


class SignalScreen(ModalScreen[None], IgnoresTypeAhead):
    """Which processes, which signal, and the outcome of each.

    The button that sends appears, and keys are taken, once the processes have been on the terminal
    for a moment: keys that were typed ahead mean something else.
    """

    AUTO_FOCUS = "#cancel"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "leave", "Close", id="signal.leave", show=False),
        Binding("s", "choose", "Signal", id="signal.choose", show=False, priority=True),
        Binding("d", "started", "Descendants", id="signal.started", show=False, priority=True),
        *(
            Binding(digit, f"digit('{digit}')", "Signal number", id=f"signal.digit-{digit}",
                    show=False, priority=True)
            for digit in "0123456789"
        ),
        Binding("right", "app.focus_next", "Next", id="signal.next", show=False),
        Binding("left", "app.focus_previous", "Before", id="signal.previous", show=False),
        *MOVES[:4],
        Binding("question_mark,f1", "app.help", "Help", id="signal.help", show=False),
    ]  # fmt: skip

    def __init__(
        self, state: SignalDialogState, send: Callable[[Signal, ReplyReceiver], None]
    ) -> None:
        """`send` sends a request to the agent, and passes each reply on."""
        super().__init__()
        self._state = state
        self._send = send
        self._left = GRACE
        self._offer = ""
        self._was_aimed = False
        """Whether the dialog itself has already moved the focus to where one goes on."""
        self._is_wrong = False
        """Whether Enter came with another word."""
        self._guard = KeyGuard(self, self._show, self._acts)

    def is_too_soon(self, event: events.Event) -> bool:
        return self._guard.is_too_soon(event)

    def compose(self) -> ComposeResult:
        with Vertical(id="signal"):
            yield Page()
            yield TextLines()
            with Container(id="signal-choices"):
                with Horizontal(id="signal-first"):
                    yield DialogButton("Cancel", self.action_leave, id="cancel")
                    with Horizontal(id="signal-word"):
                        yield KeyLabel("", f"type {WORD}:", id="signal-word-label")
                        yield WordField("", max_length=16, id="word")
                with Horizontal(id="signal-second"):
                    yield DialogButton("Send", self._go, id="send")
        yield KeyLine(_KEYS, _NEEDED)

    def on_mount(self) -> None:
        self.query_one(Page).can_focus = False  # the keys of the dialog scroll it
        self._send_request(self._state.check(uuid.uuid4().hex))
        self.set_interval(1.0, self._second)
        self._guard.close()
        self.call_after_refresh(self._show)

    def on_resize(self) -> None:
        self.call_after_refresh(self._show)

    def show_frame(self, frame: Frame) -> None:
        self._state.handle(frame)
        self._show()

    def _receive_verdicts(self, reply: Reply) -> None:
        if not self.is_attached:
            return
        offered = bool(self._state.living)
        self._state.handle_reply(reply)
        if self._state.living and not offered:  # an earlier Enter must not mean SIGKILL
            self.set_focus(self.query_one("#cancel"))
        self._show()

    def lose(self) -> bool:
        is_new = self._state.lose()
        self._show()
        return is_new

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_choose(self) -> None:
        if not self._state.sent:
            self.app.push_screen(SignalNameDialog(self._state.number), self._chosen)

    def _chosen(self, number: int | None) -> None:
        if number is not None:
            self._state.choose(number)
        self._guard.close()  # the dialog is drawn anew
        self._was_aimed = False
        self._show()

    def action_digit(self, digit: str) -> None:
        if not self._state.sent:
            self._state.type_digit(digit)
            self._show()
        elif digit == "9" and self.query_one("#send").display:
            self.set_focus(self.query_one("#send"))  # which says SIGKILL; Enter sends it

    def action_started(self) -> None:
        """Include the descendants, or leave them out."""
        if not self._state.sent:
            self._state.with_started = not self._state.with_started
            self._was_aimed = False
            self._show()

    def action_move(self, step: int) -> None:
        self.query_one(Page).action_move(step)

    def action_page(self, step: int) -> None:
        self.query_one(Page).action_page(step)

    def _go(self) -> None:
        request_id, word = uuid.uuid4().hex, self.query_one(Editor).value
        if self._state.living:
            self._send_request(self._state.kill(request_id))
        else:
            self._send_request(self._state.send(request_id, word))
            if not self._state.sent and self._state.wants_word:
                self._is_wrong = True
                self.set_focus(self.query_one(Editor))
        self._show()

    def on_descendant_focus(self) -> None:
        self._show()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._is_wrong = False
        self._show()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._go()

    def _send_request(self, request: Signal | None) -> None:
        if request is None:
            return
        self._left = GRACE
        if request.number:  # the button that was pressed is gone
            self.set_focus(self.query_one("#cancel"))
        self._send(request, self._receive_verdicts)

    def _second(self) -> None:
        if self._state.waiting:
            self._left = max(0.0, self._left - 1.0)
            self._show()

    def _acts(self, key: str) -> bool:
        if isinstance(self.focused, Editor) and (self.focused.value or key in WORD):
            return key == "enter"
        return key not in _MOVES

    def _show(self) -> None:
        if not self.is_mounted:
            return
        state, page = self._state, self.query_one(Page)
        count = len(state.processes)
        title = f"{state.name} to {counted(count, 'process')}" if count else "Signal"
        if state.host is not None:
            title += f" on {page.glyphs.text(state.host)}"
        self.query_one("#signal").border_title = Content(title)
        offer = "kill" if state.living else "send" if state.ready else ""
        if offer not in ("", self._offer):
            self._guard.close()
        self._offer = offer
        self._show_choices()
        lines = list(self._lines())
        if state.audit_error:
            lines += page.paper.wrapped(state.audit_error, 1, "alarm")
        note = list(page.paper.wrapped(*self._note()))
        if not lines:
            lines, note = note, []
        self.query_one(TextLines).say(note)
        stacked = self.query_one("#signal-word").display and page.size.width < _NARROW
        self.query_one("#signal-choices").set_class(stacked, "-stacked")
        around = 3 + len(note) + (2 if stacked else 1)
        page.styles.height = max(1, min(len(lines), self.size.height - around))
        page.show_lines(lines)

    def _note(self) -> tuple[str, int, str]:
        send, state = self.query_one("#send"), self._state
        closed = bool(self._offer) and not self._guard.is_open
        words, role = _SOON if closed else state.note(self._left, aimed=send.has_focus)
        if self._is_wrong and state.ready and not closed:
            words, role = f"nothing was sent: type {WORD}, then Enter", "alarm"
        if self._guard.has_ignored and self._offer and not closed:
            words, role = f"{_EARLY}; {words}", "notice"
        return words, 1, role

    def _show_choices(self) -> None:
        state, send = self._state, self.query_one("#send", DialogButton)
        self.query_one("#signal-word").display = state.wants_word and state.ready
        over = state.sent or state.lost or state.obstacle or not state.processes
        self.query_one("#cancel", DialogButton).say("Close" if over else "Cancel")
        killing = len(state.living)
        send.display = self._guard.is_open and bool(self._offer)
        send.say(f"SIGKILL to {killing}" if killing else f"Send {state.name}")
        kills = [("9", "SIGKILL")] if killing else []
        self.query_one(KeyLine).show([*kills, _END] if over else _KEYS)
        if self.focused is None or (self.focused is send and not send.display):
            self.set_focus(self.query_one("#cancel"))
        if send.display and not self._was_aimed:
            self._was_aimed = True
            self._aim(send)

    def _aim(self, send: DialogButton) -> None:
        """Move the focus to where one goes on; to Send only if Enter may send at once."""
        if self._state.wants_word:
            self.set_focus(self.query_one(Editor))
        elif self._state.is_aimed:
            self.set_focus(send)

    def _lines(self) -> Iterator[StyledLine]:
        """Yield the processes; what is said of several that follow each other comes once."""
        page, state = self.query_one(Page), self._state
        held = max((len(process.holds()) for process in state.processes), default=0)
        room = min(held, _MOST_HELD) if page.size.width >= _WIDE else 0
        for status, group in groupby(state.processes, lambda process: [*state.status_of(process)]):
            processes = list(group)
            for process in processes:
                yield self._line(process, room)
                if process.held and not room:
                    yield from page.paper.wrapped(process.holds(), 9, "quiet")
            of = f"each of these {len(processes)}: " if len(processes) > 1 else ""
            for words, role in status:
                yield from page.paper.wrapped(f"{of}{words}", 9, role)

    def _line(self, process: SignalTarget, room: int) -> StyledLine:
        """Return the line of a process, with what it holds in `room` cells."""
        glyphs = self.query_one(Page).glyphs
        user = [(glyphs.not_available, "quiet")]
        if process.user:
            user = [(glyphs.text(process.user), user_role(process.user))]
        held = crop_or_pad([(process.holds(), "quiet")], room, glyphs.ellipsis, left=True)
        descendants = self._state.descendants(process)
        return [
            (f" {process.id.pid:>7} ", "key"),
            *crop_or_pad(user, 9, glyphs.ellipsis, left=True),
            (f"{duration(process.age):>7} ", "text"),
            *([*held, (" ", "text")] if room else []),
            *([(f" with {descendants} started ", "notice")] if descendants else []),
            (f" {glyphs.text(short_command(process.command))}", "text"),
        ]
