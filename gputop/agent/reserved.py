"""Reads which GPUs of this machine are reserved, and by whom."""

from __future__ import annotations

import time

from gputop.agent.process.stat import read_stat
from gputop.agent.process.users import UserNames
from gputop.agent.worker import Worker
from gputop.model.machine.gpu import Reservation
from gputop.reservations.folder import may_be_any
from gputop.reservations.locks import LockFile, read_locks

_SHARE = 50
"""The wait between two readings is at least this many times the CPU time of the last one: two
percent of a core, whatever users put into the folder."""


def _start_of(pid: int) -> int | None:
    stat = read_stat(pid)
    return None if stat is None else stat.start_ticks


class ReservationReader:
    """Reads the reservations at every tick, in a thread: the folder may hang. Without a folder this
    costs next to nothing."""

    def __init__(self) -> None:
        self._worker = Worker("reservations", self._read)
        self._users = UserNames()
        self._due = 0.0
        self.unknown = False
        """Whether there may be reservations, and they have not been read."""

    def read(self, timeout: float) -> dict[str, Reservation]:
        """Return the oldest reservation of each GPU, by UUID; `timeout` in seconds."""
        if not may_be_any():
            self.unknown = False
            return {}
        if time.monotonic() >= self._due:
            self._worker.ask()
        self._worker.wait(time.monotonic() + timeout)
        self.unknown = self._worker.latest is None
        locks = self._worker.latest or []
        self._users.prepare(lock.uid for lock in locks)
        return {lock.uuid: self._reservation(lock) for lock in reversed(locks)}

    def _read(self) -> list[LockFile]:
        begun = time.thread_time()
        locks = read_locks(_start_of)
        self._due = time.monotonic() + _SHARE * (time.thread_time() - begun)
        return locks

    def _reservation(self, lock: LockFile) -> Reservation:
        return Reservation(
            user=self._users.name(lock.uid) or str(lock.uid),
            since=round(lock.since, 3),
            pid=lock.pid,
            until=lock.until,
            command=lock.command,
        )
