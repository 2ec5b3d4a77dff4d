"""What needs attention on the GPUs, and what to do; nothing is run from here."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

from textual.binding import BindingType

from gputop.model.health.findings import findings, in_alarm, xid_coverage
from gputop.model.machine.finding import Finding
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.text import counted, duration, short_name
from gputop.tui.pages.base import PageScreen, ShownFrame
from gputop.tui.panes.heading import described_key
from gputop.tui.panes.lines import StyledLine
from gputop.tui.panes.paper import Paper
from gputop.tui.themes import LEVEL_ROLES

_key = partial(described_key, "GPUs", area="health")


class HealthScreen(PageScreen[None]):
    """The findings on every GPU in the last frame."""

    BINDINGS: ClassVar[list[BindingType]] = [
        _key("escape,H,backspace", "leave", "Back", "Health: back", "Esc"),
    ]  # fmt: skip

    def lines(self, paper: Paper, shown: ShownFrame) -> Iterator[StyledLine]:
        return health_lines(paper, shown.frame)


def health_lines(paper: Paper, frame: Frame) -> Iterator[StyledLine]:
    """Yield what was found on each GPU of a frame, after a summary."""
    by_gpu = [(gpu, findings(frame, gpu)) for gpu in frame.gpus]
    yield []
    yield [(" Health", "heading")]
    yield from _summary(paper, frame, any(on_gpu for _, on_gpu in by_gpu))
    yield from paper.quiet(xid_coverage(frame))
    for gpu, on_gpu in by_gpu:
        if on_gpu or gpu.is_overdue:
            yield from _of_gpu(paper, gpu, on_gpu)


def _summary(paper: Paper, frame: Frame, any_found: bool) -> Iterator[StyledLine]:
    alarms, gpus = len(in_alarm(frame)), counted(len(frame.gpus), "GPU")
    silent = sum(gpu.is_overdue for gpu in frame.gpus)
    if alarms:
        words = f"{alarms} of {gpus} need{'s' * (alarms == 1)} attention."
        yield from paper.wrapped(words, 2, "alarm")
    elif any_found:
        yield from paper.wrapped("Nothing is broken; some things are worth knowing.")
    elif silent:
        words = f"Nothing was found, but {silent} of {gpus} do{'es' * (silent == 1)} not answer."
        yield from paper.wrapped(words, 2, "notice")
    elif frame.reported_by is not None:
        words = f"Not known: {frame.reported_by} does not say what is wrong with {gpus}."
        yield from paper.wrapped(words, 2, "notice")
    else:
        yield from paper.wrapped(f"All is well: nothing was found on {gpus}.", 2, "good")


def _of_gpu(paper: Paper, gpu: Gpu, on_gpu: tuple[Finding, ...]) -> Iterator[StyledLine]:
    yield []
    heading = f" GPU {gpu.index}  {short_name(gpu.name)}  {gpu.pci_bus_id or ''}"
    yield [(heading.rstrip(), "heading")]
    if gpu.state == "late":
        old = f"It has not answered for {duration(gpu.stale_for)}."
        yield from paper.wrapped(old, 4, "alarm")
    for finding in on_gpu:
        yield from finding_lines(paper, finding)


def finding_lines(paper: Paper, finding: Finding) -> Iterator[StyledLine]:
    """Say how severe a finding is, what it is, and below that what to do."""
    yield from paper.marked(f"{finding.level}: {finding.text}", LEVEL_ROLES[finding.level])
    yield from paper.wrapped(finding.advice, 6, "quiet")
