"""Whether processes have ended, over many frames and more than one agent.

A frame lists only the processes on the GPUs; a process may leave them and go on. The agent's
ProcessLiveness, by PID and start in ticks, decides. If no agent can answer, as for a process of
another PID namespace, or on a host with nvidia-smi alone, gputop only sees that a process has left
the GPUs, and says just that. If in doubt, a process has not ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from gputop.model.machine.frame import Frame
from gputop.model.machine.liveness import ProcessLiveness, ProcessStart
from gputop.model.machine.text import duration, printable, short_command

_MOST_NAMED = 5
NOBODYS = -1
"""A start in ticks that no process has: the process ended before gputop learnt its own."""
_LONGEST = 60
"""Most characters of a user, command or host name."""


class AwaitedProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process whose end is awaited."""

    pid: int
    start_ticks: int | None = None
    """None until an agent reports it; for some processes none can."""
    start_time: float | None = None
    """Seconds since the epoch."""
    user: str | None = None
    command: str | None = None

    def __str__(self) -> str:
        """`train.py (PID 123) of alice`, harmless to print."""
        owner = f" of {printable(self.user, _LONGEST)}" if self.user else ""
        return f"{self.name} (PID {self.pid}){owner}"

    @property
    def name(self) -> str:
        """`train.py`, harmless to print."""
        name = short_command(self.command).split(" ")[0] if self.command else "process"
        return printable(name, _LONGEST)


class EndOfProcesses:
    """Tracks processes until they have ended."""

    def __init__(self, processes: Iterable[AwaitedProcess], boot_id: str | None) -> None:
        """`boot_id`: of the machine they run on."""
        self.running = {process.pid: process for process in processes}
        """Those that have not ended, by PID."""
        self._boot_id = boot_id

    def add(self, processes: Iterable[AwaitedProcess], boot_id: str | None) -> None:
        """Await more processes; those already awaited stay as they are."""
        self._boot_id = boot_id
        self.running = {process.pid: process for process in processes} | self.running

    def learn(self, answer: ProcessLiveness) -> bool:
        """Learn the start in ticks of a process, from the agent that reported its start in seconds.
        Return False if the process has ended."""
        process = self.running.get(answer.pid)
        if process is None or process.start_ticks is not None or answer.state == "unknown":
            return answer.state != "ended"
        is_same = answer.state == "running" and answer.start_time == process.start_time
        ticks = answer.start_ticks if is_same else NOBODYS
        self.running[answer.pid] = replace(process, start_ticks=ticks)
        return is_same

    @property
    def starts(self) -> tuple[ProcessStart, ...]:
        """The processes to ask an agent about."""
        return tuple(
            ProcessStart(process.pid, process.start_ticks)
            for process in self.running.values()
            if process.start_ticks is not None
        )

    def handle_liveness(self, liveness: Iterable[ProcessLiveness]) -> list[AwaitedProcess]:
        """Take an agent's answers about `starts`. Return the processes that have ended."""
        return self.remove(answer.pid for answer in liveness if answer.state == "ended")

    def handle_frame(self, frame: Frame) -> list[AwaitedProcess]:
        """Take a frame. Return the processes that have ended: all of them after a reboot, otherwise
        those that have left the GPUs and whose start in ticks is not known."""
        if None is not self._boot_id != frame.host.boot_id is not None:
            return self.remove(list(self.running))
        if frame.problem is not None or not all(gpu.tells_processes for gpu in frame.gpus):
            return []
        seen = {process.pid for process in frame.processes}
        return self.remove(
            pid
            for pid, process in list(self.running.items())
            if process.start_ticks is None and pid not in seen
        )

    def remove(self, pids: Iterable[int]) -> list[AwaitedProcess]:
        """Stop awaiting processes. Return those that were awaited."""
        return [self.running.pop(pid) for pid in pids if pid in self.running]


def end_of(process: AwaitedProcess, host: str, time: float) -> str:
    """Return a sentence about a process that has ended at `time`, in seconds since the epoch."""
    how = "ended" if process.start_ticks is not None else "left the GPUs"
    start = process.start_time
    after = "" if start is None else f" after {duration(max(0.0, time - start))}"
    return f"{process} has {how} on {printable(host, _LONGEST)}{after}"


def names_of(processes: Sequence[AwaitedProcess]) -> str:
    """Name processes, the first few of many."""
    named = ", ".join(map(str, processes[:_MOST_NAMED]))
    more = len(processes) - _MOST_NAMED
    return named if more <= 0 else f"{named} and {more} more"
