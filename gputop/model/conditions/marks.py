"""Marks on GPUs and processes, set on the screen to learn when they are free or have ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gputop.model.conditions.ended import (
    AwaitedProcess,
    EndOfProcesses,
    awaited_process,
    end_of,
    host_of,
)
from gputop.model.health.free import is_free
from gputop.model.machine.frame import Frame, ProcessKey
from gputop.model.machine.gpu import Gpu, GpuPart, PartKey, parts_of
from gputop.model.machine.process_id import ProcessId, ProcessLiveness


class MarkNews(NamedTuple):
    """The news that what a mark waited for has happened."""

    short: str
    """For a line of the screen, which names the machine already."""
    sentence: str


class Marks:
    """Marks on GPUs until they are free, and on processes until they have ended. All marks stay
    while the machine cannot be reached."""

    def __init__(self) -> None:
        self._gpus: set[PartKey] = set()
        self._end = EndOfProcesses((), None)

    def has_gpu(self, part: GpuPart) -> bool:
        return bool(self._gpus) and part.key in self._gpus

    def has_process(self, pid: int) -> bool:
        """Whether the process with that PID is marked; no other can have the PID while it runs."""
        return pid in self._end.running

    def toggle_gpu(self, frame: Frame, part: GpuPart) -> bool:
        """Mark a GPU or a MIG device, or remove its mark. Return False if it is already free, and
        so not marked."""
        if part.key in self._gpus:
            self._gpus.remove(part.key)
        elif is_free(frame, part.gpu, part.device):
            return False
        else:
            self._gpus.add(part.key)
        return True

    def toggle_processes(self, frame: Frame, keys: Iterable[ProcessKey]) -> None:
        """Mark processes of a frame, or remove their marks if all have one."""
        rows = {frame.key(process): process for process in frame.processes}
        wanted = [rows[key] for key in keys if key in rows]
        if all(self.has_process(process.pid) for process in wanted):
            self._end.remove(process.pid for process in wanted)
        else:
            self._end.add(map(awaited_process, wanted), frame.host.boot_id)

    def questions(self, frame: Frame) -> tuple[ProcessId, ...]:
        """Return the processes to ask an agent about: those that have left the GPUs, and those
        that no agent follows yet."""
        if not self._end.running:
            return ()
        here = {process.pid: process for process in frame.processes}
        asked = []
        for pid, process in self._end.running.items():
            row = here.get(pid)
            is_gone = row is None or row.id != process.id
            is_due = is_gone if process.is_followed else row is not None
            if is_due and process.id.start_ticks is not None:
                asked.append(process.id)
        return tuple(asked)

    def receive_liveness(self, liveness: Sequence[ProcessLiveness], frame: Frame) -> list[MarkNews]:
        """Take an agent's answers to `questions` about this frame. Return what has ended."""
        return [_end_news(process, frame) for process in self._end.receive_liveness(liveness)]

    def receive_frame(self, frame: Frame) -> list[MarkNews]:
        """Take a frame. Return what has ended or become free."""
        news = [_end_news(process, frame) for process in self._end.receive_frame(frame)]
        for part in parts_of(frame.gpus) if self._gpus else ():
            if part.device is None:
                self._follow_key(part.gpu)
            if part.key in self._gpus and is_free(frame, part.gpu, part.device):
                self._gpus.remove(part.key)
                short = f"GPU {part.number} is free"
                news.append(MarkNews(short, f"{short} on {host_of(frame)}"))
        return news

    def _follow_key(self, gpu: Gpu) -> None:
        """Keep the mark that a GPU got before it answered, when it had another key."""
        before = GpuPart(replace(gpu, uuid=None)).key
        if before in self._gpus:
            self._gpus.remove(before)
            self._gpus.add(GpuPart(gpu).key)


def _end_news(process: AwaitedProcess, frame: Frame) -> MarkNews:
    short = f"{process.name} (PID {process.id.pid}) has {process.end}"
    return MarkNews(short, end_of(process, frame))
