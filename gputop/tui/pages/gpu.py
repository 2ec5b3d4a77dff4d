"""One GPU: what it does and for whom, its processes, its history, its metrics, its links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, groupby, zip_longest
from typing import ClassVar

from textual.binding import BindingType

from gputop.model.health.findings import findings
from gputop.model.health.unaccounted import is_notable
from gputop.model.health.who import who
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu, Reservation
from gputop.model.machine.limits import limits
from gputop.model.machine.summary import job_words, reserved_words
from gputop.model.machine.text import MISSING, clock_time, counted, duration, ranges, short_name
from gputop.model.machine.topology import ITSELF, MEANINGS, nvlinks, rating
from gputop.model.metrics import graph
from gputop.model.metrics.gpu import GPU, SECTIONS
from gputop.model.metrics.history import History
from gputop.model.metrics.metric import Metric
from gputop.tui.keys import following
from gputop.tui.pages.base import IDLE, PageScreen
from gputop.tui.pages.gpu_processes import processes
from gputop.tui.pages.graph import GraphScreen
from gputop.tui.pages.health import finding_lines
from gputop.tui.pages.mig import GONE, mig_lines
from gputop.tui.panes.columns import crop_or_pad
from gputop.tui.panes.gpu_cells import lines_of, worded
from gputop.tui.panes.heading import described_key
from gputop.tui.panes.lines import Piece, StyledLine, width_of
from gputop.tui.panes.page import Page
from gputop.tui.panes.paper import Paper, headline, title
from gputop.tui.panes.plot import area, dots_across, peak
from gputop.tui.snapshot import Snapshot

_GRAPHED = ("utilization", "memory_used", "power", "temperature", "activity.sm", "activity.tensor")
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
_key = partial(described_key, "GPU", area="gpu")


GpuPart = tuple[str, tuple[int, int] | None]
"""The key of a GPU, and the `instance_ids` of its MIG device or None."""


class GpuScreen(PageScreen[GpuPart | None]):
    """The page of a GPU or MIG device; it answers with that if only its processes are wanted."""

    BINDINGS: ClassVar[list[BindingType]] = [
        _key("escape,enter,backspace", "leave", "Back", "Back", "Esc"),
        _key("G", "graphs", "Graphs", "All its graphs", "G"),
        _key("f", "only", "Its processes", "Only its processes, on the main screen", "f"),
        _key("right,n", "other(1)", "Next GPU", "The next GPU", "n", name="next"),
        _key("left,b", "other(-1)", "Previous GPU", "The previous GPU", name="before"),
    ]  # fmt: skip

    def __init__(self, part: GpuPart, idle_after: float) -> None:
        super().__init__()
        self._part, self._idle_after = part, idle_after
        self._last: Snapshot | None = None
        """The last that lists the GPU or MIG device."""

    def action_only(self) -> None:
        self.dismiss(self._part)

    def action_other(self, step: int) -> None:
        """Go to the next GPU or MIG device in the order of the table, or to the one before."""
        parts = [line.part for line in lines_of(self.shown.frame)] if self.shown else []
        if self.shown is not None and self._part in parts:
            self._part = following(self._part, parts, step)
            self.show_frame(self.shown)
            self.query_one(Page).action_end(0)

    def action_graphs(self) -> None:
        page = GraphScreen(_GRAPHED[0], self._part[0])
        if self.shown is not None:
            page.show_frame(self.shown)
        self.app.push_screen(page)

    def show_frame(self, shown: Snapshot) -> None:
        if self._part in [line.part for line in lines_of(shown.frame)]:
            self._last = shown
        super().show_frame(shown)

    def lines(self, paper: Paper, shown: Snapshot) -> Iterator[StyledLine]:
        last, (key, instance) = self._last, self._part
        if last is None:
            return iter(())
        gone = last is not shown
        gpu = next(gpu for gpu in last.frame.gpus if gpu.key == key)
        if instance is None:
            return gpu_lines(paper, last, gpu, gone, self._idle_after)
        device = next(part for part in gpu.mig or () if part.instance_ids == instance)
        return mig_lines(paper, last, gpu, device, gone, self._idle_after)


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
    yield from processes(paper, shown, gpu, idle_after)
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
        yield GONE
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


def _graphs(paper: Paper, history: History, gpu: Gpu, span: float) -> Iterator[StyledLine]:
    """Draw the graphs, two beside each other if there is room."""
    ids = [id_ for id_ in _GRAPHED if history.knows(gpu.key, id_)]
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
