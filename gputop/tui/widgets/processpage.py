"""The lines of the page of a process: what it is, where it belongs, where it runs, what it calls
its GPUs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gputop.model.detail import ProcessDetail, ProcessStack
from gputop.model.frame import Frame, ProcessKey
from gputop.model.frameworks import FRAMEWORKS, MAIN, device_name
from gputop.model.history import Past
from gputop.model.place import Container, Place
from gputop.model.process_mapping import ProcessMapping
from gputop.model.process_metrics import MORE, PROCESS, ProcessRow
from gputop.model.text import GIB, duration, size
from gputop.tui import glyphs
from gputop.tui.widgets.page import LABEL, Line, Page

_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting in the kernel (D), which signals do not interrupt",
    "Z": "zombie: it has ended, and its parent has not taken notice",
    "T": "stopped (kill -CONT goes on)",
    "t": "stopped by a debugger",
    "I": "idle in the kernel",
}
_TYPES = {"C": "compute", "G": "graphics", "M": "compute through MPS"}
_SHARES = {"SM%": PROCESS["sm_utilization"]} | {
    MORE[id_].label: MORE[id_]
    for id_ in ("memory_utilization", "encoder_utilization", "decoder_utilization")
}
_LABELS = {one.id: one.label for one in FRAMEWORKS}
_CONTEXT = GIB
"""Bytes under which a process that has more elsewhere does not compute on a GPU."""
_COMMAND = 5
"""Lines of a command that may stand before everything else."""
_IDLE = 10.0
"""Seconds without work that are worth a word."""
_MOST_SAMPLES = 60
_MARKS = {"error": "alarm", "warning": "notice", "info": "quiet"}


@dataclass
class Subject:
    """All that is known of the process of a page; of one that has ended, what was known last."""

    key: ProcessKey
    rows: list[ProcessRow] = field(default_factory=list)
    """One for each GPU or MIG device that it is on."""
    pasts: list[Past] = field(default_factory=list)
    mapping: ProcessMapping | None = None
    frame: Frame | None = None
    ended: bool = False
    detail: ProcessDetail | None = None
    gone: bool = False
    """It was not there any more when it was looked at."""
    stack: ProcessStack | None = None
    stack_wanted: bool = False
    """py-spy was asked and has not answered."""
    with_values: bool = False
    """Of the variables that are not about GPUs."""


def title(text: str) -> Iterator[Line]:
    """Begin a section."""
    yield []
    yield [(f" {text}", "heading")]


def process_lines(page: Page, subject: Subject) -> Iterator[Line]:
    """What frames tell."""
    process = subject.rows[0].process
    yield []
    command = list(page.wrapped(process.command or "not in this /proc", 1, "heading"))
    yield from command[:_COMMAND]
    if len(command) > _COMMAND:
        yield [(f" {page.glyphs.ellipsis} all of it is below", "quiet")]
    if subject.ended:
        yield [(" it has ended, or left the GPUs; these are its last figures", "alarm")]
    separator = f" {page.glyphs.separator} " if page.glyphs.name != "ascii" else ", "
    yield from page.wrapped(separator.join(_facts(subject.rows[0])), 1)
    yield from title("Where it belongs")
    if process.elsewhere:
        yield from page.wrapped("The PID is the host's; it cannot be seen from here.", 2, "quiet")
    elif process.place is None:
        yield from page.wrapped("That has not been looked at.", 2, "quiet")
    else:
        yield from _place(page, process.place, process.parent)
    yield from title("On the GPUs")
    for row, past in zip(subject.rows, subject.pasts, strict=True):
        yield from _on_gpu(page, row, past, subject)
    yield from title("What it calls them")
    yield from _named(page, subject)
    if len(command) > _COMMAND:
        yield from title("Command line")
        yield from page.wrapped(process.command or "")


def _facts(row: ProcessRow) -> Iterator[str]:
    process = row.process
    yield f"PID {process.pid}"
    yield f"user {PROCESS['user'].text(row)}"
    yield _STATES.get(process.state or "", f"state {PROCESS['state'].text(row)}")
    yield f"CPU {PROCESS['cpu'].text(row)} %"
    yield f"RSS {PROCESS['rss'].text(row)}"
    yield f"{MORE['threads'].text(row)} thread{'s' * (process.threads != 1)}"
    yield f"reads {MORE['io_read'].text(row)} B/s"
    yield f"writes {MORE['io_write'].text(row)} B/s"
    if process.start_time is not None:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(process.start_time))
        yield f"started {since}, {PROCESS['age'].text(row)} ago"


def _place(page: Page, place: Place, parent: int | None) -> Iterator[Line]:
    known = {
        "directory": place.cwd,
        "environment": place.venv,
        "started by": _parents(place) or (f"process {parent}" if parent else None),
        "terminal": place.session,
        "ssh from": place.ssh_from,
        "container": _container(place.container),
        "pod": place.pod,
        "Slurm": place.slurm_job and f"job {place.slurm_job}, step {place.slurm_step or '-'}",
        "unit": place.unit,
    }
    for label, text in known.items():
        if text:
            yield from page.labelled(label, text)
    missing = [label for label, text in known.items() if not text]
    if missing:
        yield from page.wrapped(f"none, or not known: {', '.join(missing)}", 2, "quiet")


def _parents(place: Place) -> str:
    """The terminal first, as pstree has it."""
    return " > ".join(f"{one.name} {one.pid}" for one in reversed(place.ancestors))


def _container(container: Container | None) -> str | None:
    if container is None:
        return None
    facts = [container.runtime, container.image and f"image {container.image}"]
    if container.name is not None:
        facts.append(container.id[:12])
    return f"{container.label} ({', '.join(filter(None, facts)) or 'runtime not known'})"


def _on_gpu(page: Page, row: ProcessRow, past: Past, subject: Subject) -> Iterator[Line]:
    facts = [f"GPU-MEM {PROCESS['gpu_memory'].text(row)}"]
    facts += [f"{label} {metric.text(row)}" for label, metric in _SHARES.items()]
    name, place = row.cuda or "", f"GPU {PROCESS['gpu'].text(row)}"
    yield [(f"  {place:<{LABEL - 4}}", "text"), (f"{name:<9}", "key"), ("  ".join(facts), "text")]
    for words in _words(row, subject):
        yield from page.wrapped(words, 2 + LABEL, "quiet")
    if len(past.memory) > 1:
        yield _graphs(page, past)


def _words(row: ProcessRow, subject: Subject) -> Iterator[str]:
    process, gpu = row.process, row.gpu
    used = ", ".join(_TYPES.get(one, one) for one in process.type.split("+"))
    if gpu is not None:
        used = f"{gpu.name or 'a GPU'}, {used}"
    if process.gpu_instance is not None:
        mig = (process.gpu_instance, process.compute_instance)
        profile = next((one.profile for one in (gpu and gpu.mig) or () if (one.gi, one.ci) == mig),
                       None)  # fmt: skip
        ci = "" if mig[1] is None else f", compute instance {mig[1]}"
        used += f"; GPU instance {mig[0]}{ci}" + (f" ({profile})" if profile else "")
    yield used
    idle, now = process.idle_for, subject.frame.time if subject.frame else None
    if idle is not None and idle >= _IDLE and now is not None:
        since = time.strftime("%H:%M:%S", time.localtime(now - idle))
        yield f"no work for {duration(idle)} at least, since {since}"
    held = max(one.process.gpu_memory or 0 for one in subject.rows)
    if process.gpu_memory is not None and process.gpu_memory < _CONTEXT <= held:
        yield "a context only: ranks open one on cuda:0 too"


def _graphs(page: Page, past: Past) -> Line:
    """Memory as a part of its peak, and the share of the SMs, one sample a cell."""
    peak = max((value for value in past.memory if value is not None), default=0.0)
    end = f"  peak {size(int(peak))}   SM "
    room = (page.size.width - 2 - LABEL - len("memory ") - len(end) - 1) // 2
    width = min(max(4, room), _MOST_SAMPLES, len(past.memory))
    memory = [value if value is None else value / (peak or 1.0) for value in past.memory]
    return [
        (" " * (2 + LABEL) + "memory ", "quiet"),
        (glyphs.spark(memory, width, page.glyphs), "memory"),
        (end, "quiet"),
        (glyphs.spark(past.sm, width, page.glyphs), "load"),
    ]


def _named(page: Page, subject: Subject) -> Iterator[Line]:
    mapping, around = subject.mapping, subject.rows[0].process.surroundings
    if mapping is None or around is None:
        yield from page.wrapped("Its variables have not been looked at.", 2, "quiet")
        return
    for sentence in mapping.reasoning():
        yield from page.wrapped(sentence)
    if around.frameworks:
        loaded = ", ".join(_LABELS[one] for one in around.frameworks if one in _LABELS)
        yield from page.wrapped(f"It has loaded {loaded}.")
    yield []
    yield from _devices(mapping, page.glyphs.to)
    for one in mapping.advice:
        for first, line in enumerate(page.wrapped(one.message, 4)):
            mark = f"  {page.glyphs.warning} " if not first else "    "
            yield [(mark, _MARKS[one.severity]), *line[1:]]


def _devices(mapping: ProcessMapping, to: str) -> Iterator[Line]:
    used = {place for place, _ in mapping.evidence.names}
    for k, device in enumerate(mapping.mapping.visible or ()):
        names = "".join(f"{device_name(one, k):<16}" for one in MAIN)
        line: Line = [(f"  {names}", "heading"), (f"{to}  {device.label}", "text")]
        yield [*line, ("  in use", "good")] if device.place in used else line


def gpus_of(frame: Frame | None) -> Mapping[tuple[int, float | None], list[int]]:
    """NVML's indices of the GPUs of each process of a frame, by pid and start time."""
    found: dict[tuple[int, float | None], list[int]] = {}
    if frame is not None:
        indices = {gpu.uuid: gpu.index for gpu in frame.gpus}
        for one in frame.processes:
            if one.gpu_uuid in indices:
                here = found.setdefault((one.pid, one.start_time), [])
                here.append(indices[one.gpu_uuid])
    return found
