"""`gputop replay`: shows a recording on the screen."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gputop.commands.screen import show
from gputop.commands.shared.options import LOOKS
from gputop.errors import UsageError
from gputop.model.instants import FORMS, parse_instant
from gputop.model.machine.text import printable
from gputop.recording.days import default_folder
from gputop.recording.reader import Recording
from gputop.settings import Session, session_of
from gputop.sources.feed import Feed
from gputop.sources.recording import RecordingSource
from gputop.tui.terminal.capabilities import unfit_reason

if TYPE_CHECKING:
    from gputop.tui.replay import ReplayApp

_MOST_HOSTS = 20
DESCRIPTION = "Show what gputop record wrote down, on the screen of then."
EPILOG = """\
examples:
  gputop replay                     what gputop record wrote, at its end
  gputop replay -2h                 two hours ago
  gputop replay night.gputop --at '2026-11-21 03:00'
  gputop replay --at 03:00 -H node1    today, one host of several

On the screen:  , .  a sample back, on    < >  a minute    t  to a time    Space  run, stop
  1 to 9  run 1, 2, 5, 10, 20, 50, 100, 200, 500 times as fast as it was

exit status: 0 done, 1 the recording cannot be read, 2 usage
"""
TAKES = {**LOOKS, "user": "", "print_last": ""}


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("path", metavar="FILE|FOLDER", nargs="?",
        help="the recording (default: ~/.local/state/gputop/recordings, or below"
        " $XDG_STATE_HOME)")  # fmt: skip
    add("--at", metavar="TIME",
        help=f"begin at this local time: {FORMS}, the last also without --at (default: the"
        " end)")  # fmt: skip
    add("-H", "--host", metavar="HOST", dest="recorded_host",
        help="show this one of the hosts that were recorded")  # fmt: skip


def run(options: argparse.Namespace) -> int:
    at = _instant(options.at)
    recording = Recording(Path(options.path or default_folder()))
    host = _host(recording.hosts, options.recorded_host)
    if reason := unfit_reason(os.environ):
        raise UsageError(f"{reason}; a replay needs a terminal")
    at = at if options.at else recording.span(host)[1]
    losses = recording.losses
    note = f"{losses[0]}{f' (and {len(losses) - 1} more)' if losses[1:] else ''}" if losses else ""
    feed = Feed(RecordingSource(recording, host, at))

    def make(feeds: Sequence[Feed], session: Session) -> ReplayApp:
        from gputop.tui.replay import ReplayApp

        return ReplayApp(feeds, session, at=at, note=note)

    return show([feed], session_of(options), make)


def _instant(text: str | None) -> float:
    now = time.time()
    try:
        return now if text is None else parse_instant(text, now)
    except ValueError as error:
        raise UsageError(f"--at {printable(str(error), 200)}") from None


def _host(hosts: Sequence[str], wanted: str | None) -> str:
    """Return the host that is asked for, or the only one. UsageError lists the recorded ones."""
    if wanted in hosts or (wanted is None and len(hosts) == 1):
        return wanted or hosts[0]
    more = f" and {len(hosts) - _MOST_HOSTS} more" if len(hosts) > _MOST_HOSTS else ""
    names = f"{', '.join(hosts[:_MOST_HOSTS])}{more}"
    if wanted is None:
        raise UsageError(f"{len(hosts)} hosts were recorded: choose one with -H: {names}")
    raise UsageError(f"{printable(wanted, 100)!r} was not recorded, but {names}")
