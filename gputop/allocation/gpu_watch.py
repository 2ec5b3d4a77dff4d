"""Watches GPUs until there are enough for a job, or says why there are not; and the variables with
which a program sees only what was picked."""

from __future__ import annotations

import math
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import NamedTuple

from gputop.allocation.own import without_own
from gputop.errors import DriverError, GputopError, NotEnoughGpusError, SourceError
from gputop.model.cuda.enumeration import PCI_BUS_ID
from gputop.model.cuda.pick import GpuPick, PickRequest, choose, value_of
from gputop.model.health.free import is_free
from gputop.model.machine.environment import NAME, ORDER
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu, parts_of
from gputop.model.machine.text import plural, printable, short_name
from gputop.protocol.messages import MIN_INTERVAL
from gputop.sources.ask import TIMEOUT, answers, wait_for_frame
from gputop.sources.opening import BRIEF, TABLE, open_source
from gputop.sources.source import Source
from gputop.sources.ssh.names import HostName

WINDOW = 2.0
_MOST_FRAMES = 5
"""Frames in a window, at most."""
_PLAIN = re.compile(r"[\w/-]+(?:,[\w/-]+)*", re.ASCII)


class Picked(NamedTuple):
    """What was picked, and the frame it was picked from."""

    frame: Frame
    pick: GpuPick


class Taken(NamedTuple):
    """GPUs or MIG devices, and the variables with which a program sees only these."""

    gpus: tuple[Gpu, ...]
    """Of MIG devices the GPU of each."""
    numbers: list[str]
    """As in `GpuPick.numbers`."""
    variables: dict[str, str]

    def __str__(self) -> str:
        return numbered(self.numbers)


def tally(pick: GpuPick, request: PickRequest) -> str:
    """Return how many GPUs suit the request, called "free" if just as many are free."""
    word = "free" if pick.suitable == pick.free else "suitable"
    return f"{pick.suitable} {word}, {request.count} requested"


def not_enough(picked: Picked, request: PickRequest) -> NotEnoughGpusError:
    """Return the error that there are not enough, with a line for each GPU or MIG device, and one
    on what the caller's own variables leave."""
    frame, pick = picked
    lines = [pick.note] if pick.note else []
    for part in parts_of(frame.gpus):
        gpu, device = part.gpu, part.device
        if not pick.of_slices if device else pick.of_slices and gpu.mig:
            continue
        what = f"MIG {device.profile or ''}" if device else short_name(gpu.name)
        fits = "free" if device is None and is_free(frame, gpu) else "suitable"
        lines.append(f"GPU {part.number} {what}: {pick.reasons.get(part.number, fits)}")
    model = " of one model" if request.same_model and pick.suitable >= request.count else ""
    what = "slices" if pick.of_slices else "GPUs"
    return NotEnoughGpusError(f"not enough {what}{model}: {tally(pick, request)}", lines)


def take(picked: Picked, request: PickRequest, by_uuid: bool) -> Taken:
    """Return the GPUs. NotEnoughGpusError, and GputopError if no variable can name them."""
    frame, pick = picked
    if pick.parts is None or pick.gpus is None:
        raise not_enough(picked, request)
    value = value_of(frame, pick.parts, PCI_BUS_ID, by_uuid)
    if value.text is None:
        raise GputopError(str(value.note))
    return Taken(pick.gpus, pick.numbers, {ORDER: PCI_BUS_ID, NAME: plain_value(value.text)})


def indices_of(gpus: Sequence[Gpu]) -> str:
    """Return `GPU 2`, or `GPUs 2, 6`."""
    return numbered([str(gpu.index) for gpu in gpus])


def numbered(numbers: Sequence[str]) -> str:
    """Return the numbers of GPUs or MIG devices in words: `GPU 0:2`."""
    return f"{plural(len(numbers), 'GPU')} {', '.join(numbers)}"


def plain_value(value: str) -> str:
    """Return a value for CUDA_VISIBLE_DEVICES. SourceError for one with characters that mean
    something to a shell: the driver there made it, or a program that poses as one."""
    if not _PLAIN.fullmatch(value):
        raise SourceError(f"a GPU calls itself {printable(value, 100)!r}, which is not a UUID")
    return value


class Watch:
    """Watches the GPUs of a machine until all frames of a window show enough, or time is up."""

    _source: Source
    _pick: GpuPick
    """The pick by the newest window of frames."""

    def __init__(
        self,
        request: PickRequest,
        wait: float,
        window: float = WINDOW,
        host: HostName | None = None,
        demo: bool = False,
        say: Callable[[str], None] = lambda _: None,
        timeout: float | None = None,
    ) -> None:
        """`wait`: seconds to wait for enough GPUs; `window`: seconds to watch their utilization;
        `say` is told when the wait begins; `timeout` is that of `open_source`."""
        self._host, self._request, self._wait, self._demo = host, request, wait, demo
        self._say, self._timeout = say, timeout
        count = min(_MOST_FRAMES, 1 + int(window / MIN_INTERVAL))
        self._interval = window / (count - 1) if count > 1 else 1.0
        self._frames: deque[Frame] = deque(maxlen=count)
        self._begun = time.monotonic()
        self._waits = False

    def watch(self) -> Picked:
        """Return the last frame and its pick, with or without GPUs. DriverError, SourceError."""
        less = TABLE if self._request.count == 1 else (BRIEF,)  # links tell which GPUs are near
        source = open_source(
            self._host, self._interval, demo=self._demo, less=less, timeout=self._timeout
        )
        with closing(source) as self._source:
            frame = wait_for_frame(self._source, self._is_over, math.inf)
        if frame.problem is not None:
            raise DriverError(str(frame.problem))
        return Picked(self._frames[-1], self._pick)

    def _is_over(self, frame: Frame) -> bool:
        """Take a frame, and return whether there are enough GPUs or time is up."""
        spent = time.monotonic() - self._begun
        over = spent >= self._wait
        if frame.problem is not None:
            self._frames.clear()
            return answers(frame) or (over and spent >= TIMEOUT)
        if spent < TIMEOUT and not answers(frame):
            return False
        self._frames.append(without_own(frame) if self._host is None else frame)
        if len(self._frames) < (self._frames.maxlen or 0):
            return False
        return self._decide(over)

    def _decide(self, over: bool) -> bool:
        """Pick by the frames, and return whether the watch ends; `over`: no time is left."""
        self._pick = choose(self._frames, self._request)
        return bool(self._pick.gpus) or self._gives_up(over)

    def _gives_up(self, over: bool) -> bool:
        if over or not self._pick.possible:
            return True
        if not self._waits:
            self._waits = True
            self._say(f"waiting: {tally(self._pick, self._request)}")
        return False
