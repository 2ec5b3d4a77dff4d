"""One source for many readers: it is read once, and each of them follows it over a socket.

`gputop serve` holds the source, every viewer is a reader. A reader cannot change anything: what
would signal, look into a process or set the pace is refused here, whatever the reader is.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count

from msgspec.structs import replace

from gputop import __version__
from gputop.errors import GputopError, LoginError, SourceError
from gputop.model.machine.frame import Frame, Host, Problem
from gputop.protocol.assemble import Assembler
from gputop.protocol.codec import decode_request, encode, encode_line
from gputop.protocol.messages import (
    AgentMessage,
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
from gputop.sources.agent_process import AgentOutput
from gputop.sources.follow import follow
from gputop.sources.source import Source

_MAX_REQUEST = 1 << 16
"""Bytes of a line that asks for something: a value to map may be long."""
_MAX_REPLIES = 64
"""Replies that wait for one reader."""


class SharedSource:
    """What another process reads, followed over its socket."""

    def __init__(
        self, path: str, asked: str | None, ended: Callable[[], None] = lambda: None
    ) -> None:
        """`path`: of the socket; `asked`: the name that its holder was given with -H; `ended` is
        called when nobody holds it any more. SourceError where nobody does.
        """
        self.host = asked or "localhost"
        self._path, self._asked, self._ended = path, asked, ended
        self._closed = False
        self._socket = self._connect()

    def frames(self) -> Iterator[Frame | Reply]:
        """See `Source`."""
        connection, assembler = self._socket, Assembler(asked=self._asked)
        lines = AgentOutput(os.dup(connection.fileno()))
        try:
            while (line := lines.line(None)).endswith(b"\n"):
                if (message := assembler.read(line)) is not None:
                    yield message
        except OSError:
            pass  # it was closed
        finally:
            lines.close()
        if connection is self._socket and not self._closed:
            self._ended()
            raise SourceError("gputop serve has ended")

    def request(self, request: Request) -> None:
        """Send a request; nothing if nobody reads it, `frames` tells that."""
        with contextlib.suppress(OSError):
            self._socket.sendall(encode(request) + b"\n")

    def reconnect(self) -> None:
        """Connect anew. SourceError."""
        before, self._socket = self._socket, self._connect()
        _hang_up(before)

    def close(self) -> None:
        """Let go of it."""
        self._closed = True
        _hang_up(self._socket)

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(self._path)
        except OSError as error:
            connection.close()
            raise SourceError(f"gputop serve cannot be reached: {error.strerror}") from None
        return connection


class Broadcast:
    """Holds a source, and passes what it says on to whoever connects."""

    def __init__(self, source: Source, path: str) -> None:
        """`path`: of the socket, in a folder that nobody else may enter. OSError."""
        self._source = source
        self._lock = threading.Lock()
        self._followers: dict[int, _Follower] = {}
        self._last: Frame | None = None
        self._closed = False
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(path)
        self._listening.listen()

    def start(self) -> None:
        """Read the source and take readers, in threads of their own."""
        for work in (self._read, self._accept):
            threading.Thread(target=work, daemon=True).start()

    def close(self) -> None:
        """End the source, and let go of the readers."""
        self._closed = True
        self._source.close()
        self._listening.close()
        with self._lock:
            for reader in self._followers.values():
                reader.close()

    def _read(self) -> None:
        follow(self._source, lambda source: source.frames(), self._pass_on)

    def _broken(self, error: GputopError) -> Frame:
        advice = "it is tried again"
        if isinstance(error, LoginError):
            advice = "log in where gputop serve runs, and start it again"
        problem = Problem(kind="agent_ended", message=str(error), advice=advice)
        host = Host(name=self._source.host) if self._last is None else self._last.host
        return Frame(host=host, time=time.time(), problem=problem)

    def _pass_on(self, message: Frame | Reply | GputopError) -> None:
        if isinstance(message, GputopError):
            message = self._broken(message)
        with self._lock:
            if isinstance(message, Preview):
                return  # who is on the GPUs is not known yet
            if isinstance(message, Frame):
                self._last = message
                for reader in self._followers.values():
                    reader.show(message)
                return
            number, _, request = message.request.partition("/")
            asker = self._followers.get(int(number)) if number.isdecimal() else None
        if asker is not None:
            asker.reply(replace(message, request=request))

    def _accept(self) -> None:
        for number in count():
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return  # closed
            reader = _Follower(connection)
            with self._lock:
                self._followers[number] = reader
                if self._last is not None:
                    reader.show(self._last)
            hello = _hello(self._source.host)
            threading.Thread(target=reader.write, args=(hello,), daemon=True).start()
            threading.Thread(target=self._serve, args=(number, reader), daemon=True).start()

    def _serve(self, number: int, reader: _Follower) -> None:
        """Answer one reader until it leaves."""
        for request in reader.requests():
            answer = _answer(request)
            if answer is not None:
                reader.reply(answer)
            elif isinstance(request, Detail):
                own = replace(request, id=f"{number}/{request.id}", hidden=False)
                self._source.request(own)
            elif isinstance(request, Probe | Context):
                self._source.request(replace(request, id=f"{number}/{request.id}"))
        with self._lock:
            del self._followers[number]
        reader.close()


class _Follower:
    """One at the other end of a connection. A slow one gets fewer frames, and delays nobody."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._news = threading.Condition()
        self._frame: Frame | None = None
        self._replies: deque[Reply] = deque(maxlen=_MAX_REPLIES)
        self._closed = False

    def show(self, frame: Frame) -> None:
        """Have a frame sent, in place of one that still waits."""
        with self._news:
            self._frame = frame
            self._news.notify()

    def reply(self, reply: Reply) -> None:
        """Have a reply sent."""
        with self._news:
            self._replies.append(reply)
            self._news.notify()

    def close(self) -> None:
        """Let go of it."""
        with self._news:
            self._closed = True
            self._news.notify()
        _hang_up(self._connection)

    def write(self, hello: Hello) -> None:
        """Send what there is, until it leaves."""
        lines, splitter = count(), Splitter()
        with contextlib.suppress(OSError):
            self._connection.sendall(encode_line(next(lines), hello))
            while news := self._wait():
                for message in news:
                    parts = splitter.split(message) if isinstance(message, Frame) else (message,)
                    for part in parts:
                        self._connection.sendall(encode_line(next(lines), part))

    def requests(self) -> Iterator[Request]:
        """Yield what it asks for, until it leaves."""
        with contextlib.suppress(OSError, ValueError), self._connection.makefile("rb") as lines:
            while (line := lines.readline(_MAX_REQUEST)).endswith(b"\n"):
                if (request := decode_request(line)) is not None:
                    yield request

    def _wait(self) -> list[Frame | AgentMessage]:
        """Return what has come; nothing at the end."""
        with self._news:
            self._news.wait_for(lambda: self._closed or self._frame or self._replies)
            if self._closed:
                return []
            news: list[Frame | AgentMessage] = [*self._replies]
            if self._frame is not None:
                news.append(self._frame)
            self._frame = None
            self._replies.clear()
            return news


def _answer(request: Request) -> Reply | None:
    """Return what needs no agent: an answer to a ping, or a refusal."""
    if isinstance(request, Detail | Probe | Context) or not hasattr(request, "id"):
        return None
    if isinstance(request, Ping):
        return Reply(request=request.id)
    return Reply(request=request.id, error="not in a browser, which only looks", invalid=True)


def _hello(host: str) -> Hello:
    return Hello(
        oldest=SPOKEN.oldest,
        newest=SPOKEN.newest,
        protocol=SPOKEN.newest,
        version=__version__,
        host=host,
        capabilities=("detail", "probe", "context"),
    )


def _hang_up(connection: socket.socket) -> None:
    """Wake who reads or writes it, and close it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
