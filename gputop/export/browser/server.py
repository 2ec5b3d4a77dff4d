"""The web server of `gputop serve`: textual-serve's, below a secret path.

The token is in the path, not in a cookie: a browser sends cookies to every port of a host, and on a
shared machine another user may listen on the next port.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path

from aiohttp import web
from textual_serve.app_service import AppService
from textual_serve.server import Server, to_int

from gputop.errors import GputopError

_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'self' 'unsafe-inline'; font-src 'self' data:;"
    " img-src 'self' data:",
}
_INDEX = Path(__file__).parent / "app_index.html"
_SHUTDOWN = 1.0
"""Seconds that viewers have to end."""


class BrowserServer(Server):
    """Serves the screen to browsers that know the token, a viewer process for each."""

    def __init__(self, command: str, host: str, port: int, token: str, viewers: int) -> None:
        """`command`: the shell command that starts a viewer; `viewers`: how many may run at once;
        `token`: the first part of the path, or empty for none."""
        super().__init__(command, host, port)
        self._prefix = f"/{token}" if token else ""
        self._most, self._viewers = viewers, 0

    def run(self, ready: Callable[[str, int], None]) -> None:
        """Serve until SIGINT or SIGTERM. GputopError.

        `ready` is called with path and port once browsers can connect.
        """
        # Logs would show who connects when, and URLs with the token.
        logging.getLogger("textual-serve").setLevel(logging.CRITICAL)
        try:
            asyncio.run(self._serve(ready))
        except OSError as error:
            where = f"{self.host}:{self.port}"
            why = os.strerror(error.errno) if error.errno else str(error)
            raise GputopError(f"cannot listen on {where}: {why}; give another --listen") from None

    async def _serve(self, ready: Callable[[str, int], None]) -> None:
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        runner = web.AppRunner(await self._make_app(), access_log=None, shutdown_timeout=_SHUTDOWN)
        await runner.setup()
        try:
            await web.TCPSite(runner, self.host, self.port).start()
            ready(f"{self._prefix}/", runner.addresses[0][1])
            await stopped.wait()
        finally:
            await runner.cleanup()

    async def _make_app(self) -> web.Application:
        app = web.Application()
        app.on_response_prepare.append(_add_headers)
        app.add_routes(
            [
                web.get(f"{self._prefix}/", self._show_index),
                web.get(f"{self._prefix}/ws", self.handle_websocket),
                web.static(f"{self._prefix}/static", self.statics_path),
            ]
        )
        return app

    async def _show_index(self, _: web.Request) -> web.StreamResponse:
        """Return the page, which connects back to the address in the browser."""
        return web.FileResponse(_INDEX)

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Start a viewer for a page, unless too many run, and end it when the page closes."""
        if self._viewers >= self._most:
            raise web.HTTPServiceUnavailable(text=f"{self._most} viewers are here already\n")
        self._viewers += 1
        try:
            return await self._show(request)
        finally:
            self._viewers -= 1

    async def _show(self, request: web.Request) -> web.WebSocketResponse:
        connection = web.WebSocketResponse(heartbeat=15)
        await connection.prepare(request)

        async def close() -> None:
            await connection.close()

        viewer = _Viewer(
            self.command,
            write_bytes=connection.send_bytes,
            write_str=connection.send_str,
            close=close,
            download_manager=self.download_manager,
        )
        width, height = (to_int(request.query.get(name, ""), 80) for name in ("width", "height"))
        await viewer.start(width, height)
        try:
            await self._process_messages(connection, viewer)
        finally:
            await viewer.stop()
        return connection


class _Viewer(AppService):
    """A viewer process; `stop` kills it if it does not end by itself."""

    async def stop(self) -> None:
        process = self._process
        ended = asyncio.ensure_future(super().stop())
        await asyncio.wait([ended], timeout=_SHUTDOWN)
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.wait()
        await ended


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
