"""`gputop --once`: what nvidia-smi prints by default, and the users of the processes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from gputop.model.health.findings import findings
from gputop.model.health.free import free_words, is_free, who
from gputop.model.health.unaccounted import remark, suspects_or_none, words
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import DeviceHolder, Gpu, mig_number
from gputop.model.machine.limits import limits, no_process_text
from gputop.model.machine.summary import count_of_users
from gputop.model.machine.text import MIB, MISSING, cells, counted, date_time, duration
from gputop.model.metrics.gpu import GPU
from gputop.model.metrics.process import COLUMNS, PROCESS, ProcessRow
from gputop.model.processes import process_rows
from gputop.settings import ProcessSettings
from gputop.version import __version__

_GAP = "  "

_GPU_COLUMNS: dict[str, Callable[[Gpu], str]] = {
    "GPU": GPU["index"].text,
    "NAME<": lambda gpu: gpu.name or MISSING,
    "BUS-ID<": GPU["pci_bus_id"].text,
    "FAN%": GPU["fan"].text,
    "TEMP-C": GPU["temperature"].text,
    "PERF": GPU["pstate"].text,
    "POWER-W": lambda gpu: f"{GPU['power'].text(gpu)}/{GPU['power_limit'].text(gpu)}",
    "MEM-MiB": lambda gpu: f"{_mib(gpu.memory_used)}/{_mib(gpu.memory_total)}",
    "UTIL%": GPU["utilization"].text,
    "MIG": GPU["mig_mode"].text,
}

_WHERE_UNUSUAL = {
    "PERS": ("persistence_mode", "on"),
    "DISP": ("display_active", "off"),
    "ECC": ("ecc_uncorrected", "0"),
    "COMPUTE<": ("compute_mode", "default"),
}
"""Columns that are shown if a GPU has a value that is known and not the usual one."""
_WHERE_KNOWN = ("idle_for", "container", "pod", "job")
"""Columns that are shown if a process has a value for them."""


def table(frame: Frame, idle_after: float) -> str:
    """Return the whole frame as text, as wide as it needs to be, with a line break at its end.

    A process that holds memory is marked after `idle_after` seconds without work.
    """
    gpus = [_gpu_table(frame, idle_after), _mig_table(frame)]
    parts = [
        _heading(frame), *gpus, _findings_table(frame), _limits(frame), _unaccounted_table(frame)
    ]  # fmt: skip
    return "\n\n".join([*filter(None, parts), _process_table(frame, idle_after)]) + "\n"


def html(frame: Frame) -> str:
    """Return the frame as text for a notebook: names in it are text, whatever they look like."""
    text = table(frame, ProcessSettings().idle_after)
    from html import escape  # slow to import, and only a notebook needs it

    return f'<pre style="white-space: pre; overflow-x: auto">{escape(text)}</pre>'


def _heading(frame: Frame) -> str:
    facts = [
        f"gputop {__version__}",
        _name(frame),
        date_time(frame.time),
        f"driver {frame.driver_version or MISSING}",
        f"CUDA {frame.cuda_version or MISSING}",
        ", ".join([counted(len(frame.gpus), "GPU"), *free_words(frame)]),
        count_of_users(frame),
    ]
    return _GAP.join(facts)


def _name(frame: Frame) -> str:
    """Return the machine's name as it was asked for, and its own name if that differs."""
    name, asked = frame.host.name, frame.host.requested_name
    if frame.demo:
        return f"DEMO: an invented machine{f' {asked}' if asked else ''}"
    return name if asked in (None, name) else f"{asked} ({name})"


def _gpu_table(frame: Frame, idle_after: float) -> str:
    columns: dict[str, Callable[[Gpu], str]] = {**_GPU_COLUMNS, "WHO<": partial(who, frame)}
    for head, (metric_id, usual) in _WHERE_UNUSUAL.items():
        text = GPU[metric_id].text
        if any(text(gpu) not in (usual, MISSING) for gpu in frame.gpus):
            columns[head] = text
    if any(_state(frame, gpu, idle_after) != "ok" for gpu in frame.gpus):
        columns["STATE<"] = lambda gpu: _state(frame, gpu, idle_after)
    return aligned(columns, [[text(gpu) for text in columns.values()] for gpu in frame.gpus])


def _state(frame: Frame, gpu: Gpu, idle_after: float) -> str:
    if gpu.is_overdue:
        since = "" if gpu.stale_for is None else f" for {GPU['stale_for'].text(gpu)}"
        return f"no answer{since}"
    if gpu.state == "asleep":
        return "asleep"
    idle = gpu.idle_for is not None and gpu.idle_for >= idle_after and not is_free(frame, gpu)
    return gpu.error or (f"idle {GPU['idle_for'].text(gpu)}" if idle else "ok")


def _limits(frame: Frame) -> str:
    """Return what the driver does not report, and why: each sentence once, with its GPUs."""
    where: dict[str, list[str]] = {}
    for gpu in frame.gpus:
        for sentence in limits(frame, gpu):
            where.setdefault(sentence, []).append(str(gpu.index))
    return "\n".join(f"GPU {','.join(gpus)}: {sentence}" for sentence, gpus in where.items())


def _findings_table(frame: Frame) -> str:
    rows = [
        [str(gpu.index), finding.level, finding.text, finding.advice]
        for gpu in frame.gpus
        for finding in findings(frame, gpu)
    ]
    return aligned(("GPU", "HEALTH<", "WHAT<", "WHAT TO DO<"), rows) if rows else ""


def _mig_table(frame: Frame) -> str:
    rows = [
        [
            mig_number(gpu.index, *device.instance_ids),
            device.profile or MISSING,
            f"{_mib(device.memory_used)}/{_mib(device.memory_total)}",
            who(frame, gpu, device),
            device.uuid or MISSING,
        ]
        for gpu in frame.gpus
        for device in gpu.mig or ()
    ]
    heads = ("GPU<", "PROFILE<", "MEM-MiB", "WHO<", "MIG-UUID<")
    return aligned(heads, rows) if rows else ""


def _unaccounted_table(frame: Frame) -> str:
    """Return memory that no listed process holds, with suspects; empty if it is as usual."""
    rows = [
        [str(gpu.index), GPU["memory_unaccounted"].text(gpu), *_suspect(frame, gpu, holder)]
        for gpu in frame.gpus
        for holder in suspects_or_none(gpu)
    ]
    heads = ("GPU", "UNACCOUNTED", "PID", "USER<", "WHY<", "COMMAND<")
    return aligned(heads, rows) if rows else ""


def _suspect(frame: Frame, gpu: Gpu, holder: DeviceHolder | None) -> list[str]:
    if holder is None:
        return [MISSING, MISSING, remark(gpu, nested=frame.host.nested), MISSING]
    return [str(holder.pid), holder.user or MISSING, words(holder), holder.command or MISSING]


def _process_table(frame: Frame, idle_after: float) -> str:
    rows = process_rows.rows(frame)
    if not rows:
        return no_process_text(frame)
    extra = [COLUMNS[id_] for id_ in _WHERE_KNOWN if any(map(COLUMNS[id_].read, rows))]
    always = PROCESS.keys() - {"command", *_WHERE_KNOWN}
    metrics = [metric for metric in PROCESS.values() if metric.id in always] + extra
    heads = [metric.label + "<" * metric.left for metric in metrics]
    table = [[*(metric.text(row) for metric in metrics), _command(row, idle_after)] for row in rows]
    return aligned([*heads, "COMMAND<"], table)


def _command(row: ProcessRow, idle_after: float) -> str:
    """Return the command of a process, after any remark on it."""
    process = row.process
    idle = process.idle_for if process.gpu_memory else None
    before = "" if idle is None or idle < idle_after else f"(idle {duration(idle)}) "
    if process.command is not None:
        return f"{before}{f'(! {row.misspelt}) ' if row.misspelt else ''}{process.command}"
    if process.elsewhere:
        return f"{before}(may be a host PID)"
    return before + ("(not in this /proc)" if process.start_time is None else MISSING)


def _mib(count: int | None) -> str:
    """Return bytes in whole MiB, rounded up as nvidia-smi 580.159.04 does: 615.06 are 616."""
    return MISSING if count is None else str(-(-count // MIB))


def aligned(heads: Collection[str], rows: Iterable[Sequence[str]]) -> str:
    """Return columns under their heads, without a line break at the end. A column is aligned at the
    left if its head ends with `<`, which is not printed."""
    lefts = [head.endswith("<") for head in heads]
    table = [[head.removesuffix("<") for head in heads], *rows]
    widths = [max(cells(row[column]) for row in table) for column in range(len(lefts))]
    lines = []
    for row in table:
        blanks = [" " * (width - cells(cell)) for cell, width in zip(row, widths, strict=True)]
        line = [f"{cell}{blank}" if left else f"{blank}{cell}"
                for cell, blank, left in zip(row, blanks, lefts, strict=True)]  # fmt: skip
        lines.append(_GAP.join(line).rstrip())
    return "\n".join(lines)
