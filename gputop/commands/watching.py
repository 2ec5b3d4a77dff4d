"""Watches the GPUs of a machine until there are enough for a job, or the time is over."""

from __future__ import annotations

import argparse
import math
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from gputop.allowed import MIN_INTERVAL
from gputop.errors import DriverError
from gputop.model.cuda.pick import GpuPick, PickRequest, choose
from gputop.model.machine.frame import Frame
from gputop.sources.ask import TIMEOUT, answers, wait_for_frame
from gputop.sources.opening import open_source
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


class _Watch:
    """Picks GPUs by the frames of a window."""

    def __init__(
        self, request: PickRequest, frames: int, wait: float, begin: Callable[[GpuPick], None]
    ) -> None:
        """`wait`: seconds; `begin` is called where it has to wait."""
        self._request, self._wait, self._begin = request, wait, begin
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
    count = min(_MOST_FRAMES, 1 + int(options.window / MIN_INTERVAL))
    watch = _Watch(request, count, wait, begin)
    interval = options.window / (count - 1) if count > 1 else 1.0
    with closing(open_source(host, interval, demo=options.demo)) as source:
        frame = wait_for_frame(source, watch.is_over, math.inf)
    if frame.problem is not None:
        raise DriverError(str(frame.problem))
    assert watch.pick is not None
    return Picked(frame, watch.pick)
