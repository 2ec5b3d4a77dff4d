"""What the page of a GPU is opened for: load, memory, who is on it, clocks, health."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.model.health.findings import findings
from gputop.model.health.unaccounted import is_notable
from gputop.model.health.who import who
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.text import MISSING
from gputop.model.metrics import graph
from gputop.model.metrics.gpu import GPU
from gputop.tui.pages.health import finding_lines
from gputop.tui.panes.lines import StyledLine
from gputop.tui.panes.paper import Paper

_IDLE = 10.0
"""Seconds without work that are worth mentioning."""


def summary_lines(paper: Paper, frame: Frame, gpu: Gpu) -> Iterator[StyledLine]:
    """Yield a line for each question, and all findings: first, if the values are old. Nothing is
    said of what is not known."""
    lines = [line for each in findings(frame, gpu) for line in finding_lines(paper, each)]
    if gpu.state == "answers":
        yield from _answers(paper, frame, gpu)
        yield from lines
    else:
        yield from lines
        yield from _answers(paper, frame, gpu)
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
    if gpu.idle_for is not None and gpu.idle_for >= _IDLE:
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
