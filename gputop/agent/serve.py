"""The agent's loop: frames out on standard output, requests in on standard input.

It ends when asked to, and when its standard input ends: then nobody reads any more. It leaves
with os._exit, since a thread that hangs in the driver would keep an orderly exit waiting.
"""

from __future__ import annotations

import gc
import os
import queue
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, NoReturn

from gputop import __version__
from gputop.agent.collector import Collector
from gputop.agent.idle_record import IdleRecord, remove_record
from gputop.agent.look import one_frame
from gputop.agent.trouble import end_on_errors
from gputop.model.frame import SCHEMA
from gputop.model.protocol import (
    Detail,
    Hello,
    Pause,
    Preview,
    Probe,
    Refresh,
    Request,
    SetInterval,
    Signal,
    Stack,
    Stop,
    clamp_interval,
    decode_request,
    encode,
)

if TYPE_CHECKING:
    from gputop.agent.probe import Questions
    from gputop.agent.process.detail import Details
    from gputop.agent.signalling.signals import Signals

    _Takers = tuple[Signals, Details]

_SHARE_OF_INTERVAL = 0.8
_LEAST_PATIENCE = 0.25
_MOST_PATIENCE = 2.0
_SOON = 2.0
"""Seconds that an answer may wait for the next frame: one out of turn finds fewer samples."""


def serve(interval: float, preview: bool = False) -> None:
    """Send frames until told to stop; does not return. With `preview` a Preview comes first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the reader's to answer
    end_on_errors()
    _send(Hello(schema=SCHEMA, version=__version__))
    collector = Collector(hasty=preview)
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    schedule = _Schedule(requests, interval)
    takers: queue.SimpleQueue[_Takers] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests, takers), name="requests", daemon=True).start()
    if preview:
        _send(Preview(collector.collect(schedule.interval, schedule.patience)))
    first = collector.collect(schedule.interval, schedule.patience)
    _send(first)
    # What answers is loaded after the first frame, for which somebody waits.
    from gputop.agent.probe import Questions
    from gputop.agent.process.detail import Details
    from gputop.agent.signalling.signals import Signals

    record = IdleRecord()
    signals = Signals(changed=lambda: requests.put(Refresh()))
    schedule.questions = questions = Questions(answered=lambda: requests.put(Refresh()))
    details = Details(answered=schedule.hurry)
    signals.with_verdicts(questions.with_answers(first))  # what they begin with
    takers.put((signals, details))
    gc.enable()
    gc.freeze()  # what is there now stays: to look it through again and again costs a tick
    while True:
        schedule.wait()
        frame = collector.collect(schedule.interval, schedule.patience)
        frame = signals.with_verdicts(questions.with_answers(frame))
        _send(details.with_answers(frame))
        record.keep(frame)


def serve_once() -> None:
    """Send one frame, the CPU use of its processes measured, and end."""
    end_on_errors()
    _send(Hello(schema=SCHEMA, version=__version__))
    _send(one_frame())
    os._exit(0)


class _Schedule:
    """When the next frame is due. Cycles keep their beat; one that took too long skips beats."""

    def __init__(self, requests: queue.SimpleQueue[Request], interval: float) -> None:
        self.interval = interval
        self.questions: Questions | None = None
        self._requests = requests
        self._due = time.monotonic()
        self._paused = False

    @property
    def patience(self) -> float:
        """Seconds that a cycle waits for GPUs."""
        return min(_MOST_PATIENCE, max(_LEAST_PATIENCE, self.interval * _SHARE_OF_INTERVAL))

    def wait(self) -> None:
        """Until the next frame is due, doing meanwhile what is asked."""
        self._due = max(self._due + self.interval, time.monotonic())
        while True:
            left = None if self._paused else max(0.0, self._due - time.monotonic())
            try:
                request = self._requests.get(timeout=left)
            except queue.Empty:
                return
            if self._answer(request):
                self._due = time.monotonic()
                return

    def hurry(self) -> None:
        """See that a frame comes soon; from any thread."""
        if self._paused or self.interval > _SOON:
            self._requests.put(Refresh())

    def _answer(self, request: Request) -> bool:
        """Whether the request wants a frame now."""
        if isinstance(request, SetInterval):
            interval = clamp_interval(request.seconds)
            self._due += interval - self.interval
            self.interval = interval
        elif isinstance(request, Pause):
            self._paused = request.paused
            return not self._paused
        elif isinstance(request, Probe) and self.questions is not None:
            self.questions.ask(request.value, request.order)
        return isinstance(request, Refresh)


def _listen(requests: queue.SimpleQueue[Request], takers: queue.SimpleQueue[_Takers]) -> None:
    """Requests of standard input, until it ends and the agent with it.

    Its end, signals and details do not wait for the frame that is being made.
    """
    taker: _Takers | None = None
    for line in sys.stdin.buffer if sys.stdin else ():
        request = decode_request(line)
        if isinstance(request, Signal | Detail | Stack):
            signals, details = taker = taker or takers.get()
            if isinstance(request, Signal):
                signals.take(request)
            else:
                details.take(request)
        elif isinstance(request, Stop):
            break
        elif request is not None:
            requests.put(request)
    _end()


def _send(message: object) -> None:
    """One line. A reader that is gone ends the agent."""
    data = encode(message) + b"\n"
    try:
        while data:
            data = data[os.write(1, data) :]
    except BrokenPipeError:
        _end()


def _end() -> NoReturn:
    remove_record()
    os._exit(0)
