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
    user: with a cgroup delegated to him, a user can name a group as another user's job. None where
    its control groups say nothing, not even its unit, as in many containers and without systemd."""
    origin = process.origin
    if origin is None:
        return None
    if origin.slurm_job:
        return f"slurm {origin.slurm_job}"
    if origin.pod:
        return f"pod {origin.pod}"
    if origin.container:
        return f"container {origin.container.label}"
    is_outside = origin.unit is not None and origin.slurm_step is None
    return NO_JOB if is_outside else None


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


def grouping_of(by: str) -> Grouping:
    """Return the grouping for words of --by, as `user,host`. KeyError for any other word."""
    groupings = [GROUPINGS[word] for word in by.split(",")]
    columns = tuple(dict.fromkeys(name for each in groupings for name in each.columns))

    def key(host: str, gpu: Gpu, process: Process) -> UsageKey:
        cells: dict[str, str | None] = {}
        for each in groupings:
            cells |= zip(each.columns, each.key(host, gpu, process), strict=True)
        return tuple(cells.values())

    return groupings[0] if len(groupings) == 1 else Grouping(columns, key)
