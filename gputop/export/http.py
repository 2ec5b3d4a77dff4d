"""Pages over HTTP for programs that ask repeatedly, in one thread.

No client is trusted. The cost of a connection is bounded: bytes of a request, bytes that wait to be
sent, and seconds. The number of connections is bounded too: the newest replaces the oldest, which
costs a client that holds on to it, and not a program that is answered in milliseconds. A connection
has one request, GET or HEAD.

Only web pages of our own may read an answer. A browser says in `Origin` which page asks for a web
socket, and in `Host` the name by which it asks. The owner of a page's name can make it lead to this
machine (DNS rebinding); then both agree, but the name is not ours. An address cannot be made to
lead elsewhere.
"""

from __future__ import annotations

import asyncio
import gzip
import hmac
import ipaddress
import os
import re
import signal
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from gputop.model.machine.text import printable
from gputop.output import complain

_LONGEST_REQUEST = 16 << 10
"""Bytes of a request, with all headers."""
_CHUNK = 16 << 10
"""Bytes that wait in this process until a client reads them."""
_READING, _WRITING = 5.0, 10.0
"""Seconds that a client has to send its request, and to read the answer."""
_MOST = 256
"""Connections at a time."""
_GZIP = re.compile(r"\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))")
_PAUSE = 1.0
"""Seconds until the next try when a connection could not be accepted."""
_CLIENT_ERRORS = (
    OSError, EOFError, asyncio.CancelledError, asyncio.TimeoutError, asyncio.LimitOverrunError,
)  # fmt: skip
"""Errors that a client causes by sending nothing, reading nothing, or going away."""


class WebPage(NamedTuple):
    """The page at a path."""

    type: str
    """Its media type."""
    body: Callable[[], bytes]


class WebServer:
    """Serves pages by their paths to clients that send the right `Authorization`."""

    def __init__(
        self,
        pages: Mapping[str, WebPage],
        tls: Callable[[], ssl.SSLContext | None],
        authorization: Callable[[], str | None],
        is_own: Callable[[str], bool] | None = None,
    ) -> None:
        """`tls` and `authorization` are asked for each connection: how it is encrypted, and the
        value of that header, None if clients need none. `is_own` refuses the name in `Host` by
        which a web page of somebody else asks; None lets all names pass."""
        self._pages, self._is_own = pages, is_own
        self._tls, self._authorization = tls, authorization
        self._answering: dict[asyncio.Task[None], None] = {}
        """The connections being answered, oldest first, from the moment they are accepted."""
        self._zipped: tuple[bytes, bytes] = b"", b""
        """The body that was compressed last, before and after."""

    async def serve(
        self, host: str, port: int, begin: Callable[[int], None], renew: Callable[[], None]
    ) -> None:
        """Serve until SIGTERM; call `begin` with the port once it is open, and `renew` at each
        SIGHUP. OSError."""
        over, loop = asyncio.Event(), asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, over.set)
        loop.add_signal_handler(signal.SIGHUP, renew)
        loop.set_exception_handler(_unexpected)
        places = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        with ExitStack() as stack:
            tasks = []
            for family, *_, (address, _, *more) in places:  # port 0: all take the first one's port
                endpoint = (address, port, *more)
                listening = socket.create_server(endpoint, family=family, backlog=_MOST)
                stack.enter_context(listening).setblocking(False)
                port = listening.getsockname()[1]
                tasks.append(asyncio.create_task(self._accept(listening)))
            begin(port)
            await over.wait()
            for task in (*tasks, *self._answering):
                task.cancel()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError:  # no descriptors are left, or the client has gone already
                await asyncio.sleep(_PAUSE)
                continue
            connection.setblocking(False)
            task = asyncio.create_task(self._serve(connection))
            self._answering[task] = None
            task.add_done_callback(lambda task: self._answering.pop(task, None))
            if len(self._answering) > _MOST:
                oldest = next(iter(self._answering))
                oldest.cancel()
                del self._answering[oldest]
            await asyncio.sleep(0)  # otherwise a crowd is accepted before any of it is answered

    async def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(*_CLIENT_ERRORS):
            reader, writer = await self._streams(connection)
            try:
                await self._answer(reader, writer)
                writer.close()
                await asyncio.wait_for(writer.wait_closed(), _WRITING)
            finally:
                writer.transport.abort()

    async def _streams(
        self, connection: socket.socket
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Make streams as asyncio.start_server does, which cannot end a connection that is still in
        its TLS handshake."""
        loop = asyncio.get_running_loop()
        reader, tls = asyncio.StreamReader(_LONGEST_REQUEST), self._tls()
        transport, protocol = await loop.connect_accepted_socket(
            lambda: asyncio.StreamReaderProtocol(reader), connection, ssl=tls,
            ssl_handshake_timeout=_READING if tls else None,
        )  # fmt: skip
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _READING)
        head, body = self._answer_to(request)
        body = b"" if request.startswith(b"HEAD ") else body
        writer.transport.set_write_buffer_limits(high=1)  # with 0, TLS never resumes
        await asyncio.wait_for(_send(writer, head, body), _WRITING)

    def _answer_to(self, request: bytes) -> tuple[bytes, bytes]:
        line, *rest = request.decode("latin-1").split("\r\n")
        method, _, target = line.rpartition(" ")[0].partition(" ")
        fields = [(name.strip().lower(), value.strip())
                  for name, _, value in (text.partition(":") for text in rest)]  # fmt: skip
        headers, hosts = dict(fields), [value for name, value in fields if name == "host"]
        page = self._pages.get(target.partition("?")[0])
        if not line.rpartition(" ")[2].startswith("HTTP/1.") or len(hosts) > 1:
            return _response(400)
        if self._is_own is not None and not all(map(self._is_own, hosts)):
            return _response(421)
        given, wanted = headers.get("authorization", ""), self._authorization()
        if wanted is not None and not hmac.compare_digest(given.encode(), wanted.encode()):
            return _response(401, 'WWW-Authenticate: Basic realm="gputop", charset="UTF-8"')
        if method not in ("GET", "HEAD"):
            return _response(405, "Allow: GET, HEAD")
        if page is None:
            return _response(404)
        body, encoding = page.body(), "Vary: Accept-Encoding"
        if _GZIP.search(headers.get("accept-encoding", "")):
            body, encoding = self._zip(body), f"{encoding}\r\nContent-Encoding: gzip"
        return _response(200, encoding, page.type, body)

    def _zip(self, body: bytes) -> bytes:
        if self._zipped[0] is not body:
            self._zipped = body, gzip.compress(body, compresslevel=1)
        return self._zipped[1]


async def _send(writer: asyncio.StreamWriter, head: bytes, body: bytes) -> None:
    """Send the body in parts, each after the client has read the one before; all clients share the
    whole body."""
    writer.write(head)
    whole = memoryview(body)
    for begin in range(0, len(body), _CHUNK):
        writer.write(whole[begin : begin + _CHUNK])
        await writer.drain()


def _unexpected(_: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """Print what went wrong, but not for a connection: clients could fill the log."""
    error = context.get("exception")
    if not isinstance(error, OSError):
        complain(printable(f"{context['message']}: {type(error).__name__}: {error}", 400))


def _response(
    status: int, more: str = "", type_: str = "text/plain", body: bytes = b""
) -> tuple[bytes, bytes]:
    what = f"{status} {HTTPStatus(status).phrase}"
    body = body if status == 200 else f"{what}\n".encode()
    lines = [
        f"HTTP/1.1 {what}", f"Content-Type: {type_}",
        f"Content-Length: {len(body)}", "Cache-Control: no-store", "Connection: close",
        "X-Content-Type-Options: nosniff",
    ]  # fmt: skip
    head = "\r\n".join([*lines, *filter(None, [more]), "", ""]).encode()
    return head, body


def is_same_origin(origin: str, host: str) -> bool:
    """Return whether a page of this `Origin` was served by whoever `Host` names."""
    scheme, _, where = origin.lower().partition("://")
    return scheme in ("http", "https") and where == host.lower() != ""


def is_own_name(host: str, listen: str) -> bool:
    """Return whether a `Host` is an address, or a name of this machine; `listen`: what the user
    said to listen on."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return False
    node = os.uname().nodename.lower()
    if name in {listen.lower(), node, node.partition(".")[0], "localhost"} - {""}:
        return True
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return False
