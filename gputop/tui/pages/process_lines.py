"""The page of a process: what frames say of it, and what the agent reads on request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from gputop.model.cuda.frameworks import FRAMEWORKS, MAIN, device_name
from gputop.model.cuda.process_mapping import ProcessMapping
from gputop.model.machine.detail import EnvVariable
from gputop.model.machine.environment import State
from gputop.model.machine.frame import Frame
from gputop.model.machine.origin import Container, Origin
from gputop.model.machine.process_id import ProcessId
from gputop.model.machine.text import (
    GIB,
    date_time,
    duration,
    printable,
    size,
)
from gputop.model.metrics.history import ProcessHistory
from gputop.model.metrics.metric import Metric
from gputop.model.metrics.process import COLUMNS, NUMBERS_ANYWHERE, NUMBERS_ON_GPU, ProcessRow
from gputop.sources.source import Moment
from gputop.tui.pages.base import IDLE
from gputop.tui.pages.process_state import ProcessPageState
from gputop.tui.panes.lines import StyledLine
from gputop.tui.panes.paper import LABEL, Paper, headline, title
from gputop.tui.panes.plot import peak, sparkline
from gputop.tui.themes import LEVEL_ROLES

_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting in the kernel (D), which signals do not interrupt",
    "Z": "zombie: it has ended, and its parent has not reaped it",
    "T": "stopped (kill -CONT continues it)",
    "t": "stopped by a debugger",
    "I": "idle in the kernel",
}
_TYPES = {"C": "compute", "G": "graphics", "M": "compute through MPS"}
_IN_WORDS = ("state", "idle_for")
"""Numbers that the page tells in a sentence."""
_LABELS = {framework.id: framework.label for framework in FRAMEWORKS}
_CONTEXT = GIB
"""A process with fewer bytes on one GPU and more on another has only a context on the first."""
_COMMAND = 5
"""The most lines of a command at the top of the page."""
_MOST_SAMPLES = 60
ENVIRONMENT = "Variables of GPUs, ranks and jobs"
STACK = "Stack"
_BEFORE_START = "not started yet at this time; later values are shown"
_NO_VARIABLES: dict[State, str] = {
    "unreadable": "not permitted: only root and its owner may read them",
    "overwritten": "the process has overwritten the variables it was started with",
    "empty_block": "it has none",
    "gone": "it has ended",
    "too_long": "unknown: they are longer than gputop reads",
    "no_answer": "unknown: the process does not answer",
}
_NOT_HERE = "the process is not in this /proc"
_NOT_KEPT: dict[Moment, str] = {
    "past": "not kept for the past: Esc twice returns to now",
    "replay": "not recorded",
}


def process_lines(paper: Paper, state: ProcessPageState) -> Iterator[StyledLine]:
    """Yield what frames say of the process."""
    process = state.rows[0].process
    yield []
    headed = f"Process {process.pid}" + (f"  {process.user}" if process.user else "")
    yield headline(state.frame, headed)
    command = list(paper.wrapped(process.command or "not in this /proc", 1))
    yield from command[:_COMMAND]
    if len(command) > _COMMAND:
        yield [(f" {paper.glyphs.ellipsis} all of it is below", "quiet")]
    if state.ended:
        left = "it has ended, or left the GPUs; these are its last figures"
        yield [(f" {_BEFORE_START if state.before_start else left}", "alarm")]
    yield from _advice(paper, state, has_harm=True)
    yield from title("On the GPUs")
    for row, past in zip(state.rows, state.pasts, strict=True):
        yield from _on_gpu(paper, row, past, state)
    yield []
    yield from paper.facts(_facts(paper, state.rows[0]))
    yield from title("CUDA device names")
    yield from _named(paper, state)
    yield from title("Origin")
    if process.elsewhere:
        yield from paper.quiet("The PID may be the host's: no process here is known to be it.")
    elif process.origin is None:
        yield from paper.quiet("Not read yet.")
    else:
        yield from _origin(paper, process.origin, process.parent)
    if len(command) > _COMMAND:
        yield from title("Command line")
        yield from paper.wrapped(process.command or "")


def _facts(paper: Paper, row: ProcessRow) -> Iterator[str]:
    process, value = row.process, paper.glyphs.value
    yield _STATES.get(process.state or "", f"state {value(COLUMNS['state'].text(row))}")
    yield from _numbers(paper, NUMBERS_ANYWHERE, row)
    if process.start_time is not None:
        yield f"started {date_time(process.start_time)}, {COLUMNS['age'].text(row)} ago"


def _numbers(
    paper: Paper, metrics: Mapping[str, Metric[ProcessRow]], row: ProcessRow
) -> Iterator[str]:
    for id_, metric in metrics.items():
        if id_ not in _IN_WORDS:
            yield f"{metric.label} {paper.glyphs.value(metric.text(row))}"


def _origin(paper: Paper, origin: Origin, parent: int | None) -> Iterator[StyledLine]:
    job = origin.slurm_job
    facts = {
        "directory": origin.cwd,
        "environment": origin.venv,
        "started by": _ancestors(origin) or (f"process {parent}" if parent else None),
        "terminal": origin.session,
        "ssh from": origin.ssh_from,
        "container": _container(origin.container),
        "pod": origin.pod,
        "Slurm": job and _slurm(paper, job, origin),
        "unit": origin.unit,
    }
    for label, text in facts.items():
        if text:
            yield from paper.labelled(label, text)
    missing = [label for label, text in facts.items() if not text]
    if missing:
        yield from paper.quiet(f"none or unknown: {', '.join(missing)}")


def _slurm(paper: Paper, job: str, origin: Origin) -> str:
    account = f", account {origin.slurm_account}" if origin.slurm_account else ""
    return f"job {job}, step {origin.slurm_step or paper.glyphs.not_available}{account}"


def _ancestors(origin: Origin) -> str:
    return " > ".join(f"{process.name} {process.pid}" for process in reversed(origin.ancestors))


def _container(container: Container | None) -> str | None:
    if container is None:
        return None
    facts = [container.runtime, container.image and f"image {container.image}"]
    if container.name is not None:
        facts.append(container.id[:12])
    return f"{container.label} ({', '.join(filter(None, facts)) or 'runtime not known'})"


def _on_gpu(
    paper: Paper, row: ProcessRow, past: ProcessHistory, state: ProcessPageState
) -> Iterator[StyledLine]:
    facts = _numbers(paper, NUMBERS_ON_GPU, row)
    name, gpu = row.cuda or "", f"GPU {COLUMNS['gpu'].text(row)}"
    yield [(f"  {gpu:<{LABEL - 4}}", "text"), (f"{name:<9}", "key"), ("  ".join(facts), "text")]
    for words in _words(row, state):
        yield from paper.wrapped(words, 2 + LABEL, "quiet")
    if len(past.memory) > 1:
        yield _graphs(paper, past)


def _words(row: ProcessRow, state: ProcessPageState) -> Iterator[str]:
    process, gpu = row.process, row.gpu
    used = ", ".join(_TYPES.get(kind, kind) for kind in process.type.split("+"))
    if gpu is not None:
        used = f"{gpu.name or 'a GPU'}, {used}"
    if process.gpu_instance is not None:
        gi, ci = process.gpu_instance, process.compute_instance
        devices = (gpu and gpu.mig) or ()
        profile = next((mig.profile for mig in devices if (mig.gi, mig.ci) == (gi, ci)), None)
        used += f"; GPU instance {gi}" + ("" if ci is None else f", compute instance {ci}")
        used += f" ({profile})" if profile else ""
    yield used
    idle, now = process.idle_for, state.frame.time if state.frame else None
    if idle is not None and idle >= IDLE and now is not None:
        since = date_time(now - idle, now)
        yield f"no work seen in its samples for {duration(idle)}, since {since}"
    held = max(row.process.gpu_memory or 0 for row in state.rows)
    if process.gpu_memory is not None and process.gpu_memory < _CONTEXT <= held:
        yield "a context only: ranks open one on cuda:0 too"


def _graphs(paper: Paper, past: ProcessHistory) -> StyledLine:
    """Draw memory as a part of its peak, and the share of the SMs, with one sample per cell."""
    highest = max(0.0, peak(past.memory[-_MOST_SAMPLES:]) or 0.0)
    end = f"  peak {size(int(highest))}   SM "
    room = (paper.width - 2 - LABEL - len("memory ") - len(end) - 1) // 2
    width = min(max(4, room), _MOST_SAMPLES, len(past.memory))
    memory = sparkline(past.memory[-width:], highest or 1.0, lambda _: "memory", paper.glyphs)
    sm = sparkline(past.sm[-width:], 1.0, lambda _: "load", paper.glyphs)
    return [
        (" " * (2 + LABEL) + "memory ", "quiet"),
        *memory,
        (end, "quiet"),
        *sm,
    ]


def _named(paper: Paper, state: ProcessPageState) -> Iterator[StyledLine]:
    mapping, around = state.mapping, state.rows[0].process.cuda_context
    if mapping is None or around is None:
        yield from paper.quiet("Its variables have not been read.")
        return
    yield from _devices(mapping, paper.glyphs.to)
    for sentence in mapping.reasoning(named=False):
        yield from paper.wrapped(sentence)
    if around.frameworks:
        loaded = ", ".join(_LABELS[id_] for id_ in around.frameworks if id_ in _LABELS)
        yield from paper.wrapped(f"It has loaded {loaded}.")
    yield from _advice(paper, state, has_harm=False)


def _advice(paper: Paper, state: ProcessPageState, has_harm: bool) -> Iterator[StyledLine]:
    """Yield the advice on its variables that is an error or a warning, or that is neither."""
    for hint in state.mapping.advice if state.mapping else ():
        if (hint.level in ("error", "warning")) == has_harm:
            yield from paper.marked(hint.text, LEVEL_ROLES[hint.level])


def _devices(mapping: ProcessMapping, to: str) -> Iterator[StyledLine]:
    used = {device_id for device_id, _ in mapping.evidence.names}
    for k, device in enumerate(mapping.mapping.visible or ()):
        names = "".join(f"{device_name(framework, k):<16}" for framework in MAIN)
        line: StyledLine = [(f"  {names}", "heading"), (f"{to}  {device.label}", "text")]
        yield [*line, ("  in use", "good")] if device.id in used else line


def detail_lines(paper: Paper, state: ProcessPageState) -> Iterator[StyledLine]:
    """Yield the variables, open devices, children and stack of the process."""
    yield from title(ENVIRONMENT)
    yield from _gpu_variables(paper, state)
    yield from title("Open devices")
    yield from _files(paper, state)
    yield from title("Children")
    yield from _children(paper, state)
    yield from title("Other variables")
    yield from _other_variables(paper, state)
    yield from title(STACK)
    yield from _stack(paper, state)


def _waiting(state: ProcessPageState) -> str | None:
    """Return why there are no details; None if there are."""
    if state.detail is not None:
        return None
    if state.moment != "now":
        return _NOT_KEPT[state.moment]
    if state.key.process.start_ticks is None:
        return f"unknown: {_NOT_HERE}"
    if state.ended or state.gone:
        return "unknown: it ended before it was read"
    return "being read" if state.refused is None else f"unknown: {state.refused}"


def _no_variables(state: ProcessPageState) -> str:
    """Return why no variables were read."""
    missing = "unset" if state.detail is None else state.detail.missing
    return _waiting(state) or _NO_VARIABLES.get(missing, "none")


def _gpu_variables(paper: Paper, state: ProcessPageState) -> Iterator[StyledLine]:
    detail = state.detail
    if detail is not None and detail.variables is not None:
        values = [(v.name, v.value or "") for v in detail.variables if v.kind == "gpu"]
    elif state.mapping is not None and state.mapping.environ.variables:
        variables = state.mapping.environ.variables
        values = [(name, printable(value, 400)) for name, value in variables.items()]
    else:
        yield from paper.quiet(_no_variables(state))
        return
    for name, value in values:
        yield from paper.wrapped(f"{name}={value}")
    if not values:
        yield from paper.quiet("none")


def _other_variables(paper: Paper, state: ProcessPageState) -> Iterator[StyledLine]:
    detail = state.detail
    if detail is None or detail.variables is None:
        yield from paper.quiet(_no_variables(state))
        return
    others = [variable for variable in detail.variables if variable.kind == "other"]
    secrets = [variable.name for variable in detail.variables if variable.kind == "secret"]
    if state.with_values:
        yield from paper.quiet("e hides the values")
        for variable in others:
            yield from paper.wrapped(_assignment(variable, state.refused))
    elif others:
        yield from paper.quiet("e shows the values of")
        yield from paper.wrapped(", ".join(variable.name for variable in others))
    if secrets:
        yield from paper.quiet("not shown, as they may be secrets:")
        yield from paper.wrapped(", ".join(secrets))
    if not others and not secrets:
        yield from paper.quiet("none")
    if detail.variables_count > len(detail.variables):
        more = detail.variables_count - len(detail.variables)
        yield from paper.quiet(f"and {more} more")


def _assignment(variable: EnvVariable, refused: str | None) -> str:
    if variable.value is not None:
        return f"{variable.name}={variable.value}"
    return f"{variable.name}  ({'being read' if refused is None else 'not read'})"


def _files(paper: Paper, state: ProcessPageState) -> Iterator[StyledLine]:
    detail = state.detail
    if detail is None:
        yield from paper.quiet(_waiting(state) or "")
    elif detail.files is None or detail.devices is None:
        yield from paper.quiet("not permitted: only root and its owner may read its open files")
    else:
        none = "none of a GPU" if detail.devices_whole else "none of a GPU among the first"
        devices = ", ".join(detail.devices) or none
        yield from paper.wrapped(f"{devices}; {detail.files} open files in all")
        if not detail.devices_whole:
            yield from paper.quiet("not all of them could be read")


def _children(paper: Paper, state: ProcessPageState) -> Iterator[StyledLine]:
    detail = state.detail
    if detail is None or not detail.children:
        yield from paper.quiet(_waiting(state) or "none")
        return
    gpus = _gpus_by_process(state.frame)
    now = state.frame.time if state.frame else None
    yield [(f"  {'PID':>7}  {'TIME':>6}  {'GPU':<9}  COMMAND", "quiet")]
    for child in detail.children:
        indices = sorted(gpus.get(child.process, ()))
        on = ",".join(map(str, indices)) or paper.glyphs.not_available
        age = duration(None if now is None else now - child.start_time)
        yield [(f"  {child.process.pid:>7}  {age:>6}  {on:<9}  {child.command}", "text")]
    more = detail.children_count - len(detail.children)
    if more > 0:
        yield from paper.quiet(f"and {more} more")


def _gpus_by_process(frame: Frame | None) -> Mapping[ProcessId, set[int]]:
    """Return NVML's indices of the GPUs of processes."""
    gpus: defaultdict[ProcessId, set[int]] = defaultdict(set)
    if frame is not None:
        indices = {gpu.uuid: gpu.index for gpu in frame.gpus}
        for process in frame.processes:
            if process.gpu_uuid in indices:
                gpus[process.id].add(indices[process.gpu_uuid])
    return gpus


def _stack(paper: Paper, state: ProcessPageState) -> Iterator[StyledLine]:
    stack = state.stack
    if state.stack_wanted:
        yield from paper.quiet("asking py-spy")
    elif state.moment != "now":
        yield from paper.quiet(_NOT_KEPT[state.moment])
    elif stack is None and state.can_be_read:
        yield from paper.quiet("t asks py-spy where a Python process is")
    elif stack is None:
        yield from paper.quiet("it has ended" if state.ended else _NOT_HERE)
    elif stack.problem is not None:
        yield from paper.wrapped(stack.problem, 2, "notice")
    else:
        for line in stack.lines or ("py-spy returned nothing",):
            yield [(f"  {line}", "text")]
