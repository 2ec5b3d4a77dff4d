"""`gputop doctor`: finds out what is wrong with a machine or a Python environment."""

from __future__ import annotations

import argparse
import json
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from gputop.commands import bug_report
from gputop.commands.shared.hosts import complain_of, print_answers, timeout_of
from gputop.commands.shared.options import HOSTS_ONCE, JSON
from gputop.errors import DriverError, GputopError, PermanentError, SourceError
from gputop.model.doctor.check import compare, frame_checks
from gputop.model.doctor.redaction import Redaction, without_secrets
from gputop.model.machine.finding import Finding
from gputop.model.machine.frame import Frame, Problem
from gputop.model.machine.text import plural
from gputop.output import write
from gputop.protocol.messages import Checks
from gputop.sources.agent_process import ANSWER
from gputop.sources.ask import TIMEOUT, answers, ask, frames_of, wait_for_frame
from gputop.sources.many import in_order, whole_answers
from gputop.sources.opening import NO_DRIVER, open_source
from gputop.sources.source import Source, is_smi_only
from gputop.sources.ssh.names import HostName
from gputop.sources.ssh.source import CONNECTION, SshSource

_CHECKS_TIMEOUT = 120.0
"""Seconds for the checks of what is installed; each program that they run has its own limit."""
_FRAMES, _INTERVAL = 6, 0.5
"""Rates are read at least every two seconds, and are known from the second reading on."""
_WIDEST = 100
DESCRIPTION = (
    "Find out what is wrong with the GPUs, their driver and what is installed"
    " for them, and what to do. It works without a driver, too."
)
EPILOG = """\
examples:
  gputop doctor                        driver, libraries, device nodes, toolkits, ...
  gputop doctor -H node1               another machine, and how gputop gets there
  gputop doctor -H @lab                what most have, and who differs in what
  gputop doctor --python ~/venv        why does this environment see no GPU
  gputop doctor --report bug.tar.gz    a file to send with a bug report
  gputop doctor --json | jq '.checks[] | select(.level == "error")'

--json: a line for each host: host (with -H), errors (how many), checks (each with
level: ok, info, warning or error; code: what it is about; text; advice, empty if none)

exit status: 0 no error was found, 1 there is one, 2 usage; with --report 0 it was
written, 1 it was not
"""
TAKES = {**HOSTS_ONCE, **JSON, "demo": ""}
NEEDS = {"--with-commands": ("--report",)}
APART = (("--report", "--json"), ("--report", "-H"), ("--report", "--hosts"))


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--report", metavar="FILE",
        help="write a .tar.gz for a bug report: what doctor says, three snapshots as JSON,"
        " versions, settings; without command lines, names of users and hosts, ...")  # fmt: skip
    add("--with-commands", action="store_true", help="with --report: leave out secrets only")
    add("--python", metavar="PATH",
        help="an interpreter or an environment's directory: is its torch, tensorflow or jax a CUDA"
        " build, with kernels for these GPUs, and which CUDA libraries are missing")  # fmt: skip


def run(options: argparse.Namespace) -> int:
    if options.report is not None:
        return _report(options.report, _examine(None, options), options.with_commands)

    def ask(host: HostName | None) -> list[Finding]:
        checks = _examine(host, options).checks
        ways_first = sorted(checks, key=lambda check: check.code != CONNECTION)
        return [check.harmless() for check in ways_first]

    def answer(host: HostName | None) -> tuple[str, int]:
        shown = ask(host)
        return _json(shown) if options.json else _text(shown), int(_errors(shown) > 0)

    if options.json or len(options.hosts) < 2:
        return print_answers(options, answer, _CHECKS_TIMEOUT)
    answers = whole_answers(options.hosts, ask, ANSWER + _CHECKS_TIMEOUT)
    return _compare(dict(in_order(options.hosts, answers)))


def _compare(answers: Mapping[HostName, list[Finding] | GputopError]) -> int:
    """Print what most hosts have and who differs, then who did not answer; return the status."""
    checks = {
        host.requested_name: answer
        for host, answer in answers.items()
        if not isinstance(answer, GputopError)
    }
    if len(checks) == 1:
        write("".join(f"{name}:\n{_text(of_host)}" for name, of_host in checks.items()))
    elif checks:
        write(_comparison(checks))
    for host, answer in answers.items():
        if isinstance(answer, GputopError):
            complain_of(host, answer)
    return int(len(checks) < len(answers) or any(map(_errors, checks.values())))


class _Examined(NamedTuple):
    """What gputop has read of a machine."""

    frames: list[Frame]
    installed: tuple[Finding, ...]
    """The agent's checks of what is installed, and of the connection to another machine."""
    is_smi_only: bool
    """Whether nvidia-smi alone answered, without an agent."""

    @property
    def checks(self) -> tuple[Finding, ...]:
        return (*frame_checks(self.frames, self.is_smi_only), *self.installed)


def _report(path: str, examined: _Examined, whole: bool) -> int:
    """Write the archive and print what it holds; `whole`: leave out secrets only."""
    redaction = Redaction()
    frames = list(map(without_secrets if whole else redaction.frame, examined.frames))
    checks = [check.harmless() for check in examined._replace(frames=frames).checks]
    if not whole:
        checks = list(map(bug_report.harmless_check, checks))
    texts = {"doctor.txt": _text(checks), "doctor.json": _json(checks)}
    texts.update(bug_report.attachments(frames, whole))
    bug_report.write_archive(path, texts)
    write(bug_report.contents(texts, path, whole))
    return 0


def _examine(host: HostName | None, options: argparse.Namespace) -> _Examined:
    """Return what can be read of a machine.

    If the agent ends or hangs, a second one that leaves the driver alone still checks what is
    installed, and the last frame has the problem.
    """
    timeout = timeout_of(options)
    opened = partial(open_source, host, _INTERVAL, demo=options.demo, timeout=timeout)
    frames: list[Frame] = []
    try:
        with closing(opened()) as source:
            for frame in _frames(source):
                frames.append(frame)
            return _examined(source, frames, options.python)
    except PermanentError:
        raise
    except (DriverError, SourceError) as error:
        problem = Problem(
            code="not_answering",
            text=f"the driver and the GPUs did not answer: {error}",
            advice="the rest of this list is known without them",
        )
    with closing(opened(less=(NO_DRIVER,))) as source:
        last = frames[-1] if frames else wait_for_frame(source, lambda _: True, TIMEOUT)
        frames.append(replace(last, problem=problem))
        return _examined(source, frames, options.python)


def _frames(source: Source) -> Iterator[Frame]:
    """Yield some frames, only one if the driver cannot be read. DriverError, SourceError."""
    first = wait_for_frame(source, answers, TIMEOUT)
    yield first
    if first.problem is None:
        yield from islice(frames_of(source), _FRAMES - 1)


def _examined(source: Source, frames: list[Frame], python: str | None) -> _Examined:
    """Add the agent's checks, and that of the connection to another machine. SourceError."""
    link = source.link_finding if isinstance(source, SshSource) else None
    checks = (link,) if link else ()
    if is_smi_only(source):
        return _Examined(frames, checks, True)  # there is no agent to ask
    request = Checks(python, frames[-1].cuda_version, _capabilities(frames))
    return _Examined(frames, (*checks, *ask(source, request, _CHECKS_TIMEOUT).checks), False)


def _capabilities(frames: Sequence[Frame]) -> dict[str, list[int]]:
    """Return GPU indices by compute capability, for GPUs that had one in any frame."""
    indices: dict[str, list[int]] = {}
    identities = {gpu.index: gpu.identity for frame in frames for gpu in frame.gpus if gpu.identity}
    for index, identity in identities.items():
        if identity.compute_capability is not None:
            indices.setdefault(identity.compute_capability, []).append(index)
    return indices


def _errors(checks: Sequence[Finding]) -> int:
    return sum(check.level == "error" for check in checks)


def _json(checks: Sequence[Finding]) -> str:
    listed = [msgspec.to_builtins(check) for check in checks]
    return json.dumps({"errors": _errors(checks), "checks": listed}) + "\n"


def _text(checks: Sequence[Finding]) -> str:
    """Return a paragraph for each check, and the number of errors."""
    return _lines([*chain.from_iterable(map(_paragraph, checks)), _count_of_errors(checks)])


def _comparison(checks: Mapping[str, Sequence[Finding]]) -> str:
    """Return a paragraph for each check that most hosts have, and then for each that others have,
    with their names, and the number of errors of all."""
    common, differences = compare(checks)
    lines = [f"most of {len(checks)} hosts:", *chain.from_iterable(map(_paragraph, common))]
    lines += ["", "and different:" if differences else "no host differs"]
    for check, hosts in differences.items():
        lines += _paragraph(check)
        lines += _wrapped(" " * 9 + "on ", ", ".join(hosts))
    return _lines([*lines, "", _count_of_errors(list(chain.from_iterable(checks.values())))])


def _paragraph(check: Finding) -> list[str]:
    """Return the lines of a check, with its advice below."""
    lines = _wrapped(f"{check.level:9}", f"{check.code}: {check.text}")
    return lines + _wrapped(" " * 9 + "-> ", check.advice)


def _wrapped(begin: str, text: str) -> list[str]:
    width = min(_WIDEST, shutil.get_terminal_size().columns)
    return textwrap.wrap(
        text, width, initial_indent=begin, subsequent_indent=" " * len(begin),
        break_on_hyphens=False, break_long_words=False,
    )  # fmt: skip


def _count_of_errors(checks: Sequence[Finding]) -> str:
    return f"{_errors(checks) or 'no'} {plural(_errors(checks), 'error')}"


def _lines(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"
