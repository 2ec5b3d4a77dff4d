"""Facts about processes that take longer to read than a tick allows, read in their own thread."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple

import msgspec

from gputop.agent.process.containers import ContainerNames
from gputop.agent.process.cuda_context import loaded_frameworks, read_context
from gputop.agent.process.device_holders import DeviceHolders, HolderFinder
from gputop.agent.process.environment import descendant_env, read_block, read_whole_environ
from gputop.agent.process.mounts import view_of
from gputop.agent.process.origin import read_origin
from gputop.agent.process.procfs import read_cgroup, read_file, read_link
from gputop.agent.process.reader import READER
from gputop.agent.process.stat import every_process, read_stat
from gputop.agent.worker import Worker
from gputop.model.machine.environment import CudaContext, Environ, relevant_variables
from gputop.model.machine.origin import Container, Origin
from gputop.model.machine.proc_stat import ProcStat
from gputop.model.machine.process_id import ProcessId

_AGAIN = 120.0
"""Seconds until a process is read again: it may execute another program, or lose its parent."""
_NOBODY = DeviceHolders({}, complete=False)
_REST = 5.0
"""Seconds between two rounds once everything about the requested processes is known: with 1,000
processes, a round that finds nothing new takes 4 ms."""
_MAPS_SECONDS = 0.005
"""Seconds of a round for reading mapped files: those of a single process can take that long."""
_EVERY = 10.0
"""Seconds between two walks through /proc, at least."""
_SHARE = 100
"""The wait between two walks is also at least this many times the length of the last walk and the
searches after it: one percent of a core."""
_FIRST_SECONDS, _SECONDS = 1.0, 0.1
"""Seconds for a search for device holders: the first one, which a user may wait for, and each later
one. A search continues with the next walk."""
_RELATE_SECONDS = 0.1
"""Seconds for a search for descendants."""
_TOGETHER = 32
"""Processes that are read in one exchange with their reader."""
_MAPS_TOGETHER = 8
"""Processes whose mapped files are read in one exchange."""
_NEW_SECONDS, _AGAIN_SECONDS = 1.0, 0.05
"""Seconds in a round for new processes, and for processes that are read again; those left over have
their turn with the next tick."""


_BRIEF_QUESTIONS = 2
_QUESTIONS = (
    (read_block,), (view_of,), (read_file, "cmdline"), (read_link, "cwd"), (read_link, "exe")
)  # fmt: skip
"""What is asked of every process; the first ones also if the enrichment is brief."""


class Enrichment(NamedTuple):
    """Everything that is known so far."""

    contexts: dict[ProcessId, CudaContext]
    origins: dict[ProcessId, Origin]
    holders: DeviceHolders
    """The holders of the requested GPUs."""


class EnrichmentRequest(NamedTuple):
    """The processes and GPUs to find out about."""

    processes: frozenset[ProcessId] = frozenset()
    minors: frozenset[int] = frozenset()
    """The N of each /dev/nvidiaN to find holders of, other than `processes`."""


class _EnrichedProcess(msgspec.Struct):
    """What is kept of a process; times are monotonic."""

    context: CudaContext
    origin: Origin
    again: float = 0.0
    related: float = 0.0
    """When its descendants were searched."""
    loaded: bool = False
    """Whether its frameworks have been read."""

    def change(self, **facts: object) -> None:
        """Change its context; without a difference it stays the same object."""
        context = msgspec.structs.replace(self.context, **facts)
        if context != self.context:
            self.context = context


class Enricher:
    """Reads and keeps enrichment without delaying a tick. If it is `brief`, origins have only what
    the control groups tell."""

    def __init__(self, brief: bool = False) -> None:
        self._brief = brief
        self._processes: dict[ProcessId, _EnrichedProcess] = {}
        self._holders = _NOBODY
        self._names = ContainerNames()
        self._finder = HolderFinder()
        self._request = EnrichmentRequest()
        self._due = self._rest = 0.0
        self._latest = Enrichment({}, {}, _NOBODY)
        self._worker = Worker("enrichment", self._enrich)

    def read(self, request: EnrichmentRequest, timeout: float) -> Enrichment:
        """Return what is known about the request after at most `timeout` seconds."""
        resting = request == self._request and time.monotonic() < self._rest
        if not (self._worker.busy or resting):
            self._request = request
            self._worker.ask()
        self._worker.wait(time.monotonic() + timeout)
        return self._latest

    def settle(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for the names of containers that have been asked for."""
        self._names.wait(timeout)

    # In the thread

    def _enrich(self) -> None:
        """Make a round. Processes that are no longer requested are dropped."""
        keys, now = self._request.processes, time.monotonic()
        for gone in self._processes.keys() - keys:
            del self._processes[gone]
        table = self._walk()
        again = [key for key, process in self._processes.items() if now >= process.again]
        self._read_all(keys - self._processes.keys(), table, _NEW_SECONDS)
        self._read_all(again, table, _AGAIN_SECONDS)
        self._load_frameworks()
        self._name_containers()
        self._publish()
        if table:
            self._relate(table)
        self._rest = time.monotonic() + _REST if self._is_settled() else 0.0
        self._publish()

    def _is_settled(self) -> bool:
        now, processes = time.monotonic(), self._processes
        return (
            processes.keys() == self._request.processes
            and self._holders == _NOBODY
            and all(self._names.has_no_answer(container) for _, container in self._nameless())
            and all(process.loaded and process.again > now for process in processes.values())
        )

    def _publish(self) -> None:
        processes = self._processes.items()
        self._latest = Enrichment(
            {key: process.context for key, process in processes},
            {key: process.origin for key, process in processes},
            self._still_open(),
        )

    def _read_all(
        self, keys: Iterable[ProcessId], table: dict[int, ProcStat], seconds: float
    ) -> None:
        """Read processes for `seconds`; those left over have their turn with the next round."""
        stat_of = table.get if table else cache(read_stat)
        end = time.monotonic() + seconds
        waiting = list(keys)
        groups = [waiting[k : k + _TOGETHER] for k in range(0, len(waiting), _TOGETHER)]
        questions = _QUESTIONS[:_BRIEF_QUESTIONS] if self._brief else _QUESTIONS
        while groups and time.monotonic() < end:
            group = groups.pop()
            pids = [key.pid for key in group]
            with READER.reading_ahead(pids, *questions) as answered:
                if len(group) > 1:  # whoever does not answer may not delay the others
                    groups[:0] = [[key] for key in group if key.pid not in answered]
                    group = [key for key in group if key.pid in answered]
                for key in group:
                    now = time.monotonic()
                    facts = self._read(key, stat_of)
                    process = self._processes.setdefault(key, _EnrichedProcess(*facts))
                    process.context, process.origin = facts
                    process.again = now + _AGAIN + key.pid % _AGAIN  # not all at once

    def _read(
        self, key: ProcessId, stat_of: Callable[[int], ProcStat | None]
    ) -> tuple[CudaContext, Origin]:
        """Read one process, or what may have changed in it since. A process that takes too much
        memory to read stays unknown."""
        pid, process = key.pid, self._processes.get(key)
        try:
            whole = read_whole_environ(pid)
            environ = relevant_variables(whole)
            context = process.context if process else read_context(pid, environ)
            if environ.missing not in ("overwritten", "gone"):  # otherwise the old one still holds
                context = msgspec.structs.replace(context, environ=environ)
            if self._brief:
                return context, read_cgroup(pid) or Origin()
            origin = read_origin(pid, whole.variables, stat_of)
            if process and origin.cwd is None:  # a zombie
                origin = process.origin
            return context, origin
        except MemoryError:
            return CudaContext(environ=Environ({}, "too_long")), Origin()

    def _load_frameworks(self) -> None:
        end = time.monotonic() + _MAPS_SECONDS
        unknown = {
            key.pid: process for key, process in self._processes.items() if not process.loaded
        }
        pids = list(unknown)
        while pids and time.monotonic() < end:
            some, pids = pids[:_MAPS_TOGETHER], pids[_MAPS_TOGETHER:]
            frameworks = READER.ask_all(loaded_frameworks, some)
            for pid in some:
                unknown[pid].loaded = True
                unknown[pid].change(frameworks=frameworks.get(pid, ()))

    def _name_containers(self) -> None:
        nameless = self._nameless()
        names = self._names.prepare(container for _, container in nameless)
        for process, container in nameless:
            if (named := names.get(container.id)) is not None:
                process.origin = msgspec.structs.replace(process.origin, container=named)

    def _nameless(self) -> list[tuple[_EnrichedProcess, Container]]:
        return [
            (process, container)
            for process in self._processes.values()
            if (container := process.origin.container) is not None and container.name is None
        ]

    def _walk(self) -> dict[int, ProcStat]:
        now = time.monotonic()
        if now < self._due or not (self._request.minors or self._request.processes):
            return {}
        table = every_process()
        self._due = now + max(_EVERY, _SHARE * (time.monotonic() - now))
        return table

    def _relate(self, table: dict[int, ProcStat]) -> None:
        """Search all processes for descendants with their own mask, and for device holders."""
        begun = time.monotonic()
        minors = self._request.minors
        listed = frozenset(key.pid for key in self._request.processes)
        oldest = sorted(self._processes.items(), key=lambda item: item[1].related)
        environs = {key.pid: process.context.environ for key, process in oldest}
        seconds = _FIRST_SECONDS if self._holders == _NOBODY else _SECONDS
        descendants = descendant_env(environs, table, _RELATE_SECONDS)
        for key, process in oldest:
            if key.pid in descendants:
                process.related = begun
                process.change(descendant=descendants[key.pid])
        self._holders = self._finder.find(minors, table, listed, seconds) if minors else _NOBODY
        now = time.monotonic()
        spent = min(now - begun, _RELATE_SECONDS + _SECONDS)  # a long first one is not repeated
        self._due = max(self._due, now + _SHARE * spent)

    def _still_open(self) -> DeviceHolders:
        holders = {
            minor: tuple(holder for holder in holders if os.path.exists(f"/proc/{holder.pid}"))
            for minor, holders in self._holders.by_minor.items()
            if minor in self._request.minors
        }
        return DeviceHolders(holders, self._holders.complete)
