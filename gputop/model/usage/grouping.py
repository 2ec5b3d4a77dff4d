"""What the rows of a usage table are: users, GPUs, jobs, commands or hosts."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from gputop.model.machine.frame import Process
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.text import short_command, short_name

UsageKey = tuple[str | None, ...]
"""A cell for each column of a Grouping; None if not known."""
NO_JOB = "(no job)"
OTHERS = "(others)"


class Grouping(NamedTuple):
    """One way to sort processes into rows."""

    columns: tuple[str, ...]
    """Names of the cells, as JSON and CSV have them."""
    key: Callable[[str, Gpu, Process], UsageKey]
    """Returns the row of a process, given the name of its host, its GPU and the process."""


@lru_cache(maxsize=1024)
def _script(command: str) -> str:
    return short_command(command).split(" ", 1)[0]


def _job(process: Process) -> str | None:
    """Return the Slurm job, the pod or the container, whichever is there first. It counts with its
    user: with a cgroup delegated to him, a user can name a group as another user's job."""
    origin = process.origin
    if origin is None:
        return None
    if origin.slurm_job:
        return f"slurm {origin.slurm_job}"
    if origin.pod:
        return f"pod {origin.pod}"
    return f"container {origin.container.label}" if origin.container else NO_JOB


GROUPINGS: dict[str, Grouping] = {
    "user": Grouping(("user",), lambda _host, _gpu, process: (process.user,)),
    "gpu": Grouping(
        ("host", "gpu", "name", "uuid"),
        lambda host, gpu, _: (host, str(gpu.index), short_name(gpu.name), gpu.uuid),
    ),
    "job": Grouping(("job", "user"), lambda _host, _gpu, process: (_job(process), process.user)),
    "command": Grouping(
        ("command",),
        lambda _host, _gpu, process: (process.command and _script(process.command),),
    ),
    "host": Grouping(("host",), lambda host, _gpu, _process: (host,)),
}
"""By the words of --by."""
