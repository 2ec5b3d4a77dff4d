"""The use of GPUs, under gputop's own names: sums by user and by job, and single processes.

The number of series is bounded, whatever users start: on each GPU, the users and jobs that hold
most memory have their own, and the others share one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from math import fsum
from typing import TypeAlias

from gputop.export.prometheus.family import Families
from gputop.export.prometheus.gpus import is_read, labels_of
from gputop.model.machine.frame import Frame, Process
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.grouped import grouped
from gputop.model.machine.secrets import masked
from gputop.model.machine.text import short_command
from gputop.model.metrics.process import NUMBERS_ON_GPU, ProcessRow

MOST_TOLD_APART = 20
"""Users of a GPU, and jobs on it, that have series of their own."""
MOST_PROCESSES = 200
"""Processes of a machine that have series of their own."""
_MAX_COMMAND_CHARS = 1024
"""Characters of a command line that are looked at; a label has 128."""
OTHERS, UNKNOWN = "(others)", "(unknown)"
"""These cannot be names of users, which may not have parentheses."""

_Labels: TypeAlias = tuple[tuple[str, str], ...]


def add_people(out: Families, frame: Frame, named: bool = True) -> None:
    """Add the sums of the compute processes on every GPU that answers. Unless `named`, no sums by
    user, and jobs without a name that somebody chose."""
    for gpu in filter(is_read, frame.gpus):
        processes = frame.compute_processes.get(gpu.uuid, [])
        if named:
            by_user = _grouped(processes, lambda process: (("user", process.user or UNKNOWN),))
            _add_sums(out, gpu, "user", by_user)
        _add_sums(out, gpu, "job", _grouped(processes, partial(job_of, named=named)))


def job_of(process: Process, named: bool) -> _Labels:
    """Return the job of a process as labels; none if it belongs to no job. A Slurm job comes before
    a pod, and a pod before a container. Unless `named`, its user and the container's name are not
    told."""
    origin = process.origin
    if origin is None:
        return ()
    container = origin.container
    name = None if container is None else container.label if named else container.id[:12]
    for kind, id_ in (
        ("slurm", origin.slurm_job), ("kubernetes", origin.pod), ("container", name)
    ):  # fmt: skip
        if id_ is not None:
            job = ("kind", kind), ("id", id_)
            return (*job, ("user", process.user or UNKNOWN)) if named else job
    return ()


def _grouped(
    processes: Iterable[Process], labels: Callable[[Process], _Labels]
) -> dict[_Labels, list[Process]]:
    """Return processes by labels: the groups that hold most memory, and one group of the rest."""
    groups = grouped(processes, labels)
    groups.pop((), None)
    if len(groups) <= MOST_TOLD_APART:
        return groups
    order = sorted(groups, key=lambda key: (-_held(groups[key]), key))
    apart = {key: groups[key] for key in order[:MOST_TOLD_APART]}
    rest = tuple((name, OTHERS) for name, _ in order[0])
    return {**apart, rest: [process for key in order[MOST_TOLD_APART:] for process in groups[key]]}


def _held(processes: Iterable[Process]) -> int:
    return sum(process.gpu_memory or 0 for process in processes)


def _add_sums(
    out: Families, gpu: Gpu, subject: str, groups: Mapping[_Labels, list[Process]]
) -> None:
    """Add the sums of groups: memory only if that of every process is known. A process without a
    sample counts as idle: the driver saw nothing of it."""
    for key, processes in groups.items():
        labels, prefix = {**dict(key), **labels_of(gpu)}, f"gputop_{subject}"
        count = len({process.pid for process in processes})
        out.add(f"{prefix}_processes", f"Compute processes of a {subject} on the GPU", count,
                **labels)  # fmt: skip
        memory = [process.gpu_memory for process in processes]
        out.add(
            f"{prefix}_gpu_memory_bytes", f"Memory of the GPU that a {subject} holds",
            None if None in memory else _held(processes), **labels,
        )  # fmt: skip
        shares = [process.sm_utilization for process in processes]
        sampled = [share for share in shares if share is not None]
        out.add(
            f"{prefix}_sm_utilization_ratio", f"Share of the SMs' time of a {subject}",
            fsum(sampled) if sampled else None, **labels,
        )  # fmt: skip


def add_processes(out: Families, frame: Frame, named: bool = True) -> None:
    """Add each process on a GPU, those that hold most memory first, `MOST_PROCESSES` at most;
    unless `named` without user and command line."""
    gpus = {gpu.uuid: gpu for gpu in frame.gpus if is_read(gpu)}
    processes = [process for process in frame.processes if process.gpu_uuid in gpus]
    processes.sort(key=lambda process: -(process.gpu_memory or 0))
    for process in processes[:MOST_PROCESSES]:
        _add_process(out, gpus[process.gpu_uuid], process, named)
    left_out = max(0, len(processes) - MOST_PROCESSES)
    out.add("gputop_processes_left_out", "Processes beyond those that are told apart", left_out)


@lru_cache(maxsize=4 * MOST_PROCESSES)
def _published(command: str) -> str:
    """Return a command line for a label: short, and without what may be a secret."""
    return short_command(masked(command))


def _add_process(out: Families, gpu: Gpu, process: Process, named: bool) -> None:
    instance = {"gi": process.gpu_instance, "ci": process.compute_instance}
    labels = {**labels_of(gpu), "pid": process.pid, **instance}
    job = {f"job_{name}": text for name, text in job_of(process, named) if name != "user"}
    command = process.command and _published(process.command[:_MAX_COMMAND_CHARS])
    who = {"user": process.user, "command": command} if named else {}
    help_ = "What a process on a GPU is (always 1)"
    out.add("gputop_process_info", help_, 1, **labels, **job, **who, type=process.type)
    row = ProcessRow(process, gpu, None)
    for metric in NUMBERS_ON_GPU.values():  # other exporters have the others
        out.add_metric(metric, row, **labels)
