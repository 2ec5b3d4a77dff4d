"""GPUs that a job waits for: watched until there are enough, and said why there are not."""

from __future__ import annotations

import argparse
import math
import time
from collections import deque
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


def not_enough(frame: Frame, pick: GpuPick, request: PickRequest) -> GputopError:
    """Return the error for GPUs that are not to be had; of each is said why."""
    for gpu in frame.gpus:
        fits = "free" if is_free(frame, gpu) else "suitable"
        complain(f"GPU {gpu.index} {short_name(gpu.name)}: {pick.reasons.get(gpu.index, fits)}")
    model = " of one model" if request.same_model and pick.suitable >= request.count else ""
    return GputopError(f"not enough GPUs{model}: {tally(pick, request)}")


class Watch:
    """Watches the GPUs of a machine until there are enough by the frames of a window, or the time
    is over."""

    _source: Source
    _pick: GpuPick
    """By the last frame."""

    def __init__(
        self, host: HostName | None, options: argparse.Namespace, request: PickRequest, wait: float
    ) -> None:
        """`wait`: seconds."""
        self._host, self._request, self._wait = host, request, wait
        count = min(_MOST_FRAMES, 1 + int(options.window / MIN_INTERVAL))
        self._interval = options.window / (count - 1) if count > 1 else 1.0
        self._frames: deque[Frame] = deque(maxlen=count)
        self._demo = options.demo
        self._begun = time.monotonic()
        self._waits = False

    def watch(self) -> Picked:
        """Return what there is at the end. DriverError, SourceError."""
        with closing(open_source(self._host, self._interval, demo=self._demo)) as self._source:
            frame = wait_for_frame(self._source, self._is_over, math.inf)
        if frame.problem is not None:
            raise DriverError(str(frame.problem))
        return Picked(frame, self._pick)

    def _is_over(self, frame: Frame) -> bool:
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
        self._pick = choose(self._frames, self._request)
        return bool(self._pick.gpus) or self._gives_up(over)

    def _gives_up(self, over: bool) -> bool:
        if over or not self._pick.possible:
            return True
        if not self._waits:
            self._begin_to_wait()
            self._waits = True
        return False

    def _begin_to_wait(self) -> None:
        if self._host is None:  # of one of many it is said by who asks them
            complain(f"waiting: {tally(self._pick, self._request)}")
