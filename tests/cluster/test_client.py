"""The client, and servers that are none, refuse, dawdle or say too much."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gputop.errors import SourceError, UsageError
from gputop.sources.prometheus import client as client_module
from gputop.sources.prometheus.client import HEADERS, TOKEN, PrometheusClient, headers_of
from tests.conftest import needs_root

EMPTY = b'{"status":"success","data":{"resultType":"vector","result":[]}}'


class Answering(BaseHTTPRequestHandler):
    """Answers as its server was told to."""

    server: AnsweringServer

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self.server.asked.append((self.path, dict(self.headers), self.rfile.read(length).decode()))
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        for piece in self.server.body:
            if self.server.over.wait(self.server.pause):
                return
            try:
                self.wfile.write(piece)
                self.wfile.flush()
            except OSError:
                return

    do_GET = do_POST  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


class AnsweringServer(ThreadingHTTPServer):
    """A server of HTTP that is no Prometheus."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.asked: list[tuple[str, dict[str, str], str]] = []
        self.status, self.headers, self.pause = 200, dict[str, str](), 0.0
        self.body: list[bytes] | Iterator[bytes] = [EMPTY]
        self.over = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def answering() -> Iterator[AnsweringServer]:
    with AnsweringServer() as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()


@pytest.fixture(scope="module")
def running() -> Iterator[AnsweringServer]:
    with answering() as server:
        yield server


@pytest.fixture
def server(running: AnsweringServer) -> AnsweringServer:
    """One that answers with nothing, until it is told otherwise."""
    running.asked.clear()
    running.status, running.headers, running.pause, running.body = 200, {}, 0.0, [EMPTY]
    return running


def test_headers_go_to_the_server_and_nowhere_else(server: AnsweringServer) -> None:
    client = PrometheusClient(f"{server.url}/prefix/", {"Authorization": "Bearer secret"})
    assert client.query("up == 0") == []
    path, headers, body = server.asked.pop()
    assert (path, headers["Authorization"]) == ("/prefix/api/v1/query", "Bearer secret")
    assert "query=up+%3D%3D+0&timeout=10s&limit=" in body
    with answering() as other:
        server.status, server.headers = 302, {"Location": other.url}
        for ask in (lambda: client.query("up"), lambda: client.names("{}")):
            with pytest.raises(SourceError, match=r"elsewhere \(HTTP status 302") as raised:
                ask()
            assert "secret" not in str(raised.value)
        assert other.asked == []


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, b"<html>", "does not answer as a Prometheus server does"),
        (200, b"", "does not answer as"),
        (200, b"[]", "does not answer as"),
        (200, b'{"status":"success","data":7}', "does not answer as"),
        (200, b"[" * 100_000, "does not answer as"),
        (200, b'{"status":"success","data":{"resultType":"vector","result":[{}]}}', "answer as"),
        (200, b'{"status":"success","data":{"resultType":"matrix","result":'
              b'[{"metric":{},"values":[]}]}}', "answer as"),
        (200, b'{"status":"success","data":{"resultType":"vector","result":'
              b'[{"metric":{},"value":["NaN","1"]}]}}', "answer as"),
        (200, b'{"status":"error","error":"too\\u001b[31m many samples"}', "too\ufffd\\[31m many"),
        (422, b'{"status":"error","error":"query timed out"}', "query timed out"),
        (401, b"go away", f"set {TOKEN} or {HEADERS}"),
        (403, b"", "refuses this login"),
        (404, b"", "is this its whole URL"),
        (502, b"", "HTTP status 502"),
    ],
)  # fmt: skip
def test_what_is_no_answer(server: AnsweringServer, status: int, body: bytes, words: str) -> None:
    server.status, server.body = status, [body]
    with pytest.raises(SourceError, match=words) as raised:
        PrometheusClient(server.url, {}).query("up")
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 400


def test_names_that_are_none(server: AnsweringServer) -> None:
    client = PrometheusClient(server.url, {})
    server.body = [b'{"status":"success","data":["a",7,null]}']
    assert client.names("{}") == {"a"}
    server.body = [b'{"status":"success","data":7}']
    for ask in (client.names, client.label_names):
        with pytest.raises(SourceError, match="does not answer as"):
            ask("{}")


def test_an_answer_that_is_too_big(server: AnsweringServer) -> None:
    server.body = iter(lambda: b" " * (1 << 20), b"")
    with pytest.raises(SourceError, match="more than 32 MiB"):
        PrometheusClient(server.url, {}).query("up")


@pytest.mark.parametrize("pause", [0.05, 5.0])
def test_one_that_dawdles(
    server: AnsweringServer, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte now and then, which would begin the socket's own timeout anew, or none."""
    monkeypatch.setattr(client_module, "TIMEOUT", 0.3)
    monkeypatch.setattr(client_module, "_WAY", 0.1)
    server.pause, server.body = pause, iter(lambda: b" ", b"")
    with pytest.raises(SourceError, match=r"no answer in 0\.4 s"):
        PrometheusClient(server.url, {}).query("up")


def test_nobody_is_there(server: AnsweringServer) -> None:
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:1: Connection refused"):
        PrometheusClient("http://127.0.0.1:1", {}).query("up")
    for url in ("http://a..b", "http://[::1%25]:1", "http://no.such.host.invalid"):
        with pytest.raises(SourceError):
            PrometheusClient(url, {}).query("up")


@pytest.mark.parametrize(
    "url",
    ["prometheus:9090", "ftp://a", "http://", "http://a:port", "http://a:99999", "http://[::1",
     "http://a/?x=1", "http://a/#x", "http://a\n", "http://a b", "-o", "http://a:0"],
)  # fmt: skip
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(UsageError, match="is no URL, as http://prometheus:9090") as raised:
        PrometheusClient(url, {})
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    "url",
    ["http://bob:secret@a:9090", "http://bob:secret@a/?x", "bob:secret@a:9090", "http://secret@[",
     "http://bob:sec?ret@a", "http://bob: secret@a", "http://a/?token=secret", "a#secret"],
)  # fmt: skip
def test_a_password_in_the_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError, match=r"seen by every user|is no URL, as http") as raised:
        PrometheusClient(url, {})
    assert "sec" not in str(raised.value)


def test_headers_of_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "gputop" / "headers"
    file.parent.mkdir()
    file.write_text("X-Scope-OrgID: lab\n\nAuthorization: Basic Ym9iOnB3\n")
    file.chmod(0o600)
    assert headers_of({}) == {}
    assert headers_of({TOKEN: "t"}) == {"Authorization": "Bearer t"}
    both = {"X-Scope-OrgID": "lab", "Authorization": "Basic Ym9iOnB3"}
    assert headers_of({HEADERS: str(file)}) == both
    file.chmod(0o644)
    with pytest.raises(UsageError, match=f"others can read {file}: chmod 600"):
        headers_of({HEADERS: str(file)})
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        headers_of({HEADERS: f"{file}.none"})
    for text in (": value", "a\x07: b", "näme: b", "a: b\x7f", "no colon", "two words: b"):
        file.write_text(text)
        file.chmod(0o600)
        with pytest.raises(UsageError, match="is no header"):
            headers_of({HEADERS: str(file)})
    for token in ("hush\r", "hush\nX-Other: b"):
        with pytest.raises(UsageError, match=f"{TOKEN} has a character") as raised:
            headers_of({TOKEN: token})
        assert "hush" not in str(raised.value)


@needs_root
def test_root_sends_no_file_that_is_not_meant_for_it(tmp_path: Path) -> None:
    """The variable may be another user's, and the file as good as /etc/shadow."""
    (tmp_path / "gputop").mkdir()
    hers = tmp_path / "gputop" / "hers"
    for path in (tmp_path / "secrets", hers):
        path.write_text("root: hush\n")
        path.chmod(0o600)
    os.chown(hers, 4242, 4242)
    (tmp_path / "gputop" / "link").symlink_to(hers)
    for name in (f"{tmp_path}/secrets", f"{hers}", f"{tmp_path}/gputop/link", "secrets"):
        with pytest.raises(UsageError, match="root sends only what is in a folder named gputop"):
            headers_of({HEADERS: name})
