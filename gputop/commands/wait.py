"""`gputop wait`: waits until something has happened on GPUs, and notifies a user."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from threading import Event

from gputop import notify
from gputop.commands.shared.hosts import complain_of, complain_of_overdue, of_host
from gputop.commands.shared.options import HOSTS
from gputop.commands.shared.values import duration, interval, percentage, span
from gputop.commands.targets.gpu_request import add_likeness, pick_request
from gputop.commands.targets.selection import selection_of
from gputop.commands.targets.wait_conditions import (
    Condition,
    GpusFree,
    GpusIdle,
    ProcessesEnd,
    UserLeaves,
)
from gputop.errors import DriverError, GputopError, LoginError, SourceError, UsageError
from gputop.model.machine import text
from gputop.model.machine.frame import Frame
from gputop.output import complain, write
from gputop.settings import file_believed
from gputop.sources.ask import TIMEOUT, answers, wait_for_frame
from gputop.sources.follow import follow
from gputop.sources.many import ask_hosts
from gputop.sources.opening import open_source
from gputop.sources.source import Source
from gputop.sources.ssh.names import HostName

TIMED_OUT, UNTOLD = 124, 5
"""Exit statuses: 124 as timeout(1) has it; 5 if a notification failed."""
DESCRIPTION = "Wait until something has happened on the GPUs, say so, and notify you."
EPILOG = """\
examples:
  gputop wait 21195                        until that process ends, be it on a GPU or not
  gputop wait train.py --gpu 0,1 --notify  until those that fit now have ended; tells the terminal
  gputop wait --user alice                 until alice computes on no GPU
  gputop wait --free 2 --min-free 40G      until two GPUs are free, as gputop free means it
  gputop wait --idle 10m --gpu 3           until GPU 3 has been below 5 % for ten minutes
  gputop wait 21195 --timeout 2h --notify-command 'mail -s gputop me'

A filter waits for the processes that it finds at the start; --user alone waits for later ones, too.
With several hosts it waits for all of them, but --free takes the first.

exit status: 0 it has happened, 1 other errors (no process matches, it cannot happen), 2 usage,
3 the NVIDIA driver cannot be read, 4 the agent ended, 5 it has happened and a notification failed,
124 timed out. After the start it waits for a driver or an agent that is gone to come back.
"""
_MAX_MESSAGE_CHARS = 500
"""Characters printed of a problem during the wait."""
_USER = "until this user has left, or with words: only theirs; `me` is you, +1000 is a number"
TAKES = {**HOSTS, "user": _USER}
NEEDS = {
    "--below": ("--idle",),
    "--shared": ("--min-free",),
    **dict.fromkeys(("--min-free", "--max-util", "--exclude", "--same-model"), ("--free",)),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("words", metavar="PID|WORD", nargs="*",
        help="until these processes have ended: PIDs, or words of the filter")  # fmt: skip
    add("--free", metavar="N", dest="count", type=int, nargs="?", const=1,
        help="until this many GPUs are free (1)")  # fmt: skip
    add("--idle", metavar="TIME", type=duration("a time, as 90, 10m or 2h", least=1), nargs="?",
        const=600.0, help="until all have been idle this long (10m)")  # fmt: skip
    add("--below", metavar="PERCENT", type=percentage,
        help="with --idle: utilization that still counts as idle (default: 5)")  # fmt: skip
    add("--gpu", metavar="GPU", action="append", default=[],
        help="only these: indices or beginnings of UUIDs, with commas or repeated")  # fmt: skip
    add_likeness(parser.add_argument_group("with --free, as of gputop free"))
    add("--timeout", metavar="TIME", type=span, help="wait no longer than 90, 10m or 2h")
    add("--every", metavar="TIME", type=interval, default=5.0,
        help="time between two checks (default: 5s)")  # fmt: skip
    add("--notify", action="store_true",
        help="notify as the settings notify (the terminal) and notify_command say")  # fmt: skip
    add("--notify-command", metavar="COMMAND",
        help="run this, without a shell, with the message as its last argument")  # fmt: skip


def run(options: argparse.Namespace) -> int:
    make = _condition(options)
    ways = _ways(options)
    over = Event()
    try:
        status, message = _outcome(options, make, over)
    finally:
        over.set()  # agents that end with us are no longer reported
    return _tell(ways, message, status) if message else status


def _outcome(
    options: argparse.Namespace, make: Callable[[], Condition], over: Event
) -> tuple[int, str]:
    conditions = {host: make() for host in options.hosts or (None,)}
    watch = partial(_watch, conditions=dict(conditions), interval=options.every, over=over)
    sentences, failed = [], False
    for host, answer in ask_hosts(list(conditions), watch, options.timeout):
        if isinstance(answer, str):
            sentences.append(answer)
            write(f"{answer}\n", "utf-8", required=True)
        elif host is None:
            raise answer
        else:
            complain_of(host, answer)
            failed = True
        del conditions[host]
        if sentences and options.count is not None:
            return 0, sentences[0]  # one host is enough
    if conditions:
        pending = "; ".join(of_host(host, each.pending) for host, each in conditions.items())
        words = f"timed out after {text.duration(options.timeout)}: waiting for {pending}"
        complain(words)
        return TIMED_OUT, words
    return int(failed), "; ".join(sentences)


# What is waited for


def _condition(options: argparse.Namespace) -> Callable[[], Condition]:
    """Return a function that makes the condition for a host. UsageError for none or several."""
    chosen = {"--free": options.count is not None, "--idle": options.idle is not None,
              "processes": bool(options.words or options.user is not None)}  # fmt: skip
    names = [name for name, is_chosen in chosen.items() if is_chosen]
    if len(names) > 1:
        raise UsageError(f"{' and '.join(names)}: wait for one of them at a time")
    if not names:
        raise UsageError("nothing to wait for: give PIDs, words of the filter, --user, --free or "
                         "--idle")  # fmt: skip
    if options.count is not None:
        if options.count < 1:
            raise UsageError(f"--free {options.count} is not a number of GPUs")
        request = pick_request(options)
        return lambda: GpusFree(request, options.gpu, elsewhere=bool(options.hosts))
    if options.idle is not None:
        if options.below == 0:
            raise UsageError("--below 0: nothing is below that")
        limit = (5.0 if options.below is None else options.below) / 100
        return lambda: GpusIdle(options.idle, limit, options.gpu, options.every)
    if not options.words:
        return lambda: UserLeaves(options.user, options.gpu)
    selection = selection_of(options, descendants=False)
    if selection.pids and (options.gpu or options.user is not None):
        raise UsageError("PIDs cannot be used with --gpu and --user")
    return lambda: ProcessesEnd(selection)


# Watching a machine


def _watch(
    host: HostName | None,
    conditions: Mapping[HostName | None, Condition],
    interval: float,
    over: Event,
) -> str:
    """Return a sentence once it has happened. GputopError; during the wait only for a login."""
    condition = conditions[host]
    with closing(open_source(host, interval)) as source:
        frame = wait_for_frame(source, answers, TIMEOUT)
        if frame.problem is not None and condition.needs_driver:
            raise DriverError(str(frame.problem))
        complain_of_overdue(host, frame, "what it does is not known")
        if sentence := condition.begin(source, frame):
            return sentence
        complain(of_host(host, f"waiting for {condition.pending}"))
        return _wait(source, condition, host, over)


def _wait(source: Source, condition: Condition, host: HostName | None, over: Event) -> str:
    """Return a sentence once it has happened: what breaks now is reported once, and tried again.
    `over` is set when the whole command has ended its wait. GputopError if ssh needs a person."""
    sentences: list[str] = []
    error: GputopError = SourceError("the wait is over")
    is_troubled = False

    def checks(source: Source) -> Iterator[Frame]:
        """Yield frames until the condition is true, or the wait is over."""
        while not sentences and not over.is_set():
            frame = wait_for_frame(source, lambda _: True, math.inf)
            if sentence := condition.check(source, frame):
                sentences.append(sentence)
            yield frame

    def handle(news: Frame | GputopError) -> None:
        """Write what is wrong when the trouble begins, and that the wait goes on when it ends."""
        nonlocal error, is_troubled
        trouble = ""
        if isinstance(news, GputopError):
            error, trouble = news, str(news)
        elif news.problem is not None and condition.needs_driver:
            trouble = str(news.problem)
        is_last = over.is_set() or isinstance(news, LoginError)  # a LoginError ends the wait
        if not is_last and bool(trouble) != is_troubled:
            is_troubled = not is_troubled
            words = f"{trouble}; still waiting" if trouble else "it can be read again"
            complain(of_host(host, text.printable(words, _MAX_MESSAGE_CHARS)))

    follow(source, checks, handle)
    if not sentences:
        raise error
    return sentences[0]


# Notifying


def _ways(options: argparse.Namespace) -> list[Callable[[str], None]]:
    """Return the functions that notify. UsageError for an invalid command: the user should
    know before the wait."""
    commands: list[str] = []
    ways: list[Callable[[str], None]] = []
    if options.notify:
        settings = file_believed(("notify", "notify_command"))
        ways.append(partial(notify.notify_terminal, manner=settings.notify))
        commands += [settings.notify_command] if settings.notify_command else []
    commands += [] if options.notify_command is None else [options.notify_command]
    for command in commands:
        notify.split_command(command)
        ways.append(partial(notify.notify_command, command=command))
    return ways


def _tell(ways: Iterable[Callable[[str], None]], message: str, status: int) -> int:
    """Notify in every way. Return the exit status: `status`, but UNTOLD in place of 0 if a way
    failed."""
    for way in ways:
        try:
            way(message)
        except GputopError as error:
            complain(str(error))
            status = status or UNTOLD
    return status
