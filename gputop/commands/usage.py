"""`gputop usage`: adds up who held GPUs, from a recording."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from gputop.commands.shared.options import JSON
from gputop.errors import GputopError, UsageError
from gputop.export.usage import notes, usage_csv, usage_json, usage_table
from gputop.model.instants import is_span, parse_instant
from gputop.model.machine.text import date_time, printable
from gputop.model.usage.grouping import GROUPINGS
from gputop.model.usage.totals import UsageTotals
from gputop.output import complain, write
from gputop.recording.counting import RecordedUsage
from gputop.recording.days import default_folder

DESCRIPTION = "Add up who held GPUs, worked on them and left them idle, from a recording."
EPILOG = """\
examples:
  gputop usage                                     who held GPUs in the last 7 days
  gputop usage --since 30d --by job --csv > jobs.csv
  gputop usage --by user,host                      a row for each user on each host
  gputop usage night.gputop --by command           all of one file
  gputop usage --since 2026-11-01 --until 2026-12-01

HELD     GPU-hours with a process on the GPU; a MIG device counts by its memory
WORKED   of these, times the SM utilization of its processes
IDLE     of these, without any work in the samples
UNKNOWN  of these, without samples of work
A GPU that several share is held by each of them, and once in the total.
Time that was not recorded counts for nobody. gputop help recording says more.

exit status: 0 done, 1 nothing is recorded, 2 usage
"""
_FORMS = "2026-11-21, '2026-11-21 03:00', 03:00 or 12h, 7d"
_WEEK = 7 * 86400.0
TAKES = JSON
APART = (("--json", "--csv"),)


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("path", metavar="FILE|FOLDER", nargs="?",
        help="a recording (default: where gputop record writes)")  # fmt: skip
    add("--since", metavar="TIME",
        help=f"the beginning in local time: {_FORMS} before the end (default: 7d; with"
        " FILE, its beginning)")  # fmt: skip
    add("--until", metavar="TIME",
        help="the end, written the same way (default: now; with FILE, its end)")  # fmt: skip
    add("--by", metavar="WHAT", default="user",
        help=f"what a row is: {', '.join(GROUPINGS)}, or several, as user,host"
        " (default: user)")  # fmt: skip
    add("--csv", action="store_true", help="print a table for spreadsheets")


def run(options: argparse.Namespace) -> int:
    for word in options.by.split(","):
        if word not in GROUPINGS:
            what = printable(repr(word), 100)
            raise UsageError(f"unknown --by {what}: choose from {', '.join(GROUPINGS)}")
    path, now = _path(options.path), time.time()
    recorded = RecordedUsage(path, now)
    totals = UsageTotals(options.by, *_window(options, path, recorded.span, now))
    recorded.add_to(totals)
    if options.json:
        write(usage_json(totals) + "\n", "utf-8", required=True)
    elif options.csv:
        write(usage_csv(totals), "utf-8", required=True)
        for note in notes(totals):
            complain(note)
    else:
        write(usage_table(totals))
    return 0


def _path(path: str | None) -> Path:
    """Return where the recording is. GputopError if there is none where it usually is."""
    folder = default_folder()
    if path is None and not os.path.isdir(folder):
        raise GputopError(
            f"nothing is recorded in {folder}: run gputop record, or name a recording"
        )
    return Path(path or folder)


def _window(
    options: argparse.Namespace, path: Path, span: tuple[float, float], now: float
) -> tuple[float, float]:
    """Return the span that is asked for; `span`: what is recorded. UsageError; GputopError if none
    of it is recorded."""
    first, last = span
    end = last if options.path else now
    until = _instant("--until", options.until, end) if options.until else end
    if options.since:
        since = _instant("--since", options.since, until)
    else:
        since = first if options.path else until - _WEEK
    if since >= until:
        raise UsageError(f"--since {date_time(since)} is not before {date_time(until)}")
    if until < first or since > last:
        raise GputopError(
            f"nothing is recorded from {date_time(since)} to {date_time(until)}:"
            f" {path} has {date_time(first)} to {date_time(last)}"
        )
    return since, until


def _instant(option: str, text: str, end: float) -> float:
    """Return the instant that a text means; a span, as 7d or -7d, is before `end`. UsageError."""
    try:
        return parse_instant(f"-{text}" if is_span(f"-{text}") else text, end)
    except ValueError:
        what = printable(repr(text), 100)
        raise UsageError(f"{option} {what} is not a time: write {_FORMS}") from None
