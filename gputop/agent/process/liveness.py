"""Whether processes still run: a PID that is given to another process is not the one."""

from __future__ import annotations

import os
from collections.abc import Iterable

from gputop.agent.process.stat import command_of, read_stat, started
from gputop.agent.process.users import UserNames, real_uid
from gputop.model.machine.liveness import ProcessLiveness, ProcessStart


class LivenessReader:
    """Looks at processes by /proc; by one thread."""

    def __init__(self) -> None:
        self._users = UserNames()

    def read(self, processes: Iterable[ProcessStart]) -> tuple[ProcessLiveness, ...]:
        """Return what is known of each, in their order; never raises."""
        return tuple(map(self._look_at, processes))

    def _look_at(self, asked: ProcessStart) -> ProcessLiveness:
        pid = asked.pid
        if _is_free(pid):
            return ProcessLiveness(pid=pid, state="ended")
        try:
            stat = read_stat(pid)
        except ValueError:
            stat = None
        if stat is None:  # hidden (hidepid), or it ends just now: the next look tells
            return ProcessLiveness(pid=pid, state="unknown")
        is_other = asked.start_ticks not in (None, stat.start_ticks)
        # The first thread of a process may end before the others, and is a zombie until they do.
        if is_other or (stat.state in "ZX" and stat.threads <= 1):
            return ProcessLiveness(pid=pid, state="ended")
        is_new = asked.start_ticks is None
        return ProcessLiveness(
            pid=pid,
            state="running",
            start_ticks=stat.start_ticks,
            start_time=started(stat.start_ticks),
            user=self._user(pid) if is_new else None,
            # That of a process which the kernel holds can take as long as it is held.
            command=command_of(pid, stat) if is_new and stat.state != "D" else None,
        )

    def _user(self, pid: int) -> str | None:
        uid = real_uid(pid)
        self._users.prepare([] if uid is None else [uid])
        return self._users.name(uid)


def _is_free(pid: int) -> bool:
    """Return whether nobody has a PID, for certain: also of processes that /proc hides."""
    try:
        os.kill(pid, 0)  # which sends nothing
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False
    return False
