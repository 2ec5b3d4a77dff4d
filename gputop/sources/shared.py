"""Shares one source with many readers: it is read once, and each follows it over a socket.

`gputop serve` holds the source, and every viewer is a reader. A reader cannot change anything: it
gets details without hidden values, probes and contexts. No other request passes, whatever it is.
"""

from __future__ import annotations

import contextlib
import os
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from queue import Full, Queue

from msgspec.structs import replace

from gputop import __version__
from gputop.errors import GputopError, LoginError, SourceError
from gputop.model.machine.frame import Frame, Host, Problem
from gputop.protocol.codec import decode_request, encode, encode_line
from gputop.protocol.messages import (
    AgentMessage,
    AnsweredRequest,
    Context,
    Detail,
    Hello,
    Ping,
    Preview,
    Probe,
    Reply,
    Request,
)
from gputop.protocol.split import Splitter
from gputop.protocol.versions import SPOKEN
from gputop.sources.agent_process import INTERVAL, AgentOutput
from gputop.sources.agent_source import AgentConnection, AgentSource
from gputop.sources.follow import follow
from gputop.sources.source import Source

_MAX_REQUEST = 1 << 16
"""Bytes of a request's line: a value to map may be long."""
_MOST_NEWS = 64
"""Messages that may wait for one reader."""
_LOOKS_UP = 3600.0
"""Seconds between two checks for `shutdown`, which nothing waits for."""
_REFUSED = "not in a browser, which only looks"


@contextlib.contextmanager
def short_path(path: str) -> Iterator[str]:
    """Yield a short name of a path for a socket, which takes 107 bytes (unix(7)): TMPDIR may be
    longer. OSError."""
    folder, name = os.path.split(path)
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


class SharedConnection(AgentConnection):
    """A socket to a source that another process holds."""

    def __init__(self, path: str, asked: str | None, ended: Callable[[], None]) -> None:
        """SourceError if no process holds it."""
        super().__init__(asked)
        self._ended, self._is_over = ended, False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with short_path(path) as short:
                self._socket.connect(short)
        except OSError as error:
            self._socket.close()
            raise SourceError(f"gputop serve cannot be reached: {error.strerror}") from None
        self._lines = AgentOutput(self._socket.fileno())

    def messages(self) -> Iterator[Frame | Reply]:
        if self._is_over:
            return
        with contextlib.suppress(OSError):
            while (line := self._lines.line(None)).endswith(b"\n"):
                if (message := self.assembler.read(line)) is not None:
                    yield message
        self._socket.close()
        if not self._is_over:
            self._is_over = True
            self._ended()
            raise SourceError("gputop serve has ended")

    def request(self, request: Request) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendall(encode(request) + b"\n")

    def stop(self) -> None:
        """Wake the reading thread, which closes the socket."""
        self._is_over = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


class SharedSource(AgentSource[SharedConnection]):
    """A source that another process reads, followed over its socket."""

    def __init__(self, path: str, asked: str | None, ended: Callable[[], None]) -> None:
        """`path`: of the socket; `asked`: the name that its holder was given with -H; `ended` is
        called when the holder has ended. SourceError if there is none."""
        self._path, self._asked, self._ended = path, asked, ended
        super().__init__(asked or "localhost", INTERVAL)

    def _connect(self) -> SharedConnection:
        return SharedConnection(self._path, self._asked, self._ended)

    def remember(self, wanted: bool) -> None:
        """Remember nothing: there may be many browsers, each with a process here."""


class Broadcast(socketserver.ThreadingUnixStreamServer):
    """Holds a source, and passes its messages on to all readers that connect."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, source: Source, path: str) -> None:
        """`path`: of the socket, in a folder that no other user may enter. OSError."""
        with short_path(path) as short:
            super().__init__(short, _Follower)
        self.source = source
        self.lock = threading.Lock()
        self.numbers = count()
        self.followers: dict[str, _Follower] = {}
        """Keyed by the number that is put before the ids of their requests."""
        self.last: Frame | None = None

    def start(self) -> None:
        """Read the source and take readers, in threads of their own."""
        read = partial(follow, self.source, lambda source: source.frames(), self._pass_on)
        for work in (read, partial(self.serve_forever, _LOOKS_UP)):
            threading.Thread(target=work, daemon=True).start()

    def close(self) -> None:
        """Close the source, and disconnect the readers."""
        self.source.close()
        self.server_close()
        with self.lock:
            for follower in self.followers.values():
                with contextlib.suppress(OSError):
                    follower.connection.shutdown(socket.SHUT_RDWR)

    def _broken(self, error: GputopError) -> Frame:
        advice = "it is tried again"
        if isinstance(error, LoginError):
            advice = "log in where gputop serve runs, and start it again"
        problem = Problem(kind="agent_ended", message=str(error), advice=advice)
        host = Host(name=self.source.host) if self.last is None else self.last.host
        return Frame(host=host, time=time.time(), problem=problem)

    def _pass_on(self, message: Frame | Reply | GputopError) -> None:
        if isinstance(message, Preview):
            return  # the processes on the GPUs are not known yet
        if isinstance(message, GputopError):
            message = self._broken(message)
        with self.lock:
            if isinstance(message, Reply):
                number, _, request = message.request.partition("/")
                if (asker := self.followers.get(number)) is not None:
                    asker.tell(replace(message, request=request))
                return
            self.last = message
            for follower in self.followers.values():
                follower.tell(None)


class _Follower(socketserver.StreamRequestHandler):
    """A connected reader. A slow one gets fewer frames, and delays no other."""

    server: Broadcast

    def setup(self) -> None:
        super().setup()
        self._news: Queue[Reply | None] = Queue(_MOST_NEWS)
        """Replies; None if there is a new frame, or the reader has left."""
        self._has_left = False
        self._number = str(next(self.server.numbers))
        with self.server.lock:
            self.server.followers[self._number] = self
        self.tell(None)
        threading.Thread(target=self._write, daemon=True).start()

    def finish(self) -> None:
        with self.server.lock:
            del self.server.followers[self._number]
        self._has_left = True
        self.tell(None)
        super().finish()

    def tell(self, reply: Reply | None) -> None:
        """Have a reply sent; None: the newest frame."""
        with contextlib.suppress(Full):
            self._news.put_nowait(reply)

    def handle(self) -> None:
        """Handle the reader's requests until it leaves."""
        with contextlib.suppress(OSError):
            while (line := self.rfile.readline(_MAX_REQUEST)).endswith(b"\n"):
                if (request := decode_request(line)) is not None:
                    self._take(request)

    def _take(self, request: Request) -> None:
        if isinstance(request, Detail):
            request = replace(request, hidden=False)
        if isinstance(request, Detail | Probe | Context):
            self.server.source.request(replace(request, id=f"{self._number}/{request.id}"))
        elif isinstance(request, Ping):
            self.tell(Reply(request=request.id))
        elif isinstance(request, AnsweredRequest):
            self.tell(Reply(request=request.id, error=_REFUSED, invalid=True))

    def _write(self) -> None:
        """Send frames and replies until the reader leaves."""
        lines, splitter, sent = count(), Splitter(), None
        parts: Iterable[AgentMessage] = (_hello(self.server.source.host),)
        with contextlib.suppress(OSError):
            while not self._has_left:
                for part in parts:
                    self.connection.sendall(encode_line(next(lines), part))
                news, parts = self._news.get() or self.server.last, ()
                if isinstance(news, Reply):
                    parts = (news,)
                elif news is not None and news is not sent:
                    parts, sent = splitter.split(news), news


def _hello(host: str) -> Hello:
    return Hello(
        oldest=SPOKEN.oldest,
        newest=SPOKEN.newest,
        protocol=SPOKEN.newest,
        version=__version__,
        host=host,
        capabilities=("detail", "probe", "context"),
    )
