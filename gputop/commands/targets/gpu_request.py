"""Which GPUs a job needs: options of `free`, `run`, `reserve` and `wait`, and the request made."""

from __future__ import annotations

import argparse
import math
import os

from gputop.allocation.gpu_watch import WINDOW
from gputop.commands.shared.values import duration, percentage, size, span
from gputop.errors import UsageError
from gputop.model.cuda.enumeration import PCI_BUS_ID
from gputop.model.cuda.pick import PickRequest
from gputop.model.health.free import AT_WORK
from gputop.model.machine.environment import NAME, ORDER
from gputop.model.machine.text import is_blank, printable

_window = duration("a number of seconds from 0 to 60", most=60)


def add_pick_options(parser: argparse._ActionsContainer) -> None:
    """Add the options that say which GPUs are needed, and how long to wait for them."""
    add = parser.add_argument
    add("-n", dest="count", metavar="N", type=int, default=1, help="how many (default: 1)")
    add_likeness(parser)
    add("--wait", metavar="TIME", type=span, nargs="?", default=0.0, const=math.inf,
        help="wait until there are enough, at most 90, 10m or 2h (default: no limit)")  # fmt: skip
    add("--window", metavar="SEC", type=_window, default=WINDOW,
        help="seconds to watch the utilization (default: 2)")  # fmt: skip
    add("--uuid", action="store_true",
        help=f"name GPUs by UUID (default: by index, with {ORDER}={PCI_BUS_ID})")  # fmt: skip


def add_likeness(parser: argparse._ActionsContainer) -> None:
    add = parser.add_argument
    add("--min-free", metavar="SIZE", type=size,
        help="this much free memory, as 20GiB, 20G, 500MiB (default: nothing in use)")  # fmt: skip
    add("--max-util", metavar="PERCENT", type=percentage,
        help="not busier than that (default: 10, with --shared 100)")  # fmt: skip
    add("--exclude", metavar="LIST", help="not these: indices, slices (0:2), beginnings of UUIDs")
    add("--same-model", action="store_true", help="demand one model (default: prefer it)")
    add("--shared", action="store_true", help="GPUs in use as well; needs --min-free")


def pick_request(options: argparse.Namespace) -> PickRequest:
    """Return what the options ask for; our own CUDA variables mean nothing on other machines.
    UsageError."""
    if options.count < 1:
        raise UsageError(f"-n {options.count} is not a number of GPUs")
    limit = options.max_util
    if limit is None:
        limit = 100 if options.shared else AT_WORK * 100
    elsewhere = options.hosts or options.prometheus is not None
    return PickRequest(
        count=options.count,
        min_free=options.min_free,
        max_utilization=limit / 100,
        shared=options.shared,
        same_model=options.same_model,
        exclude=_excluded(options.exclude),
        value=None if elsewhere else os.environ.get(NAME),
        order=None if elsewhere else os.environ.get(ORDER),
    )


def _excluded(text: str | None) -> tuple[str, ...]:
    """Return the words. UsageError for an empty one: `0,$OTHER` would exclude too little."""
    words = () if text is None else tuple(word.strip() for word in text.split(","))
    if any(map(is_blank, words)):
        raise UsageError(f"--exclude {printable(text or '', 60)!r} has an empty entry")
    return words
