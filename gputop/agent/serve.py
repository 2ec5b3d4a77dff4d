"""The agent's loop: frames out on standard output, requests in on standard input.

It ends when asked to, and when its standard input ends: then nobody reads any more. It leaves
with os._exit, since a thread that hangs in the driver would keep an orderly exit waiting.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time

from gputop import __version__
from gputop.agent.collector import Collector
from gputop.model.frame import SCHEMA
from gputop.model.protocol import (
    Hello,
    Refresh,
    Request,
    SetInterval,
    Stop,
    clamp_interval,
    decode_request,
    encode,
)

_SHARE_OF_INTERVAL = 0.8
_LEAST_PATIENCE = 0.25
_MOST_PATIENCE = 2.0
_PATIENCE_ONCE = 5.0


def serve(interval: float) -> None:
    """Send frames until told to stop; does not return."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the reader's to answer
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), name="requests", daemon=True).start()
    _send(Hello(schema=SCHEMA, version=__version__))
    collector = Collector()
    due = time.monotonic()
    while True:
        patience = min(_MOST_PATIENCE, max(_LEAST_PATIENCE, interval * _SHARE_OF_INTERVAL))
        _send(collector.collect(interval, patience))
        due = max(due + interval, time.monotonic())
        interval, due = _attend(requests, interval, due)


def serve_once() -> None:
    """Send one frame, the CPU use of its processes measured, and end."""
    _send(Hello(schema=SCHEMA, version=__version__))
    _send(Collector().collect(0.0, _PATIENCE_ONCE, settle=True))
    os._exit(0)


def _attend(
    requests: queue.SimpleQueue[Request], interval: float, due: float
) -> tuple[float, float]:
    """Wait for the next cycle and do what is asked meanwhile; the interval and when it is due."""
    while True:
        try:
            request = requests.get(timeout=max(0.0, due - time.monotonic()))
        except queue.Empty:
            return interval, due
        if isinstance(request, Stop):
            os._exit(0)
        elif isinstance(request, Refresh):
            return interval, time.monotonic()
        elif isinstance(request, SetInterval):
            due += clamp_interval(request.seconds) - interval
            interval = clamp_interval(request.seconds)


def _listen(requests: queue.SimpleQueue[Request]) -> None:
    """Requests of standard input, until it ends and the agent with it."""
    for line in sys.stdin.buffer:
        request = decode_request(line)
        if request is not None:
            requests.put(request)
    os._exit(0)


def _send(message: object) -> None:
    """One line. A reader that is gone ends the agent."""
    data = encode(message) + b"\n"
    try:
        while data:
            data = data[os.write(1, data) :]
    except BrokenPipeError:
        os._exit(0)
