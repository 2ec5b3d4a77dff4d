"""The client, and servers that are none, refuse, dawdle or say too much."""

from __future__ import annotations

import os
import socketserver
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path

import pytest

from gputop.cli import main
from gputop.errors import SourceError, UsageError
from gputop.model.machine.frame import Frame
from gputop.sources.prometheus import client as client_module
from gputop.sources.prometheus.client import HEADERS, TOKEN, PrometheusClient, headers_of
from gputop.sources.prometheus.exporters import GPUTOP, Site
from gputop.sources.prometheus.host import PrometheusSource
from gputop.sources.prometheus.queries import ClusterQueries
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
        for ask in (lambda: client.query("up"), lambda: client.values("job", "{}")):
            with pytest.raises(SourceError, match=r"redirects \(HTTP status 302") as raised:
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
        (200, b'{"status":"success","data":{"resultType":"vector","result":'
              b'[{"metric":{},"value":[1,1' + b"0" * 400 + b"]}]}}", "answer as"),
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
    server.body = [b'{"status":"success","data":["a",7,null,"\\ud800"]}']
    assert client.values("job", "{}") == {"a", "?"}  # what can be part of the next query
    half = b'{"metric":{"host":"\\ud800"},"value":[1,"1"]}'
    server.body = [EMPTY.replace(b"[]", b"[%s]" % half)]
    assert client.query("up")[0].labels == {"host": "?"}
    server.body = [b'{"status":"success","data":7}']
    with pytest.raises(SourceError, match="does not answer as"):
        client.values("job", "{}")


def test_an_answer_that_is_too_big(server: AnsweringServer) -> None:
    """Of bytes, and of what takes a hundred times as much: 31 MiB took 3 GB."""
    client = PrometheusClient(server.url, {})
    empty = b"[],{}," * (1 << 20)
    for body, words in (
        (iter(lambda: b" " * (1 << 20), b""), "more than 8 MiB"),
        ([EMPTY.replace(b"[]", b"[%s[]]" % empty)], "more than 262144 values"),
    ):
        server.body = body
        tracemalloc.start()
        with pytest.raises(SourceError, match=words):
            client.query("up")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 32 << 20


def test_answers_of_a_refresh_have_a_bound_together(server: AnsweringServer) -> None:
    """Each of them may be as many series as there are GPUs."""
    labels = b",".join(b'"l%d":"x"' % n for n in range(200))
    series = b",".join([b'{"metric":{%s},"value":[1,"1"]}' % labels] * 1200)
    server.body = [EMPTY.replace(b"[]", b"[%s]" % series)]
    queries = ClusterQueries(PrometheusClient(server.url, {}), Site((GPUTOP,)))
    assert len(queries.ask({"one": "up"})["one"]) == 1200
    with pytest.raises(SourceError, match="its answers have more than 262144 labels"):
        queries.ask({"one": "up", "two": "up"})


def test_a_past_has_as_many_frames_as_were_asked_for(server: AnsweringServer) -> None:
    """Each of them is work for each GPU, however many a server knows."""
    points = ",".join(f'[{1000 + n},"1"]' for n in range(5000))
    series = f'{{"metric":{{"host":"node1","uuid":"GPU-0","gpu":"0"}},"values":[{points}]}}'
    server.body = [EMPTY.replace(b"[]", f"[{series}]".encode())]
    queries = ClusterQueries(PrometheusClient(server.url, {}), Site((GPUTOP,)))
    source = PrometheusSource(queries, "node1")
    frames = [message for message in islice(source.frames(), 61) if isinstance(message, Frame)]
    assert [frame.time for frame in frames] == [*range(5940, 6000), 5999]


class Dripping(socketserver.StreamRequestHandler):
    """Sends its server's `begin`, and then a byte now and then, for ever."""

    def handle(self) -> None:
        assert isinstance(self.server, DrippingServer)
        self.rfile.readline()
        with suppress(OSError):
            self.wfile.write(self.server.begin)
            while not self.server.over.wait(0.02):
                self.wfile.write(self.server.drop)
        self.server.left.release()


class DrippingServer(socketserver.ThreadingTCPServer):
    """A server that never gives a whole answer."""

    daemon_threads = True

    def __init__(self, begin: bytes, drop: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Dripping)
        self.begin, self.drop = begin, drop
        self.over, self.left = threading.Event(), threading.Semaphore(0)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


@pytest.mark.parametrize(
    ("begin", "drop"),
    [
        ("", "H"),
        ("HTTP/1.1 200 O", "K"),
        ("HTTP/1.1 200 OK\r\nX: ", "x"),
        ("HTTP/1.1 200 OK\r\n", "X: y\r\n"),
        ("HTTP/1.1 200 OK\r\n\r\n", " "),
        ("HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", " "),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "0"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "X: y\r\n"),
        ("HTTP/1.1 500 No\r\n\r\n", " "),
        ("HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n"),
    ],
)
def test_one_that_drips(begin: str, drop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it does: the socket's own timeout begins anew with each byte. And it is hung up on:
    a thread that reads on would be one more at each refresh."""
    monkeypatch.setattr(client_module, "TIMEOUT", 0.3)
    monkeypatch.setattr(client_module, "_WAY", 0.1)
    with DrippingServer(begin.encode(), drop.encode()) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        with pytest.raises(SourceError, match=r"no answer in 0\.4 s"):
            PrometheusClient(server.url, {}).query("up")
        assert server.left.acquire(timeout=20)
        server.shutdown()


def test_one_that_says_nothing(server: AnsweringServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "TIMEOUT", 0.3)
    monkeypatch.setattr(client_module, "_WAY", 0.1)
    server.pause = 5.0
    with pytest.raises(SourceError, match=r"no answer in 0\.4 s"):
        PrometheusClient(server.url, {}).query("up")


def test_all_queries_of_a_command_have_one_deadline(
    server: AnsweringServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A dozen of them, each just in time, took two minutes."""
    monkeypatch.setattr("gputop.commands.free._CLUSTER_TIMEOUT", 0.3)
    server.pause = 5.0
    assert main(["free", "--prometheus", server.url]) == 4
    words = f"gputop: {server.url}: no complete answer within 0.3 s\n"
    assert capfd.readouterr() == ("", words)


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
    with pytest.raises(UsageError, match="is not a URL such as http://prometheus:9090") as raised:
        PrometheusClient(url, {})
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    "url",
    ["http://bob:secret@a:9090", "http://bob:secret@a/?x", "bob:secret@a:9090", "http://secret@[",
     "http://bob:sec?ret@a", "http://bob: secret@a", "http://a/?token=secret", "a#secret"],
)  # fmt: skip
def test_a_password_in_the_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(
        UsageError, match=r"every user of this machine|is not a URL such as http"
    ) as raised:
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
        with pytest.raises(UsageError, match="is not a header"):
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
