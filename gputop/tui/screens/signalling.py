"""The main screen with the key that signals; read only there is no such key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from textual.binding import Binding, BindingType

from gputop.model.frame import Frame, ProcessKey
from gputop.model.meant import Meant, meant, own_on
from gputop.model.protocol import Signal
from gputop.model.signalling import Signalling
from gputop.settings import Session
from gputop.tui.screens.main import MainScreen
from gputop.tui.screens.process import ProcessScreen
from gputop.tui.screens.signal import SignalScreen
from gputop.tui.widgets.gpus import GpuPane
from gputop.tui.widgets.processes import ProcessTable

_NOBODY = "no process is meant: select one with the arrow keys, or tag some with Space"
_ENDED = "the tagged processes have ended; Esc forgets the tags"
_GONE = "it has ended, or left the GPUs"
_DEMO = "the demo has no processes to signal"


class SignallingPage(ProcessScreen):
    """The page of a process, with the key that signals it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *ProcessScreen.BINDINGS,
        Binding("f9,K", "signal", "Signal", tooltip="Signal this process", id="process.signal",
                key_display="F9", group=Binding.Group("Processes")),
    ]  # fmt: skip

    def __init__(self, key: ProcessKey, ask: Callable[[Frame, list[ProcessKey]], None]) -> None:
        super().__init__(key)
        self._ask_about = ask

    def action_signal(self) -> None:
        """Ask about it."""
        subject = self._subject
        if subject.frame is not None:
            self._ask_about(subject.frame, [] if subject.ended else [subject.key])


class SignallingScreen(MainScreen):
    """Everything at a glance, and a dialog that stops processes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *MainScreen.BINDINGS,
        Binding("f9,K", "signal", "Signal", tooltip="Signal the tagged ones, or this one (k is up)",
                id="main.signal", show=False, group=Binding.Group("Processes")),
    ]  # fmt: skip

    def __init__(
        self,
        value: str | None,
        order: str | None,
        settings: Session,
        send: Callable[[Signal], None],
    ) -> None:
        """`send` hands an order to the agent of now."""
        super().__init__(value, order, settings)
        self._send = send

    def action_signal(self) -> None:
        """Ask about the processes that are meant now, whatever the frames do meanwhile."""
        if self._frame is not None:
            self._ask(self._frame, *self._meant(self._frame))

    def page(self, key: ProcessKey) -> ProcessScreen:
        """The page of a process, with the key."""
        return SignallingPage(key, lambda frame, keys: self._ask(frame, meant(frame, keys), _GONE))

    def _ask(self, frame: Frame, processes: tuple[Meant, ...], why_none: str) -> None:
        obstacle = _DEMO if frame.demo else "" if processes else why_none
        self.app.push_screen(SignalScreen(Signalling(processes, obstacle), self._send))

    def _shown_keys(self) -> list[tuple[str, str]]:
        """Where there is room for one more."""
        return [*super()._shown_keys(), ("F9", "signal")]

    def _meant(self, frame: Frame) -> tuple[tuple[Meant, ...], str]:
        """One's own on the selected GPU; else the tagged ones; else what is under the cursor."""
        table, pane = self.query_one(ProcessTable), self.query_one(GpuPane)
        line = pane.current if self.focused is pane else None
        if line is not None:
            place = line.device.place if line.device else None
            keys = own_on(frame, line.gpu.key, self.settings.me, place)
            what = "that part of " if place else ""
            why_none = f"no process of yours is on {what}GPU {line.gpu.index}"
            return meant(frame, keys, table.names), why_none
        why_none = _NOBODY if table.selected is None else _ENDED
        return meant(frame, table.meant, table.names), why_none


def main_screen(
    environ: Mapping[str, str], settings: Session, send: Callable[[Signal], None]
) -> MainScreen:
    """With the mapping of these variables; `send` hands an order to the agent of now."""
    own = (environ.get("CUDA_VISIBLE_DEVICES"), environ.get("CUDA_DEVICE_ORDER"), settings)
    return MainScreen(*own) if settings.readonly else SignallingScreen(*own, send)
