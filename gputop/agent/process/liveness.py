"""Whether processes still run: a PID that is given to another process is not the one."""

from __future__ import annotations

import os

from gputop.agent.process.stat import command_of, read_stat, started
from gputop.agent.process.users import UserNames, real_uid
from gputop.model.machine.liveness import ProcessLiveness, ProcessStart


def read_liveness(asked: ProcessStart, users: UserNames) -> ProcessLiveness:
    """Look at a process by /proc; never raises."""
    pid = asked.pid
    if _is_free(pid):
        return ProcessLiveness(pid=pid, state="ended")
    stat = read_stat(pid)
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
        user=_user(pid, users) if is_new else None,
        # That of a process which the kernel holds can take as long as it is held.
        command=command_of(pid, stat) if is_new and stat.state != "D" else None,
    )


def _user(pid: int, users: UserNames) -> str | None:
    uid = real_uid(pid)
    users.prepare([] if uid is None else [uid])
    return users.name(uid)


def _is_free(pid: int) -> bool:
    """Return whether nobody has a PID, for certain: also of processes that /proc hides."""
    try:
        os.kill(pid, 0)  # which sends nothing
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False
    return False
