"""Shares one source with many readers: it is read once, and each follows it over a socket.

`gputop serve` holds the source, and every viewer is a reader. A reader cannot change anything: it
gets details without hidden values, contexts, and whether processes have ended. No other request
passes, whatever it is: a probe starts a program, and may wake a GPU.

No socket has a name. A viewer inherits one end of a door, a pair of sockets, and passes through it
an end of each connection that it makes.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from queue import Full, Queue

from msgspec.structs import replace

from gputop.errors import GputopError, SourceError
from gputop.model.machine.frame import Frame, Host
from gputop.protocol.codec import decode_request, encode, encode_line
from gputop.protocol.messages import (
    AgentMessage,
    AnsweredRequest,
    Context,
    Detail,
    Liveness,
    Ping,
    Preview,
    Reply,
    Request,
    hello,
)
from gputop.protocol.split import Splitter
from gputop.sources.agent_process import INTERVAL, MAX_LINE
from gputop.sources.agent_source import AgentConnection, AgentSource
from gputop.sources.follow import broken_frame, follow
from gputop.sources.source import Source

_MAX_REQUEST = 1 << 16
"""Bytes of a request's line: a value to map may be long."""
_MOST_OUTGOING = 64
"""Messages that may wait for one reader."""
_DOOR = socket.SOCK_SEQPACKET
"""A door passes messages: the number of a source, and with it the end of a connection."""
_REFUSED = "not in a browser: it is read-only there"
_LOG_IN = "log in where gputop serve runs, and start it again"
_TOO_MANY = "too many requests are pending: try again"
_MOST_OPEN = 8
"""Requests of one reader that may wait for their replies: others are to be answered as well."""


class SharedConnection(AgentConnection):
    """A socket to a source that another process holds."""

    def __init__(self, door: socket.socket, number: int, requested_name: str | None) -> None:
        """SourceError if no process holds it."""
        super().__init__(requested_name)
        self._socket, theirs = socket.socketpair()
        try:
            socket.send_fds(door, [b"%d" % number], [theirs.fileno()])
        except OSError as error:
            self._socket.close()
            raise SourceError(f"gputop serve cannot be reached: {error.strerror}") from None
        finally:
            theirs.close()
        self._lines = self._socket.makefile("rb", 1 << 16)

    def messages(self) -> Iterator[Frame | Reply]:
        with contextlib.suppress(OSError):
            while (line := self._lines.readline(MAX_LINE)).endswith(b"\n"):
                if (message := self.take(line)) is not None:
                    yield message
        raise SourceError("gputop serve has ended")

    def request(self, request: Request) -> bool:
        with contextlib.suppress(OSError):
            self._socket.sendall(encode(request) + b"\n")
        return True

    def stop(self) -> None:
        """Wake the reading thread, which closes the socket."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def free(self) -> None:
        self._lines.close()
        self._socket.close()


class SharedSource(AgentSource[SharedConnection]):
    """A source that another process reads, followed over its socket."""

    def __init__(self, door: socket.socket, number: int, requested_name: str | None) -> None:
        """`door`: inherited from the holder; `number`: of the source there; `requested_name`: the
        name that the holder was given with -H. SourceError if there is no holder."""
        self._connection_to = partial(SharedConnection, door, number, requested_name)
        super().__init__(requested_name or "localhost", INTERVAL)

    def _connect(self) -> SharedConnection:
        return self._connection_to()

    def remember(self, wanted: bool) -> None:
        """Remember nothing: there may be many browsers, each with a process here."""


def share(broadcasts: Sequence[Broadcast]) -> socket.socket:
    """Return the end of a new door that a viewer is to inherit; close it here then. OSError."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, _DOOR)
    threading.Thread(target=_attend, args=(ours, broadcasts), daemon=True).start()
    return theirs


def _attend(door: socket.socket, broadcasts: Sequence[Broadcast]) -> None:
    """Take the connections that come through a door, until the viewer has ended."""
    with door, contextlib.suppress(OSError, ValueError, IndexError):
        while (message := socket.recv_fds(door, 16, 1))[0]:
            for descriptor in message[1]:
                broadcasts[int(message[0])].follow(socket.socket(fileno=descriptor))


class Broadcast:
    """Reads a source in a thread of its own, and passes its messages on to all readers that
    connect."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.lock = threading.Lock()
        self.numbers = count()
        self.followers: dict[str, _Follower] = {}
        """Keyed by the number that is put before the ids of their requests."""
        self.last: Frame | None = None
        read = partial(follow, self.source, lambda source: source.frames(), self._pass_on)
        threading.Thread(target=read, daemon=True).start()

    def follow(self, connection: socket.socket) -> None:
        """Serve a reader in a thread of its own."""
        threading.Thread(target=_Follower(connection, self).run, daemon=True).start()

    def close(self) -> None:
        """Close the source, and disconnect the readers."""
        self.source.close()
        with self.lock:
            for follower in self.followers.values():
                with contextlib.suppress(OSError):
                    follower.connection.shutdown(socket.SHUT_RDWR)

    def _pass_on(self, message: Frame | Reply | GputopError) -> None:
        if isinstance(message, Preview):
            return  # the processes on the GPUs are not known yet
        if is_broken := isinstance(message, GputopError):
            host = Host(name=self.source.host) if self.last is None else self.last.host
            message = broken_frame(host, message, _LOG_IN)
        with self.lock:
            if isinstance(message, Reply):
                number, _, request = message.request.partition("/")
                if (asker := self.followers.get(number)) is not None:
                    asker.tell(replace(message, request=request))
                return
            self.last = message
            for follower in self.followers.values():
                if is_broken:
                    follower.open.clear()  # nobody replies to them any more
                follower.tell(None)


class _Follower:
    """A connected reader. A slow one gets fewer frames, and delays no other."""

    def __init__(self, connection: socket.socket, broadcast: Broadcast) -> None:
        self.connection, self._broadcast = connection, broadcast
        self._outgoing: Queue[Reply | None] = Queue(_MOST_OUTGOING)
        """Replies; None if there is a new frame, or the reader has left."""
        self.open: set[str] = set()
        """Ids of the requests that wait for a reply of the source."""
        self._has_left = False
        self._number = str(next(broadcast.numbers))

    def run(self) -> None:
        """Send frames and handle requests until the reader leaves."""
        with self._broadcast.lock:
            self._broadcast.followers[self._number] = self
        self.tell(None)
        writer = threading.Thread(target=self._write, daemon=True)
        writer.start()
        with self.connection:
            with contextlib.suppress(OSError):
                self._handle()
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            with self._broadcast.lock:
                del self._broadcast.followers[self._number]
            self._has_left = True
            self.tell(None)
            writer.join()  # closed before, its descriptor could be that of another reader

    def tell(self, reply: Reply | None) -> None:
        """Have a reply sent; None: the newest frame."""
        if reply is not None:
            self.open.discard(reply.request)
        with contextlib.suppress(Full):
            self._outgoing.put_nowait(reply)

    def _handle(self) -> None:
        with self.connection.makefile("rb") as lines:
            while (line := lines.readline(_MAX_REQUEST)).endswith(b"\n"):
                if (request := decode_request(line)) is not None:
                    self._take(request)

    def _take(self, request: Request) -> None:
        if isinstance(request, Detail):
            request = replace(request, hidden=False)
        if isinstance(request, Detail | Context | Liveness):
            if len(self.open | {request.id}) > _MOST_OPEN:
                self.tell(Reply(request=request.id, error=_TOO_MANY))
                return
            self.open.add(request.id)
            asked = replace(request, id=f"{self._number}/{request.id}")
            if (unsent := self._broadcast.source.request(asked)) is not None:
                self.tell(replace(unsent, request=request.id))
        elif isinstance(request, Ping):
            self.tell(Reply(request=request.id))
        elif isinstance(request, AnsweredRequest):
            self.tell(Reply(request=request.id, error=_REFUSED, invalid=True))

    def _write(self) -> None:
        lines, splitter, sent = count(), Splitter(), None
        parts: Iterable[AgentMessage] = (hello(self._broadcast.source.host),)
        with contextlib.suppress(OSError):
            while not self._has_left:
                for part in parts:
                    self.connection.sendall(encode_line(next(lines), part))
                message, parts = self._outgoing.get() or self._broadcast.last, ()
                if isinstance(message, Reply):
                    parts = (message,)
                elif message is not None and message is not sent:
                    parts, sent = splitter.split(message), message
