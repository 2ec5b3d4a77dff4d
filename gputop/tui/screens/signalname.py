"""The dialog that asks for a signal, by name or number."""

from __future__ import annotations

import signal
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from gputop.model.signals import signal_name, signal_number
from gputop.tui.widgets.editor import Editor


class SignalNameScreen(ModalScreen[int | None]):
    """Every signal; answers with the number of one, None for none."""

    AUTO_FOCUS = "#signal-name"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Cancel", id="signalname.leave", show=False),
        Binding("down", "move(1)", "Down", id="signalname.down", show=False),
        Binding("up", "move(-1)", "Up", id="signalname.up", show=False),
    ]

    def __init__(self, current: int) -> None:
        super().__init__()
        self._numbers = sorted(map(int, signal.valid_signals()))
        self._current = current

    def compose(self) -> ComposeResult:
        """A line to type into over a line a signal."""
        options = [Option(Content(f"{one:>3}  {signal_name(one)}")) for one in self._numbers]
        with Vertical(id="signals"):
            yield Editor("", most=16, id="signal-name")
            yield OptionList(*options, markup=False)

    def on_mount(self) -> None:
        """Start on the signal of now."""
        self.query_one("#signals").border_title = Content("Which signal? A name or a number")
        self.query_one(OptionList).can_focus = False
        self._go_to(self._current)

    def on_input_changed(self, event: Input.Changed) -> None:
        """The first that is meant, or may become so."""
        text = event.value.strip().upper().removeprefix("SIG")
        exact = signal_number(text)
        names = ((one, signal_name(one).removeprefix("SIG")) for one in self._numbers)
        near = (one for one, name in names if text and (name.startswith(text) or f"{one}" == text))
        found = exact if exact in self._numbers else next(near, None)
        if text:
            self._go_to(found)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The one that is marked; none is where what was typed is no signal."""
        event.stop()
        place = self.query_one(OptionList).highlighted
        if place is not None:
            self.dismiss(self._numbers[place])

    def action_leave(self) -> None:
        """The same as before."""
        self.dismiss(None)

    def action_move(self, step: int) -> None:
        """To a neighbour."""
        options = self.query_one(OptionList)
        if step > 0:
            options.action_cursor_down()
        else:
            options.action_cursor_up()

    def _go_to(self, number: int | None) -> None:
        options = self.query_one(OptionList)
        options.highlighted = None if number is None else self._numbers.index(number)
