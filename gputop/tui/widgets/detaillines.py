"""The lines of the page of a process that the agent tells on demand."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.model.detail import EnvVariable
from gputop.model.environ import State
from gputop.model.text import MISSING, duration, printable
from gputop.tui.widgets.page import Line, Page
from gputop.tui.widgets.processpage import Subject, gpus_of, title

STACK = "Stack"

_NO_VARIABLES: dict[State, str] = {
    "unreadable": "not permitted: only root and its owner may read them",
    "overwritten": "the process wrote over the variables that it was started with",
    "empty_block": "it has none",
    "gone": "it has ended",
}


def detail_lines(page: Page, subject: Subject) -> Iterator[Line]:
    """Variables, open devices, children, the stack."""
    yield from title("Variables of GPUs, ranks and jobs")
    yield from _gpu_variables(page, subject)
    yield from title("Open devices")
    yield from _files(page, subject)
    yield from title("Children")
    yield from _children(page, subject)
    yield from title("Other variables")
    yield from _other_variables(page, subject)
    yield from title(STACK)
    yield from _stack(page, subject)


def _waiting(subject: Subject) -> str | None:
    """Why there is no answer; None where there is one."""
    if subject.detail is not None:
        return None
    if subject.key.start_time is None:
        return "not known: the process is not in this /proc"
    if subject.ended or subject.gone:
        return "not known: it ended before it was looked at"
    return "being looked at"


def _gpu_variables(page: Page, subject: Subject) -> Iterator[Line]:
    detail = subject.detail
    if detail is not None and detail.variables is not None:
        known = [(one.name, one.value or "") for one in detail.variables if one.kind == "gpu"]
    elif subject.mapping is not None and subject.mapping.environ.variables:
        variables = subject.mapping.environ.variables
        known = [(name, printable(value, 400)) for name, value in variables.items()]
    else:
        missing = "unset" if detail is None else detail.missing
        words = _NO_VARIABLES.get(missing, _waiting(subject) or "none")
        yield from page.wrapped(words, 2, "quiet")
        return
    for name, value in known:
        yield from page.wrapped(f"{name}={value}")
    if not known:
        yield from page.wrapped("none", 2, "quiet")


def _other_variables(page: Page, subject: Subject) -> Iterator[Line]:
    detail = subject.detail
    if detail is None or detail.variables is None:
        words = _waiting(subject) or _NO_VARIABLES.get(detail.missing if detail else "unset")
        yield from page.wrapped(words or "none", 2, "quiet")
        return
    others = [one for one in detail.variables if one.kind == "other"]
    secrets = [one.name for one in detail.variables if one.kind == "secret"]
    if subject.with_values:
        yield from page.wrapped("e hides the values", 2, "quiet")
        for one in others:
            yield from page.wrapped(_assignment(one))
    elif others:
        yield from page.wrapped("e shows the values of", 2, "quiet")
        yield from page.wrapped(", ".join(one.name for one in others))
    if secrets:
        yield from page.wrapped("not shown, for they may be secrets:", 2, "quiet")
        yield from page.wrapped(", ".join(secrets))
    if not others and not secrets:
        yield from page.wrapped("none", 2, "quiet")


def _assignment(variable: EnvVariable) -> str:
    value = variable.value
    return f"{variable.name}  (being read)" if value is None else f"{variable.name}={value}"


def _files(page: Page, subject: Subject) -> Iterator[Line]:
    detail = subject.detail
    if detail is None:
        yield from page.wrapped(_waiting(subject) or "", 2, "quiet")
    elif detail.files is None or detail.devices is None:
        yield from page.wrapped(
            "not permitted: only root and its owner may look at its open files", 2, "quiet"
        )
    else:
        devices = ", ".join(detail.devices) or "none of a GPU"
        yield from page.wrapped(f"{devices}; {detail.files} open files in all")


def _children(page: Page, subject: Subject) -> Iterator[Line]:
    detail = subject.detail
    if detail is None or not detail.children:
        yield from page.wrapped(_waiting(subject) or "none", 2, "quiet")
        return
    there = gpus_of(subject.frame)
    now = subject.frame.time if subject.frame else None
    yield [(f"  {'PID':>7}  {'TIME':>6}  {'GPU':<9}  COMMAND", "quiet")]
    for one in detail.children:
        indices = sorted(set(there.get((one.pid, one.start_time), ())))
        on = ",".join(map(str, indices)) or MISSING
        age = duration(None if now is None else now - one.start_time)
        yield [(f"  {one.pid:>7}  {age:>6}  {on:<9}  {one.command}", "text")]
    more = detail.children_count - len(detail.children)
    if more > 0:
        yield from page.wrapped(f"and {more} more", 2, "quiet")


def _stack(page: Page, subject: Subject) -> Iterator[Line]:
    stack = subject.stack
    if subject.stack_wanted:
        yield from page.wrapped("py-spy is looking", 2, "quiet")
    elif stack is None:
        yield from page.wrapped("t asks py-spy where a Python process is", 2, "quiet")
    elif stack.problem is not None:
        yield from page.wrapped(stack.problem, 2, "notice")
    else:
        for line in stack.lines or ("py-spy said nothing",):
            yield [(f"  {line}", "text")]
