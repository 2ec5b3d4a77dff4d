"""Whether processes have ended, over many frames and more than one agent.

A frame tells who is on the GPUs, and no more: a process may leave them and go on. What tells is the
agent's ProcessLiveness, by PID and start in ticks. Where no agent can tell, as of a process of
another PID namespace, or on a host with nvidia-smi alone, all there is to see is that it has left
the GPUs, and that is what is said then. In doubt a process has not ended.
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
"""The start in ticks of a process that has ended before its own was learnt."""
_LONGEST = 60
"""Characters of a command."""


class AwaitedProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process whose end is awaited."""

    pid: int
    start_ticks: int | None = None
    """None: no agent can tell whether it runs."""
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
    """Who of some processes has ended by now."""

    def __init__(self, processes: Iterable[AwaitedProcess], boot_id: str | None) -> None:
        """`boot_id`: of the machine that they run on."""
        self.running = {process.pid: process for process in processes}
        """Those that have not ended, by PID."""
        self._boot_id = boot_id

    def add(self, processes: Iterable[AwaitedProcess], boot_id: str | None) -> None:
        """Await more processes; those that are awaited stay as they are."""
        self._boot_id = boot_id
        self.running = {process.pid: process for process in processes} | self.running

    def learn(self, answer: ProcessLiveness) -> bool:
        """Take the start in ticks of a process for which it was not known, by the agent that told
        its start in seconds. Whether it still runs."""
        process = self.running.get(answer.pid)
        if process is None or process.start_ticks is not None or answer.state == "unknown":
            return answer.state != "ended"
        is_same = answer.state == "running" and answer.start_time == process.start_time
        ticks = answer.start_ticks if is_same else NOBODYS
        self.running[answer.pid] = replace(process, start_ticks=ticks)
        return is_same

    @property
    def starts(self) -> tuple[ProcessStart, ...]:
        """The processes for which an agent is to be asked."""
        return tuple(
            ProcessStart(process.pid, process.start_ticks)
            for process in self.running.values()
            if process.start_ticks is not None
        )

    def handle_liveness(self, liveness: Iterable[ProcessLiveness]) -> list[AwaitedProcess]:
        """Take what the agent says to `starts`. Return who has ended meanwhile."""
        return self.remove(answer.pid for answer in liveness if answer.state == "ended")

    def handle_frame(self, frame: Frame) -> list[AwaitedProcess]:
        """Take a frame. Return who has ended by it: all where the machine has been started anew,
        else those of which nothing is known but that they were on a GPU."""
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
        """Await processes no longer. Return those that were."""
        return [self.running.pop(pid) for pid in pids if pid in self.running]


def end_of(process: AwaitedProcess, host: str, time: float) -> str:
    """Return a sentence about a process that has ended, at a time in seconds since the epoch."""
    how = "ended" if process.start_ticks is not None else "left the GPUs"
    start = process.start_time
    after = "" if start is None else f" after {duration(max(0.0, time - start))}"
    return f"{process} has {how} on {printable(host, _LONGEST)}{after}"


def names_of(processes: Sequence[AwaitedProcess]) -> str:
    """Name processes, the first few of many."""
    named = ", ".join(map(str, processes[:_MOST_NAMED]))
    more = len(processes) - _MOST_NAMED
    return named if more <= 0 else f"{named} and {more} more"
