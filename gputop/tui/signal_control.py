"""Which processes F9 on the main screen is for, and the dialog about them."""

from __future__ import annotations

from collections.abc import Callable

from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import mig_number
from gputop.model.processes.target import SignalTarget, own_on, signal_targets
from gputop.protocol.messages import Signal
from gputop.sources.source import Moment
from gputop.tui.dialogs.signal import SignalScreen
from gputop.tui.dialogs.signal_state import NOT_NOW, READ_ONLY, SignalDialogState, why_none
from gputop.tui.messages import Note, ReplyReceiver
from gputop.tui.panes.gpus import GpuPane
from gputop.tui.snapshot import Snapshot
from gputop.tui.table_screen import TableScreen


class SignalControl:
    """Opens the dialog for the processes that are selected when the key is pressed."""

    def __init__(
        self,
        screen: TableScreen,
        send: Callable[[Signal, ReplyReceiver], None],
        is_exact: Callable[[], bool],
        me: Callable[[], str | None],
    ) -> None:
        """`is_exact`: whether the selected process was chosen by its whole PID; `me`: the user's
        name on the machine that is shown."""
        self._screen, self._send, self._is_exact, self._me = screen, send, is_exact, me

    @property
    def _gpus(self) -> GpuPane:
        return self._screen.query_one(GpuPane)

    def open_for_selected(self, shown: Snapshot) -> None:
        self.open(shown.frame, *self._targets(shown), shown.moment)

    def open(
        self, frame: Frame, targets: tuple[SignalTarget, ...], none: str, moment: Moment
    ) -> None:
        """Open the dialog for processes, or say in it why there are `none`. It takes no processes
        of the past: their PIDs may belong to others now."""
        if self._screen.settings.readonly:
            self._screen.post_message(Note(READ_ONLY))
            return
        obstacle = NOT_NOW.get(moment, "" if targets else none)
        state = SignalDialogState(targets if moment == "now" else (), obstacle, frame)
        state.is_aimed = not self._gpus.is_active and self._is_exact()
        self._screen.app.push_screen(SignalScreen(state, self._send))

    def _targets(self, shown: Snapshot) -> tuple[tuple[SignalTarget, ...], str]:
        """Return the user's own processes on the selected GPU, otherwise the tagged processes,
        otherwise the selected one; and what to say if there are none."""
        row = self._gpus.current if self._gpus.is_active else None
        if row is not None:
            instance = row.device.instance_ids if row.device else None
            keys = own_on(shown.frame, row.gpu.key, self._me(), instance)
            number = mig_number(row.gpu.index, *instance) if instance else row.gpu.index
            reason = f"no process of yours is on GPU {number}"
        else:
            table = self._screen.processes
            keys = table.listing.targets(table.current)
            reason = why_none(table.current)
        return signal_targets(shown.frame, keys, shown.names), reason
