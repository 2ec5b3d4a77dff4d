"""`gputop --once`: what nvidia-smi's front page says, and whose the processes are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from gputop import __version__
from gputop.model import query
from gputop.model.frame import Frame
from gputop.model.gpu import Gpu
from gputop.model.gpu_metrics import GPU
from gputop.model.health import findings
from gputop.model.limits import limits
from gputop.model.process_metrics import MORE, PROCESS, ProcessRow
from gputop.model.summary import free_gpus, is_free, users
from gputop.model.text import MIB, MISSING, duration
from gputop.model.unexplained import is_notable, remark, suspects, words

_GAP = "  "

_Column = tuple[str, bool, Callable[[Gpu], str]]


def _metric(id_: str, left: bool = False) -> _Column:
    metric = GPU[id_]
    return metric.label, left, metric.text


_GPU_COLUMNS: tuple[_Column, ...] = (
    _metric("index"),
    ("NAME", True, lambda gpu: gpu.name or MISSING),
    _metric("pci_bus_id", left=True),
    _metric("persistence_mode"),
    _metric("display_active"),
    ("FAN%", False, GPU["fan"].text),
    ("TEMP-C", False, GPU["temperature"].text),
    _metric("pstate"),
    ("POWER-W", False, lambda gpu: f"{GPU['power'].text(gpu)}/{GPU['power_limit'].text(gpu)}"),
    ("MEM-MiB", False, lambda gpu: f"{_mib(gpu.memory_used)}/{_mib(gpu.memory_total)}"),
    ("UTIL%", False, GPU["utilization"].text),
    _metric("ecc_uncorrected"),
    _metric("compute_mode", left=True),
    _metric("mig_mode"),
)

_STATE = "STATE"
_WHERE_KNOWN = ("idle_for", "container", "pod", "job")
"""Columns that are there if some process has them."""


def table(frame: Frame, idle_after: float) -> str:
    """The whole frame as text, as wide as it needs to be, with a line end.

    Who holds memory is marked from `idle_after` seconds without work on.
    """
    gpus = [_gpu_table(frame, idle_after), _mig_table(frame.gpus)]
    parts = [
        _heading(frame), *gpus, _findings_table(frame), _limits(frame), _unexplained_table(frame)
    ]  # fmt: skip
    return "\n\n".join([*filter(None, parts), _process_table(frame, idle_after)]) + "\n"


def _heading(frame: Frame) -> str:
    free, who = free_gpus(frame), users(frame)
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(frame.time))
    facts = [
        f"gputop {__version__}",
        "DEMO: an invented machine" if frame.demo else frame.host.name,
        clock,
        f"driver {frame.driver_version or MISSING}",
        f"CUDA {frame.cuda_version or MISSING}",
        f"{len(frame.gpus)} GPU{'s' * (len(frame.gpus) != 1)}, {len(free)} free",
        f"{len(who)} user{'s' * (len(who) != 1)}",
    ]
    return _GAP.join(facts)


def _gpu_table(frame: Frame, idle_after: float) -> str:
    heads = [(label, left) for label, left, _ in _GPU_COLUMNS]
    rows = [[text(gpu) for _, _, text in _GPU_COLUMNS] for gpu in frame.gpus]
    states = [_state(frame, gpu, idle_after) for gpu in frame.gpus]
    if any(state != "ok" for state in states):
        heads.append((_STATE, True))
        rows = [[*row, state] for row, state in zip(rows, states, strict=True)]
    return aligned(heads, rows)


def _state(frame: Frame, gpu: Gpu, idle_after: float) -> str:
    if gpu.stale_for is not None:
        return f"no answer for {GPU['stale_for'].text(gpu)}"
    if gpu.asleep:
        return "asleep"
    idle = gpu.idle_for is not None and gpu.idle_for >= idle_after and not is_free(frame, gpu)
    return gpu.error or (f"idle {GPU['idle_for'].text(gpu)}" if idle else "ok")


def _limits(frame: Frame) -> str:
    """What the driver does not tell, and why: each sentence once, with its GPUs."""
    where: dict[str, list[str]] = {}
    for gpu in frame.gpus:
        for sentence in limits(frame, gpu):
            where.setdefault(sentence, []).append(str(gpu.index))
    return "\n".join(f"GPU {','.join(gpus)}: {sentence}" for sentence, gpus in where.items())


def _findings_table(frame: Frame) -> str:
    """What of the GPUs needs a person, or is worth knowing; empty where all is well."""
    rows = [
        [str(gpu.index), one.level, one.text, one.advice]
        for gpu in frame.gpus
        for one in findings(frame, gpu)
    ]
    heads = (("GPU", False), ("HEALTH", True), ("WHAT", True), ("WHAT TO DO", True))
    return aligned(heads, rows) if rows else ""


def _mig_table(gpus: Sequence[Gpu]) -> str:
    """The MIG devices of all GPUs; empty where there is none."""
    heads = ("GPU", False), ("GI", False), ("CI", False), ("PROFILE", True), ("MEM-MiB", False)
    rows = [
        [
            str(gpu.index),
            str(one.gi),
            str(one.ci),
            one.profile or MISSING,
            f"{_mib(one.memory_used)}/{_mib(one.memory_total)}",
            one.uuid or MISSING,
        ]
        for gpu in gpus
        for one in gpu.mig or ()
    ]
    return aligned((*heads, ("MIG-UUID", True)), rows) if rows else ""


def _unexplained_table(frame: Frame) -> str:
    """Memory that no listed process holds, and who may; empty where it is no more than usual."""
    rows: list[list[str]] = []
    for gpu in frame.gpus:
        found = suspects(gpu)
        amount = GPU["memory_unexplained"].text(gpu)
        if not is_notable(gpu.memory_unexplained) and not (found and gpu.processes_known is False):
            continue
        rows += [
            [
                str(gpu.index),
                amount,
                str(one.pid),
                one.user or MISSING,
                words(one),
                one.command or MISSING,
            ]
            for one in found
        ] or [
            [
                str(gpu.index),
                amount,
                MISSING,
                MISSING,
                remark(gpu, nested=frame.host.nested),
                MISSING,
            ]
        ]
    heads = (
        ("GPU", False),
        ("UNEXPLAINED", False),
        ("PID", False),
        ("USER", True),
        ("WHY", True),
        ("COMMAND", True),
    )
    return aligned(heads, rows) if rows else ""


def _process_table(frame: Frame, idle_after: float) -> str:
    found = query.rows(frame)
    if not found:
        if all(gpu.processes_known is not False for gpu in frame.gpus):
            return "no process on any GPU"
        return "the driver does not list the processes here"
    columns: list[tuple[str, bool, Callable[[ProcessRow], str]]] = [
        (metric.label, metric.left, metric.text) for metric in PROCESS.values()
    ]
    more = [MORE[id_] for id_ in _WHERE_KNOWN if any(map(MORE[id_].read, found))]
    columns[-1:] = [(metric.label, metric.left, metric.text) for metric in more]
    columns.append(("COMMAND", True, lambda row: _idle(row, idle_after) + _command(row)))
    rows = [[text(row) for _, _, text in columns] for row in found]
    return aligned([(label, left) for label, left, _ in columns], rows)


def _idle(row: ProcessRow, idle_after: float) -> str:
    idle = row.process.idle_for if row.process.gpu_memory else None
    return "" if idle is None or idle < idle_after else f"(idle {duration(idle)}) "


def _command(row: ProcessRow) -> str:
    if row.process.command is None:
        if row.process.elsewhere:
            return "(host PID, not visible here)"
        return "(not in this /proc)" if row.process.start_time is None else MISSING
    return f"(! {row.misspelt}) {row.process.command}" if row.misspelt else row.process.command


def _mib(count: int | None) -> str:
    """As nvidia-smi rounds: down to whole MiB."""
    return MISSING if count is None else str(count // MIB)


def aligned(heads: Sequence[tuple[str, bool]], rows: Iterable[Sequence[str]]) -> str:
    """Columns under their heads, which say whether they begin at the left; without a line end."""
    table = [[label for label, _ in heads], *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(heads))]
    lines = []
    for row in table:
        cells = [
            cell.ljust(width) if left else cell.rjust(width)
            for cell, width, (_, left) in zip(row, widths, heads, strict=True)
        ]
        lines.append(_GAP.join(cells).rstrip())
    return "\n".join(lines)
