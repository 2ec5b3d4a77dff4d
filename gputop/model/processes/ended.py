"""Processes that have left the GPUs, for a minute."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gputop.model.machine.frame import Frame, Process
from gputop.model.machine.process_id import ProcessId
from gputop.model.machine.signals import MOST_TARGETS, SignalOutcome, Verdict, signal_name
from gputop.model.metrics.process import ProcessRow
from gputop.model.processes.process_rows import RowKey

KEPT = 60.0
"""Seconds for which they are shown, by the times of frames."""
MOST = 5000
"""Most processes that are kept, the newest: another machine may report any number."""
_UNKNOWN: dict[str, None] = dict.fromkeys(Process.__annotations__)
"""The numbers of a process of which nothing is known now."""


class EndedProcess(NamedTuple):
    """What was last known of a process on a GPU."""

    row: ProcessRow
    """Its last row, with its peak memory there and without current values."""
    key: RowKey
    at: float
    """Time of the first frame without it."""
    how: str = ""
    """`KILL, not TERM` if one signal that gputop sent has ended it, after another one had not;
    empty if it is not known."""


class RecentlyEnded:
    """Compares each frame with the one before. A process has not ended while its GPU does not
    answer, or while it is still on another GPU."""

    def __init__(self) -> None:
        self.ended: list[EndedProcess] = []
        """Those of the last minute, in the order in which they ended."""
        self._machine: tuple[object, ...] = ()
        self._time: float | None = None
        self._last: dict[RowKey, ProcessRow] = {}
        self._peaks: dict[RowKey, int] = {}
        self._signals: dict[ProcessId, dict[str, SignalOutcome]] = {}
        """What became of the signals that were sent to a process here, in their order."""

    def handle_verdicts(self, verdicts: Iterable[Verdict]) -> None:
        """Learn what became of signals that were sent here."""
        for verdict in verdicts:
            if verdict.outcome in ("exited", "ignored"):
                outcomes = self._signals.setdefault(verdict.process, {})
                outcomes[signal_name(verdict.signal).removeprefix("SIG")] = verdict.outcome
        for oldest in list(self._signals)[:-MOST_TARGETS]:
            del self._signals[oldest]
        self.ended = [
            ended._replace(how=self._how(ended.row.process.id) or ended.how) for ended in self.ended
        ]

    def handle(self, frame: Frame, rows: Sequence[ProcessRow], keys: Sequence[RowKey]) -> None:
        """Take a frame, its rows and their keys; the same frame again changes nothing."""
        machine = (frame.host.name, frame.host.boot_id, frame.demo)
        is_earlier = self._time is not None and frame.time < self._time
        if machine != self._machine or is_earlier:
            self.ended, self._last, self._peaks = [], {}, {}
        elif frame.time == self._time:
            return
        self._machine, self._time = machine, frame.time
        now = dict(zip(keys, rows, strict=True))
        for key, row in now.items():
            memory = row.process.gpu_memory
            if memory and memory > self._peaks.get(key, 0):
                self._peaks[key] = memory
        if gone := [key for key in self._last if key not in now]:
            self._part(frame, now, gone)
        self._last = now
        self.ended = [
            ended
            for ended in self.ended
            if 0 <= frame.time - ended.at <= KEPT and ended.key not in now
        ][-MOST:]

    def _part(self, frame: Frame, now: dict[RowKey, ProcessRow], gone: list[RowKey]) -> None:
        alive = {row.process.id for row in now.values()}
        silent = {gpu.uuid for gpu in frame.gpus if not gpu.tells_processes}
        for key in gone:
            row = self._last[key]
            process = row.process.id
            if process.start_ticks is None and any(process.pid == other.pid for other in alive):
                self._peaks.pop(key, None)
                continue  # its start has become known, so its key has changed
            if row.process.gpu_uuid in silent or {process, ProcessId(process.pid)} & alive:
                now[key] = row
                continue
            peak = self._peaks.pop(key, row.process.gpu_memory)
            last = replace(row.process, **{**_UNKNOWN, "gpu_memory": peak})
            row = replace(row, process=last, names=None)
            self.ended.append(EndedProcess(row, key, frame.time, self._how(process)))

    def _how(self, process: ProcessId) -> str:
        """Return the signal that ended a process, and those that it ignored before."""
        outcomes = self._signals.get(process, {})
        ended = [name for name, outcome in outcomes.items() if outcome == "exited"]
        ignored = [f"not {name}" for name, outcome in outcomes.items() if outcome == "ignored"]
        return ", ".join([*ended, *ignored]) if ended else ""
