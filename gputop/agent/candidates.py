"""What a person may choose processes on GPUs by, beside what a frame has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gputop.agent.idle_record import with_idle_times
from gputop.agent.process.stat import ProcStat, every_process, started
from gputop.agent.process.users import real_uid
from gputop.model.machine.frame import Frame, Process
from gputop.model.machine.signals import Candidate, Target


def read_candidates(frame: Frame, ancestors: bool) -> tuple[Candidate, ...]:
    """Return a candidate for each row of a frame, with its ancestors where they are asked for."""
    processes = every_process() if ancestors else {}
    return tuple(
        Candidate(
            row.pid,
            row.start_time,
            row.gpu_uuid,
            None if row.start_time is None else real_uid(row.pid),
            row.idle_for,
            tuple(_ancestors(row, processes)),
        )
        for row in with_idle_times(frame).processes
    )


def _ancestors(process: Process, processes: Mapping[int, ProcStat]) -> Iterator[Target]:
    """Yield what has started a process; each once, whatever changes while they are read."""
    if process.start_time is None:
        return
    pid, visited = process.pid, {process.pid}
    while pid in processes and (pid := processes[pid].parent) in processes and pid not in visited:
        visited.add(pid)
        yield Target(pid, started(processes[pid].start_ticks))
