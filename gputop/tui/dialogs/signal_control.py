"""Signals on the screen: which dialogs are open, and what they are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from textual.screen import Screen

from gputop.model.machine.frame import Frame
from gputop.model.processes.target import SignalTarget
from gputop.protocol.messages import Reply, Signal
from gputop.sources.past import Moment
from gputop.tui.dialogs.signal import SignalScreen
from gputop.tui.dialogs.signal_state import DEMO, NOT_NOW, SignalDialogState


class SignalControl:
    """Controls the signals of a screen; its dialogs ask the agent through `request`."""

    def __init__(self, screen: Screen[None], request: Callable[[Signal], None]) -> None:
        self._screen, self._request = screen, request

    def ask(
        self,
        frame: Frame,
        targets: Sequence[SignalTarget],
        why_none: str,
        moment: Moment = "now",
    ) -> None:
        """Open the dialog for `targets`, whatever the frames do meanwhile; for none of the past,
        whose PIDs may be other processes' by now."""
        obstacle = DEMO if frame.demo else "" if targets else why_none
        if moment != "now":
            targets, obstacle = (), NOT_NOW[moment]
        state = SignalDialogState(targets, obstacle, frame)
        self._screen.app.push_screen(SignalScreen(state, self._request))

    def show_frame(self, frame: Frame) -> None:
        """Show another frame in the dialogs, also in a pause or without GPUs."""
        for dialog in self._dialogs:
            dialog.show_frame(frame)

    def reply(self, reply: Reply) -> None:
        """Show verdicts in the dialogs."""
        for dialog in self._dialogs:
            dialog.reply(reply)

    def lose(self) -> bool:
        """Take in that the agent ended; whether a dialog waits for an answer."""
        lost = [dialog.lose() for dialog in self._dialogs]
        return any(lost)

    @property
    def _dialogs(self) -> Iterator[SignalScreen]:
        return (s for s in self._screen.app.screen_stack if isinstance(s, SignalScreen))
