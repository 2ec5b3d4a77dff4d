"""`gputop serve` and those who look: a plain web socket, a real browser."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pyte

from tests.agent.driving import children_of
from tests.conftest import needed
from tests.driver import Machine
from tests.patience import Deadline
from tests.terminal import _UNKNOWN

SERVE = [sys.executable, "-m", "gputop", "serve", "--listen", "127.0.0.1:0"]
TIMEOUT = 30.0


def serve(here: Machine, *more: str) -> tuple[subprocess.Popen[str], str]:
    """A server, and the address that it prints."""
    server = here.popen([*SERVE, *more], stderr=subprocess.PIPE)
    assert server.stdout is not None
    return server, server.stdout.readline().strip()


def command(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")


def viewers(server: subprocess.Popen[str]) -> list[int]:
    """The PIDs of its viewers."""
    return [pid for pid in children_of(server.pid) if b"viewer" in command(pid)]


class View:
    """What one browser is sent, on a terminal. It reads all the time, as a browser does: the server
    ends the view of one that answers no pings."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self._screen = pyte.Screen(160, 40)
        self._stream = pyte.ByteStream(self._screen)
        self._news = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while (message := await self.socket.receive()).type == aiohttp.WSMsgType.BINARY:
            self._stream.feed(_UNKNOWN.sub(b"", message.data))
            self._news.set()
        self._news.set()

    async def wait_for(self, text: str) -> str:
        """What is shown, once this is in it."""
        deadline = Deadline(TIMEOUT)
        while text not in (shown := "\n".join(self._screen.display)):
            assert not self._reader.done(), shown
            assert deadline.left() > 0, f"not {text!r}, but:\n{shown}"
            self._news.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._news.wait(), 1.0)
        return shown

    async def type(self, keys: str) -> None:
        await self.socket.send_json(["stdin", keys])

    async def close_code(self) -> int | None:
        """The code with which the server ends it, after all that it still sends."""
        await asyncio.wait_for(self._reader, TIMEOUT)
        code: int | None = self.socket.close_code
        return code

    def end(self) -> None:
        self._reader.cancel()


@asynccontextmanager
async def view_of(address: str, size: str = "width=160&height=40") -> AsyncIterator[View]:
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{address}ws?{size}") as socket,
    ):
        view = View(socket)
        try:
            yield view
        finally:
            view.end()


def hold(address: str, count: int) -> None:
    """Hold this many views open, and print how many are left whenever one has ended."""

    async def read() -> None:
        async with aiohttp.ClientSession() as session:
            for _ in range(count):
                sockets.append(await session.ws_connect(f"{address}ws"))
            print(count, "open", flush=True)
            await asyncio.gather(*map(watch, sockets))

    async def watch(socket: Any) -> None:
        async for _ in socket:
            pass
        sockets.remove(socket)
        print(len(sockets), "open", flush=True)

    sockets: list[Any] = []
    asyncio.run(read())


class Chromium:
    """A page in a real browser, by its DevTools protocol."""

    def __init__(self, socket: Any) -> None:
        self._socket, self._number = socket, 0
        self._screen = pyte.Screen(300, 100)
        self._stream = pyte.ByteStream(self._screen)

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while (message := await self._next()).get("id") != self._number:
            pass
        result: dict[str, Any] = message["result"]
        return result

    async def go(self, url: str) -> None:
        """Open an address, and wait until the page is loaded."""
        await self.call("Page.enable")
        await self.call("Page.navigate", url=url)
        while (await self._next()).get("method") != "Page.loadEventFired":
            pass

    async def ask(self, expression: str) -> Any:
        """The value of JavaScript in the page, of a promise once it is kept."""
        options = {"awaitPromise": True, "returnByValue": True}
        answer = await self.call("Runtime.evaluate", expression=expression, **options)
        return answer["result"].get("value", answer)

    async def resize(self, width: int, height: int) -> None:
        """Make the window so many pixels."""
        sizes = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.call("Emulation.setDeviceMetricsOverride", **sizes)

    def forget(self) -> None:
        """Forget what the page was sent so far."""
        self._screen.reset()

    async def wait_for(self, text: str) -> None:
        """Until the page was sent this."""
        while text not in "\n".join(self._screen.display):
            await self._next()

    async def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads((await self._socket.receive(TIMEOUT)).data)
        if message.get("method") == "Network.webSocketFrameReceived":
            frame = message["params"]["response"]
            if frame["opcode"] == 2:
                data = base64.b64decode(frame["payloadData"])
                self._stream.feed(_UNKNOWN.sub(b"", data))
        return message


@asynccontextmanager
async def chromium(folder: Path, *more: str) -> AsyncIterator[Chromium]:
    program = needed("chromium", "chromium")
    options = [*more, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    browser = subprocess.Popen(
        [program, *options, "--remote-debugging-port=0", f"--user-data-dir={folder}", "about:"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert browser.stderr is not None
        said = next(line for line in browser.stderr if "DevTools listening on" in line)
        port = re.findall(r":(\d+)/", said)[0]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json") as answer:
                [page] = [tab for tab in await answer.json() if tab["type"] == "page"]
            url = page["webSocketDebuggerUrl"]
            async with session.ws_connect(url, max_msg_size=1 << 26) as socket:
                yield Chromium(socket)
    finally:
        browser.terminate()
        browser.wait()
