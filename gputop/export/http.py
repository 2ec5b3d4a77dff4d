"""Pages over HTTP for programs that ask again and again, in one thread.

Nobody who asks is trusted. What one connection can cost is bounded: bytes of a request, bytes that
wait to be taken, and seconds; and so is their number, where the oldest goes for the newest: who
asks as a program does is served in milliseconds, who holds on to a connection loses it. There is
one request to a connection, and no other method than GET and HEAD.
"""

from __future__ import annotations

import asyncio
import gzip
import hmac
import signal
import ssl
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gputop.model.machine.text import printable
from gputop.output import complain

_LONGEST_REQUEST = 16 << 10
"""Bytes, with all headers."""
_CHUNK = 16 << 10
"""Bytes that wait in this process until a client takes them."""
_READING, _WRITING = 5.0, 10.0
"""Seconds that a client has to ask, and to take the answer."""
_MOST = 256
"""Connections at a time."""
_WORDS = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found",
    405: "Method Not Allowed",
}  # fmt: skip


class WebPage(NamedTuple):
    """What there is at a path."""

    type: str
    """Its media type."""
    body: Callable[[], bytes]


class WebServer:
    """Pages by their paths, for whoever sends the right `Authorization`."""

    def __init__(self, pages: Mapping[str, WebPage], authorization: str | None = None) -> None:
        """authorization: the value of that header; None where nobody needs one."""
        self._pages, self._authorization = pages, authorization
        self._answering: dict[asyncio.Task[None], None] = {}
        """The oldest first."""
        self._zipped: tuple[bytes, bytes] = b"", b""
        """What was compressed last, before and after."""

    async def serve(
        self, host: str, port: int, tls: ssl.SSLContext | None, begin: Callable[[int], None]
    ) -> None:
        """Serve until SIGTERM; `begin` is told the port, once it is open. OSError."""
        over, loop = asyncio.Event(), asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, over.set)
        loop.set_exception_handler(_unexpected)
        server = await asyncio.start_server(
            self._accept, host, port, ssl=tls, limit=_LONGEST_REQUEST, backlog=_MOST,
            ssl_handshake_timeout=_READING if tls else None,
        )  # fmt: skip
        begin(server.sockets[0].getsockname()[1])
        await over.wait()
        server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._answering[task] = None
        if len(self._answering) > _MOST:
            next(iter(self._answering)).cancel()
        try:
            await self._answer(reader, writer)
        except (
            OSError, EOFError, ValueError, asyncio.CancelledError, asyncio.TimeoutError,
            asyncio.LimitOverrunError,
        ):  # fmt: skip
            writer.transport.abort()  # it has asked for nothing, or takes nothing
        finally:
            self._answering.pop(task, None)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _READING)
        head, body = self._answer_to(request)
        writer.transport.set_write_buffer_limits(high=1)  # at 0 TLS never goes on
        await asyncio.wait_for(_send(writer, head, body), _WRITING)

    def _answer_to(self, request: bytes) -> tuple[bytes, bytes]:
        line, *rest = request.decode("latin-1").split("\r\n")
        method, _, target = line.rpartition(" ")[0].partition(" ")
        headers = {name.strip().lower(): value.strip()
                   for name, _, value in (text.partition(":") for text in rest)}  # fmt: skip
        page = self._pages.get(target.partition("?")[0])
        if not line.rpartition(" ")[2].startswith("HTTP/1."):
            return _response(400)
        if not self._is_allowed(headers.get("authorization", "")):
            return _response(401, 'WWW-Authenticate: Basic realm="gputop", charset="UTF-8"')
        if method not in ("GET", "HEAD"):
            return _response(405, "Allow: GET, HEAD")
        if page is None:
            return _response(404)
        body, encoding = page.body(), "Vary: Accept-Encoding"
        if "gzip" in headers.get("accept-encoding", ""):
            body, encoding = self._zip(body), f"{encoding}\r\nContent-Encoding: gzip"
        return _response(200, encoding, page.type, body, method == "GET")

    def _is_allowed(self, given: str) -> bool:
        wanted = self._authorization
        return wanted is None or hmac.compare_digest(given.encode(), wanted.encode())

    def _zip(self, body: bytes) -> bytes:
        if self._zipped[0] is not body:
            self._zipped = body, gzip.compress(body, compresslevel=1)
        return self._zipped[1]


async def _send(writer: asyncio.StreamWriter, head: bytes, body: bytes) -> None:
    """Wait for each part to be taken before the next one is handed over; the whole is common to all
    who ask."""
    writer.write(head)
    whole = memoryview(body)
    for begin in range(0, len(body), _CHUNK):
        writer.write(whole[begin : begin + _CHUNK])
        await writer.drain()


def _unexpected(_: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """Say what went wrong; not of a connection, or whoever connects could fill the log."""
    error = context.get("exception")
    if not isinstance(error, OSError):
        complain(printable(f"{context['message']}: {type(error).__name__}: {error}", 400))


def _response(
    status: int, more: str = "", type_: str = "text/plain", body: bytes = b"", whole: bool = True
) -> tuple[bytes, bytes]:
    """Return head and body of an answer; no body where only the head is wanted."""
    body = body if status == 200 else f"{status} {_WORDS[status]}\n".encode()
    lines = [
        f"HTTP/1.1 {status} {_WORDS[status]}", f"Content-Type: {type_}",
        f"Content-Length: {len(body)}", "Cache-Control: no-store", "Connection: close",
        "X-Content-Type-Options: nosniff",
    ]  # fmt: skip
    head = "\r\n".join([*lines, *filter(None, [more]), "", ""]).encode()
    return head, body if whole else b""
