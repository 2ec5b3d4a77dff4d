"""`gputop free`: options, and what they do.

Exit status: 0 chosen, 1 not enough, 2 usage, 3 the driver cannot be read.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import closing

from gputop.allowed import MIN_INTERVAL
from gputop.commands import HELP
from gputop.errors import DriverError, GputopError, SourceError, UsageError
from gputop.model.choice import Choice, Value, Wanted, choose, value_for
from gputop.model.enumeration import PCI_BUS_ID
from gputop.model.environ import NAME, ORDER
from gputop.model.frame import Frame
from gputop.model.text import short_name
from gputop.sources.local import LocalSource

_EPILOG = """\
examples:
  CUDA_VISIBLE_DEVICES=$(gputop free -n 2) python train.py     two GPUs that nobody uses
  gputop free --min-free 20GiB --shared    one with so much free, others may be on it
  gputop free -n 4 --same-model --wait 2h  wait for four of a kind
  eval "$(gputop free --format export)"    for all that this shell starts

exit status: 0 chosen, 1 there are not enough (nothing is printed, and an empty
CUDA_VISIBLE_DEVICES hides every GPU), 2 usage, 3 the NVIDIA driver cannot be read
"""
_LOOKS = 5
"""Frames in a window."""
_PATIENCE = 5.0
"""Seconds that a driver may take to wake up."""
_SIZES = {unit + end: 1024**k for k, unit in enumerate(("", *"kmgt")) for end in ("", "b", "ib")}
_TIMES = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def _quantity(units: Mapping[str, float], example: str, most: float) -> Callable[[str], float]:
    """A type for argparse: a number with a unit, or with none."""

    def parse(text: str) -> float:
        match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]+)?) ?([a-z%]*)", text.lower(), re.ASCII)
        factor = units.get(match[2]) if match else None
        if match is None or factor is None or float(match[1]) * factor > most:
            raise argparse.ArgumentTypeError(f"{text!r} is not {example}")
        return float(match[1]) * factor

    return parse


_size = _quantity(_SIZES, "a size, as 20GiB, 500M or a number of bytes", 2**60)
_time = _quantity(_TIMES, "a time, as 90, 10m or 2h", math.inf)
_window = _quantity({"": 1, "s": 1}, "a number of seconds from 0 to 60", 60)
_percent = _quantity({"": 1, "%": 1}, "a percentage from 0 to 100", 100)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the sub-command; `run` takes what it parses."""
    parser = commands.add_parser(
        "free",
        help=HELP["free"],
        description="Pick GPUs for a new job and print the CUDA_VISIBLE_DEVICES that names them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("-n", dest="count", metavar="N", type=int, default=1, help="how many (default: 1)")
    add("--min-free", metavar="SIZE", type=_size,
        help="so much free memory, as 20GiB, 20G, 500MiB (default: nothing in use)")  # fmt: skip
    add("--max-util", metavar="PERCENT", type=_percent,
        help="not busier than that (default: 10, with --shared 100)")  # fmt: skip
    add("--exclude", metavar="LIST", default="", help="not these: indices or beginnings of UUIDs")
    add("--same-model", action="store_true", help="demand one model (default: prefer it)")
    add("--shared", action="store_true", help="GPUs in use as well; goes with --min-free")
    add("--format", dest="form", choices=("uuid", "index", "export"), default="uuid",
        help="UUIDs, indices where exact, or a line for the shell (default: uuid)")  # fmt: skip
    add("--wait", metavar="TIME", type=_time, nargs="?", const=math.inf,
        help="wait until there are enough, at most 90, 10m or 2h (default: for ever)")  # fmt: skip
    add("--window", metavar="SEC", type=_window, default=2.0,
        help="watch the utilization so long (default: 2)")  # fmt: skip
    add("--json", dest="free_json", action="store_true", help="print a line of JSON")


def run(options: argparse.Namespace) -> int:
    """Run the sub-command; the exit status. Raises GputopErrors: not enough is one."""
    wanted = _wanted(options)
    frame, choice = _watch(options, wanted)
    gpus, order = choice.gpus, wanted.order
    value = value_for(frame, gpus, order, options.form) if gpus else None
    notes = [note for note in (choice.note, value.note if value else None) if note]
    for note in notes:
        _say(note)
    if value is None:
        for gpu in frame.gpus:
            reason = choice.reasons.get(gpu.index, "free")
            _say(f"GPU {gpu.index} {short_name(gpu.name)}: {reason}")
    if options.free_json:
        _write(_json(frame, choice, value, notes))
    elif value:
        exported = f"export {ORDER}={PCI_BUS_ID} {NAME}=" if options.form == "export" else ""
        _write(exported + value.text)
    if value is None:
        model = " of one model" if wanted.same_model and choice.free >= wanted.count else ""
        raise GputopError(f"not enough GPUs{model}: {choice.free} free, {wanted.count} asked for")
    return 0


def _wanted(options: argparse.Namespace) -> Wanted:
    if options.shared and options.min_free is None:
        raise UsageError("--shared goes with --min-free SIZE: how much memory the job needs")
    if options.count < 1:
        raise UsageError(f"-n {options.count} is no number of GPUs")
    limit = options.max_util
    if limit is None:
        limit = 100 if options.shared else 10
    return Wanted(
        count=options.count,
        min_free=options.min_free,
        max_utilization=limit / 100,
        shared=options.shared,
        same_model=options.same_model,
        exclude=tuple(word.strip() for word in options.exclude.split(",") if word.strip()),
        value=os.environ.get(NAME),
        order=os.environ.get(ORDER),
    )


def _watch(options: argparse.Namespace, wanted: Wanted) -> tuple[Frame, Choice]:
    """Look until there are enough, or the time is over."""
    looks = min(_LOOKS, 1 + int(options.window / MIN_INTERVAL))
    frames: deque[Frame] = deque(maxlen=looks)
    begun, told = time.monotonic(), False
    with closing(LocalSource(options.window / (looks - 1) if looks > 1 else 1.0)) as source:
        for frame in source.frames():
            spent = time.monotonic() - begun
            over = spent >= (options.wait or 0)
            if frame.problem is not None:
                silent = frame.problem.kind == "not_answering"
                if not silent or (over and spent >= _PATIENCE):
                    raise DriverError(str(frame.problem))
                frames.clear()
                continue
            if spent < _PATIENCE and any(gpu.stale_for is not None for gpu in frame.gpus):
                continue
            frames.append(frame)
            if len(frames) < looks:
                continue
            choice = choose(frames, wanted)
            if choice.gpus or over or not choice.possible:
                return frame, choice
            if not told:
                _say(f"waiting: {choice.free} free, {wanted.count} asked for")
                told = True
    raise SourceError("the agent sends no more frames")


def _json(frame: Frame, choice: Choice, value: Value | None, notes: list[str]) -> str:
    known = {
        gpu.index: {"gpu": gpu.index, "uuid": gpu.uuid, "pci_bus_id": gpu.pci_bus_id}
        for gpu in frame.gpus
    }
    gpus = [known[gpu.index] for gpu in choice.gpus or ()]
    refused = [{**known[index], "reason": reason} for index, reason in choice.reasons.items()]
    text = value and value.text
    return json.dumps({"value": text, "gpus": gpus, "refused": refused, "notes": notes})


def _say(text: str) -> None:
    if sys.stderr is not None:
        print(f"gputop: {text}", file=sys.stderr, flush=True)  # noqa: T201


def _write(text: str) -> None:
    """One line, which has to arrive: nothing at all would hide every GPU."""
    try:
        os.write(1, text.encode() + b"\n")
    except OSError as error:
        raise GputopError(f"cannot write to standard output: {error.strerror}") from None
