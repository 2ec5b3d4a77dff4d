"""Whether processes have ended, over many frames and more than one agent.

A frame lists only the processes on the GPUs; a process may leave them and go on. The agent's
ProcessLiveness decides. If no agent can answer, as for a process of
another PID namespace, or on a host with nvidia-smi alone, gputop only sees that a process has left
the GPUs, and says just that. If in doubt, a process has not ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from gputop.model.machine.frame import Frame, Process
from gputop.model.machine.process_id import ProcessId, ProcessLiveness
from gputop.model.machine.text import duration, printable, short_command

_MOST_NAMED = 5
_MAX_NAME_CHARS = 60
"""Most characters of a user, command or host name."""


class AwaitedProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process whose end is awaited."""

    id: ProcessId
    is_followed: bool = False
    """Whether an agent has told how it is: from then on only an agent says that it has ended."""
    start_time: float | None = None
    """Seconds since the epoch."""
    user: str | None = None
    command: str | None = None

    def __str__(self) -> str:
        """`train.py (PID 123) of alice`, harmless to print."""
        owner = f" of {printable(self.user, _MAX_NAME_CHARS)}" if self.user else ""
        return f"{self.name} (PID {self.id.pid}){owner}"

    @property
    def name(self) -> str:
        """`train.py`, harmless to print."""
        name = short_command(self.command).split(" ")[0] if self.command else "process"
        return printable(name, _MAX_NAME_CHARS)

    @property
    def end(self) -> str:
        """What has become of it, once it has ended as far as gputop can see."""
        return "ended" if self.is_followed else "left the GPUs"


def awaited_process(process: Process | ProcessLiveness) -> AwaitedProcess:
    """Return a process that is to be awaited from now on."""
    return AwaitedProcess(
        id=process.process if isinstance(process, ProcessLiveness) else process.id,
        start_time=process.start_time,
        user=process.user,
        command=process.command,
    )


class EndOfProcesses:
    """Tracks processes until they have ended."""

    def __init__(self, processes: Iterable[AwaitedProcess], boot_id: str | None) -> None:
        """`boot_id`: of the machine they run on."""
        self.running = {process.id.pid: process for process in processes}
        """Those that have not ended, by PID."""
        self._boot_id = boot_id

    def add(self, processes: Iterable[AwaitedProcess], boot_id: str | None) -> None:
        """Await more processes; those already awaited stay as they are."""
        self._boot_id = boot_id
        self.running = {process.id.pid: process for process in processes} | self.running

    @property
    def followed(self) -> tuple[ProcessId, ...]:
        """The processes to ask an agent about."""
        return tuple(process.id for process in self.running.values() if process.is_followed)

    def receive_liveness(self, liveness: Sequence[ProcessLiveness]) -> list[AwaitedProcess]:
        """Learn from an agent how processes are. Return those that have ended."""
        for answer in liveness:
            process = self.running.get(answer.process.pid)
            if process is not None and answer.state != "unknown":
                self.running[answer.process.pid] = replace(process, is_followed=True)
        return self.remove(answer.process.pid for answer in liveness if answer.state == "ended")

    def receive_frame(self, frame: Frame) -> list[AwaitedProcess]:
        """Take a frame. Return the processes that have ended: all of them after a reboot, otherwise
        those that have left the GPUs and that no agent follows."""
        if not self.running:
            return []
        if None is not self._boot_id != frame.host.boot_id is not None:
            return self.remove(list(self.running))
        if frame.problem is not None or not all(gpu.tells_processes for gpu in frame.gpus):
            return []
        seen = {process.pid for process in frame.processes}
        return self.remove(
            pid
            for pid, process in list(self.running.items())
            if not process.is_followed and pid not in seen
        )

    def remove(self, pids: Iterable[int]) -> list[AwaitedProcess]:
        return [self.running.pop(pid) for pid in pids if pid in self.running]


def host_of(frame: Frame) -> str:
    """Return the name of a machine for sentences, harmless to print."""
    return printable(frame.host.requested_name or frame.host.name, _MAX_NAME_CHARS)


def end_of(process: AwaitedProcess, frame: Frame) -> str:
    """Return a sentence about a process that has ended by the time of a frame."""
    start = process.start_time
    after = "" if start is None else f" after {duration(max(0.0, frame.time - start))}"
    return f"{process} has {process.end} on {host_of(frame)}{after}"


def names_of(processes: Sequence[AwaitedProcess]) -> str:
    """Name processes, the first few of many."""
    named = ", ".join(map(str, processes[:_MOST_NAMED]))
    more = len(processes) - _MOST_NAMED
    return named if more <= 0 else f"{named} and {more} more"
