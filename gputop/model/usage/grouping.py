"""What the rows of a usage table are: users, GPUs, jobs, accounts, commands or hosts.

Times cannot be added from row to row: who has two processes on a GPU holds it once. So a count has
rows for each of the VIEWS, which are all that --by can ask of one host.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

from gputop.model.machine.frame import Process
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.text import short_command, short_name

UsageKey = tuple[str | None, ...]
"""A cell for each column; None if not known."""
NO_JOB = "(no job)"
OTHERS = "(others)"
MAX_CELL = 256
"""Characters of a cell."""

GROUPINGS: dict[str, tuple[str, ...]] = {
    "user": ("user",),
    "gpu": ("host", "gpu", "name", "uuid"),
    "job": ("job", "user"),
    "account": ("account",),
    "command": ("command",),
    "host": ("host",),
}
"""The columns, as JSON and CSV have them, by the words of --by."""

COLUMNS = ("gpu", "name", "uuid", "user", "job", "account", "command")
"""All columns of a process on a GPU of one host."""
VIEWS: tuple[tuple[str, ...], ...] = tuple(
    sum(parts, ())
    for parts in product(
        ((), COLUMNS[:3]), ((), ("user",), ("user", "job")), ((), ("account",)), ((), ("command",))
    )
)
"""The columns of the rows of one host, for every --by, in the order of COLUMNS. The first has a
single row: all GPUs, each once."""
_NUMBERS = [tuple(map(COLUMNS.index, view)) for view in VIEWS]


def columns_of(by: str) -> tuple[str, ...]:
    """Return the columns for words of --by, as `user,host`. KeyError for any other word."""
    return tuple(dict.fromkeys(name for word in by.split(",") for name in GROUPINGS[word]))


def key_of(gpu: Gpu, process: Process) -> UsageKey:
    """Return the cells of a process on a GPU, as COLUMNS."""
    job = _job(process)
    account = process.origin and process.origin.slurm_account
    cells = (
        str(gpu.index), short_name(gpu.name), gpu.uuid,
        process.user, job, account or (NO_JOB if job == NO_JOB else None),
        process.command and _script(process.command),
    )  # fmt: skip
    return tuple([cell and cell[:MAX_CELL] for cell in cells])


def rows_of(key: UsageKey) -> tuple[UsageKey, ...]:
    """Return the row of a process in each of the VIEWS; `key` as COLUMNS."""
    return tuple([tuple([key[number] for number in numbers]) for numbers in _NUMBERS])


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
