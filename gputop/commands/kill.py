"""`gputop kill`: its options, and what they do."""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import closing

import msgspec

from gputop.commands import HELP
from gputop.commands.selection import selected, selection_of
from gputop.errors import DriverError, GputopError, UsageError
from gputop.model.machine.frame import Frame
from gputop.model.machine.signals import (
    FOREIGN,
    MOST_TARGETS,
    Target,
    Verdict,
    signal_name,
    signal_number,
)
from gputop.model.machine.text import printable, short_command, size
from gputop.model.metrics.process import COLUMNS
from gputop.output import complain, write, write_error
from gputop.protocol.messages import Candidates, Signal
from gputop.settings import (
    Settings,
    UnsafeSettingsError,
    from_environment,
    read,
    settings_path,
)
from gputop.sources.ask import TIMEOUT, answers, ask, readable_frame
from gputop.sources.local import LocalSource
from gputop.sources.source import Source

_QUIET, _KEYS_TIMEOUT = 0.3, 5.0
"""Seconds without a key before it asks, and in which that has to come."""
_AFTER_GRACE = 10.0
"""Seconds in which the agent sends the last verdicts."""
_EPILOG = """\
examples:
  gputop kill 21195                        asks, sends SIGTERM, says what became of it
  gputop kill --user me --gpu 2            all of mine on GPU 2
  gputop kill train.py --dry-run           what would be signalled
  gputop kill 21195 --descendants --yes    with what it started; asks nothing

A number is a PID, and never searched for: in a filter write pid:21195 (the screen's own
filter also looks for digits in command lines). What names nobody is an error: an empty
word, !train alone, user: without a name.

exit status: 0 all of them are gone, 1 not all are (or none was found, or the answer was no),
2 usage, 3 the NVIDIA driver cannot be read or the agent does not answer, 4 the agent ended
"""


def _signal(text: str) -> int:
    number = signal_number(text)
    if number is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a signal: give a name or number of kill -l"
        )
    return number


def _grace(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to 3600")
    return seconds


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the sub-command; `run` takes what it parses."""
    parser = commands.add_parser(
        "kill",
        help=HELP["kill"],
        description="Send a signal to processes on GPUs, and say what became of each.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("words", metavar="PID|WORD", nargs="*",
        help="PIDs, or words of the filter; in a filter a PID is pid:21195")  # fmt: skip
    add("--gpu", metavar="GPU", action="append", default=[],
        help="only on these: indices or beginnings of UUIDs, with commas or repeated")  # fmt: skip
    add("--user", metavar="NAME", help="only this user's; `me` is you, +1000 is a number")
    add("-s", "--signal", metavar="SIG", type=_signal, default=15,
        help="TERM, SIGTERM or 15 (default: TERM)")  # fmt: skip
    add("--grace", metavar="SEC", type=_grace, default=10.0,
        help="seconds to wait for their end (default: 10)")  # fmt: skip
    add("--descendants", action="store_true", help="also what they started, parents first")
    add("--dry-run", action="store_true", help="only tell what would be signalled")
    add("--yes", action="store_true",
        help="do not ask; leave other users' and containers' processes alone")  # fmt: skip
    add("--foreign", action="store_true",
        help="with --yes: also other users' and containers' processes")  # fmt: skip
    add("--json", dest="kill_json", action="store_true", help="print a line of JSON")


def run(options: argparse.Namespace) -> int:
    """Run the sub-command; the exit status. Raises GputopErrors."""
    if options.demo:
        raise UsageError("the demo has no processes; without --demo this machine's are meant")
    if _readonly():
        path = settings_path(os.environ)
        raise GputopError(f"GPUTOP_READONLY is set, or readonly in {path}: nothing is signalled")
    selection = selection_of(options.words, options.gpu, options.user, options.descendants)
    asks = not (options.yes or options.dry_run)
    if asks and not (sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty()):
        raise UsageError("not a terminal, so nobody can be asked: give --yes, or --dry-run")
    if options.foreign and not options.yes:
        raise UsageError("--foreign goes with --yes; on a terminal you are asked")
    with closing(LocalSource(1.0)) as source:
        frame = _first_frame(source)
        candidates = ask(source, Candidates(options.descendants), TIMEOUT).candidates
        plan = _plan(source, selected(frame, selection, candidates), options)
        if options.dry_run:
            _report(options, plan, frame)
            return 0
        confirmed = _confirmed(plan, options, frame)
        verdicts = _signalled(source, Signal("", confirmed, options.signal, options.grace))
    _report(options, verdicts)
    for reason in dict.fromkeys(verdict.unnoted for verdict in verdicts if verdict.unnoted):
        complain(reason)
    if any(verdict.outcome == "refused" and verdict.caution in FOREIGN for verdict in verdicts):
        complain("--foreign signals other users' and containers' processes as well")
    return 0 if all(verdict.outcome in ("exited", "gone") for verdict in verdicts) else 1


def _readonly() -> bool:
    """Return the setting; a file that is not to be believed is left out, and said to be."""
    try:
        return read(os.environ, COLUMNS).readonly
    except UnsafeSettingsError as error:
        complain(f"{error}; the defaults are used")
        return from_environment(Settings(), os.environ).readonly


def _first_frame(source: Source) -> Frame:
    frame = readable_frame(source, answers)
    for gpu in frame.gpus:
        if gpu.stale_for is not None:
            complain(f"GPU {gpu.index} does not answer: who is on it is not known for sure")
    return frame


def _plan(
    source: Source, targets: tuple[Target, ...], options: argparse.Namespace
) -> tuple[Verdict, ...]:
    """Return what would be signalled, descendants among it. UsageError for more than is sane."""
    _within_reason(targets)
    check = Signal("", targets, 0, 0.0, options.descendants)
    plan = ask(source, check, TIMEOUT).verdicts
    _within_reason(plan)
    if options.descendants and {verdict.caution for verdict in plan} & {"first", "ancestor"}:
        raise UsageError("gputop itself is a descendant of it: name what is to end")
    return plan


def _signalled(source: Source, signal: Signal) -> tuple[Verdict, ...]:
    """Send a signal and return what became of it; what is not awaited is said."""
    name = signal_name(signal.number)
    try:
        return ask(source, signal, signal.grace + _AFTER_GRACE).verdicts
    except KeyboardInterrupt:
        complain(f"{name} was sent; gputop does not wait for what comes of it")
        raise
    except DriverError as error:
        raise DriverError(f"{error}. {name} may have been sent: gputop --once shows who is there"
                          ) from None  # fmt: skip


def _within_reason(processes: Sequence[object]) -> None:
    if len(processes) >= MOST_TARGETS:
        raise UsageError(f"these are {MOST_TARGETS} processes or more: choose fewer at a time")


def _confirmed(
    plan: Sequence[Verdict], options: argparse.Namespace, frame: Frame
) -> tuple[Target, ...]:
    """Return the targets in the order that was shown; GputopError if the answer is no."""
    alive = [verdict for verdict in plan if verdict.outcome == "alive"]
    cautions = {verdict.caution for verdict in alive} - {None}
    if options.yes:
        forced = cautions & (FOREIGN if options.foreign else set())
    else:
        forced = cautions
        for verdict in plan:
            write_error(f"{_planned(verdict, options.signal, frame)}\n")
        if not alive:
            raise GputopError("none of them can be signalled")
        _ask(_question(options.signal, len(alive), bool(cautions)), "kill" if cautions else "y")
    return tuple(
        Target(verdict.pid, verdict.start_time, verdict.caution in forced) for verdict in plan
    )


def _question(number: int, count: int, cautious: bool) -> str:
    processes = "this process" if count == 1 else f"these {count} processes"
    hint = "Type kill to go on" if cautious else "[y/N]"
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
    """Drop what was typed before, until no line comes for a moment: whoever types ahead, or over a
    slow line, has not read what will be asked."""
    end = time.monotonic() + _KEYS_TIMEOUT
    termios.tcflush(sys.stdin, termios.TCIFLUSH)
    while select.select([sys.stdin], [], [], _QUIET)[0]:
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
        if time.monotonic() > end:
            raise GputopError("keys come without a pause: nothing was asked, and nothing sent")
    termios.tcflush(sys.stdin, termios.TCIFLUSH)


def _report(
    options: argparse.Namespace, verdicts: Sequence[Verdict], plan: Frame | None = None
) -> None:
    """Write the verdicts; with the frame to `plan` by, what would be done."""
    if not options.kill_json:
        for verdict in verdicts:
            line = _planned(verdict, options.signal, plan) if plan else _line(verdict)
            write(f"{line}\n", "utf-8", required=True)
        return
    listed = [_json(verdict, options.signal) for verdict in verdicts]
    write(json.dumps({"verdicts": listed}) + "\n", "utf-8", required=True)
    for verdict in verdicts:
        if verdict.outcome not in ("exited", "gone") and plan is None:
            complain(_line(verdict))


def _json(verdict: Verdict, number: int) -> dict[str, object]:
    return {
        "pid": verdict.pid,
        "start_time": verdict.start_time,
        "command": verdict.command,
        "signal": number,
        "verdict": "alive" if verdict.outcome == "waiting" else verdict.outcome,
        "seconds": verdict.seconds,
        "freed": [msgspec.structs.asdict(memory) for memory in verdict.freed],
    }


def _planned(verdict: Verdict, number: int, frame: Frame) -> str:
    """Return a line about a process that is not signalled yet."""
    if verdict.outcome != "alive":
        return _line(verdict)
    caution = f"; {verdict.words}, which wants a confirmation" if verdict.caution else ""
    held = "; ".join(_held(verdict.pid, frame))
    words = f"would get {signal_name(number)}{caution}" + (f" ({held})" if held else "")
    return _line(msgspec.structs.replace(verdict, words=words))


def _held(pid: int, frame: Frame) -> Iterator[str]:
    """Yield what a process is on, as `38.2G on GPU 2`."""
    for gpu in frame.gpus:
        rows = [row for row in frame.processes if (row.pid, row.gpu_uuid) == (pid, gpu.uuid)]
        memory = sum(row.gpu_memory or 0 for row in rows)
        if rows:
            yield f"{size(memory)} on GPU {gpu.index}" if memory else f"on GPU {gpu.index}"


def _line(verdict: Verdict) -> str:
    command = short_command(verdict.command)
    return f"{verdict.pid} {verdict.user or '-'} {printable(command, 60)}: {verdict.words}"
