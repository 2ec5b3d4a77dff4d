"""What needs attention on GPUs and in their processes, and what to do; nothing is run from here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import ClassVar

from textual.binding import BindingType

from gputop.model.health.findings import findings, in_alarm, xid_coverage
from gputop.model.machine.finding import Finding
from gputop.model.machine.frame import Frame, Process, ProcessKey
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.text import MISSING, counted, duration, short_name
from gputop.tui.pages.base import PageScreen
from gputop.tui.panes.choices import ChoicePage
from gputop.tui.panes.heading import described_key
from gputop.tui.panes.lines import StyledLine
from gputop.tui.panes.paper import Paper, headline, title
from gputop.tui.snapshot import Snapshot
from gputop.tui.themes import LEVEL_ROLES

Subject = str | ProcessKey
"""What a finding is about: a GPU by its key, or a process."""
Place = tuple[Subject, str, int]
"""A finding: its subject, its code, and which it is of those with this code there."""
_key = partial(described_key, "Health", area="health")


class HealthScreen(PageScreen[None]):
    """The findings in the last frame, as a list with a cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        _key("escape,H,backspace", "leave", "Back", "Back", "Esc"),
        _key("enter", "open", "Open", "The page of the GPU or the process", "Enter"),
    ]  # fmt: skip
    MORE_KEYS = (("j k PgDn", "select"),)

    def __init__(self, open_subject: Callable[[Subject], None]) -> None:
        """`open_subject` opens the page of a GPU or a process."""
        super().__init__()
        self._open = open_subject

    def body(self) -> ChoicePage[Place]:
        return ChoicePage(lambda chosen: self._open(chosen[0]))

    def action_open(self) -> None:
        self.query_one(ChoicePage).choose()

    def draw(self) -> None:
        if self.shown is None:
            super().draw()
        elif self.is_mounted:
            page = self.query_one(ChoicePage)
            page.show_choices(*health_page(page.paper, self.shown))


def health_page(paper: Paper, shown: Snapshot) -> tuple[list[StyledLine], dict[Place, int]]:
    """Return what was found in a frame, after a summary; and the line of each finding."""
    frame = shown.frame
    by_gpu = [(gpu, findings(frame, gpu)) for gpu in frame.gpus]
    by_process = _of_processes(shown)
    lines: list[StyledLine] = [[], headline(frame, "Health")]
    lines += _summary(paper, frame, any(on_gpu for _, on_gpu in by_gpu), bool(by_process))
    lines += paper.quiet(xid_coverage(frame))
    begins: dict[Place, int] = {}

    def add(subject: Subject, about: Iterable[Finding]) -> None:
        for finding in about:
            number = sum(before[:2] == (subject, finding.code) for before in begins)
            begins[subject, finding.code, number] = len(lines)
            lines.extend(finding_lines(paper, finding))

    for gpu, on_gpu in by_gpu:
        if on_gpu or gpu.is_overdue:
            lines += _heading(paper, gpu)
            add(gpu.key, on_gpu)
    if by_process:
        lines += title("Processes")
    for key, on_process in by_process.items():
        add(key, on_process)
    return lines, begins


def _of_processes(shown: Snapshot) -> dict[ProcessKey, list[Finding]]:
    """Return the errors and warnings about the variables of processes; those that several processes
    of a user share, for the first of them."""
    alike: dict[tuple[str | None, Finding], dict[ProcessKey, Process]] = {}
    for process in shown.frame.processes:
        mapping = shown.names.mapping(process)
        for hint in mapping.advice if mapping else ():
            if hint.level in ("error", "warning"):
                same = alike.setdefault((process.user, hint), {})
                same[shown.frame.key(process)] = process
    by_process: dict[ProcessKey, list[Finding]] = {}
    for (user, hint), processes in alike.items():
        key, first = next(iter(processes.items()))
        more = f" and {len(processes) - 1} more" if len(processes) > 1 else ""
        text = f"PID {first.pid}{more} of {user or MISSING}: {hint.text}"
        warning = Finding(hint.level, hint.code, text, hint.advice)
        by_process.setdefault(key, []).append(warning)
    return by_process


def _summary(paper: Paper, frame: Frame, on_gpus: bool, on_processes: bool) -> Iterator[StyledLine]:
    """Say how bad it is; something may have been found `on_gpus` or `on_processes`."""
    alarms, gpus = len(in_alarm(frame)), counted(len(frame.gpus), "GPU")
    silent = sum(gpu.is_overdue for gpu in frame.gpus)
    role = "text"
    if alarms:
        words, role = f"{alarms} of {gpus} need{'s' * (alarms == 1)} attention.", "alarm"
    elif on_processes:
        words = "No GPU is broken; some processes have wrong variables."
    elif on_gpus:
        words = "Nothing is broken; some things are worth knowing."
    elif silent:
        words = f"Nothing was found, but {silent} of {gpus} do{'es' * (silent == 1)} not answer."
        role = "notice"
    elif frame.reported_by is not None and not _tells_findings(frame):
        words = f"Not known: {frame.reported_by} does not say what is wrong with {gpus}."
        role = "notice"
    else:
        words, role = f"All is well: nothing was found on {gpus}.", "good"
    return paper.wrapped(words, 2, role)


def _tells_findings(frame: Frame) -> bool:
    """Whether what needs attention is reported of every GPU."""
    reports = [frame.report(gpu) for gpu in frame.gpus]
    return all(report is not None and report.findings is not None for report in reports)


def _heading(paper: Paper, gpu: Gpu) -> Iterator[StyledLine]:
    yield []
    heading = f" GPU {gpu.index}  {short_name(gpu.name)}  {gpu.pci_bus_id or ''}"
    yield [(heading.rstrip(), "heading")]
    if gpu.state == "late":
        old = f"It has not answered for {duration(gpu.stale_for)}."
        yield from paper.wrapped(old, 4, "alarm")


def finding_lines(paper: Paper, finding: Finding) -> Iterator[StyledLine]:
    """Say how severe a finding is, what it is, and below that what to do."""
    yield from paper.marked(f"{finding.level}: {finding.text}", LEVEL_ROLES[finding.level])
    if finding.advice:
        yield from paper.wrapped(finding.advice, 6, "quiet")
