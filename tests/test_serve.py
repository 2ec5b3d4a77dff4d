"""`gputop serve`: the screen in a browser that knows the address, to look at and no more."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pyte
import pytest

from gputop.model.machine.frame import Frame
from gputop.model.machine.signals import Target
from gputop.protocol.assemble import Assembler
from gputop.protocol.codec import encode
from gputop.protocol.messages import Ping, Reply, Signal, Stack
from gputop.sources.shared import short_path
from tests.agent.driving import gone, until
from tests.conftest import MachineFactory, needed
from tests.driver import Machine
from tests.terminal import _UNKNOWN

pytestmark = pytest.mark.system

SERVE = [sys.executable, "-m", "gputop", "serve", "--listen", "127.0.0.1:0"]
TIMEOUT = 30.0


def serve(here: Machine, *more: str) -> tuple[subprocess.Popen[str], str]:
    """A server, and the address that it prints."""
    server = here.popen([*SERVE, *more], stderr=subprocess.PIPE)
    assert server.stdout is not None
    return server, server.stdout.readline().strip()


def folders(server: subprocess.Popen[str]) -> list[Path]:
    """Where its sockets are, as a viewer's command line has it."""
    viewers = [pid for pid in children(server.pid) if b"viewer" in command(pid)]
    return [Path(os.fsdecode(command(pid)[-1])) for pid in viewers]


def command(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


class View:
    """What one browser is sent, on a terminal."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._screen = pyte.Screen(160, 40)
        self._stream = pyte.ByteStream(self._screen)

    async def wait_for(self, text: str) -> str:
        """What is shown, once this is in it."""
        while text not in (shown := "\n".join(self._screen.display)):
            message = await self._socket.receive(TIMEOUT)
            assert message.type == aiohttp.WSMsgType.BINARY, shown
            self._stream.feed(_UNKNOWN.sub(b"", message.data))
        return shown

    async def type(self, keys: str) -> None:
        await self._socket.send_json(["stdin", keys])


@asynccontextmanager
async def view_of(address: str) -> AsyncIterator[View]:
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{address}ws?width=160&height=40") as socket,
    ):
        yield View(socket)


@pytest.fixture
def here(machine: MachineFactory) -> Machine:
    return machine("h200x8")


async def test_a_viewer_looks_and_touches_nothing(here: Machine, tmp_path: Path) -> None:
    here.env["XDG_RUNTIME_DIR"] = str(tmp_path / ("x" * 100))  # longer than a socket's name may be
    Path(here.env["XDG_RUNTIME_DIR"]).mkdir(mode=0o700)
    server, address = serve(here, "--viewers", "2")
    async with view_of(address) as first, view_of(address) as second:
        shown = await first.wait_for("pretrain.py")
        assert "read only" in shown
        await second.wait_for("pretrain.py")
        assert [b"agent" in command(pid) for pid in children(server.pid)].count(True) == 1
        async with aiohttp.ClientSession() as session, session.get(f"{address}ws") as third:
            assert third.status == 503

        await first.type("\t\x1b[20~")  # the processes, F9
        await first.type("\r?")
        await first.wait_for("below them every word of the screen")
        assert all(Path(f"/proc/{pid}").exists() for pid in here.pids.values())
        [folder, _] = folders(server)
        refused(folder / "0", here.pids["train"])
        assert all(Path(f"/proc/{pid}").exists() for pid in here.pids.values())
    processes = children(server.pid)
    server.send_signal(signal.SIGTERM)
    assert server.wait(TIMEOUT) == 0
    until(lambda: all(map(gone, processes)))
    assert not folder.exists()


def refused(path: Path, pid: int) -> None:
    """A viewer that asks for more than it should is told so, and served on."""
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rb") as lines:
        with short_path(str(path)) as short:
            connection.connect(short)
        connection.settimeout(TIMEOUT)
        target = Target(pid=pid, start_time=None)
        asked = [
            Signal(id="a", targets=(target,), number=9, grace=1.0),
            Stack(pid=pid, start_time=0.0, id="b"),
            Ping(id="c"),
        ]
        connection.sendall(b"nonsense\n" + b"".join(encode(each) + b"\n" for each in asked))
        assembler, replies, frames = Assembler(), dict[str, Reply](), 0
        while len(replies) < len(asked) or not frames:
            message = assembler.read(lines.readline())
            frames += isinstance(message, Frame)
            if isinstance(message, Reply):
                replies[message.request] = message
    assert [replies[id_].invalid for id_ in "abc"] == [True, True, False]
    assert replies["a"].error is not None


async def test_without_the_token_nothing_is_shown(here: Machine) -> None:
    _, address = serve(here)
    token = address.rstrip("/").rpartition("/")[2]
    assert len(token) >= 32
    root = address.removesuffix(f"{token}/")
    async with aiohttp.ClientSession() as session:
        for path in ("", "ws", "static/js/textual.js", f"{token[:-1]}/", f"{token[:-1]}/ws"):
            async with session.get(f"{root}{path}") as answer:
                assert (answer.status, await answer.text()) == (404, "404: Not Found")
        async with session.get(address) as answer:
            assert answer.status == 200
            assert "://" not in await answer.text()  # nothing of others
            assert answer.headers["Referrer-Policy"] == "no-referrer"


def test_an_agent_that_dies_is_started_again(here: Machine) -> None:
    server, address = serve(here)

    async def watch() -> None:
        async with view_of(address) as view:
            await view.wait_for("pretrain.py")
            [agent] = [pid for pid in children(server.pid) if b"agent" in command(pid)]
            os.kill(agent, signal.SIGKILL)
            await view.wait_for("The agent ended")
            await view.wait_for("pretrain.py")

    asyncio.run(watch())


def test_bad_input(here: Machine) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    wrong = {
        ("--listen", "8787"): (2, "argument --listen: '8787' is not HOST:PORT"),
        ("--listen", f"127.0.0.1:{port}"): (1, f"cannot listen on 127.0.0.1:{port}: Address"),
        ("--listen", "no.such.host.invalid:80"): (1, "cannot listen on no.such.host.invalid:80"),
        ("--viewers", "0"): (2, "--viewers 0 is not"),
    }
    for words, (status, message) in wrong.items():
        done = here.run([sys.executable, "-m", "gputop", "serve", *words])
        assert (done.returncode, done.stdout) == (status, "")
        assert done.stderr.startswith(f"gputop: {message}")
        assert done.stderr.count("\n") == 1
    taken.close()


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
async def chromium(folder: Path) -> AsyncIterator[Chromium]:
    program = needed("chromium", "chromium")
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
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


@pytest.mark.timeout(120)
async def test_a_real_browser(here: Machine, tmp_path: Path) -> None:
    _, address = serve(here)
    async with chromium(tmp_path) as page:
        await page.call("Network.enable")
        await page.call("Emulation.setFocusEmulationEnabled", enabled=True)
        await page.call("Page.navigate", url=address)
        await page.wait_for("pretrain.py")
        before = await page.call("Page.captureScreenshot")
        await page.call("Input.dispatchKeyEvent", type="keyDown", text="?", key="?")
        await page.wait_for("below them every word of the screen")
        after = await page.call("Page.captureScreenshot")
    pictures = [base64.b64decode(picture["data"]) for picture in (before, after)]
    assert all(picture.startswith(b"\x89PNG") for picture in pictures)
    assert pictures[0] != pictures[1]
