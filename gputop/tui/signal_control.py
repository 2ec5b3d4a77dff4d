"""Which processes F9 on the main screen is for."""

from __future__ import annotations

from gputop.model.processes.target import SignalTarget, own_on, signal_targets
from gputop.tui.dialogs.signal_state import why_none
from gputop.tui.panes.gpus import GpuPane
from gputop.tui.panes.processes import ProcessTable
from gputop.tui.snapshot import Snapshot


def selected_targets(
    shown: Snapshot, gpus: GpuPane, table: ProcessTable, me: str | None
) -> tuple[tuple[SignalTarget, ...], str]:
    """Return the processes of the user `me` on the selected GPU, otherwise the tagged processes,
    otherwise the selected one; and what to say if there are none."""
    row = gpus.current if gpus.is_active else None
    if row is not None:
        key, instance = row.key
        keys = own_on(shown.frame, key, me, instance)
        reason = f"no process of yours is on GPU {row.number}"
    else:
        keys, reason = table.listing.targets(table.current), why_none(table.current)
    return signal_targets(shown.frame, keys), reason
