"""What takes longer to find out than a tick may: in a thread of its own, kept by process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import msgspec

from gputop.agent.process.containers import ContainerNames
from gputop.agent.process.descendants import telling
from gputop.agent.process.environ import read_environ
from gputop.agent.process.openers import Openers
from gputop.agent.process.places import read_place
from gputop.agent.process.surroundings import loaded_frameworks, look_at
from gputop.agent.process.tmux import TmuxSessions
from gputop.agent.process.views import Views
from gputop.agent.process.walk import Seen, every_process, look
from gputop.agent.worker import Worker
from gputop.model.environ import Surroundings
from gputop.model.gpu import Opener
from gputop.model.place import Container, Place

Key = tuple[int, float]
"""pid and start time."""

_LOOK_AGAIN = 120.0
"""Seconds between two looks at one process: it may execute another program, or lose its parent."""
_REST = 5.0
"""Seconds between two looks, when all is known of those who are wanted."""
_MAPS_SECONDS = 0.005
"""Of a look; a list of mapped files can take as long."""
_EVERY = 10.0
"""Seconds between two walks through /proc, at least."""
_SHARE = 200
"""And at least so many times as long as the last one took: half a percent of a core."""


class Survey(NamedTuple):
    """What is known by now."""

    surroundings: dict[Key, Surroundings]
    places: dict[Key, Place]
    openers: dict[int, tuple[Opener, ...]]
    """By the N of /dev/nvidiaN."""


class Wanted(NamedTuple):
    """What is asked for."""

    processes: frozenset[Key] = frozenset()
    minors: frozenset[int] = frozenset()
    """The N of the /dev/nvidiaN whose openers are to be found."""
    listed: frozenset[int] = frozenset()
    """Pids that the driver names, which are not looked for."""


class Surveyor:
    """Keeps what it found; its looks never delay a tick."""

    def __init__(self) -> None:
        self._around: dict[Key, Surroundings] = {}
        self._places: dict[Key, Place] = {}
        self._found: dict[int, tuple[Opener, ...]] = {}
        self._loaded: set[Key] = set()
        self._names = ContainerNames()
        self._tmux = TmuxSessions()
        self._openers = Openers()
        self._wanted = Wanted()
        self._again: dict[Key, float] = {}
        """When a process is to be looked at again."""
        self._due = self._rest = 0.0
        self._worker = Worker("survey", self._look)

    def read(self, wanted: Wanted, patience: float) -> Survey:
        """What is known of those after at most `patience` seconds."""
        resting = wanted == self._wanted and time.monotonic() < self._rest
        if not self._worker.busy and not resting:
            self._wanted = wanted
            self._worker.ask()
        self._worker.wait(time.monotonic() + patience)
        return self._worker.latest or Survey({}, {}, {})

    def settle(self, patience: float) -> None:
        """Wait for the names of containers that have been asked for."""
        self._names.wait(patience)

    def _look(self) -> Survey:
        """In the thread. Who is not wanted any more is forgotten."""
        keys, now = self._wanted.processes, time.monotonic()
        for gone in self._around.keys() - keys:
            del self._around[gone], self._places[gone], self._again[gone]
        table = self._walk()
        views, ancestor = Views(), table.get if table else cache(look)
        for key in keys:
            if now >= self._again.get(key, 0.0):
                around = self._surroundings(key, views)
                place = self._place(key, views, ancestor)
                self._around[key], self._places[key] = around, place
                self._again[key] = now + _LOOK_AGAIN + key[0] % _LOOK_AGAIN  # not all at once
        self._loaded &= keys
        self._load()
        self._name()
        if table:
            self._relate(table)
        settled = self._loaded >= keys and not self._found and not any(self._nameless())
        self._rest = now + _REST if settled else 0.0
        return Survey(dict(self._around), dict(self._places), self._still_open())

    def _surroundings(self, key: Key, views: Views) -> Surroundings:
        known, pid = self._around.get(key), key[0]
        if known is None:
            return look_at(pid, views)
        environ = read_environ(pid)
        if environ.missing in ("overwritten", "gone"):
            return known  # read before the process wrote over it, it holds still
        return msgspec.structs.replace(known, environ=environ)

    def _place(self, key: Key, views: Views, look: Callable[[int], Seen | None]) -> Place:
        known, place = self._places.get(key), read_place(key[0], self._tmux, views, look)
        if known is not None and place.cwd is None:
            return known  # a zombie belongs where it was
        return place

    def _load(self) -> None:
        """See which frameworks are loaded, of as many processes as the time allows."""
        end = time.monotonic() + _MAPS_SECONDS
        for key in self._around.keys() - self._loaded:
            self._change(key, frameworks=loaded_frameworks(key[0]))
            self._loaded.add(key)
            if time.monotonic() >= end:
                break

    def _name(self) -> None:
        """Give containers their names, as far as they are known."""
        nameless = dict(self._nameless())
        if nameless:
            self._names.prepare(nameless.values())
        for key, container in nameless.items():
            named = self._names.named(container)
            if named is not container:
                self._places[key] = msgspec.structs.replace(self._places[key], container=named)

    def _nameless(self) -> Iterator[tuple[Key, Container]]:
        for key, place in self._places.items():
            if place.container is not None and place.container.name is None:
                yield key, place.container

    def _walk(self) -> dict[int, Seen]:
        """All processes, now and then; empty otherwise."""
        now = time.monotonic()
        if now < self._due or not (self._wanted.minors or self._wanted.processes):
            return {}
        table = every_process()
        self._due = now + max(_EVERY, _SHARE * (time.monotonic() - now))
        return table

    def _relate(self, table: dict[int, Seen]) -> None:
        """Find the descendants that tell, and who has a GPU open, among all processes."""
        found = telling({pid: one.environ for (pid, _), one in self._around.items()}, table)
        for key in self._around:
            self._change(key, descendant=found.get(key[0]))
        minors, listed = self._wanted.minors, self._wanted.listed
        self._found = self._openers.look(minors, table, listed) if minors else {}

    def _still_open(self) -> dict[int, tuple[Opener, ...]]:
        """Without those that have ended since."""
        return {
            minor: tuple(one for one in found if os.path.exists(f"/proc/{one.pid}"))
            for minor, found in self._found.items()
            if minor in self._wanted.minors
        }

    def _change(self, key: Key, **facts: Any) -> None:
        if any(getattr(self._around[key], name) != fact for name, fact in facts.items()):
            self._around[key] = msgspec.structs.replace(self._around[key], **facts)
