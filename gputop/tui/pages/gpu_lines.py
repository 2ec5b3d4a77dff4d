"""What the page of a GPU says, and that of a MIG device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, groupby, zip_longest

from msgspec.structs import replace

from gputop.model.health.findings import findings
from gputop.model.health.free import not_free, who
from gputop.model.health.unaccounted import is_notable
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu, MigDevice, Reservation, mig_number
from gputop.model.machine.limits import limits, no_process_text
from gputop.model.machine.sections import Activity
from gputop.model.machine.summary import job_words, reserved_words
from gputop.model.machine.text import (
    MISSING,
    clock_time,
    counted,
    duration,
    percent,
    ranges,
    short_name,
    size,
)
from gputop.model.machine.topology import ITSELF, MEANINGS, nvlinks, rating
from gputop.model.metrics import graph
from gputop.model.metrics.gpu import GPU, SECTIONS
from gputop.model.metrics.history import History
from gputop.model.metrics.metric import Metric
from gputop.model.processes import process_rows
from gputop.model.processes.views import View, ViewRow, unaccounted_rows
from gputop.tui.pages.base import IDLE
from gputop.tui.pages.health import finding_lines
from gputop.tui.panes.columns import crop_or_pad, heading, row
from gputop.tui.panes.gpu_cells import worded
from gputop.tui.panes.lines import Piece, StyledLine, width_of
from gputop.tui.panes.paper import Paper, headline, title
from gputop.tui.panes.plot import area, dots_across, peak
from gputop.tui.panes.process_columns import ProcessColumns
from gputop.tui.snapshot import Snapshot

GRAPHED = ("utilization", "memory_used", "power", "temperature", "activity.sm", "activity.tensor")
"""The metrics that the page draws, if the GPU has them."""
_LABEL = 14
_CELL = 38
"""Cells that a metric takes at least."""
_HEIGHT = 4
"""Lines of a graph."""
_SCALE = 9
_MAX_SPAN_SECONDS = 300.0
_SHOWN_ABOVE = ("state", "stale_for", "error", "activity.doing")
"""Metrics that the top of the page shows, if they have something to say."""
_COLUMNS = (
    "cuda", "pid", "user", "type", "gpu_memory", "sm_utilization", "cpu", "idle_for", "age",
)  # fmt: skip
_GONE: StyledLine = [(" the driver no longer lists it; these are its last figures", "alarm")]


def gpu_lines(
    paper: Paper, shown: Snapshot, gpu: Gpu, gone: bool, idle_after: float
) -> Iterator[StyledLine]:
    """Yield all that is known of a GPU; `shown` is the last that lists it if it is `gone`.
    `idle_after`: seconds without work after which memory is idle."""
    yield []
    yield headline(shown.frame, f"GPU {gpu.index}  {short_name(gpu.name)}")
    yield from _state(paper, gpu, gone)
    yield from _summary(paper, shown.frame, gpu)
    if gpu.reservation is not None:
        yield from paper.wrapped(_reserved(gpu.reservation, shown.frame.time), 1, "notice")
    if gpu.slurm_job is not None:
        yield from paper.wrapped(job_words(gpu.slurm_job), 1, "notice")
    for sentence in limits(shown.frame, gpu):
        yield from paper.wrapped(sentence, 1, "quiet")
    yield from title("Processes")
    yield from _processes(paper, shown, gpu, idle_after)
    span = graph.fitting(shown.history.times, _MAX_SPAN_SECONDS)
    yield from title("The last minute" if span == 60 else f"The last {span / 60:.0f} minutes")
    yield from _graphs(paper, shown.history, gpu, span)
    yield from title("Links to the other GPUs")
    yield from _links(paper, gpu, shown.frame)
    for name, metrics in SECTIONS.items():
        yield from title(name)
        yield from _section(paper, gpu, [m for m in metrics if m.id not in _SHOWN_ABOVE])


def _state(paper: Paper, gpu: Gpu, gone: bool) -> Iterator[StyledLine]:
    if gone:
        yield _GONE
    elif gpu.state == "late":
        stale = f"{paper.glyphs.stale} no answer for {duration(gpu.stale_for)}; the values are old"
        yield [(f" {stale}", "alarm")]
    elif gpu.state == "asleep":
        text = "asleep: the kernel has powered it down until it is used; a query would wake it"
        yield from paper.wrapped(text, 1)
    if gpu.state == "lost" and gpu.error is not None:
        yield from paper.wrapped(gpu.error, 1, "alarm")


def _summary(paper: Paper, frame: Frame, gpu: Gpu) -> Iterator[StyledLine]:
    """Yield a line for each question, and all findings: first, if the values are old. Nothing is
    said of what is not known."""
    lines = [line for each in findings(frame, gpu) for line in finding_lines(paper, each)]
    parts = [_answers(paper, frame, gpu), lines]
    yield from chain(*(parts if gpu.state == "answers" else reversed(parts)))
    if not lines and gpu.state == "answers" and frame.reported_by is None:
        yield from paper.labelled("health", "nothing found")


def _answers(paper: Paper, frame: Frame, gpu: Gpu) -> Iterator[StyledLine]:
    people, is_odd = who(frame, gpu), is_notable(gpu.memory_unaccounted)
    answers = {
        "load": _load(paper, gpu),
        "memory": [
            *_of(paper, gpu, "memory_used", "memory_total", "{} in use"),
            *_known(paper, gpu, "memory_free", "{} free"),
            *(_known(paper, gpu, "memory_unaccounted", "{} unaccounted") if is_odd else ()),
        ],
        "who": [] if people == MISSING else [people],
        "clocks": _clocks(paper, gpu),
        "power": [
            *_of(paper, gpu, "power", "power_limit"),
            *_known(paper, gpu, "temperature"),
        ],
    }
    for label, words in answers.items():
        yield from paper.labelled(label, ", ".join(words) or paper.glyphs.not_available)


def _load(paper: Paper, gpu: Gpu) -> Iterator[str]:
    yield from _known(paper, gpu, "utilization")
    if gpu.activity is not None and gpu.activity.doing is not None:
        yield f"{gpu.activity.doing} in the last half minute"
    if gpu.idle_for is not None and gpu.idle_for >= IDLE:
        yield from _known(paper, gpu, "idle_for", "no work for {}")


def _clocks(paper: Paper, gpu: Gpu) -> Iterator[str]:
    yield from _of(paper, gpu, "sm_clock", "sm_clock_max")
    yield from _of(paper, gpu, "memory_clock", "clocks.memory_max", "memory {}")
    yield from _known(paper, gpu, "pstate")
    if gpu.throttle is not None and gpu.throttle.reasons:
        yield from _known(paper, gpu, "throttle.reasons", "held back by {}")


def _known(paper: Paper, gpu: Gpu, id_: str, words: str = "{}") -> Iterator[str]:
    """Yield a value in words, unless it is not known."""
    if (value := GPU[id_].read(gpu)) is not None:
        yield words.format(graph.with_unit(GPU[id_], value, paper.glyphs.degree))


def _of(paper: Paper, gpu: Gpu, id_: str, most: str, words: str = "{}") -> Iterator[str]:
    """Yield a value and the most that it can be, which has the same unit; or the value alone."""
    value = GPU[id_].read(gpu)
    if value is None or GPU[most].read(gpu) is None:
        yield from _known(paper, gpu, id_, words)
    else:
        yield from _known(paper, gpu, most, words.format(f"{GPU[id_].show(value)} of {{}}"))


def _reserved(reservation: Reservation, now: float) -> str:
    words = [reserved_words(reservation, now)]
    if reservation.until is not None:
        words.append(f"until {clock_time(reservation.until, now)}")
    if reservation.pid is not None:
        words.append(f"PID {reservation.pid}")
    return ", ".join(words) + (f": {reservation.command}" if reservation.command else "")


def _section(paper: Paper, gpu: Gpu, metrics: Sequence[Metric[Gpu]]) -> Iterator[StyledLine]:
    """Put a metric into each cell, and a metric that is longer than a cell into its own line."""
    if all(metric.read(gpu) is None for metric in metrics):
        why = "not queried" if gpu.state == "asleep" else "not supported by this card or driver"
        yield from paper.quiet(why)
        return
    count = max(1, paper.width // _CELL)
    room = (paper.width - 1) // count
    cells = (_cell(paper, metric, gpu) for metric in metrics)
    for is_wide, run in groupby(cells, lambda cell: width_of(cell) >= room):
        if is_wide:
            yield from run
            continue
        padded = [crop_or_pad(cell, room, paper.glyphs.ellipsis, left=True) for cell in run]
        for n in range(0, len(padded), count):
            yield [piece for cell in padded[n : n + count] for piece in cell]


def _cell(paper: Paper, metric: Metric[Gpu], gpu: Gpu) -> StyledLine:
    value = metric.read(gpu)
    role = "quiet" if value is None else "text"
    label: Piece = (f"  {metric.label:<{_LABEL}}", "quiet")
    return [label, (worded(metric, value, paper.glyphs), role)]


def _processes(
    paper: Paper,
    shown: Snapshot,
    gpu: Gpu,
    idle_after: float,
    instance: tuple[int, int] | None = None,
) -> Iterator[StyledLine]:
    """Yield a table of the processes on a GPU, with the MIG device of each if it has some, or of
    those on one MIG device; then the memory of the GPU that belongs to none."""
    view = View(gpu=gpu.key, instance=instance)
    rows = process_rows.rows(shown.frame, shown.names, idle_after)
    rows = [row for row in rows if view.holds(row)]
    rows = process_rows.by_value(rows, [row.process.gpu_memory for row in rows], descending=True)
    columns = ProcessColumns(("gpu", *_COLUMNS) if gpu.mig and instance is None else _COLUMNS)
    columns.show_rows(rows, shown.frame.time)
    fitted = columns.fitted(paper.width - 1, 1, paper.glyphs)
    if rows:
        yield [(" ", "quiet"), *heading(fitted, 1)]
    for process_row in rows:
        cells = row(fitted, ViewRow(process_row, None), 1, paper.glyphs.ellipsis)
        yield [("  ", "text"), *cells]
    unaccounted = [] if instance else [
        line for line in unaccounted_rows(shown.frame) if view.holds(line.row)
    ]  # fmt: skip
    for view_row in unaccounted:
        yield [("  ", "text"), *columns.across(view_row, paper.width - 3)]
    if not rows and not unaccounted:
        report = shown.frame.report(gpu)
        reports = {} if report is None else {gpu.key: report}
        alone = replace(shown.frame, gpus=(gpu,), reports=reports)
        yield from paper.quiet("none" if gpu.listed == "all" else no_process_text(alone))


def _graphs(paper: Paper, history: History, gpu: Gpu, span: float) -> Iterator[StyledLine]:
    """Draw the graphs, two beside each other if there is room."""
    ids = [id_ for id_ in GRAPHED if history.knows(gpu.key, id_)]
    if not ids:
        yield from paper.quiet("no values yet")
        return
    count = 2 if paper.width >= 120 and len(ids) > 1 else 1
    width = (paper.width - 2) // count
    graphs = [list(_graph(paper, history, gpu, id_, width, span)) for id_ in ids]
    for n in range(0, len(graphs), count):
        for beside in zip_longest(*graphs[n : n + count], fillvalue=[]):
            yield [piece for line in beside for piece in line]
    yield from paper.quiet("G shows more of them, longer, and the values at a time")


def _graph(
    paper: Paper, history: History, gpu: Gpu, id_: str, width: int, span: float
) -> Iterator[StyledLine]:
    glyphs, metric = paper.glyphs, GPU[id_]
    room = max(4, width - _SCALE - 4)
    _, slots = graph.window(history.times, span, room, dots_across(glyphs))
    values = history.values(gpu.key, id_)
    curve = graph.line(values, slots, len(history.times))
    highest, now = peak(curve), peak(values[-1:])
    top = graph.ceiling([gpu], id_, highest or 0.0)
    text = partial(worded, metric, glyphs=glyphs)
    words: StyledLine = [(f"  {metric.label} ", "text"),
                         (f"{text(now)}  peak {text(highest)}", "quiet")]  # fmt: skip
    yield crop_or_pad(words, width, glyphs.ellipsis, left=True)
    role = "memory" if id_ == "memory_used" else "load"
    for n, drawn in enumerate(area(curve, top or 1.0, _HEIGHT, glyphs)):
        scale = text(top) if n == 0 else text(0.0) if n == _HEIGHT - 1 else ""
        line = [(f"  {scale:>{_SCALE}} ", "quiet"), (drawn, role)]
        yield crop_or_pad(line, width, glyphs.ellipsis, left=True)


def _links(paper: Paper, gpu: Gpu, frame: Frame) -> Iterator[StyledLine]:
    links, there = frame.links or (), dict[str | None, list[int]]()
    for index, link in enumerate(links[gpu.index] if gpu.index < len(links) else ()):
        if link != ITSELF and index != gpu.index:
            there.setdefault(link, []).append(index)
    if not there:
        words = "not known" if len(frame.gpus) > 1 else "there is no other"
        yield from paper.quiet(words)
    for link in sorted(there, key=rating, reverse=True):
        to, many = f"to GPU {ranges(there[link])}", nvlinks(link)
        label = counted(many, "NVLink") if many else link or paper.glyphs.not_available
        means = "" if many else f": {MEANINGS.get(link or '', 'not known')}"
        yield from paper.labelled(label, to + means)


def mig_lines(
    paper: Paper, shown: Snapshot, gpu: Gpu, device: MigDevice, gone: bool, idle_after: float
) -> Iterator[StyledLine]:
    """Yield what is known of a MIG device; `shown` is the last that lists it if it is `gone`.
    `idle_after`: seconds without work after which memory is idle."""
    number = mig_number(gpu.index, *device.instance_ids)
    yield []
    yield headline(shown.frame, f"GPU {number}  MIG {device.profile or ''}".rstrip())
    yield from paper.facts([f"of GPU {gpu.index} {short_name(gpu.name)}"], "quiet")
    if gone:
        yield _GONE
    for label, text in _mig_facts(shown, gpu, device).items():
        yield from paper.labelled(label, paper.glyphs.value(text or MISSING))
    yield from title("Processes")
    yield from _processes(paper, shown, gpu, idle_after, device.instance_ids)


def _mig_facts(shown: Snapshot, gpu: Gpu, device: MigDevice) -> dict[str, str | None]:
    """Return a text for each label; None for what is not known."""
    objection = not_free(shown.frame, gpu, device)
    used, total = device.memory_used, device.memory_total
    answer = "no" if objection and objection.is_sure else "not known"
    return {
        "UUID": device.uuid,
        "who": who(shown.frame, gpu, device),
        "free": "yes" if objection is None else f"{answer}: {objection.text}",
        "memory": None
        if used is None or total is None
        else f"{size(used)} of {size(total)} in use",
        "load": ", ".join(_mig_loads(device.activity or Activity())),
        "for a job": device.uuid and f"CUDA_VISIBLE_DEVICES={device.uuid}",
    }


def _mig_loads(activity: Activity) -> Iterator[str]:
    """Yield what GPM reports of the GPU instance."""
    shares = {"graphics": activity.graphics, "SMs": activity.sm, "tensor cores": activity.tensor,
              "DRAM": activity.dram}  # fmt: skip
    yield from (f"{name} {percent(share)}%" for name, share in shares.items() if share is not None)
