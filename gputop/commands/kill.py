"""`gputop kill`: options, and what they do. The agent sends.

Exit status: 0 all are gone, 1 not all are, or nothing was sent, 2 usage, 3 the driver cannot be
read, 4 the agent ended.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing

import msgspec

from gputop.agent.idle_record import with_idle_times
from gputop.commands import HELP
from gputop.commands.selection import Selection, selected
from gputop.errors import DriverError, GputopError, SourceError, UsageError
from gputop.model.frame import Frame
from gputop.model.process_metrics import COLUMNS
from gputop.model.protocol import Signal
from gputop.model.signals import MOST_TARGETS, Target, Verdict, signal_name, signal_number
from gputop.model.text import printable, short_command, size
from gputop.settings import read, settings_path
from gputop.sources.local import LocalSource

_PATIENCE = 5.0
"""Seconds that a driver may take to wake up."""
_AFTER_GRACE = 10.0
"""Seconds in which the agent tells the last verdicts."""
_EPILOG = """\
examples:
  gputop kill 21195                        asks, sends SIGTERM, says what became of it
  gputop kill --user me --gpu 2            all of mine on GPU 2
  gputop kill train.py --dry-run           what would be signalled
  gputop kill 21195 --descendants --yes    with what it started; asks nothing

exit status: 0 all of them are gone, 1 not all are (or none was found, or the answer was no),
2 usage, 3 the NVIDIA driver cannot be read, 4 the agent ended
"""


def _signal(text: str) -> int:
    number = signal_number(text)
    if number is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no signal: give a name or number of kill -l")
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
        description="Send a signal to processes on GPUs, and tell what became of each.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("words", metavar="PID|WORD", nargs="*", help="PIDs, or words of the filter")
    add("--gpu", metavar="GPU", action="append", default=[],
        help="only on these: indices or beginnings of UUIDs, with commas or repeated")  # fmt: skip
    add("--user", metavar="NAME", help="only this user's; `me` is you")
    add("-s", "--signal", metavar="SIG", type=_signal, default=15,
        help="TERM, SIGTERM or 15 (default: TERM)")  # fmt: skip
    add("--grace", metavar="SEC", type=_grace, default=10.0,
        help="await their end so long (default: 10)")  # fmt: skip
    add("--descendants", action="store_true", help="what they started as well, parents first")
    add("--dry-run", action="store_true", help="tell what would be signalled, and send nothing")
    add("--yes", action="store_true", help="do not ask; others' processes are left alone")
    add("--foreign", action="store_true", help="with --yes: other users' processes as well")
    add("--json", dest="kill_json", action="store_true", help="print a line of JSON")


def run(options: argparse.Namespace) -> int:
    """Run the sub-command; the exit status. Raises GputopErrors."""
    if options.demo:
        raise UsageError("the demo has no processes; without --demo this machine's are meant")
    if read(os.environ, COLUMNS).readonly:
        path = settings_path(os.environ)
        raise GputopError(f"GPUTOP_READONLY is set, or readonly in {path}: nothing is signalled")
    asks = not (options.yes or options.dry_run)
    if asks and not (sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty()):
        raise UsageError("not a terminal, so nobody can be asked: give --yes, or --dry-run")
    if options.foreign and not options.yes:
        raise UsageError("--foreign goes with --yes; on a terminal you are asked")
    selection = Selection(options.words, options.gpu, options.user, options.descendants)
    with closing(LocalSource(1.0)) as source:
        frames = source.frames()
        frame = with_idle_times(_first(frames))  # its own agent counts from now
        targets = selected(frame, selection)
        _within_reason(targets)
        check = Signal(_id(), targets, 0, 0.0, options.descendants)
        found = _verdicts(source, frames, check, _PATIENCE)
        _within_reason(found)
        if options.descendants and {one.caution for one in found} & {"first", "ancestor"}:
            raise UsageError("gputop itself is a descendant of it: name what is to end")
        if options.dry_run:
            _report(options, found, frame)
            return 0
        confirmed = _confirmed(found, options, frame)
        order = Signal(_id(), confirmed, options.signal, options.grace)
        try:
            verdicts = _verdicts(source, frames, order, options.grace + _AFTER_GRACE)
        except KeyboardInterrupt:
            _say(f"{signal_name(options.signal)} was sent; what came of it is not awaited")
            raise
    _report(options, verdicts)
    if any(one.outcome == "refused" and one.caution == "foreign" for one in verdicts):
        _say("--foreign signals other users' processes as well")
    return 0 if all(one.outcome in ("exited", "gone") for one in verdicts) else 1


def _first(frames: Iterator[Frame]) -> Frame:
    """The first frame in which every GPU answers, or the one after some patience."""
    begun = time.monotonic()
    for frame in frames:
        over = time.monotonic() - begun >= _PATIENCE
        if frame.problem is not None and (over or frame.problem.kind != "not_answering"):
            raise DriverError(str(frame.problem))
        late = [gpu.index for gpu in frame.gpus if gpu.stale_for is not None]
        if frame.problem is None and (over or not late):
            for index in late:
                _say(f"GPU {index} does not answer: who is on it is not known for sure")
            return frame
    raise SourceError("the agent sends no more frames")


def _verdicts(
    source: LocalSource, frames: Iterator[Frame], order: Signal, patience: float
) -> tuple[Verdict, ...]:
    """What became of an order, once none of it waits."""
    source.request(order)
    end = time.monotonic() + patience
    for frame in frames:
        verdicts = tuple(one for one in frame.verdicts if one.order == order.order)
        over = time.monotonic() > end
        if verdicts and (over or all(one.outcome != "waiting" for one in verdicts)):
            return verdicts
        if over:
            raise SourceError("the agent does not tell what became of the signals: look again")
    raise SourceError("the agent sends no more frames")


def _within_reason(found: Sequence[object]) -> None:
    if len(found) >= MOST_TARGETS:
        raise UsageError(f"these are {MOST_TARGETS} processes or more: choose fewer at a time")


def _confirmed(
    found: Sequence[Verdict], options: argparse.Namespace, frame: Frame
) -> tuple[Target, ...]:
    """The targets in the order that was shown; GputopError if the answer is no."""
    cautions = {one.caution for one in found if one.outcome == "alive"} - {None}
    forced = cautions
    if options.yes:
        forced = cautions & ({"foreign"} if options.foreign else set())
    else:
        name = signal_name(options.signal)
        for one in found:
            _say(_plan(one, options.signal, frame), "")
        if not any(one.outcome == "alive" for one in found):
            raise GputopError("none of them can be signalled")
        word = "kill" if cautions else "y"
        hint = "Type kill to go on" if cautions else "[y/N]"
        _ask(f"Send {name} to {_count(found)}? {hint}: ", word)
    return tuple(Target(one.pid, one.start_time, one.caution in forced) for one in found)


def _ask(question: str, word: str) -> None:
    assert sys.stderr is not None
    try:
        sys.stderr.write(question)
        sys.stderr.flush()
        answer = sys.stdin.readline().strip().lower()
    except KeyboardInterrupt:
        _say("\nnothing was sent", "")
        raise
    if answer != word and not (word == "y" and answer == "yes"):
        raise GputopError("nothing was sent")


def _count(found: Sequence[Verdict]) -> str:
    count = sum(one.outcome == "alive" for one in found)
    return "this process" if count == 1 else f"these {count} processes"


def _report(
    options: argparse.Namespace, verdicts: Sequence[Verdict], plan: Frame | None = None
) -> None:
    """The verdicts; with the frame to `plan` by, what would be done."""
    if options.kill_json:
        _write(json.dumps({"verdicts": [_json(one, options.signal) for one in verdicts]}))
        for one in verdicts:
            if one.outcome not in ("exited", "gone") and plan is None:
                _say(_line(one))
    else:
        for one in verdicts:
            _write(_plan(one, options.signal, plan) if plan else _line(one))


def _json(verdict: Verdict, number: int) -> dict[str, object]:
    return {
        "pid": verdict.pid,
        "start_time": verdict.start_time,
        "command": verdict.command,
        "signal": number,
        "verdict": "alive" if verdict.outcome == "waiting" else verdict.outcome,
        "seconds": verdict.seconds,
        "freed": [msgspec.structs.asdict(one) for one in verdict.freed],
    }


def _plan(verdict: Verdict, number: int, frame: Frame) -> str:
    """A line about a process that is not signalled yet."""
    if verdict.outcome != "alive":
        return _line(verdict)
    caution = f"; {verdict.words}, which wants a confirmation" if verdict.caution else ""
    held = "; ".join(_held(verdict.pid, frame))
    words = f"would get {signal_name(number)}{caution}" + (f" ({held})" if held else "")
    return _line(msgspec.structs.replace(verdict, words=words))


def _held(pid: int, frame: Frame) -> Iterator[str]:
    """What it is on, as `38.2G on GPU 2`."""
    for gpu in frame.gpus:
        rows = [row for row in frame.processes if (row.pid, row.gpu_uuid) == (pid, gpu.uuid)]
        known = sum(row.gpu_memory or 0 for row in rows)
        if rows:
            yield f"{size(known)} on GPU {gpu.index}" if known else f"on GPU {gpu.index}"


def _line(verdict: Verdict) -> str:
    command = short_command(verdict.command)
    return f"{verdict.pid} {verdict.user or '-'} {printable(command, 60)}: {verdict.words}"


def _id() -> str:
    return uuid.uuid4().hex


def _say(text: str, prefix: str = "gputop: ") -> None:
    if sys.stderr is not None:
        print(f"{prefix}{text}", file=sys.stderr, flush=True)  # noqa: T201


def _write(text: str) -> None:
    try:
        os.write(1, text.encode("utf-8", "replace") + b"\n")
    except OSError as error:
        raise GputopError(f"cannot write to standard output: {error.strerror}") from None
