"""The HTTP API of a Prometheus server: instant and range queries, all of them bounded.

Sources: the server's HTTP API reference, https://prometheus.io/docs/prometheus/latest/querying/api/
"""

from __future__ import annotations

import http.client
import json
import math
import re
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from gputop.deadline import within
from gputop.errors import SourceError, UsageError
from gputop.files import reason_of
from gputop.model.machine.text import printable
from gputop.trust import is_elevated, is_secret, reason_untrusted

TOKEN = "GPUTOP_PROMETHEUS_TOKEN"
"""The variable with a bearer token."""
HEADERS = "GPUTOP_PROMETHEUS_HEADERS"
"""The variable that names a file of headers, one `Name: value` a line."""
TIMEOUT = 10.0
"""Seconds for the server to answer a query; the network gets a little more."""
_WAY = 2.0
_MOST_BYTES, _MOST_PARTS = 8 << 20, 1 << 18
"""Bytes of an answer, and its lists, objects and values: they take up to a hundred times as much
memory. 20,000 series of four labels have fewer."""
_PIECE = 1 << 16
_MOST_HEADERS = 1 << 16
_MOST_SERIES = 20_000
_DAY = 86400.0
LONGEST = 64
"""Characters of a name that is shown."""
_HEADER = re.compile(r"[!#$%&'*+.^_`|~\w-]+", re.ASCII)
"""The name of a header: a token of RFC 9110, 5.6.2."""


class Series(NamedTuple):
    """A series of an answer, with one value or those of a range."""

    labels: Mapping[str, str]
    """Not safe to print: they come from whatever feeds the server."""
    points: tuple[tuple[float, float], ...]
    """Pairs of time (seconds since the epoch) and value."""

    @property
    def value(self) -> float:
        return self.points[-1][1]

    def text(self, label: str) -> str:
        """Return what a label says, safe to print and short; empty without it."""
        return printable(self.labels.get(label, ""), LONGEST)


class PrometheusClient:
    """Asks one server; for any thread."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        """UsageError if `url` is not the URL of a server."""
        if "@" in url:  # before anything of it is shown
            raise UsageError(
                "every user of this machine can see a password in the URL: give headers in a file "
                f"that {HEADERS} names, or a token in {TOKEN}"
            )
        if not _is_server(url):
            shown = printable(re.split("[?#]", url)[0], 100)  # a query may hold a token
            raise UsageError(f"--prometheus {shown!r} is not a URL such as http://prometheus:9090")
        self.url = url.rstrip("/")
        self._headers = dict(headers)
        self._opener = urllib.request.build_opener(_NoRedirect, _Handler)

    def query(self, expression: str) -> list[Series]:
        """Return the series of an instant query, for now. SourceError."""
        return self._series(self._api("query", {"query": expression}))

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[Series]:
        """Return the series of a query from `start` to `end` every `step` seconds. SourceError."""
        words = {"start": start, "end": end, "step": step}
        return self._series(self._api("query_range", {"query": expression, **words}))

    def values(self, label: str, matching: str) -> set[str]:
        """Return the values of a label in series of the last day: so long something belongs to an
        exporter. They come from the index alone, so some may be older. SourceError."""
        words = {"match[]": matching, "start": f"{time.time() - _DAY:.0f}"}
        data = self._get(f"label/{label}/values?{_encoded(words)}")
        if not isinstance(data, list):
            raise self.error(_STRANGE)
        return {_text(text) for text in data if isinstance(text, str)}

    def _api(self, path: str, words: Mapping[str, object]) -> Any:
        """Return the data for an expression, sent by POST: it may be too long for a URL."""
        return self._get(path, _encoded({**words, "timeout": f"{TIMEOUT:g}s"}).encode())

    def _get(self, path: str, data: bytes | None = None) -> Any:
        """Return the data of an answer; if there is `data` to send, that goes by POST."""
        request = _HttpRequest(f"{self.url}/api/v1/{path}", data, self._headers)
        try:
            return self._data(_fetch(self._opener, request))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self.error(_reason(error)) from None

    def _data(self, body: bytes) -> Any:
        if len(body) > _MOST_BYTES:
            raise self.error(f"its answer has more than {_MOST_BYTES >> 20} MiB")
        if sum(map(body.count, (b"{", b"[", b","))) > _MOST_PARTS:
            raise self.error(f"its answer has more than {_MOST_PARTS} values")
        try:
            answer = json.loads(body)
            if answer["status"] == "success":
                return answer["data"]
            raise self.error(str(answer.get("error", "it does not say why")))
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            raise self.error(_STRANGE) from None

    def _series(self, data: Any) -> list[Series]:
        try:
            return [_one_of(series) for series in data["result"][:_MOST_SERIES]]
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
            raise self.error(_STRANGE) from None

    def error(self, why: str) -> SourceError:
        """Return the error of this server."""
        return SourceError(f"{printable(self.url, 100)}: {printable(why, 200)}")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Treats a redirection as an error: it could send secret headers anywhere."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def headers_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that the environment asks for. UsageError."""
    headers = {}
    if path := environ.get(HEADERS, ""):
        headers.update(_headers_in(path))
    if token := environ.get(TOKEN, ""):
        if not _is_value(token):
            raise UsageError(
                f"{TOKEN} has a character that no header can contain, as a newline: set it again"
            )
        headers["Authorization"] = f"Bearer {token}"
    return headers


def _headers_in(path: str) -> dict[str, str]:
    """Read the file. For root, the variable may be another user's, and must not have any file of
    root's sent: only one in a folder of gputop's own."""
    try:
        if is_elevated() and (path.split("/")[-2:-1] != ["gputop"] or reason_untrusted(path)):
            raise UsageError(
                f"{HEADERS}: root sends only what is in a folder named gputop that nobody else can "
                f"change, as /etc/gputop/headers, and not {printable(path, 100)}"
            )
        with open(path, encoding="utf-8") as file:
            if not is_secret(file.fileno()):
                raise UsageError(f"{HEADERS}: others can read {path}: chmod 600 {path}")
            lines = file.read(_MOST_HEADERS).splitlines()
    except (OSError, ValueError) as error:
        raise UsageError(f"{HEADERS}: {path} cannot be read: {reason_of(error)}") from None
    headers: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        name, colon, value = (part.strip(" \t") for part in line.partition(":"))
        if colon and _HEADER.fullmatch(name) and _is_value(value):
            headers[name] = value
        elif line.strip():
            raise UsageError(f"{HEADERS}: line {number} of {path} is not a header (Name: value)")
    return headers


def _is_value(text: str) -> bool:
    """Return whether a header may have this value. No error repeats it: it may be a secret."""
    return text.isascii() and text.isprintable()


def _encoded(words: Mapping[str, object]) -> str:
    return urllib.parse.urlencode({**words, "limit": _MOST_SERIES})


def _one_of(series: Any) -> Series:
    """Return a series of an answer. ValueError if it has no values."""
    labels = {name: _text(text) for name, text in series["metric"].items() if isinstance(text, str)}
    points = series["values"] if "values" in series else [series["value"]]
    if not points:
        raise ValueError("a series without values")
    return Series(labels, tuple(map(_point, points)))


def _text(text: str) -> str:
    """Return a text of an answer, with a `?` for half a character: it may be part of a query."""
    return text.encode("utf-8", "replace").decode()


def _point(pair: Any) -> tuple[float, float]:
    """Return time and value. ValueError if the time is not a finite number."""
    at, value = pair
    if not math.isfinite(float(at)):
        raise ValueError("a value without a time")
    return float(at), float(value)


class _HttpRequest(urllib.request.Request):
    """A request, and the sockets that its answers come from."""

    def __init__(self, url: str, data: bytes | None, headers: Mapping[str, str]) -> None:
        super().__init__(url, data, dict(headers))
        self.sockets: list[socket.socket] = []

    def response(self, sock: socket.socket, **words: Any) -> http.client.HTTPResponse:
        self.sockets.append(sock)
        return http.client.HTTPResponse(sock, **words)


class _Handler(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Gives each `_HttpRequest` the sockets of its connections."""

    def do_open(self, http_class: Any, req: Any, **words: Any) -> http.client.HTTPResponse:
        def connect(*args: Any, **more: Any) -> http.client.HTTPConnection:
            connection: http.client.HTTPConnection = http_class(*args, **more)
            connection.response_class = req.response
            return connection

        return super().do_open(connect, req, **words)


def _fetch(opener: urllib.request.OpenerDirector, request: _HttpRequest) -> bytes:
    """Return the body of the answer, cut soon after _MOST_BYTES. OSError, HTTPException.

    TimeoutError if it is not whole in time: a socket's own timeout begins anew with each byte.
    """
    try:
        return within(TIMEOUT + _WAY, partial(_body_of, opener, request))
    except TimeoutError:
        for sock in request.sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        raise


def _body_of(opener: urllib.request.OpenerDirector, request: _HttpRequest) -> bytes:
    body = bytearray()
    try:
        with opener.open(request, timeout=TIMEOUT + _WAY) as answer:
            while len(body) <= _MOST_BYTES and (piece := answer.read1(_PIECE)):
                body += piece
    except urllib.error.HTTPError as error:
        raise OSError(_told_by(error)) from None
    return bytes(body)


def _is_server(url: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return False
    is_plain = url.isprintable() and url.split() == [url] and not (parts.query or parts.fragment)
    return bool(is_whole and is_plain)


def _told_by(error: urllib.error.HTTPError) -> str:
    """Return why a server refuses, in its own words or by its status."""
    with error:
        if 300 <= error.code < 400:
            return f"it redirects (HTTP status {error.code}): give the URL that it redirects to"
        try:
            return str(json.loads(error.read(_MOST_HEADERS))["error"])[:_MOST_HEADERS]
        except (OSError, ValueError, RecursionError, KeyError, TypeError):
            return _STATUS.get(error.code, f"HTTP status {error.code}")


_STRANGE = "it does not answer as a Prometheus server does"
_STATUS = {
    401: f"it requires a login: set {TOKEN} or {HEADERS}",
    403: "it refuses this login",
    404: "no Prometheus API there: is this its whole URL?",
}


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", error)
    if isinstance(reason, TimeoutError):
        return f"no answer in {TIMEOUT + _WAY:g} s"
    if isinstance(reason, ValueError):  # it repeats what is wrong, maybe a header
        return type(reason).__name__
    return reason_of(reason) if isinstance(reason, OSError) else str(reason)
