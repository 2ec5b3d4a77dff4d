"""The registry of what is shown of a process; see `model.metrics`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gputop.model.frame import Process
from gputop.model.gpu import Gpu
from gputop.model.logical_names import LogicalNames
from gputop.model.metrics import Metric
from gputop.model.place import Ancestor
from gputop.model.text import duration, percent, short_command, size


class ProcessRow(NamedTuple):
    """A process on a GPU, as the table has it: `age` in seconds at the frame's time."""

    process: Process
    gpu: Gpu | None
    age: float | None
    names: LogicalNames | None = None
    """What the processes of the frame call their GPUs."""

    @property
    def cuda(self) -> str | None:
        """What this one calls this GPU; None where there is nothing to call."""
        return None if self.names is None else self.names.name(self.process)

    @property
    def misspelt(self) -> str | None:
        """A variable of its that was meant to be CUDA_VISIBLE_DEVICES."""
        around = self.process.surroundings
        return next(iter(around.environ.misspelt), None) if around else None


def _of(id_: str) -> Callable[[ProcessRow], Any]:
    return lambda row: getattr(row.process, id_)


def _place(row: ProcessRow) -> tuple[int, int, int] | None:
    """GPU, GPU instance, compute instance; -1 where there is no MIG."""
    if row.gpu is None:
        return None
    gi, ci = row.process.gpu_instance, row.process.compute_instance
    return row.gpu.index, -1 if gi is None else gi, -1 if ci is None else ci


def _show_place(place: tuple[int, int, int]) -> str:
    """`2`, and `2:1` or `2:1/1` on a MIG instance."""
    index, gi, ci = place
    instance = f":{gi}" if gi >= 0 else ""
    return f"{index}{instance}" + (f"/{ci}" if instance and ci > 0 else "")


PROCESS: dict[str, Metric[ProcessRow]] = {
    metric.id: metric
    for metric in (
        Metric(
            "gpu",
            "GPU",
            "",
            "NVML's index of the GPU; 2:1 is GPU instance 1 of GPU 2",
            _place,
            _show_place,
            width=3,
        ),
        Metric(
            "cuda",
            "CUDA",
            "",
            "what the process calls the GPU; ? is likely, a word is why not",
            lambda row: row.cuda,
            width=8,
            left=True,
        ),
        Metric("pid", "PID", "", "process number", _of("pid"), width=7),
        Metric("user", "USER", "", "who owns it", _of("user"), width=8, left=True),
        Metric("type", "TYPE", "", "C compute, G graphics, M MPS", _of("type"), width=4, left=True),
        Metric(
            "gpu_memory",
            "GPU-MEM",
            "bytes",
            "its memory on this GPU",
            _of("gpu_memory"),
            size,
            width=7,
        ),
        Metric(
            "sm_utilization",
            "SM%",
            "0..1",
            "its share of the SMs' time; - is no sample",
            _of("sm_utilization"),
            percent,
            width=3,
        ),
        Metric(
            "cpu", "CPU%", "0..1", "100 is one core; - at first sight", _of("cpu"), percent, width=5
        ),
        Metric("rss", "RSS", "bytes", "resident memory", _of("rss"), size, width=5),
        Metric(
            "state",
            "S",
            "",
            "R run, S sleep, D wait in the kernel, Z zombie",
            _of("state"),
            width=1,
        ),
        Metric("age", "TIME", "s", "since its start", lambda row: row.age, duration),
        Metric(
            "command",
            "COMMAND",
            "",
            "the script first; c shows the whole line",
            _of("command"),
            short_command,
            width=0,
            left=True,
        ),
    )
}
"""In the order of the table's columns; `width` 0 takes what is left."""


def _placed(id_: str) -> Callable[[ProcessRow], Any]:
    """Of its place, once that is known."""
    return lambda row: getattr(row.process.place, id_, None)


def _container(row: ProcessRow) -> str | None:
    place = row.process.place
    return place.container.label if place and place.container else None


def _image(row: ProcessRow) -> str | None:
    place = row.process.place
    return place.container.image if place and place.container else None


def _parents(ancestors: tuple[Ancestor, ...]) -> str:
    """The terminal first, as pstree has it."""
    return " > ".join(one.name for one in reversed(ancestors))


def _share(id_: str, label: str, help_: str) -> Metric[ProcessRow]:
    return Metric(id_, label, "0..1", help_, _of(id_), percent, width=4)


def _rate(id_: str, label: str, help_: str) -> Metric[ProcessRow]:
    return Metric(id_, label, "B/s", help_, _of(id_), lambda value: size(int(value)), width=5)


def _text(
    id_: str, label: str, width: int, help_: str, read: Callable[[ProcessRow], Any] | None = None
) -> Metric[ProcessRow]:
    return Metric(id_, label, "", help_, read or _placed(id_), width=width, left=True)


MORE: dict[str, Metric[ProcessRow]] = {
    metric.id: metric
    for metric in (
        Metric(
            "idle_for",
            "IDLE",
            "s",
            "at least so long without work on this GPU",
            _of("idle_for"),
            duration,
        ),
        _share("memory_utilization", "MEM%", "share of time it read or wrote device memory"),
        _share("encoder_utilization", "ENC%", "its share of the video encoder"),
        _share("decoder_utilization", "DEC%", "its share of the video decoder"),
        Metric("threads", "THR", "", "its threads", _of("threads"), width=4),
        _rate("io_read", "READ", "bytes per second read from storage"),
        _rate("io_write", "WRITE", "bytes per second written to storage"),
        _text("container", "CONTAINER", 14, "name, or short id, of its container", _container),
        _text("image", "IMAGE", 20, "of its container", _image),
        _text("pod", "POD", 36, "uid of its Kubernetes pod"),
        _text("job", "SLURM", 10, "Slurm job and step"),
        _text("unit", "UNIT", 20, "of systemd"),
        _text("venv", "ENV", 20, "directory of its virtual or conda environment"),
        _text("cwd", "DIRECTORY", 24, "its working directory"),
        _text("session", "SESSION", 16, "of tmux or screen"),
        _text("ssh_from", "FROM", 15, "client of the ssh session that it was started in"),
        Metric(
            "ancestors",
            "PARENTS",
            "",
            "who started it, from the terminal on",
            lambda row: (row.process.place and row.process.place.ancestors) or None,
            _parents,
            width=24,
            left=True,
        ),
    )
}
"""Columns that are not shown unless they are asked for."""

COLUMNS: dict[str, Metric[ProcessRow]] = {**PROCESS, **MORE}
"""Every column that the process table can have."""
