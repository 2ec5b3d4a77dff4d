"""`gputop serve` under attack: by those who look, by web pages, by other users of the machine."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import sys
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import aiohttp
import pytest

from tests.agent.driving import gone
from tests.browsers import TIMEOUT, chromium, serve, view_of, viewers
from tests.conftest import MachineFactory, needs_everybody, needs_root, rest_long
from tests.driver import Machine
from tests.patience import until

pytestmark = pytest.mark.system

HUGE = 10**9
WINDOW_KB = 200 << 10
"""What a viewer may take, in KiB, whatever the size of its window."""


@pytest.fixture
def here(machine: MachineFactory, tmp_path: Path) -> Machine:
    """A machine on which gputop keeps its files in `tmp_path`."""
    there = machine("h200x8")
    for name in ("XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "TMPDIR"):
        (tmp_path / name).mkdir(mode=0o700)
        there.env[name] = str(tmp_path / name)
    return there


def memory(pid: int) -> int:
    """The most that a process has had, in KiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


@needs_everybody
async def test_a_viewer_runs_nothing_of_the_settings(here: Machine, tmp_path: Path) -> None:
    """`W` in a browser once ran the owner's notify_command, as the owner."""
    ran, config = tmp_path / "ran", tmp_path / "XDG_CONFIG_HOME" / "gputop"
    config.mkdir(mode=0o700)
    settings = config / "config.toml"
    settings.write_text(f"notify_command = \"sh -c 'touch {ran}'\"\n")
    settings.chmod(0o600)
    before = settings.read_text()
    server, address = serve(here)
    async with view_of(address) as view:
        await view.wait_for("train.py")
        [viewer] = viewers(server)
        await view.type("W\tWT")  # the first process and GPU 0 are marked; another theme
        await view.wait_for("W  0")
        here.change(gpu=0, utilization={"gpu": 0, "memory": 0})
        here.kill("train")
        await view.wait_for("has ended")
        await view.wait_for("GPU 0 is free")
    until(lambda: gone(viewer))
    assert not ran.exists()
    assert settings.read_text() == before


async def test_a_page_of_another_origin_is_refused(here: Machine) -> None:
    server, address = serve(here)
    host = address.split("/")[2]
    wrong = [
        "http://evil.test",
        f"http://{host.partition(':')[0]}:1",
        "null",
        "",
        "file://",
        f"http://{host}.evil.test",
    ]
    async with aiohttp.ClientSession() as session:
        for origin in wrong:
            async with session.get(f"{address}ws", headers=upgrade(Origin=origin)) as answer:
                assert answer.status == 403, origin
    assert not viewers(server)


async def test_without_a_token_only_own_names_are_served(here: Machine) -> None:
    """A page whose name is made to lead here (DNS rebinding) has the origin that it asks for."""
    server, address = serve(here, "--no-token")
    port = address.rstrip("/").rpartition(":")[2]
    async with aiohttp.ClientSession() as session:
        for name in ("evil.test", f"evil.test:{port}", "127.0.0.1.evil.test", "[", "a b", ""):
            for path in ("", "ws", "static/js/textual.js"):
                headers = upgrade(Host=name, Origin=f"http://{name}")
                async with session.get(f"{address}{path}", headers=headers) as answer:
                    assert answer.status in (400, 421), (name, path)
        for name in (f"localhost:{port}", "127.0.0.1", f"[::1]:{port}", os.uname().nodename):
            async with session.get(address, headers={"Host": name}) as answer:
                assert answer.status == 200, name
    assert not viewers(server)


def test_what_is_no_page_is_refused_in_silence(here: Machine) -> None:
    server, address = serve(here)
    _, _, host, token, _ = address.split("/")
    name, port = host.split(":")
    for line, status in (
        (f"GET /{token}", 404), (f"GET /{token}/static/../static/js/textual.js", 404),
        (f"GET /{token}/static/%2e%2e/server.py", 404), (f"GET /{token}//etc/passwd", 404),
        (f"POST /{token}/", 404), ("OPTIONS *", 404), ("CONNECT a:1", 404), ("GET /\xe9/", 400),
        (f"GET /{token}/ws", 400), ("", 400), (f"GET /{token}/?{'x' * 100_000}", 400),
        (f"GET /{token}/ HTTP/1.1\r\nHost: evil.test", 400),
    ):  # fmt: skip
        with socket.create_connection((name, int(port)), TIMEOUT) as client:
            request = f"{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            client.sendall(request.encode("latin-1"))
            with client.makefile("rb") as answer:
                assert int(answer.readline().split()[1]) == status, line
    server.send_signal(signal.SIGTERM)
    assert server.wait(TIMEOUT) == 0
    assert server.stderr is not None
    errors = server.stderr.read()
    assert (errors.count("\n"), token in errors) == (1, False)


def upgrade(**headers: str) -> dict[str, str]:
    """The headers that ask for a web socket."""
    return {
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", **headers,
    }  # fmt: skip


class Evil(BaseHTTPRequestHandler):
    """A web server of somebody else, with an empty page."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.long
@pytest.mark.timeout(120)
async def test_a_page_in_a_real_browser_reads_nothing(here: Machine, tmp_path: Path) -> None:
    _, address = serve(here, "--no-token")
    port = address.rstrip("/").rpartition(":")[2]
    with ThreadingHTTPServer(("127.0.0.1", 0), Evil) as evil:
        Thread(target=evil.serve_forever, daemon=True).start()
        rules = "--host-resolver-rules=MAP evil.test 127.0.0.1"
        async with chromium(tmp_path / "profile", rules) as page:
            for origin in (f"evil.test:{evil.server_port}", f"127.0.0.1:{evil.server_port}"):
                await page.go(f"http://{origin}/")
                for target in (f"127.0.0.1:{port}", f"evil.test:{port}", f"0.0.0.0:{port}"):
                    assert await page.ask(SOCKET % target) == "error"
            await page.go(f"http://evil.test:{port}/")
            assert await page.ask("document.body.innerText") == f"421: evil.test:{port} is not here"
            await page.go(address)
            assert await page.ask(SOCKET % f"127.0.0.1:{port}") == "open"
        evil.shutdown()


SOCKET = """
new Promise(done => {
    const socket = new WebSocket("ws://%s/ws");
    socket.onopen = () => done("open");
    socket.onerror = () => done("error");
})
"""


NONSENSE = [
    "", "{}", "[]", "1", "nonsense", '["stdin"]', '["stdin", 1]', '["resize", []]',
    '["resize", {"width": "8", "height": 8}]', '["resize", {"width": 1e400, "height": 1}]',
    '["resize", {"width": 8.5, "height": NaN}]', '["resize", {}]', '["exit"]',
    '["stdin", "\\ud800"]',
    "[" * 100_000, json.dumps(["stdin", "x" * 300_000]),
]  # fmt: skip


@rest_long("nonsense", NONSENSE[::6], NONSENSE, ids=["some", "all"])
async def test_windows_and_messages_of_any_size_and_kind(
    nonsense: list[str], here: Machine, tmp_path: Path
) -> None:
    """A window of 10^9 columns once took 2.5 GB; others left a crash file each."""
    server, address = serve(here)
    async with view_of(address) as quiet:
        await quiet.wait_for("pretrain.py")
        before = {*viewers(server)}
        async with view_of(address, f"width={HUGE}&height={HUGE}") as view:
            until(lambda: len(viewers(server)) == 2)
            [viewer] = {*viewers(server)} - before
            for size in ({"width": HUGE, "height": HUGE}, {"width": -1, "height": 0}):
                await view.socket.send_json(["resize", size])
            await view.type(f"\x1b[48;{HUGE};{HUGE};1;1t")  # the size, as a terminal reports it
            await view.socket.send_json(["resize", {"width": 160, "height": 40}])
            await view.wait_for("pretrain.py")
            assert memory(viewer) < WINDOW_KB
            for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):
                assert resource.prlimit(viewer, limit) == (0, 0)
            assert 0 < resource.prlimit(viewer, resource.RLIMIT_DATA)[1] < 1 << 30
        for message in nonsense:
            async with view_of(address) as view:
                await view.socket.send_str(message)
                assert await view.close_code() in (1003, 1007, 1009), message[:80]
        async with view_of(address) as view:
            await view.socket.send_bytes(b'["stdin", "q"]')
            assert await view.close_code() == 1003
        await quiet.type("?")
        await quiet.wait_for("below them every word of the screen")
    server.send_signal(signal.SIGTERM)
    assert server.wait(TIMEOUT) == 0
    assert server.stderr is not None
    assert server.stderr.read().count("\n") == 1  # how to reach it
    assert not list((tmp_path / "TMPDIR").iterdir())


def test_kill_9_leaves_nothing(here: Machine, tmp_path: Path) -> None:
    async def watch() -> None:
        async with view_of(address) as view:
            await view.wait_for("pretrain.py")
            [viewer] = viewers(server)
            server.kill()
            until(lambda: gone(viewer))

    server, address = serve(here)
    asyncio.run(watch())
    assert not list((tmp_path / "XDG_RUNTIME_DIR").glob("gputop-serve-*"))
    assert not list((tmp_path / "TMPDIR").iterdir())


@pytest.mark.long
async def test_connections_that_ask_nothing_keep_nobody_out(here: Machine) -> None:
    server, address = serve(here)
    where = address.split("/")[2].split(":")
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (200, 200))
    async with view_of(address) as first:
        await first.wait_for("pretrain.py")
        with ExitStack() as stack:
            for _ in range(300):
                silent = stack.enter_context(socket.create_connection((where[0], int(where[1]))))
                silent.sendall(b"GET / HTTP/1.1\r\nX: ")
            async with view_of(address) as view:
                await view.wait_for("pretrain.py")
            await first.type("?")
            await first.wait_for("below them every word of the screen")


@needs_root
@pytest.mark.long
async def test_one_user_does_not_take_all_views(here: Machine) -> None:
    """A user who opens many pages loses the oldest of them to another user."""
    server, address = serve(here, "--viewers", "2")
    code = "import os, sys; from tests.browsers import hold; os.setuid(65534); hold(sys.argv[1], 2)"
    greedy = here.popen([sys.executable, "-c", code, address])
    assert greedy.stdout is not None
    assert greedy.stdout.readline() == "2 open\n"
    async with view_of(address) as view:
        await view.wait_for("pretrain.py")
        assert greedy.stdout.readline() == "1 open\n"
        assert len(viewers(server)) == 2
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{address}ws", headers=upgrade()) as more,
        ):
            assert more.status == 503


@pytest.mark.long
async def test_a_viewer_without_memory_ends_alone(here: Machine) -> None:
    server, address = serve(here)
    async with view_of(address) as other:
        await other.wait_for("pretrain.py")
        [first] = viewers(server)
        async with view_of(address) as view:
            await view.wait_for("pretrain.py")
            [greedy] = {*viewers(server)} - {first}
            resource.prlimit(greedy, resource.RLIMIT_DATA, (1, 1))
            await view.socket.send_json(["resize", {"width": 400, "height": 150}])
            await view.type("m\x1b[200~" + "x" * 16_000 + "\x1b[201~?")
            assert await view.close_code() == 1000
        await other.type("?")
        await other.wait_for("below them every word of the screen")
    assert server.stderr is not None
    where, why = server.stderr.readline(), server.stderr.readline()
    server.send_signal(signal.SIGTERM)
    assert "from elsewhere: " in where
    assert "a viewer ended with status " in why or "a viewer did not end" in why
    assert server.stderr.read() == ""
