"""The agent's loop: messages go to standard output, requests come from standard input.

It ends at the end of its standard input: then its reader is gone. It leaves by os._exit, since a
thread that hangs in the driver would hold up an orderly exit.
"""

from __future__ import annotations

import gc
import os
import pwd
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from gputop.agent.collector import Collector
from gputop.agent.errors import end_on_errors
from gputop.agent.gpu.memory_watch import MemoryWatch
from gputop.agent.idle import IdleRecord, remove_record, with_idle_times
from gputop.agent.process.reader import READER
from gputop.deadline import within
from gputop.errors import UsageError
from gputop.model.machine.frame import Frame
from gputop.model.machine.text import printable
from gputop.protocol.codec import decode_request, encode_line
from gputop.protocol.messages import (
    AgentMessage,
    Ping,
    Refresh,
    Reply,
    Request,
    SetInterval,
    clamp_interval,
    hello,
)
from gputop.protocol.split import Splitter
from gputop.protocol.versions import SPOKEN, Versions, parse_versions

if TYPE_CHECKING:
    from gputop.agent.requests import RequestHandler

_SHARE_OF_INTERVAL = 0.8
_LEAST_TIMEOUT = 0.25
_MOST_TIMEOUT = 2.0
_ONCE_TIMEOUT = 5.0
"""Seconds to wait for a silent driver, for a single frame."""
_USER_TIMEOUT = 0.1
"""Seconds to look up our user's name: a directory service may take many more."""
_STACK = 2 << 20
"""Bytes of a thread's stack. The system's 8 MiB count against a memory limit (ulimit -d, -v), and
no call here needs that much."""
_endings: list[Callable[[], None]] = []
"""Functions to call before the agent ends."""


class MessageWriter:
    """Writes the agent's numbered lines, one at a time, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._splitter = Splitter()

    def send_frame(self, frame: Frame) -> None:
        """Send what is new in a frame. The agent ends if its reader is gone."""
        for message in self._splitter.split(frame):
            self.send(message)

    def send(self, message: AgentMessage) -> None:
        """Send a message. The agent ends if its reader is gone."""
        try:
            self._write(message)
        except BrokenPipeError:
            _end()

    def reply(self, reply: Reply) -> None:
        """Send a reply. If the reader is gone, the threads for frames and requests notice that."""
        with suppress(BrokenPipeError):
            self._write(reply)

    def _write(self, message: AgentMessage) -> None:
        with self._lock:
            data = encode_line(self._number, message)
            self._number += 1
            while data:
                data = data[os.write(1, data) :]


def serve(
    writer: MessageWriter,
    collector: Collector,
    interval: float,
    preview: bool,
    files: bool,
    lease: float | None,
) -> NoReturn:
    """Send frames until the end of standard input, with `preview` a Preview first. `lease`: seconds
    of silence after which the agent ends, since a cut network is silent too."""
    schedule = _Schedule(interval)
    requests = _RequestReader(schedule.requests, writer)
    threading.Thread(target=requests.listen, name="requests", daemon=True).start()
    if lease is not None:
        threading.Thread(target=requests.watch, args=(lease,), name="lease", daemon=True).start()
    if preview:
        writer.send_frame(collector.collect(schedule.interval, schedule.timeout))
    frame = collector.collect(schedule.interval, schedule.timeout)
    writer.send_frame(frame)
    # Imported after the first frame, which is urgent.
    from gputop.agent.requests import RequestHandler

    record = IdleRecord() if files else None
    handler = RequestHandler(writer.reply, MemoryWatch(lambda: collector.gpus), frame, files)
    _endings.append(handler.finish)
    requests.handlers.put(handler)
    gc.enable()
    gc.freeze()  # these objects stay: scanning them repeatedly costs a tick
    while True:
        schedule.wait()
        frame = collector.collect(schedule.interval, schedule.timeout)
        handler.show(frame)
        writer.send_frame(frame)
        if record is not None:
            record.keep(frame)


def serve_once(writer: MessageWriter, collector: Collector) -> NoReturn:
    """Send one frame and end. It has the CPU use of processes, and the idle times that other agents
    recorded."""
    writer.send_frame(with_idle_times(collector.collect(None, _ONCE_TIMEOUT, settle=True)))
    READER.stop()
    os._exit(0)


def _begin(reader: Versions) -> MessageWriter:
    """Greet the reader, and return what sends the rest."""
    end_on_errors(READER.stop)
    writer = MessageWriter()
    READER.start()
    try:
        user: str | None = within(_USER_TIMEOUT, lambda: pwd.getpwuid(os.geteuid()).pw_name)
    except (KeyError, TimeoutError):
        user = None
    protocol = SPOKEN.shared(reader) or SPOKEN.newest
    host = printable(socket.gethostname(), 64)
    writer.send(hello(host, protocol, user and printable(user, 64)))
    return writer


class _Schedule:
    """Decides when the next frame is due. Cycles keep their beat; a slow one drops beats."""

    def __init__(self, interval: float) -> None:
        self.interval = interval
        # Before Python 3.13 a SimpleQueue can wait for ever if a signal comes as its timeout ends.
        self.requests: queue.Queue[SetInterval | Refresh] = queue.Queue()
        self._due = time.monotonic()

    @property
    def timeout(self) -> float:
        return min(_MOST_TIMEOUT, max(_LEAST_TIMEOUT, self.interval * _SHARE_OF_INTERVAL))

    def wait(self) -> None:
        self._due = max(self._due + self.interval, time.monotonic())
        while True:
            try:
                request = self.requests.get(timeout=max(0.0, self._due - time.monotonic()))
            except queue.Empty:
                return
            if isinstance(request, Refresh):
                self._due = time.monotonic()
                return
            interval = clamp_interval(request.seconds)
            self._due += interval - self.interval
            self.interval = interval


class _RequestReader:
    """Reads requests from standard input; the agent ends when that ends.

    The end, pings and requests for a Reply do not wait for a frame in progress, except that
    requests for a Reply wait for the first one.
    """

    def __init__(self, requests: queue.Queue[SetInterval | Refresh], writer: MessageWriter) -> None:
        """`requests` takes the requests about frames."""
        self._requests, self._writer = requests, writer
        self.handlers: queue.SimpleQueue[RequestHandler] = queue.SimpleQueue()
        """Delivers the handler, once there is one."""
        self._handler: RequestHandler | None = None
        self._heard = time.monotonic()

    def listen(self) -> None:
        """Handle requests until the end. For a thread of its own, as is `watch`."""
        for line in sys.stdin.buffer if sys.stdin else ():
            self._heard = time.monotonic()
            self._take(decode_request(line))
        _end()

    def watch(self, lease: float) -> None:
        """End the agent once nothing has come for `lease` seconds."""
        while (left := self._heard + lease - time.monotonic()) > 0:
            time.sleep(left)
        _end()

    def _take(self, request: Request | None) -> None:
        if isinstance(request, Ping):
            self._writer.reply(Reply(request=request.id))
        elif isinstance(request, (SetInterval, Refresh)):
            self._requests.put(request)
        elif request is not None:
            self._handler = self._handler or self.handlers.get()
            self._handler.ask(request)


def _end() -> NoReturn:
    for finish in _endings:
        finish()
    remove_record()
    READER.stop()
    os._exit(0)


_SWITCHES = "--once", "--preview", "--no-driver", "--no-files", "--brief", "--no-links"
_VALUES = "--interval", "--protocol", "--lease"


def main(words: list[str]) -> NoReturn:
    """Run `gputop agent`: with --once one frame, otherwise a frame every --interval SEC (1) until
    the end of standard input. With --preview a Preview comes first. --protocol 2-3 gives the
    versions that the reader speaks. With --no-driver the driver is left alone, with --no-files
    nothing is written to disk. With --lease SEC the agent ends once its reader has been silent that
    long. With --brief and --no-links it asks the driver for less (see Collector). UsageError."""
    try:
        options = _options(words)
        interval = clamp_interval(float(options.get("--interval", "1")))
        reader = parse_versions(options.get("--protocol", str(SPOKEN)))
        lease = float(options["--lease"]) if "--lease" in options else None
    except ValueError:
        raise UsageError(
            "gputop agent takes --once or --interval SEC, --preview, --no-driver, --no-files, "
            "--brief, --no-links, "
            f"--lease SEC and --protocol RANGE, not {' '.join(words)!r}"
        ) from None
    threading.stack_size(_STACK)
    once = "--once" in options
    if not once:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the reader to handle
    writer, preview = _begin(reader), "--preview" in options and not once
    driver, files, links = (f"--no-{part}" not in options for part in ("driver", "files", "links"))
    collector = Collector(preview, driver, "--brief" in options, links)
    if once:
        serve_once(writer, collector)
    serve(writer, collector, interval, preview, files, lease)


def _options(words: list[str]) -> dict[str, str]:
    """Parse the options. ValueError. (Importing argparse takes longer than all else here.)"""
    options, rest = {}, iter(words)
    for word in rest:
        if word not in (*_SWITCHES, *_VALUES):
            raise ValueError(word)
        options[word] = next(rest, "") if word in _VALUES else ""
    return options
