"""The registry of what is shown of a process; see `model.metrics.metric`."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

from gputop.model.cuda.logical_names import LogicalNames
from gputop.model.machine.frame import Process
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.origin import Ancestor
from gputop.model.machine.sections import BYTES, PLAIN, RATE, RATIO, SECONDS, Unit
from gputop.model.machine.text import short_command
from gputop.model.metrics.metric import Metric, prometheus_name


class ProcessRow(NamedTuple):
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
    instance = f":{gi}" if gi >= 0 else ""
    return f"{index}{instance}" + (f"/{ci}" if instance and ci > 0 else "")


def _parents(ancestors: tuple[Ancestor, ...]) -> str:
    """Return names, the terminal first, as pstree prints them."""
    return " > ".join(ancestor.name for ancestor in reversed(ancestors))


def _metric(
    id_: str,
    label: str,
    unit: Unit,
    width: int,
    help_: str,
    read: Callable[[ProcessRow], Any] | None = None,
    left: bool = False,
) -> tuple[str, Metric[ProcessRow]]:
    """Return an id and its metric; `read` is needed if it is no field of Process."""
    read = read or attrgetter(f"process.{id_}")
    name = prometheus_name("process", id_, unit)
    return id_, Metric(id_, label, unit.name, help_, read, unit.show, width, left, name)


def _of_origin(
    id_: str, label: str, width: int, help_: str, path: str = ""
) -> tuple[str, Metric[ProcessRow]]:
    """Return a metric of the process's origin; `path` if its field is not called `id_`."""

    def read(row: ProcessRow) -> Any:
        value: Any = row.process.origin
        for name in (path or id_).split("."):
            value = getattr(value, name, None)
        return value

    return _metric(id_, label, PLAIN, width, help_, read, left=True)


PROCESS: dict[str, Metric[ProcessRow]] = dict([
    _metric("gpu", "GPU", Unit("", _show_instance), 3,
            "NVML's index of the GPU; 2:1 is GPU instance 1 of GPU 2", _instance),
    _metric("cuda", "CUDA", PLAIN, 8,
            "what it calls the GPU; ? is likely; private: who owns it can see; env-lost: it wrote"
            " over its variables",
            attrgetter("cuda"), left=True),
    _metric("pid", "PID", PLAIN, 7, "process number"),
    _metric("user", "USER", PLAIN, 8, "who owns it", left=True),
    _metric("type", "TYPE", PLAIN, 4, "C compute, G graphics, M MPS", left=True),
    _metric("gpu_memory", "GPU-MEM", BYTES, 7, "its memory on this GPU"),
    _metric("sm_utilization", "SM%", RATIO, 3, "its share of the SMs' time; - is no sample"),
    _metric("idle_for", "IDLE", SECONDS, 6,
            "no work of it seen in the samples of this GPU for so long; blank under a minute"),
    _metric("cpu", "CPU%", RATIO, 5, "100 is one core; - at first sight"),
    _metric("rss", "RSS", BYTES, 5, "resident memory"),
    _metric("state", "S", PLAIN, 1, "R run, S sleep, D wait in the kernel, Z zombie"),
    _metric("age", "TIME", SECONDS, 6, "since its start", attrgetter("age")),
    _metric("command", "COMMAND", Unit("", short_command), 0,
            "the script first; c shows the whole line", left=True),
])  # fmt: skip
"""In the order of the table's columns."""

MORE: dict[str, Metric[ProcessRow]] = dict([
    _metric("host", "HOST", PLAIN, 6, "the machine that it runs on, where several are watched",
            attrgetter("host"), left=True),
    _metric("idle_memory", "IDLE-MEM", BYTES, 8,
            "its memory, once idle for idle_after (10 minutes)",
            attrgetter("idle_memory")),
    _metric("memory_utilization", "MEM%", RATIO, 4,
            "share of time it read or wrote device memory"),
    _metric("encoder_utilization", "ENC%", RATIO, 4, "its share of the video encoder"),
    _metric("decoder_utilization", "DEC%", RATIO, 4, "its share of the video decoder"),
    _metric("threads", "THREADS", PLAIN, 7, "its threads"),
    _metric("io_read", "READ", RATE, 5, "bytes per second read from storage"),
    _metric("io_write", "WRITE", RATE, 5, "bytes per second written to storage"),
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
    _metric("ancestors", "PARENTS", Unit("", _parents), 24,
            "who started it, from the terminal on",
            lambda row: (row.process.origin and row.process.origin.ancestors) or None, left=True),
])  # fmt: skip
"""Columns that are not shown unless they are asked for."""

COLUMNS: dict[str, Metric[ProcessRow]] = {**PROCESS, **MORE}
"""Every column that the process table can have."""
