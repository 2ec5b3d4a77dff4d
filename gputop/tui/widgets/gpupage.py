"""The lines of the page of a GPU: its metrics by section, its past, its links, its processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from gputop.model import graph, query
from gputop.model.frame import Frame
from gputop.model.gpu import Gpu
from gputop.model.gpu_metrics import GPU, SECTIONS
from gputop.model.grouping import Entry, unexplained
from gputop.model.health import findings
from gputop.model.history import History
from gputop.model.limits import limits
from gputop.model.links import ITSELF, MEANINGS, rating
from gputop.model.logical_names import LogicalNames
from gputop.model.metrics import Metric
from gputop.model.text import duration, short_name
from gputop.tui.plot import Canvas, dots_across, peak
from gputop.tui.widgets.columns import heading, row, sized
from gputop.tui.widgets.lines import Piece, width_of
from gputop.tui.widgets.page import Line, Page
from gputop.tui.widgets.processcolumns import ProcessColumns, longest
from gputop.tui.widgets.processpage import title

GRAPHED = ("utilization", "memory_used", "power", "temperature", "activity.sm", "activity.tensor")
"""What the page draws, of what the GPU has."""

_COLUMNS = (
    "cuda", "pid", "user", "type", "gpu_memory", "sm_utilization", "cpu", "idle_for", "age",
)  # fmt: skip
_FACTS = ("pci_bus_id", "uuid", "identity.architecture")
_LABEL = 14
_HELPED = 92
"""Cells that a metric takes with its help, without which it is not shown."""
_PLAIN = 38
"""Without."""
_VALUE = 18
_HEIGHT = 4
"""Lines of a graph."""
_SCALE = 9
_LONGEST = 300.0
_TOLD_ABOVE = ("asleep", "stale_for", "error", "activity.verdict")
"""Said on top where there is something to say."""


@dataclass
class Subject:
    """All that is known of the GPU of a page; of one that is gone, what was known last."""

    key: str
    idle_after: float = 600.0
    gpu: Gpu | None = None
    frame: Frame | None = None
    names: LogicalNames | None = None
    history: History = field(default_factory=History)
    gone: bool = False


def gpu_lines(page: Page, subject: Subject) -> Iterator[Line]:
    """All of it."""
    gpu, frame = subject.gpu, subject.frame
    if gpu is None or frame is None:
        return
    yield []
    yield [(f" GPU {gpu.index}  {short_name(gpu.name)}", "heading")]
    facts = [GPU[id_].text(gpu) for id_ in _FACTS if GPU[id_].read(gpu) is not None]
    yield from page.wrapped(f" {page.glyphs.separator} ".join(facts), 1, "quiet")
    yield from _words(page, gpu, subject.gone)
    for one in findings(frame, gpu):
        yield from page.wrapped(f"{one.text}: {one.advice}", 1, one.level)
    for sentence in limits(frame, gpu):
        yield from page.wrapped(sentence, 1, "quiet")
    yield from title("Processes")
    yield from _processes(page, subject)
    span = graph.fitting(subject.history.times, _LONGEST)
    yield from title("The last minute" if span == 60 else f"The last {span / 60:.0f} minutes")
    yield from _graphs(page, subject, span)
    for name, metrics in SECTIONS.items():
        yield from title(name)
        yield from _section(page, gpu, [one for one in metrics if one.id not in _TOLD_ABOVE])
    yield from title("Links to the other GPUs")
    yield from _links(page, gpu, frame)


def _words(page: Page, gpu: Gpu, gone: bool) -> Iterator[Line]:
    """What is to be said before all else."""
    if gone:
        yield [(" the driver lists it no more; these are its last figures", "alarm")]
    elif gpu.stale_for is not None:
        stale = f"{page.glyphs.stale} no answer for {duration(gpu.stale_for)}; the values are old"
        yield [(f" {stale}", "alarm")]
    elif gpu.asleep:
        text = "asleep: the kernel has switched it off until it is used; asking it would wake it"
        yield from page.wrapped(text, 1)
    if gpu.error is not None:
        yield from page.wrapped(gpu.error, 1, "alarm")
    if gpu.activity is not None and gpu.activity.verdict is not None:
        yield from page.wrapped(f"in the last half minute: {gpu.activity.verdict}", 1)


def _section(page: Page, gpu: Gpu, metrics: Sequence[Metric[Gpu]]) -> Iterator[Line]:
    """A metric a cell, as many cells a line as there is room for; in a line of its own what is
    longer than a cell."""
    if all(one.read(gpu) is None for one in metrics):
        why = "not asked" if gpu.asleep else "not supported by this card or driver"
        yield from page.wrapped(why, 2, "quiet")
        return
    width = page.size.width
    helped = width >= _HELPED
    count = max(1, width // (_HELPED if helped else _PLAIN))
    room = (width - 1) // count
    line: Line = []
    for one in metrics:
        cell = _cell(page, one, gpu, helped)
        if width_of(cell) > room - 1:
            if line:
                yield line
            yield cell
            line = []
            continue
        line = [*line, *sized(cell, room, page.glyphs.ellipsis, left=True)]
        if width_of(line) > width - room:
            yield line
            line = []
    if line:
        yield line


def _cell(page: Page, metric: Metric[Gpu], gpu: Gpu, helped: bool) -> Line:
    value = metric.read(gpu)
    label: Piece = (f"  {metric.label:<{_LABEL}}", "quiet")
    if value is None:
        shown: Piece = (page.glyphs.not_available, "quiet")
    else:
        text = graph.with_unit(metric, value, page.glyphs.degree)
        shown = (page.glyphs.text(text), "text")
    if not helped:
        return [label, shown]
    padding = " " * max(2, _VALUE - width_of([shown]))
    return [label, shown, (f"{padding}{metric.help}", "quiet")]


def _processes(page: Page, subject: Subject) -> Iterator[Line]:
    gpu, frame = subject.gpu, subject.frame
    if gpu is None or frame is None:
        return
    rows = [one for one in query.rows(frame, subject.names) if one.gpu and one.gpu.key == gpu.key]
    rows = query.ordered(rows, "gpu_memory", True)
    columns = ProcessColumns(_COLUMNS, subject.idle_after)
    fitted = columns.fitted(page.size.width - 1, 1, longest(rows), "", page.glyphs)
    if rows:
        yield [("  ", "quiet"), *heading(fitted, 1)]
    for one in rows:
        yield [("  ", "text"), *row(fitted, Entry(one, None), 1, page.glyphs.ellipsis)]
    others = [one for one in unexplained(frame) if one.row.gpu and one.row.gpu.key == gpu.key]
    for entry in others:
        yield columns.across(entry, page.size.width - 1, "notice")
    if not rows and not others:
        unlisted = gpu.processes_known is False
        words = "the driver does not list the processes here" if unlisted else "none"
        yield from page.wrapped(words, 2, "quiet")


def _graphs(page: Page, subject: Subject, span: float) -> Iterator[Line]:
    """Two beside each other where there is room."""
    gpu, history = subject.gpu, subject.history
    ids = [id_ for id_ in GRAPHED if history.knows(subject.key, id_)]
    if gpu is None or not ids:
        yield from page.wrapped("no values yet", 2, "quiet")
        return
    count = 2 if page.size.width >= 120 and len(ids) > 1 else 1
    width = (page.size.width - 2) // count
    pictures = [list(_graph(page, subject, gpu, id_, width, span)) for id_ in ids]
    for n in range(0, len(pictures), count):
        for beside in zip_longest(*pictures[n : n + count], fillvalue=[]):
            yield [piece for line in beside for piece in line]
    yield from page.wrapped("G shows more of them, longer, and the values at a time", 2, "quiet")


def _graph(
    page: Page, subject: Subject, gpu: Gpu, id_: str, width: int, span: float
) -> Iterator[Line]:
    """A heading and a curve, `width` cells."""
    history, glyphs, metric = subject.history, page.glyphs, GPU[id_]
    room = max(4, width - _SCALE - 4)
    across, times = dots_across(glyphs), history.times
    count = room * across
    begin = graph.begin_of(times[-1], span, room)
    slots = graph.dots(times, begin, span / count, count)
    values = history.values(subject.key, id_)
    curve = graph.line(values, slots, len(times))
    highest, now = peak(curve), peak(values[-1:])
    top = graph.ceiling([gpu], id_, highest or 0.0)

    def text(value: float | None) -> str:
        unknown = value is None
        return glyphs.not_available if unknown else graph.with_unit(metric, value, glyphs.degree)

    words: Line = [(f"  {metric.label} ", "text"), (f"{text(now)}  peak {text(highest)}", "quiet")]
    yield sized(words, width, glyphs.ellipsis, left=True)
    canvas = Canvas(room, _HEIGHT, glyphs)
    canvas.draw(curve, top or 1.0, "memory" if id_ == "memory_used" else "load", "*", filled=True)
    for n, drawn in enumerate(canvas.rows()):
        scale = text(top) if n == 0 else text(0.0) if n == _HEIGHT - 1 else ""
        line = [(f"  {scale:>{_SCALE}} ", "quiet"), *drawn]
        yield sized(line, width, glyphs.ellipsis, left=True)


def _links(page: Page, gpu: Gpu, frame: Frame) -> Iterator[Line]:
    """The GPUs by how they are connected, the best first."""
    links, there = frame.links or (), dict[str | None, list[int]]()
    for index, link in enumerate(links[gpu.index] if gpu.index < len(links) else ()):
        if link != ITSELF and index != gpu.index:
            there.setdefault(link, []).append(index)
    if not there:
        words = "not known" if len(frame.gpus) > 1 else "there is no other"
        yield from page.wrapped(words, 2, "quiet")
    for link in sorted(there, key=rating, reverse=True):
        kind = "NV" if link and link.startswith("NV") else link
        means = MEANINGS.get(kind or "", "not known")
        to = f"GPU {', '.join(map(str, there[link]))}"
        yield from page.labelled(link or page.glyphs.not_available, f"{to}: {means}")
