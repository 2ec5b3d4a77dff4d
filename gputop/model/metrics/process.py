"""The registry of what is shown of a process; see `model.metrics.metric`.

It is made from the annotations of `Process` (`model.machine.frame`), and from what is said here of
a row besides: where the process runs, its age, what it calls its GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from gputop.model.cuda.logical_names import LogicalNames
from gputop.model.machine.frame import ON_GPU, Process
from gputop.model.machine.gpu import Gpu, mig_number
from gputop.model.machine.origin import Ancestor
from gputop.model.machine.sections import BYTES, PLAIN, SECONDS, Unit, marked
from gputop.model.metrics.metric import Metric, prometheus_name


class ProcessRow(msgspec.Struct, frozen=True, gc=False):
    """A process on a GPU, as the table has it: `age` in seconds at the frame's time."""

    process: Process
    gpu: Gpu | None
    age: float | None
    names: LogicalNames | None = None
    """What the processes of the frame call their GPUs."""
    idle_memory: int | None = None
    """Bytes that it holds while idle for long; 0 while it is not."""
    host: str | None = None
    """The machine that it runs on, if several are watched."""

    @property
    def cuda(self) -> str | None:
        """What the process calls this GPU; None if no name is known, or the GPU has failed."""
        has_failed = self.gpu is not None and self.gpu.state == "lost"
        return None if self.names is None or has_failed else self.names.name(self.process)

    @property
    def misspelt(self) -> str | None:
        """A variable of the process that was meant to be CUDA_VISIBLE_DEVICES."""
        context = self.process.cuda_context
        return next(iter(context.environ.misspelt), None) if context else None


def _instance(row: ProcessRow) -> tuple[int, int, int] | None:
    """Return GPU index, GPU instance and compute instance; -1 for an instance without MIG."""
    if row.gpu is None:
        return None
    gi, ci = row.process.gpu_instance, row.process.compute_instance
    return row.gpu.index, -1 if gi is None else gi, -1 if ci is None else ci


def _show_instance(ids: tuple[int, int, int]) -> str:
    """`2`, and `2:1` or `2:1/1` on a MIG instance."""
    index, gi, ci = ids
    return mig_number(index, gi, max(0, ci)) if gi >= 0 else f"{index}"


def _parents(ancestors: tuple[Ancestor, ...]) -> str:
    """Return names, the terminal first, as pstree prints them."""
    return " > ".join(ancestor.name for ancestor in reversed(ancestors))


def _metric(
    id_: str,
    label: str,
    unit: Unit,
    help_: str,
    read: Callable[[ProcessRow], Any],
    width: int = 0,
    left: bool = False,
) -> Metric[ProcessRow]:
    """Return a metric; `width` if its column needs more cells than its label and its unit do."""
    width = max(width, unit.width, len(label))
    name = prometheus_name("process", id_, unit)
    return Metric(id_, label, unit.name, help_, read, unit.show, width, left, name)


def _declared() -> Iterator[Metric[ProcessRow]]:
    """Yield the metrics that Process declares, facts first."""
    for id_, declared in get_type_hints(Process, include_extras=True).items():
        if get_origin(declared) is Annotated:
            kind, unit, label, help_, *_ = get_args(declared)
            is_text = str in (kind, *get_args(kind)) and len(label) > 1  # a letter is none
            yield _metric(id_, label, unit, help_, attrgetter(f"process.{id_}"), left=is_text)


def _of_origin(id_: str, label: str, width: int, help_: str, path: str = "") -> Metric[ProcessRow]:
    """Return a metric of the process's origin; `path` if its field is not called `id_`."""

    def read(row: ProcessRow) -> Any:
        value: Any = row.process.origin
        for name in (path or id_).split("."):
            value = getattr(value, name, None)
        return value

    return _metric(id_, label, PLAIN, help_, read, width, left=True)


_OF_ROWS: tuple[Metric[ProcessRow], ...] = (
    _metric("gpu", "GPU", Unit("", _show_instance),
            "NVML's index of the GPU; 2:1 is GPU instance 1 of GPU 2", _instance),
    _metric("cuda", "CUDA", PLAIN,
            "what it calls the GPU; ? is likely; private: only its owner can see; env-lost: it"
            " overwrote its variables",
            attrgetter("cuda"), 8, left=True),
    _metric("age", "TIME", SECONDS, "since its start", attrgetter("age")),
    _metric("host", "HOST", PLAIN, "the machine that it runs on, where several are watched",
            attrgetter("host"), 6, left=True),
    _metric("idle_memory", "IDLE-MEM", BYTES, "its memory, once idle for idle_after (10 minutes)",
            attrgetter("idle_memory")),
    _of_origin("container", "CONTAINER", 14, "name, or short id, of its container",
               "container.label"),
    _of_origin("image", "IMAGE", 20, "of its container", "container.image"),
    _of_origin("pod", "POD", 36, "uid of its Kubernetes pod"),
    _of_origin("job", "SLURM", 10, "Slurm job and step"),
    _of_origin("unit", "UNIT", 20, "of systemd"),
    _of_origin("venv", "ENV", 20, "directory of its virtual or conda environment"),
    _of_origin("cwd", "DIRECTORY", 24, "its working directory"),
    _of_origin("session", "SESSION", 16, "of tmux or screen"),
    _of_origin("ssh_from", "FROM", 15, "client of the ssh session that it was started in"),
    _metric("ancestors", "PARENTS", Unit("", _parents),
            "who started it, from the terminal on",
            lambda row: (row.process.origin and row.process.origin.ancestors) or None, 24,
            left=True),
)  # fmt: skip
"""What a row has besides the values of its Process."""

_ALL = {metric.id: metric for metric in (*_declared(), *_OF_ROWS)}
_USUAL = (
    "gpu", "cuda", "pid", "user", "type", "gpu_memory", "sm_utilization", "idle_for", "cpu", "rss",
    "state", "age", "command",
)  # fmt: skip

PROCESS: dict[str, Metric[ProcessRow]] = {id_: _ALL[id_] for id_ in _USUAL}
"""The columns of the table unless others are chosen, in their order."""

COLUMNS: dict[str, Metric[ProcessRow]] = {**PROCESS, **_ALL}
"""Every column that the process table can have."""

SOMETIMES = ("type", "idle_for", "rss", "state")
"""Columns that can be chosen as `type?`: they are shown while they tell something and have room."""
USUAL_COLUMNS = tuple(f"{id_}?" if id_ in SOMETIMES else id_ for id_ in _USUAL)
"""The columns that no choice stands for, as the settings would have them."""
COLUMN_CHOICES = frozenset((*COLUMNS, *USUAL_COLUMNS))
"""Everything that can be chosen as a column."""

NUMBERS_ON_GPU: dict[str, Metric[ProcessRow]] = {id_: _ALL[id_] for id_ in marked(Process, ON_GPU)}
"""The numbers that a process has on each of its GPUs."""

NUMBERS_ANYWHERE: dict[str, Metric[ProcessRow]] = {
    id_: _ALL[id_] for id_ in Process.__annotations__ if id_ not in NUMBERS_ON_GPU
}
"""Its other numbers, the same on all of its GPUs."""
