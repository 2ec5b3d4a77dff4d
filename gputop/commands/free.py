"""`gputop free`: its options, and what they do."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import closing

from gputop.commands import HELP
from gputop.errors import DriverError, GputopError, UsageError
from gputop.model.cuda.enumeration import PCI_BUS_ID
from gputop.model.cuda.pick import GpuPick, PickedValue, PickRequest, choose, value_for
from gputop.model.health.free import AT_WORK, is_free
from gputop.model.machine.environment import NAME, ORDER
from gputop.model.machine.frame import Frame
from gputop.model.machine.text import is_blank, printable, short_name
from gputop.output import complain, write
from gputop.protocol.messages import MIN_INTERVAL
from gputop.sources.ask import TIMEOUT, answers, wait_for_frame
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
_MOST_FRAMES = 5
"""In a window."""
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
    add("--exclude", metavar="LIST", help="not these: indices or beginnings of UUIDs")
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
    request = _request(options)
    frame, pick = _watch(options, request)
    value = value_for(frame, pick.gpus, request.order, options.form) if pick.gpus else None
    notes = [note for note in (pick.note, value.note if value else None) if note]
    for note in notes:
        complain(note)
    if value is None:
        for gpu in frame.gpus:
            fits = "free" if is_free(frame, gpu) else "suitable"
            reason = pick.reasons.get(gpu.index, fits)
            complain(f"GPU {gpu.index} {short_name(gpu.name)}: {reason}")
    if options.free_json:
        write(_json(frame, pick, value, notes) + "\n", "utf-8", required=True)
    elif value:
        exported = f"export {ORDER}={PCI_BUS_ID} {NAME}=" if options.form == "export" else ""
        write(f"{exported}{value.text}\n", "utf-8", required=True)
    if value is None:
        model = " of one model" if request.same_model and pick.suitable >= request.count else ""
        raise GputopError(f"not enough GPUs{model}: {_tally(pick, request)}")
    return 0


def _tally(pick: GpuPick, request: PickRequest) -> str:
    """Say how many there are; "free" where they are that, whatever the request leaves out."""
    word = "free" if pick.suitable == pick.free else "suitable"
    return f"{pick.suitable} {word}, {request.count} requested"


def _request(options: argparse.Namespace) -> PickRequest:
    if options.shared and options.min_free is None:
        raise UsageError("--shared goes with --min-free SIZE: how much memory the job needs")
    if options.count < 1:
        raise UsageError(f"-n {options.count} is not a number of GPUs")
    limit = options.max_util
    if limit is None:
        limit = 100 if options.shared else AT_WORK * 100
    return PickRequest(
        count=options.count,
        min_free=options.min_free,
        max_utilization=limit / 100,
        shared=options.shared,
        same_model=options.same_model,
        exclude=_excluded(options.exclude),
        value=os.environ.get(NAME),
        order=os.environ.get(ORDER),
    )


def _excluded(text: str | None) -> tuple[str, ...]:
    """Return the words; one that is empty is an error: `0,$OTHER` would leave out less."""
    words = () if text is None else tuple(word.strip() for word in text.split(","))
    if any(map(is_blank, words)):
        raise UsageError(f"--exclude {printable(text or '', 60)!r} has an empty entry")
    return words


class _Watch:
    """Picks GPUs by the frames of a window."""

    def __init__(self, request: PickRequest, frames: int, wait: float) -> None:
        self._request, self._wait = request, wait
        self._frames: deque[Frame] = deque(maxlen=frames)
        self._begun = time.monotonic()
        self._waits = False
        self.pick: GpuPick | None = None

    def is_over(self, frame: Frame) -> bool:
        """Take another frame and return whether there are enough, or the time is over."""
        spent = time.monotonic() - self._begun
        over = spent >= self._wait
        if frame.problem is not None:
            self._frames.clear()
            return answers(frame) or (over and spent >= TIMEOUT)
        if spent < TIMEOUT and not answers(frame):
            return False
        self._frames.append(frame)
        if len(self._frames) < (self._frames.maxlen or 0):
            return False
        self.pick = pick = choose(self._frames, self._request)
        if pick.gpus or over or not pick.possible:
            return True
        if not self._waits:
            complain(f"waiting: {_tally(pick, self._request)}")
            self._waits = True
        return False


def _watch(options: argparse.Namespace, request: PickRequest) -> tuple[Frame, GpuPick]:
    """Watch the GPUs until there are enough, or the time is over. DriverError."""
    count = min(_MOST_FRAMES, 1 + int(options.window / MIN_INTERVAL))
    watch = _Watch(request, count, options.wait or 0)
    with closing(LocalSource(options.window / (count - 1) if count > 1 else 1.0)) as source:
        frame = wait_for_frame(source, watch.is_over, math.inf)
    if frame.problem is not None:
        raise DriverError(str(frame.problem))
    assert watch.pick is not None
    return frame, watch.pick


def _json(frame: Frame, pick: GpuPick, value: PickedValue | None, notes: list[str]) -> str:
    gpus = {
        gpu.index: {"gpu": gpu.index, "uuid": gpu.uuid, "pci_bus_id": gpu.pci_bus_id}
        for gpu in frame.gpus
    }
    picked = [gpus[gpu.index] for gpu in pick.gpus or ()]
    refused = [{**gpus[index], "reason": reason} for index, reason in pick.reasons.items()]
    text = value and value.text
    return json.dumps({"value": text, "gpus": picked, "refused": refused, "notes": notes})
