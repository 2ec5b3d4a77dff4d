"""`gputop serve`: the screen in a browser that knows the address, to look at and no more."""

from __future__ import annotations

import asyncio
import base64
import ctypes
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from gputop.commands.shared.server_options import token_of
from gputop.errors import UsageError
from gputop.model.machine.frame import Frame
from gputop.model.machine.process_id import ProcessId
from gputop.model.machine.signals import Target
from gputop.protocol.assemble import Assembler
from gputop.protocol.codec import encode
from gputop.protocol.messages import Detail, Ping, Probe, Reply, Signal, Stack
from tests.agent.driving import children_of, gone
from tests.browsers import TIMEOUT, chromium, command, serve, view_of, viewers
from tests.conftest import MachineFactory
from tests.driver import Machine
from tests.patience import until

pytestmark = pytest.mark.system
DRAWN = """new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => {
    const screen = document.querySelector(".xterm-screen");
    done([screen.offsetWidth, screen.offsetHeight]);
})))"""
"""The size of the screen in the page, once it is drawn."""


@pytest.fixture
def here(machine: MachineFactory) -> Machine:
    return machine("h200x8")


async def test_a_viewer_looks_and_touches_nothing(here: Machine) -> None:
    server, address = serve(here, "--viewers", "2")
    async with view_of(address) as first, view_of(address) as second:
        shown = await first.wait_for("pretrain.py")
        assert "read only" in shown
        await second.wait_for("pretrain.py")
        assert [b"agent" in command(pid) for pid in children_of(server.pid)].count(True) == 1
        async with aiohttp.ClientSession() as session, session.get(f"{address}ws") as third:
            assert third.status == 503

        await first.type("\t\x1b[20~")  # the processes, F9
        await first.type("\r?")
        await first.wait_for("below them every word of the screen")
        assert all(Path(f"/proc/{pid}").exists() for pid in here.pids.values())
        refused(server, here.pids["train"])
        assert all(Path(f"/proc/{pid}").exists() for pid in here.pids.values())
    processes = children_of(server.pid)
    server.send_signal(signal.SIGTERM)
    assert server.wait(TIMEOUT) == 0
    until(lambda: all(map(gone, processes)))


TOO_MANY = "too many requests are pending: try again"


def door_of(viewer: int) -> socket.socket:
    """The door of a viewer that somebody has taken over: pidfd_getfd(2) is system call 438."""
    number = int(command(viewer)[-3])
    descriptor = ctypes.CDLL(None).syscall(438, os.pidfd_open(viewer), number, 0)
    return socket.socket(fileno=descriptor)


def refused(server: subprocess.Popen[str], pid: int) -> None:
    """A viewer that asks for more than it should is told so, and served on."""
    connection, theirs = socket.socketpair()
    [agent] = [child for child in children_of(server.pid) if b"agent" in command(child)]
    door = door_of(viewers(server)[0])
    with door, connection, connection.makefile("rb") as lines:
        socket.send_fds(door, [b"0"], [theirs.fileno()])
        connection.settimeout(TIMEOUT)
        process = ProcessId(pid, 1)
        target = Target(process)
        asked = [
            Signal(id="a", targets=(target,), number=9, grace=1.0),
            Stack(process, id="b"),
            Probe(value=None, order=None, id="p"),
            Ping(id="c"),
            *(Detail(process, id=f"detail {number}") for number in range(20)),
        ]
        os.kill(agent, signal.SIGSTOP)  # else it may answer each before the next comes
        connection.sendall(b"nonsense\n" + b"".join(encode(each) + b"\n" for each in asked))
        assembler, replies, frames = Assembler(), dict[str, Reply](), 0
        while len(replies) < len(asked) or not frames:
            message = assembler.read(lines.readline())
            frames += isinstance(message, Frame)
            if isinstance(message, Reply):
                replies[message.request] = message
                if message.error == TOO_MANY:
                    os.kill(agent, signal.SIGCONT)
    assert [replies[id_].invalid for id_ in "abpc"] == [True, True, True, False]
    errors = [reply.error for name, reply in replies.items() if name.startswith("detail")]
    assert TOO_MANY in errors
    assert None in errors
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


@pytest.mark.long
def test_an_agent_that_dies_is_started_again(here: Machine) -> None:
    server, address = serve(here)

    async def watch() -> None:
        async with view_of(address) as view:
            await view.wait_for("pretrain.py")
            [agent] = [pid for pid in children_of(server.pid) if b"agent" in command(pid)]
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


def token_file(folder: Path, text: str = f"{'7' * 32}\n", mode: int = 0o600) -> Path:
    path = folder / "token"
    path.write_text(text)
    path.chmod(mode)
    return path


async def test_the_address_is_the_same_with_a_token_file(here: Machine, tmp_path: Path) -> None:
    server, address = serve(here, "--token-file", str(token_file(tmp_path)))
    assert address.endswith(f"/{'7' * 32}/")
    async with view_of(address) as view:
        await view.wait_for("pretrain.py")
        server.terminate()
        assert await view.close_code() == aiohttp.WSCloseCode.GOING_AWAY


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [
        ("7" * 32, 0o640, "is readable by others: chmod go= it"),
        ("7" * 20, 0o600, "must be one line of 24 to 128 letters"),
        (f"{'7' * 30}/../x", 0o600, "must be one line of 24 to 128 letters"),
        (f"{'7' * 32}\n{'7' * 32}", 0o600, "must be one line of 24 to 128 letters"),
    ],
)
def test_a_token_that_is_none(text: str, mode: int, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=reason):
        token_of(str(token_file(tmp_path, text, mode)))


@pytest.mark.long
@pytest.mark.timeout(120)
async def test_a_larger_window_and_a_server_that_comes_back(here: Machine, tmp_path: Path) -> None:
    token = ("--token-file", str(token_file(tmp_path)))
    server, address = serve(here, *token)
    port = address.split(":")[2].partition("/")[0]
    async with chromium(tmp_path / "chromium") as page:
        await page.call("Network.enable")
        await page.resize(1280, 720)
        await page.call("Page.navigate", url=address)
        await page.wait_for("pretrain.py")
        await page.resize(1920, 1080)
        width, height = await page.ask(DRAWN)
        assert 1850 < width <= 1920
        assert 1000 < height <= 1080
        server.terminate()
        server.wait()
        while "-lost" not in await page.ask("document.body.className"):
            pass
        page.forget()
        serve(here, *token, "--listen", f"127.0.0.1:{port}")
        await page.wait_for("pretrain.py")


STARTS_LATE = """
import sys
from threading import Event
from textual.app import App
from gputop.tui.terminal.browser import BrowserDriver

class Starved(BrowserDriver):
    # Gets no core again, as it begins to read, until the first packet has been read.
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        begin, self.heard = self._key_thread.start, Event()
        self._key_thread.start = lambda: (begin(), self.heard.wait())
    def on_meta(self, *packet):
        super().on_meta(*packet)
        self.heard.set()

class Sized(App):
    def on_resize(self, event):
        print(*event.size, file=sys.__stderr__, flush=True)
    def on_key(self):
        self.exit()

Sized(driver_class=Starved).run()
"""


def test_the_size_that_a_page_has_taken_meanwhile_is_the_last() -> None:
    """It opens with one, and may take another before its viewer has started."""

    def packet(kind: bytes, content: bytes) -> bytes:
        return kind + len(content).to_bytes(4, "big") + content

    with subprocess.Popen(
        [sys.executable, "-c", STARTS_LATE], env={**os.environ, "COLUMNS": "400", "ROWS": "90"},
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    ) as viewer:  # fmt: skip
        assert viewer.stdin
        assert viewer.stderr
        viewer.stdin.write(packet(b"M", b'{"type": "resize", "width": 100, "height": 30}'))
        viewer.stdin.flush()
        sizes = [viewer.stderr.readline()]
        viewer.stdin.write(packet(b"D", b"x"))
        viewer.stdin.flush()
        sizes += viewer.stderr.readlines()
    assert sizes[-1] == b"100 30\n", sizes


@pytest.mark.timeout(120)
@pytest.mark.long
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
