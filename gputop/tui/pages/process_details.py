"""The page of a process: what the agent reads on request."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.model.machine.detail import EnvVariable
from gputop.model.machine.environment import State
from gputop.model.machine.text import MISSING, duration, printable
from gputop.sources.past import Moment
from gputop.tui.pages.process_lines import ProcessSubject, gpus_of
from gputop.tui.panes.lines import StyledLine
from gputop.tui.panes.page import Page, title

ENVIRONMENT = "Variables of GPUs, ranks and jobs"
STACK = "Stack"

_NO_VARIABLES: dict[State, str] = {
    "unreadable": "not permitted: only root and its owner may read them",
    "overwritten": "the process has overwritten the variables it was started with",
    "empty_block": "it has none",
    "gone": "it has ended",
    "too_long": "unknown: they are longer than gputop reads",
}
_NOT_KEPT: dict[Moment, str] = {
    "past": "not kept for the past: Esc twice returns to now",
    "replay": "not recorded",
}


def detail_lines(page: Page, subject: ProcessSubject) -> Iterator[StyledLine]:
    """Return variables, open devices, children, the stack."""
    yield from title(ENVIRONMENT)
    yield from _gpu_variables(page, subject)
    yield from title("Open devices")
    yield from _files(page, subject)
    yield from title("Children")
    yield from _children(page, subject)
    yield from title("Other variables")
    yield from _other_variables(page, subject)
    yield from title(STACK)
    yield from _stack(page, subject)


def _waiting(subject: ProcessSubject) -> str | None:
    """Say why there is no answer; None where there is one."""
    if subject.detail is not None:
        return None
    if subject.moment != "now":
        return _NOT_KEPT[subject.moment]
    if subject.key.start_time is None:
        return "unknown: the process is not in this /proc"
    if subject.ended or subject.gone:
        return "unknown: it ended before it was read"
    return "being read" if subject.refused is None else f"unknown: {subject.refused}"


def _gpu_variables(page: Page, subject: ProcessSubject) -> Iterator[StyledLine]:
    detail = subject.detail
    if detail is not None and detail.variables is not None:
        values = [(v.name, v.value or "") for v in detail.variables if v.kind == "gpu"]
    elif subject.mapping is not None and subject.mapping.environ.variables:
        variables = subject.mapping.environ.variables
        values = [(name, printable(value, 400)) for name, value in variables.items()]
    else:
        missing = "unset" if detail is None else detail.missing
        words = _NO_VARIABLES.get(missing, _waiting(subject) or "none")
        yield from page.quiet(words)
        return
    for name, value in values:
        yield from page.wrapped(f"{name}={value}")
    if not values:
        yield from page.quiet("none")


def _other_variables(page: Page, subject: ProcessSubject) -> Iterator[StyledLine]:
    detail = subject.detail
    if detail is None or detail.variables is None:
        words = _waiting(subject) or _NO_VARIABLES.get(detail.missing if detail else "unset")
        yield from page.quiet(words or "none")
        return
    others = [variable for variable in detail.variables if variable.kind == "other"]
    secrets = [variable.name for variable in detail.variables if variable.kind == "secret"]
    if subject.with_values:
        yield from page.quiet("e hides the values")
        for variable in others:
            yield from page.wrapped(_assignment(variable, subject.refused))
    elif others:
        yield from page.quiet("e shows the values of")
        yield from page.wrapped(", ".join(variable.name for variable in others))
    if secrets:
        yield from page.quiet("not shown, as they may be secrets:")
        yield from page.wrapped(", ".join(secrets))
    if not others and not secrets:
        yield from page.quiet("none")
    if detail.variables_count > len(detail.variables):
        more = detail.variables_count - len(detail.variables)
        yield from page.quiet(f"and {more} more")


def _assignment(variable: EnvVariable, refused: str | None) -> str:
    if variable.value is not None:
        return f"{variable.name}={variable.value}"
    return f"{variable.name}  ({'being read' if refused is None else 'not read'})"


def _files(page: Page, subject: ProcessSubject) -> Iterator[StyledLine]:
    detail = subject.detail
    if detail is None:
        yield from page.quiet(_waiting(subject) or "")
    elif detail.files is None or detail.devices is None:
        yield from page.quiet("not permitted: only root and its owner may read its open files")
    else:
        none = "none of a GPU" if detail.devices_whole else "none of a GPU among the first"
        devices = ", ".join(detail.devices) or none
        yield from page.wrapped(f"{devices}; {detail.files} open files in all")
        if not detail.devices_whole:
            yield from page.quiet("not all of them could be read")


def _children(page: Page, subject: ProcessSubject) -> Iterator[StyledLine]:
    detail = subject.detail
    if detail is None or not detail.children:
        yield from page.quiet(_waiting(subject) or "none")
        return
    gpus = gpus_of(subject.frame)
    now = subject.frame.time if subject.frame else None
    yield [(f"  {'PID':>7}  {'TIME':>6}  {'GPU':<9}  COMMAND", "quiet")]
    for child in detail.children:
        indices = sorted(set(gpus.get((child.pid, child.start_time), ())))
        on = ",".join(map(str, indices)) or MISSING
        age = duration(None if now is None else now - child.start_time)
        yield [(f"  {child.pid:>7}  {age:>6}  {on:<9}  {child.command}", "text")]
    more = detail.children_count - len(detail.children)
    if more > 0:
        yield from page.quiet(f"and {more} more")


def _stack(page: Page, subject: ProcessSubject) -> Iterator[StyledLine]:
    stack = subject.stack
    if subject.stack_wanted:
        yield from page.quiet("asking py-spy")
    elif subject.moment != "now":
        yield from page.quiet(_NOT_KEPT[subject.moment])
    elif stack is None:
        yield from page.quiet("t asks py-spy where a Python process is")
    elif stack.problem is not None:
        yield from page.wrapped(stack.problem, 2, "notice")
    else:
        for line in stack.lines or ("py-spy returned nothing",):
            yield [(f"  {line}", "text")]
