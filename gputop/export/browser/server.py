"""The web server of `gputop serve`: a page below a secret path, and a viewer for each browser.

The token is in the path, not in a cookie: a browser sends cookies to every port of a host, and on a
shared machine another user may listen on the next port. A page of another origin does not get what
it asks for, even if it knows the path.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import textual_serve
from aiohttp import WSCloseCode, WSMsgType, web

from gputop.errors import GputopError
from gputop.export.browser.seats import NoSeatError, Seats, client_of
from gputop.export.browser.viewer import (
    LONGEST_MESSAGE,
    PagePing,
    Viewer,
    ViewerCommand,
    ViewerError,
    Window,
    page_message,
)
from gputop.export.http import is_own_name, is_same_origin
from gputop.model.machine.text import printable
from gputop.output import complain

_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'self' 'unsafe-inline'; font-src 'self' data:;"
    " img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}
_STATIC = "css/xterm.css", "fonts/RobotoMono-VariableFont_wght.ttf", "js/textual.js"
_SHUTDOWN = 1.0
"""Seconds that viewers have to end."""
_ASKING = 30.0
"""Seconds in which a connection must have its answer, or show the screen."""
_MOST_ASKING = 64
"""Connections that do not show the screen; the newest replaces the oldest."""


class BrowserServer:
    """Serves the screen to browsers that know the token, a viewer process for each."""

    def __init__(
        self,
        command: ViewerCommand,
        door: Callable[[], socket.socket],
        token: str,
        viewers: int,
    ) -> None:
        """`command` and `door`: of a viewer; `viewers`: how many may run at once; `token`: the
        first part of the path, or empty for none."""
        self._command, self._door = command, door
        self._is_secret, self._prefix = bool(token), f"/{token}/" if token else "/"
        self._seats = Seats(viewers)
        statics = files(textual_serve).joinpath("static")
        self._files = {f"static/{name}": Path(str(statics.joinpath(name))) for name in _STATIC}
        self._files[""] = Path(__file__).parent / "app_index.html"
        self._host = ""
        self._code = WSCloseCode.OK
        """What a page is told when its view ends."""

    def run(self, host: str, port: int, ready: Callable[[str, int], None]) -> None:
        """Serve until SIGINT or SIGTERM. GputopError.

        `ready` is called with path and port once browsers can connect.
        """
        # It logs what clients send, and they could fill the log.
        logging.getLogger("aiohttp").setLevel(logging.CRITICAL)
        self._host = host
        try:
            asyncio.run(self._serve(port, ready))
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            where = f"{host}:{port}"
            raise GputopError(f"cannot listen on {where}: {why}; give another --listen") from None

    async def _serve(self, port: int, ready: Callable[[str, int], None]) -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        self._connections = _BoundedServer(self._answer, access_log=None, keepalive_timeout=_ASKING)
        runner = web.ServerRunner(self._connections, shutdown_timeout=_SHUTDOWN)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, port).start()
            ready(self._prefix, runner.addresses[0][1])
            await stopped.wait()
        finally:
            self._code = WSCloseCode.GOING_AWAY
            await self._seats.clear()
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request; report an error of ours in one line."""
        try:
            response = await self._response(request)
        except (ConnectionError, web.HTTPException):
            raise
        except Exception as error:  # noqa: BLE001 - it is reported
            complain(printable(f"internal error: {type(error).__name__}: {error}", 300))
            raise web.HTTPInternalServerError from None
        return response

    async def _response(self, request: web.BaseRequest) -> web.StreamResponse:
        path = self._path_of(request)
        if path is None or request.method not in ("GET", "HEAD"):
            return _refusal(404, "Not Found")
        hosts = request.headers.getall("Host", [""])
        if len(hosts) != 1 or not (self._is_secret or is_own_name(hosts[0], self._host)):
            return _refusal(421, f"{printable(hosts[0], 100)} is not here")
        if path != "ws":
            return web.FileResponse(self._files[path], headers=_HEADERS)
        origins = request.headers.getall("Origin", [])
        if not all(is_same_origin(origin, hosts[0]) for origin in origins):
            return _refusal(403, "only the page of this server may ask for that")
        return await self._show(request)

    def _path_of(self, request: web.BaseRequest) -> str | None:
        """Return what is asked for, below the token; None if there is no such thing."""
        size = len(self._prefix)
        given, path = request.path[:size], request.path[size:]
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self._prefix.encode()):
            return None
        return path if path == "ws" or path in self._files else None

    async def _show(self, request: web.BaseRequest) -> web.StreamResponse:
        """Start a viewer for a page, and end it when the page closes."""
        connection = web.WebSocketResponse(
            heartbeat=15, timeout=_SHUTDOWN, max_msg_size=LONGEST_MESSAGE
        )
        connection.headers.update(_HEADERS)
        try:
            async with self._seats.seat(client_of(request.transport)) as lost:
                await connection.prepare(request)
                self._connections.settle(request.protocol)
                viewer = Viewer()
                await viewer.start(self._command, self._door(), _window(request.query))
                await _pass_on(connection, viewer, lost)
                await connection.close(code=self._code)
        except NoSeatError as error:
            return _refusal(503, str(error))
        except ViewerError as error:
            complain(str(error))
            await connection.close(code=WSCloseCode.INTERNAL_ERROR)
        return connection


class _BoundedServer(web.Server):
    """A server that bounds the number and the time of connections that show no screen."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._asking: dict[web.RequestHandler, asyncio.TimerHandle] = {}

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        loop = asyncio.get_running_loop()
        self._asking[handler] = loop.call_later(_ASKING, transport.abort)
        if len(self._asking) > _MOST_ASKING:
            oldest = next(iter(self._asking))
            self.settle(oldest)
            if oldest.transport is not None:
                oldest.transport.abort()

    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        super().connection_lost(handler, exc)
        self.settle(handler)

    def settle(self, handler: web.RequestHandler) -> None:
        """Stop counting a connection, which has ended or shows the screen."""
        if (timer := self._asking.pop(handler, None)) is not None:
            timer.cancel()


async def _pass_on(connection: web.WebSocketResponse, viewer: Viewer, lost: asyncio.Event) -> None:
    """Pass on what is drawn and what is said, until the page or the viewer ends, or the seat is
    lost."""
    both_ways = _draw(viewer, connection), _listen(connection, viewer), lost.wait()
    tasks = [asyncio.ensure_future(way) for way in both_ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, viewer.end(), return_exceptions=True)


async def _draw(viewer: Viewer, connection: web.WebSocketResponse) -> None:
    """Send what a viewer draws, until it ends."""
    async for content in viewer.drawn():
        await connection.send_bytes(content)


async def _listen(connection: web.WebSocketResponse, viewer: Viewer) -> None:
    """Pass on what a page says, until it closes or says what no page of ours does."""
    async for message in connection:
        try:
            content = page_message(message.data) if message.type == WSMsgType.TEXT else None
        except (ValueError, RecursionError):
            content = None
        if content is None:
            await connection.close(code=WSCloseCode.UNSUPPORTED_DATA)
            return
        await viewer.send(content)
        if isinstance(content, PagePing):
            await connection.send_json(["pong", content.text])


def _window(query: Mapping[str, str]) -> Window:
    """Return the size that a page asks for; the usual one if it is none."""
    try:
        return Window(int(query["width"][:10]), int(query["height"][:10]))
    except (KeyError, ValueError):
        return Window(80, 24)


def _refusal(status: int, reason: str) -> web.Response:
    return web.Response(status=status, text=f"{status}: {reason}", headers=_HEADERS)
