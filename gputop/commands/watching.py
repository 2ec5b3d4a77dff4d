"""Watches the GPUs of a machine until there are enough for a job, or the time is over."""

from __future__ import annotations

import argparse
import math
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from gputop.errors import DriverError, GputopError
from gputop.model.cuda.pick import GpuPick, PickRequest, choose
from gputop.model.health.free import is_free
from gputop.model.machine.frame import Frame
from gputop.model.machine.text import short_name
from gputop.output import complain
from gputop.protocol.messages import MIN_INTERVAL
from gputop.sources.ask import TIMEOUT, answers, wait_for_frame
from gputop.sources.opening import open_source
from gputop.sources.source import Source
from gputop.sources.ssh.names import HostName

_MOST_FRAMES = 5
"""In a window."""


class Picked(NamedTuple):
    """What was picked, and of which frame."""

    frame: Frame
    pick: GpuPick


def tally(pick: GpuPick, request: PickRequest) -> str:
    """Say how many there are; "free" where they are that, whatever the request leaves out."""
    word = "free" if pick.suitable == pick.free else "suitable"
    return f"{pick.suitable} {word}, {request.count} requested"


def say_waiting(request: PickRequest, pick: GpuPick) -> None:
    """Say that GPUs are waited for."""
    complain(f"waiting: {tally(pick, request)}")


def not_enough(frame: Frame, pick: GpuPick, request: PickRequest) -> GputopError:
    """Return the error for GPUs that are not to be had; of each is said why."""
    for gpu in frame.gpus:
        fits = "free" if is_free(frame, gpu) else "suitable"
        complain(f"GPU {gpu.index} {short_name(gpu.name)}: {pick.reasons.get(gpu.index, fits)}")
    model = " of one model" if request.same_model and pick.suitable >= request.count else ""
    return GputopError(f"not enough GPUs{model}: {tally(pick, request)}")


class Watch:
    """Picks GPUs by the frames of a window."""

    def __init__(
        self, request: PickRequest, frames: int, wait: float, begin: Callable[[GpuPick], None]
    ) -> None:
        """`wait`: seconds; `begin` is called where it has to wait."""
        self._request, self._wait, self._begin = request, wait, begin
        self._frames: deque[Frame] = deque(maxlen=frames)
        self._begun = time.monotonic()
        self._waits = False
        self.source: Source | None = None
        """Where the frames come from."""
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
        return self._decide(over)

    def _decide(self, over: bool) -> bool:
        """Pick by the frames, and return whether that is all; `over`: there is no time left."""
        self.pick = pick = choose(self._frames, self._request)
        return bool(pick.gpus) or self._gives_up(pick, over)

    def _gives_up(self, pick: GpuPick, over: bool) -> bool:
        if over or not pick.possible:
            return True
        if not self._waits:
            self._begin(pick)
            self._waits = True
        return False


def watch_gpus(
    host: HostName | None,
    options: argparse.Namespace,
    request: PickRequest,
    wait: float,
    begin: Callable[[GpuPick], None] = lambda _: None,
) -> Picked:
    """Watch the GPUs of a machine until there are enough, or `wait` seconds are over; `begin` is
    called where they are waited for. DriverError, SourceError."""
    return watch_with(Watch(request, frames_in(options.window), wait, begin), host, options)


def frames_in(window: float) -> int:
    """Return how many frames are judged in a window of so many seconds."""
    return min(_MOST_FRAMES, 1 + int(window / MIN_INTERVAL))


def watch_with(watch: Watch, host: HostName | None, options: argparse.Namespace) -> Picked:
    """Have a Watch see the frames of a machine until it has done. DriverError, SourceError."""
    count = frames_in(options.window)
    interval = options.window / (count - 1) if count > 1 else 1.0
    with closing(open_source(host, interval, demo=options.demo)) as source:
        watch.source = source
        frame = wait_for_frame(source, watch.is_over, math.inf)
    if frame.problem is not None:
        raise DriverError(str(frame.problem))
    assert watch.pick is not None
    return Picked(frame, watch.pick)
