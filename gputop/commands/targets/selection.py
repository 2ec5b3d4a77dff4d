"""Which processes a user means with the words of `gputop kill` or `gputop wait`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gputop.commands.targets.process_words import Alternatives, filter_of, pids_of
from gputop.errors import GputopError, SourceError, UsageError
from gputop.model.machine.frame import Frame, Process
from gputop.model.machine.gpu import Gpu, gpus_named
from gputop.model.machine.process_id import ProcessId
from gputop.model.machine.signals import Candidate, Target
from gputop.model.machine.text import is_blank, printable
from gputop.model.metrics.process import ProcessRow
from gputop.model.processes.filter import Term, Test
from gputop.model.processes.process_rows import rows


class ProcessSelection(NamedTuple):
    """What a user asked for; a process must fit all of it."""

    pids: tuple[int, ...]
    filter: Alternatives
    """The words of the filter; empty if there are PIDs, or no words."""
    gpus: Sequence[str]
    user: str | None
    descendants: bool

    @property
    def users(self) -> tuple[str, ...]:
        """The names of users, which have the meaning they have on the machine of the processes."""
        terms = (term for terms in self.filter for term in terms if term.key == "user")
        names = (self.user, *(term.value for term in terms))
        return tuple(dict.fromkeys(name for name in names if name is not None))


class NobodyFitsError(GputopError):
    """No process on a GPU of that machine fits."""


def selection_of(options: argparse.Namespace, descendants: bool) -> ProcessSelection:
    """Read what was typed. UsageError if it names nothing, may mean more than intended, or has PIDs
    for several machines."""
    words, gpus, user = options.words, options.gpu, options.user
    if not words and not gpus and user is None:
        raise UsageError("which processes? Give PIDs, words of the filter, --gpu or --user")
    for option, values in (("--gpu", gpus), ("--user", [] if user is None else [user])):
        if any(map(is_blank, values)):
            raise UsageError(f"{option} is empty (an unset variable?)")
    pids = pids_of(words)
    alternatives = [] if pids else filter_of(words, narrowed=bool(gpus) or user is not None)
    by_pid = pids or any(term.key == "pid" for terms in alternatives for term in terms)
    if by_pid and len(options.hosts) > 1:
        raise UsageError("a PID belongs to one machine: give one host")
    return ProcessSelection(pids, alternatives, gpus, user, descendants)


class ProcessSelector:
    """Finds the processes of a frame that a user names."""

    def __init__(
        self, frame: Frame, candidates: Iterable[Candidate], uids: Mapping[str, int]
    ) -> None:
        """`candidates`: what the agent reports about the processes of the frame; `uids`: the user
        IDs of a selection's `users`."""
        self._frame, self._uids = frame, uids
        self._candidates = {(each.process, each.gpu_uuid): each for each in candidates}

    def targets(self, selection: ProcessSelection) -> tuple[Target, ...]:
        """Return the processes in the order of GPUs and PIDs, each once.

        UsageError for a GPU that is unknown or ambiguous, GputopError for a PID that does not fit,
        NobodyFitsError if no process does.
        """
        processes = _busiest(self._frame, list(map(self._with_idle_time, self._frame.processes)))
        matching = rows(replace(self._frame, processes=tuple(processes)))
        if selection.gpus:
            uuids = {gpu.uuid for gpu in gpus_of(self._frame, selection.gpus)}
            matching = [row for row in matching if row.process.gpu_uuid in uuids]
        if selection.user is not None:
            uid = self.uid_of(selection.user)
            matching = [row for row in matching if self.owner_of(row.process) == uid]
        if selection.pids:
            return self._by_pid(matching, selection)
        if selection.filter:
            alternatives = [list(map(self._test, terms)) for terms in selection.filter]
            matching = [
                row
                for row in matching
                if any(all(test(row) for test in tests) for tests in alternatives)
            ]
        if not matching:
            idle = any(term.key == "idle" for terms in selection.filter for term in terms)
            hint = "; idle times are known only while a gputop of yours runs" * idle
            raise NobodyFitsError(
                f"no process on a GPU matches{hint}: gputop --once shows who is there"
            )
        return _targets(matching)

    def _with_idle_time(self, process: Process) -> Process:
        """Return a process with the idle time that longer-running agents know."""
        candidate = self._candidates.get(_key(process))
        return replace(process, idle_for=candidate.idle_for) if candidate else process

    def owner_of(self, process: Process) -> int | None:
        """Return the user ID: names may not be unique. The agent makes sure that only the process
        of the frame is signalled, even if another one has its PID by now."""
        candidate = self._candidates.get(_key(process))
        return None if candidate is None else candidate.uid

    def uid_of(self, user: str) -> int:
        """Return the ID of a user of that machine. SourceError if the agent has not sent it."""
        if user not in self._uids:
            raise SourceError(
                "its gputop is too old to find processes by user: install this version there"
            )
        return self._uids[user]

    def _test(self, term: Term) -> Test:
        """Return the filter's test, but compare users by ID. A user or GPU that is left out must
        exist: otherwise a typing error would leave out nothing."""
        if term.key == "user":
            uid = self.uid_of(term.value)
            return lambda row: _is_of(self.owner_of(row.process), uid, term.negated)
        if term.key == "gpu":
            shown, indices = printable(term.value, 60), _indices(self._frame, term)
            if len(indices) > 1 or "," in term.value:  # though there be only one of them
                raise UsageError(
                    f"{shown!r} is several GPUs: give an index or more of its UUID, or use --gpu"
                )
            if term.negated and not indices:
                raise UsageError(f"!gpu:{shown} names no GPU here")
        return term.test

    def _by_pid(
        self, matching: Sequence[ProcessRow], selection: ProcessSelection
    ) -> tuple[Target, ...]:
        """Return the processes with the PIDs. With `descendants`, a PID may also be on no GPU if it
        started a process that is on one."""
        targets = {target.process.pid: target for target in _targets(matching)}
        if selection.descendants:
            candidates = [self._candidates.get(_key(row.process)) for row in matching]
            above = [process for each in candidates if each for process in each.ancestors]
            targets = {process.pid: Target(process) for process in above} | targets
        for pid in selection.pids:
            if pid not in targets:
                where = "not on a GPU of --gpu" if selection.gpus else "on no GPU"
                if selection.user is not None:
                    where = f"no process of --user on a GPU{' of --gpu' * bool(selection.gpus)}"
                nor = ", nor is one that it started" * selection.descendants
                raise GputopError(f"process {pid} is {where}{nor}")
        return tuple(targets[pid] for pid in selection.pids)


def gpus_of(frame: Frame, options: Sequence[str]) -> list[Gpu]:
    """Return the GPUs that --gpu names; each word must name exactly one. UsageError."""
    words = [word.strip() for text in options for word in text.split(",")]
    named = {word: gpus_named(frame.gpus, word) for word in words}
    for word, gpus in named.items():
        if len(gpus) != 1:
            what = "several GPUs" if gpus else "no GPU here"
            shown = printable(word, 60)
            raise UsageError(f"{shown!r} is {what}: give an index or more of its UUID")
    indices = {gpus[0].index for gpus in named.values()}
    return [gpu for gpu in frame.gpus if gpu.index in indices]


def _key(process: Process) -> tuple[ProcessId, str | None]:
    """Return a process, and the UUID of its GPU."""
    return process.id, process.gpu_uuid


def _is_of(owner: int | None, uid: int, negated: bool) -> bool | None:
    return None if owner is None else (owner == uid) != negated


def _indices(frame: Frame, term: Term) -> set[int]:
    """Return the indices of the GPUs that a word names, negated or not."""
    empty = [ProcessRow(Process(pid=0, gpu_uuid=gpu.uuid), gpu, None) for gpu in frame.gpus]
    means = not term.negated
    return {row.gpu.index for row in (*rows(frame), *empty) if row.gpu and term.test(row) is means}


def _busiest(frame: Frame, processes: Sequence[Process]) -> Iterator[Process]:
    """Yield the processes; one on several GPUs has its highest utilization on all rows, for a
    signal ends it on all. Without samples, the GPU's own utilization may be its work."""
    load = {gpu.uuid: gpu.utilization or 0.0 for gpu in frame.gpus}
    by_process: dict[ProcessId, list[Process]] = {}
    for process in processes:
        by_process.setdefault(process.id, []).append(process)
    for process in processes:
        same = by_process[process.id]
        if len(same) == 1:
            yield process
            continue
        shares = [row.sm_utilization for row in same if row.sm_utilization is not None]
        times = [row.idle_for for row in same if row.idle_for is not None]
        most = max(load.get(row.gpu_uuid, 0.0) for row in same) or None
        yield replace(
            process,
            sm_utilization=max(shares, default=most),
            idle_for=min(times) if len(times) == len(same) else None,
        )


def _targets(matching: Sequence[ProcessRow]) -> tuple[Target, ...]:
    """Return one target for each process, even if it is on several GPUs."""
    return tuple(map(Target, dict.fromkeys(row.process.id for row in matching)))
