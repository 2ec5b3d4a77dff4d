"""`gputop kill`: signals processes on GPUs and reports what became of each."""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
import termios
import time
from collections.abc import Iterator, Sequence, Set
from contextlib import ExitStack
from typing import NamedTuple

import msgspec

from gputop.commands.shared.hosts import answers_of, complain_of_overdue, of_host
from gputop.commands.shared.options import HOSTS, JSON
from gputop.commands.shared.values import duration
from gputop.commands.targets.selection import (
    NobodyFitsError,
    ProcessSelection,
    ProcessSelector,
    selection_of,
)
from gputop.errors import DriverError, GputopError, SourceError, UsageError
from gputop.model.machine.frame import Frame
from gputop.model.machine.signals import (
    FOREIGN,
    MOST_TARGETS,
    Caution,
    Target,
    Verdict,
    signal_name,
    signal_number,
)
from gputop.model.machine.text import printable, short_command, size
from gputop.output import complain, write, write_error
from gputop.protocol.messages import Candidates, Signal
from gputop.settings import VARIABLES, file_believed, from_environment, settings_path
from gputop.sources.ask import TIMEOUT, answers, ask, readable_frame
from gputop.sources.opening import open_source
from gputop.sources.source import Source
from gputop.sources.ssh.names import HostName

_QUIET, _KEYS_TIMEOUT = 0.3, 5.0
"""Seconds without a key before the question is asked, and seconds to wait for such a pause."""
_AFTER_GRACE = 10.0
"""Seconds after the grace time in which the agent must send the last verdicts."""
_ENDED = ("exited", "gone")
DESCRIPTION = "Send a signal to processes on GPUs, and say what became of each."
EPILOG = """\
examples:
  gputop kill 21195                        asks, sends SIGTERM, says what became of it
  gputop kill --user me --gpu 2            all of mine on GPU 2
  gputop kill train.py --dry-run           what would be signalled
  gputop kill 21195 --descendants --yes    with what it started; asks nothing
  gputop kill --user me -H node1,node2     mine on other machines, signalled there

A number is a PID, and never searched for: in a filter write pid:21195 (the screen's own
filter also looks for digits in command lines). What names nobody is an error: an empty
word, !train alone, user: without a name.

exit status: 0 all of them are gone, 1 not all are (or none was found, or the answer was no),
2 usage, 3 the NVIDIA driver cannot be read or the agent does not answer, 4 the agent ended
"""


class _Plan(NamedTuple):
    """What would be signalled on a machine, and the source that does it."""

    source: Source
    frame: Frame
    verdicts: tuple[Verdict, ...]


_Plans = dict[HostName | None, _Plan]
_Verdicts = dict[HostName | None, tuple[Verdict, ...]]
"""Plans and verdicts by host; None is this machine."""


def _signal(text: str) -> int:
    number = signal_number(text)
    if number is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a signal: give a name or number of kill -l"
        )
    return number


_grace = duration("a number of seconds from 0 to 3600", most=3600)
TAKES = {
    **HOSTS,
    **JSON,
    "user": "only this user's; `me` is you, +1000 is a number",
    "readonly": "",
}
NEEDS = {"--foreign": ("--yes",)}


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("words", metavar="PID|WORD", nargs="*",
        help="PIDs, or words of the filter; in a filter a PID is pid:21195")  # fmt: skip
    add("--gpu", metavar="GPU", action="append", default=[],
        help="only on these: indices or beginnings of UUIDs, with commas or repeated")  # fmt: skip
    add("-s", "--signal", metavar="SIG", type=_signal, default=15,
        help="TERM, SIGTERM or 15 (default: TERM)")  # fmt: skip
    add("--grace", metavar="SEC", type=_grace, default=10.0,
        help="seconds to wait for their end (default: 10)")  # fmt: skip
    add("--descendants", action="store_true", help="also what they started, parents first")
    add("--dry-run", action="store_true", help="only print what would be signalled")
    add("--yes", action="store_true",
        help="do not ask; leave other users' and containers' processes alone")  # fmt: skip
    add("--foreign", action="store_true",
        help="with --yes: also other users' and containers' processes")  # fmt: skip


def run(options: argparse.Namespace) -> int:
    _check(options)
    selection = selection_of(options, options.descendants)
    with ExitStack() as sources:
        plans, complete = _plans(options, selection, sources)
        if options.dry_run:
            _report(options, {host: plan.verdicts for host, plan in plans.items()}, plans)
            return 0 if complete else 1
        verdicts = _signalled(plans, _confirmed(plans, options), options)
    _report(options, verdicts)
    every = [verdict for group in verdicts.values() for verdict in group]
    for reason in dict.fromkeys(verdict.audit_error for verdict in every if verdict.audit_error):
        complain(reason)
    if any(verdict.outcome == "refused" and verdict.caution in FOREIGN for verdict in every):
        complain("--foreign signals other users' and containers' processes as well")
    complete = complete and len(verdicts) == len(plans)
    return 0 if complete and all(verdict.outcome in _ENDED for verdict in every) else 1


def _check(options: argparse.Namespace) -> None:
    """Check what can be checked without an agent. UsageError, GputopError."""
    variable = VARIABLES["readonly"]
    only = file_believed(("readonly",)), {variable: os.environ.get(variable, "")}
    if options.readonly or from_environment(*only).readonly:
        where = f"GPUTOP_READONLY is set, or readonly in {settings_path()}"
        raise GputopError(f"--readonly is given, or {where}: nothing is signalled")
    asks = not (options.yes or options.dry_run)
    if asks and not (sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty()):
        raise UsageError("not a terminal, so nobody can be asked: give --yes, or --dry-run")


def _plans(
    options: argparse.Namespace, selection: ProcessSelection, sources: ExitStack
) -> tuple[_Plans, bool]:
    """Return what would be signalled on each host, and whether every host has answered.

    `sources` closes the sources opened here. GputopError if there is no process to signal.
    """
    nobody: list[NobodyFitsError] = []

    def prepare(host: HostName | None) -> _Plan | None:
        source = open_source(host, 1.0)
        sources.callback(source.close)
        frame = readable_frame(source, answers)
        complain_of_overdue(host, frame, "who is on it is not known for sure")
        reply = ask(source, Candidates(selection.descendants, users=selection.users), TIMEOUT)
        try:
            targets = ProcessSelector(frame, reply.candidates, reply.uids).targets(selection)
        except NobodyFitsError as error:  # a process on another host may fit
            nobody.append(error)
            return None
        return _Plan(source, frame, _planned(source, frame, targets, options))

    answered = dict(answers_of(options.hosts, prepare, more=2 * TIMEOUT))
    plans = {host: plan for host, plan in answered.items() if plan is not None}
    if not plans:
        raise nobody[0] if nobody else GputopError("nothing was sent")
    return plans, len(answered) == max(1, len(options.hosts))


def _planned(
    source: Source, frame: Frame, targets: tuple[Target, ...], options: argparse.Namespace
) -> tuple[Verdict, ...]:
    """Return what would be signalled. UsageError for too many processes, or gputop itself."""
    _within_reason(targets)
    check = Signal("", targets, 0, 0.0, options.descendants, frame.host.boot_id)
    plan = ask(source, check, TIMEOUT).verdicts
    _within_reason(plan)
    if options.descendants and {verdict.caution for verdict in plan} & {"first", "ancestor"}:
        raise UsageError("gputop itself is a descendant of it: name what is to end")
    return plan


def _signalled(plans: _Plans, forced: Set[Caution], options: argparse.Namespace) -> _Verdicts:
    """Send the signal on all hosts at once and return the verdicts. Ctrl-C ends the wait for them,
    and hosts that do not answer are named; both are reported on standard error."""
    name = signal_name(options.signal)
    words = f". {name} may have been sent: gputop --once shows who is there"
    timeout = options.grace + _AFTER_GRACE

    def send(host: HostName | None) -> tuple[Verdict, ...]:
        source, frame, plan = plans[host]
        targets = tuple(Target(v.process, v.caution in forced) for v in plan)
        request = Signal("", targets, options.signal, options.grace, False, frame.host.boot_id)
        try:
            return ask(source, request, timeout).verdicts
        except (DriverError, SourceError) as error:
            if host is None and isinstance(error, SourceError):
                raise
            raise type(error)(f"{error}{words}") from None

    try:
        hosts = [host for host in plans if host is not None]
        return dict(answers_of(hosts, send, timeout, words))
    except KeyboardInterrupt:
        complain(f"{name} was sent; gputop does not wait for the result")
        raise


def _within_reason(processes: Sequence[object]) -> None:
    if len(processes) >= MOST_TARGETS:
        raise UsageError(f"these are {MOST_TARGETS} processes or more: choose fewer at a time")


def _confirmed(plans: _Plans, options: argparse.Namespace) -> Set[Caution]:
    """Return the cautions that were confirmed: their processes get the signal as well. GputopError
    if the answer is no."""
    every = [verdict for plan in plans.values() for verdict in plan.verdicts]
    alive = [verdict for verdict in every if verdict.outcome == "alive"]
    cautions = {verdict.caution for verdict in alive if verdict.caution is not None}
    if options.yes:
        return cautions & FOREIGN if options.foreign else set()
    for host, plan in plans.items():
        for verdict in plan.verdicts:
            write_error(of_host(host, f"{_would(verdict, options.signal, plan.frame)}\n"))
    if not alive:
        raise GputopError("none of them can be signalled")
    hosts = sum(any(v.outcome == "alive" for v in plan.verdicts) for plan in plans.values())
    question = _question(options.signal, len(alive), hosts, bool(cautions))
    _ask(question, "kill" if cautions else "y")
    return cautions


def _question(number: int, count: int, hosts: int, cautious: bool) -> str:
    processes = "this process" if count == 1 else f"these {count} processes"
    processes += f" on {hosts} hosts" if hosts > 1 else ""
    hint = "Type kill to continue" if cautious else "[y/N]"
    return f"Send {signal_name(number)} to {processes}? {hint}: "


def _ask(question: str, word: str) -> None:
    try:
        _await_quiet()
        write_error(question)
        answer = sys.stdin.readline().strip().lower()
    except KeyboardInterrupt:
        write_error("\nnothing was sent\n")
        raise
    except (OSError, termios.error) as error:  # termios.error is no OSError
        raise GputopError(f"cannot ask on this terminal: {error.args[-1]}") from None
    if answer != word and not (word == "y" and answer == "yes"):
        raise GputopError("nothing was sent")


def _await_quiet() -> None:
    """Drop what was typed before, until no line comes for a moment: a user who types ahead, or over
    a slow connection, has not read the question."""
    end = time.monotonic() + _KEYS_TIMEOUT
    termios.tcflush(sys.stdin, termios.TCIFLUSH)
    while select.select([sys.stdin], [], [], _QUIET)[0]:
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
        if time.monotonic() > end:
            raise GputopError(
                "keys arrive without a pause: nothing was asked, and nothing was sent"
            )
    termios.tcflush(sys.stdin, termios.TCIFLUSH)


def _report(options: argparse.Namespace, verdicts: _Verdicts, plans: _Plans | None = None) -> None:
    """Write the verdicts; with `plans`, write what would be done."""
    if options.json:
        listed = [
            _json(verdict, options.signal, host)
            for host, group in verdicts.items()
            for verdict in group
        ]
        write(json.dumps({"verdicts": listed}) + "\n", "utf-8", required=True)
    for host, group in verdicts.items():
        for verdict in group:
            line = _would(verdict, options.signal, plans[host].frame) if plans else _line(verdict)
            if not options.json:
                write(of_host(host, f"{line}\n"), "utf-8", required=True)
            elif verdict.outcome not in _ENDED and plans is None:
                complain(of_host(host, line))


def _json(verdict: Verdict, number: int, host: HostName | None) -> dict[str, object]:
    return {
        **({} if host is None else {"host": host.requested_name}),
        "pid": verdict.process.pid,
        "start_ticks": verdict.process.start_ticks,
        "start_time": verdict.start_time,
        "command": verdict.command,
        "signal": number,
        "verdict": "alive" if verdict.outcome == "waiting" else verdict.outcome,
        "seconds": verdict.seconds,
        "freed": [msgspec.structs.asdict(memory) for memory in verdict.freed],
    }


def _would(verdict: Verdict, number: int, frame: Frame) -> str:
    """Return a line about a process that has not been signalled yet."""
    if verdict.outcome != "alive":
        return _line(verdict)
    caution = f"; {verdict.words}, which needs a confirmation" if verdict.caution else ""
    held = "; ".join(_held(verdict.process.pid, frame))
    words = f"would get {signal_name(number)}{caution}" + (f" ({held})" if held else "")
    return _line(msgspec.structs.replace(verdict, words=words))


def _held(pid: int, frame: Frame) -> Iterator[str]:
    """Yield what a process holds on each GPU, as `38.2G on GPU 2`."""
    for gpu in frame.gpus:
        rows = [row for row in frame.processes if (row.pid, row.gpu_uuid) == (pid, gpu.uuid)]
        memory = sum(row.gpu_memory or 0 for row in rows)
        if rows:
            yield f"{size(memory)} on GPU {gpu.index}" if memory else f"on GPU {gpu.index}"


def _line(verdict: Verdict) -> str:
    command = short_command(verdict.command)
    return f"{verdict.process.pid} {verdict.user or '-'} {printable(command, 60)}: {verdict.words}"
