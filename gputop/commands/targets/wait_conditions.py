"""The conditions of `gputop wait` on one machine: each asks the agent whether it has come true.

needs_driver  whether the wait makes no sense if the driver cannot be read
pending       what has not happened yet, in words
begin         finds out from the first frame what to wait for, and returns as `check` does;
              GputopError if it can never happen, or nothing fits
check         returns a sentence once it has happened; None before, and in doubt
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

from msgspec.structs import replace

from gputop.allocation.gpu_watch import indices_of, numbered, tally
from gputop.allocation.own import without_own
from gputop.commands.targets.selection import ProcessSelection, ProcessSelector, gpus_of
from gputop.errors import GputopError, SourceError, UsageError
from gputop.model.conditions.ended import (
    AwaitedProcess,
    EndOfProcesses,
    awaited_process,
    end_of,
    host_of,
    names_of,
)
from gputop.model.cuda.pick import PickRequest, choose
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.process_id import ProcessId, ProcessLiveness
from gputop.model.machine.signals import MOST_TARGETS
from gputop.model.machine.text import duration, printable
from gputop.output import complain
from gputop.protocol.messages import Candidates, Liveness
from gputop.sources.ask import TIMEOUT, ask
from gputop.sources.source import Source

_GAPS = 3
"""Intervals without a frame after which a GPU no longer counts as idle."""
_FRAMES = 2
"""Frames that show whether a GPU is at work."""


class ProcessesEnd:
    """Wait until processes have ended: those with the PIDs, or those that fit at the beginning."""

    def __init__(self, selection: ProcessSelection) -> None:
        self.needs_driver = not selection.pids
        self.pending = ""
        self._selection = selection
        self._ended: list[str] = []

    def begin(self, source: Source, frame: Frame) -> str | None:
        """Find the processes. GputopError if none fits the filter; a PID without one has ended."""
        find = _by_pid if self._selection.pids else _by_filter
        processes, answers = find(source, frame, self._selection)
        pids = {process.id.pid for process in processes}
        missing = [pid for pid in self._selection.pids if pid not in pids]
        gone = (
            f"no process on {host_of(frame)} has PID {', '.join(map(str, missing))}: it has ended"
        )
        if not processes:
            return gone
        if missing:
            complain(gone)
        self._end = EndOfProcesses(processes, frame.host.boot_id)
        return self._say(self._end.receive_liveness(answers), frame)

    def check(self, source: Source, frame: Frame) -> str | None:
        ended = self._end.receive_frame(frame)
        ended += self._end.receive_liveness(_liveness(source, self._end.followed))
        return self._say(ended, frame)

    def _say(self, ended: Sequence[AwaitedProcess], frame: Frame) -> str | None:
        """Say what has ended; return as `check` does."""
        sentences = [end_of(process, frame) for process in ended]
        self._ended += sentences
        if self._end.running:
            for sentence in sentences:
                complain(sentence)
            self.pending = f"{names_of(list(self._end.running.values()))} to end"
            return None
        if len(self._ended) == 1:
            return self._ended[0]
        return f"{len(self._ended)} processes have ended: {'; '.join(self._ended)}"


def _by_pid(
    source: Source, frame: Frame, selection: ProcessSelection
) -> tuple[list[AwaitedProcess], Sequence[ProcessLiveness]]:
    """Return the processes that have the PIDs now, on a GPU or not, and the agent's answers about
    them. SourceError if that cannot be seen."""
    elsewhere = {process.pid: process for process in frame.processes if process.elsewhere}
    answers = _liveness(source, [ProcessId(pid) for pid in selection.pids if pid not in elsewhere])
    for answer in answers:
        if answer.state == "unknown":
            pid = answer.process.pid
            raise SourceError(f"process {pid} cannot be checked: try again as its user")
    unseen = [elsewhere[pid] for pid in selection.pids if pid in elsewhere]
    running = [answer for answer in answers if answer.state == "running"]
    return [*map(awaited_process, unseen), *map(awaited_process, running)], answers


def _by_filter(
    source: Source, frame: Frame, selection: ProcessSelection
) -> tuple[list[AwaitedProcess], Sequence[ProcessLiveness]]:
    """Return the processes that fit now, and the agent's answers about them. GputopError."""
    reply = ask(source, Candidates(users=selection.users), TIMEOUT)
    targets = ProcessSelector(frame, reply.candidates, reply.uids).targets(selection)
    rows = {process.id: process for process in reversed(frame.processes)}
    processes = [awaited_process(rows[target.process]) for target in targets]
    living = [process.id for process in processes if process.id.start_ticks is not None]
    return processes, _liveness(source, living)


def _liveness(source: Source, processes: Sequence[ProcessId]) -> Sequence[ProcessLiveness]:
    """Ask the agent whether processes run. SourceError; UsageError for too many."""
    if len(processes) >= MOST_TARGETS:
        raise UsageError(f"these are {MOST_TARGETS} processes or more: choose fewer at a time")
    return ask(source, Liveness(tuple(processes)), TIMEOUT).liveness if processes else ()


class UserLeaves:
    """Wait until a user computes on no GPU, or on none of `gpus`; new processes count too."""

    needs_driver = True

    def __init__(self, user: str, gpus: Sequence[str]) -> None:
        self._user, self._gpus = user, gpus
        self.pending = f"{printable(user, 60)} to leave"

    def begin(self, source: Source, frame: Frame) -> str | None:
        """Check the first frame. UsageError for a GPU or a user that the machine does not have."""
        gpus_of(frame, self._gpus)
        return self.check(source, frame)

    def check(self, source: Source, frame: Frame) -> str | None:
        """Return a sentence once the user has left. A process of an unknown owner may be theirs."""
        reply = ask(source, Candidates(users=(self._user,)), TIMEOUT)
        selector = ProcessSelector(frame, reply.candidates, reply.uids)
        uid = selector.uid_of(self._user)
        gpus = _chosen(frame, self._gpus)
        if gpus is None or any(gpu.listed != "all" for gpu in gpus):
            return None
        uuids = {gpu.uuid for gpu in gpus}
        here = [p for p in frame.processes if p.gpu_uuid in uuids and p.type != "G"]
        if any(selector.owner_of(process) in (uid, None) for process in here):
            return None
        where = f"not on {indices_of(gpus)}" if self._gpus else "on no GPU"
        return f"{printable(self._user, 60)} is {where} of {host_of(frame)}"


class GpusFree:
    """Wait until there are enough GPUs or MIG devices for a job, by the rules of `gputop free`."""

    needs_driver = True

    def __init__(self, request: PickRequest, gpus: Sequence[str], elsewhere: bool = False) -> None:
        """`elsewhere`: on another machine, where our own reservations mean nothing."""
        self._request, self._gpus, self._elsewhere = request, gpus, elsewhere
        self._frames: deque[Frame] = deque(maxlen=_FRAMES)
        self.pending = ""

    def begin(self, source: Source, frame: Frame) -> str | None:
        """Check the first frame, which is enough unless GPUs with processes, which may pause, are
        suitable. GputopError if waiting cannot help."""
        if self._gpus:
            kept = {gpu.index for gpu in gpus_of(frame, self._gpus)}
            others = (str(gpu.index) for gpu in frame.gpus if gpu.index not in kept)
            exclude = (*self._request.exclude, *others)
            self._request = replace(self._request, exclude=exclude)
        pick = choose([frame], self._request)
        if not pick.possible:
            for number, reason in pick.reasons.items():
                complain(f"GPU {number}: {reason}")
            raise GputopError(f"there will never be enough GPUs: {tally(pick, self._request)}")
        return self._look(frame, _FRAMES if self._request.shared else 1)

    def check(self, source: Source, frame: Frame) -> str | None:
        return self._look(frame, _FRAMES)

    def _look(self, frame: Frame, least: int) -> str | None:
        """Return as `check` does, by the last frames if they are `least` frames at least."""
        if frame.problem is not None:
            self._frames.clear()
            return None
        self._frames.append(frame if self._elsewhere else without_own(frame))
        pick = choose(self._frames, self._request)
        self.pending = f"GPUs ({tally(pick, self._request)})"
        if pick.parts is None or len(self._frames) < least:
            return None
        are = "is" if len(pick.parts) == 1 else "are"
        word = "free" if pick.suitable == pick.free else "suitable"
        return f"{numbered(pick.numbers)} {are} {word} on {host_of(frame)}"


class GpusIdle:
    """Wait until GPUs have done next to nothing for a while. Unknown utilization (no answer, a
    driver that is gone) ends the span, and so does a gap between frames: time that was not observed
    does not count as idle."""

    needs_driver = True

    def __init__(self, seconds: float, limit: float, gpus: Sequence[str], interval: float) -> None:
        """`seconds`: how long; `limit`: a ratio; `interval`: seconds between two frames."""
        self._seconds, self._limit, self._gpus = seconds, limit, gpus
        self._longest_gap = _GAPS * interval
        self._since: float | None = None
        self._last = 0.0
        self.pending = ""

    def begin(self, source: Source, frame: Frame) -> str | None:
        """Check the first frame. GputopError in MIG mode, where no driver reports utilization."""
        for gpu in gpus_of(frame, self._gpus) if self._gpus else frame.gpus:
            if gpu.mig_mode:
                raise GputopError(f"GPU {gpu.index} is in MIG mode, where its utilization is not "
                                  "known: choose others with --gpu")  # fmt: skip
        return self.check(source, frame)

    def check(self, source: Source, frame: Frame) -> str | None:
        gpus = _chosen(frame, self._gpus)
        idle = self._idle_for(gpus or ())
        limit = f"{self._limit * 100:g} %"
        busy = [] if gpus is None else [g for g in gpus if (g.utilization or 0.0) >= self._limit]
        self.pending = "a span without work"
        if busy:
            self.pending = f"{indices_of(busy)} to be below {limit}"
        elif idle is not None:
            self.pending = f"{duration(self._seconds - idle)} more below {limit}"
        if gpus is None or idle is None or idle < self._seconds:
            return None
        have = "has" if len(gpus) == 1 else "have"
        return (f"{indices_of(gpus)} on {host_of(frame)} {have} been below {limit} for "
                f"{duration(self._seconds)}")  # fmt: skip

    def _idle_for(self, gpus: Sequence[Gpu]) -> float | None:
        """Return the seconds of the span so far; None if it has not begun."""
        now = time.monotonic()
        is_late, self._last = now - self._last > self._longest_gap, now
        loads = [gpu.utilization for gpu in gpus]
        if not loads or any(load is None or load >= self._limit for load in loads):
            self._since = None
        elif self._since is None or is_late:
            self._since = now
        return None if self._since is None else now - self._since


Condition: TypeAlias = ProcessesEnd | UserLeaves | GpusFree | GpusIdle


def _chosen(frame: Frame, words: Sequence[str]) -> list[Gpu] | None:
    """Return the GPUs that `words` name, all without words; None if one does not answer now."""
    if frame.problem is not None:
        return None
    try:
        gpus = gpus_of(frame, words) if words else list(frame.gpus)
    except UsageError:  # it was there before: it has fallen off the bus
        return None
    all_answer = all(gpu.state == "answers" for gpu in gpus)
    return gpus if gpus and all_answer else None
