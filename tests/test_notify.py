"""How somebody is told: the bytes for a terminal, a command that really runs, a web server."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from gputop.errors import GputopError, UsageError
from gputop.notify import (
    cleaned,
    notify_command,
    notify_webhook,
    split_command,
    terminal_sequence,
    webhook_of,
)
from gputop.settings import NotifySetting
from tests.terminal import Terminal

OSC_9, OSC_777 = "\x1b]9;gputop: a\a", "\x1b]777;notify;gputop;a\a"
HOSTILE = "$(touch x) `id` ;\x1b]0;t\a\n'\"\u202e -x"


# The terminal


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"TERM": "xterm-256color"}, OSC_9 + OSC_777),
        ({"TERM": "xterm-kitty"}, OSC_9),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, OSC_9),
        ({"TERM": "xterm-256color", "VTE_VERSION": "7006"}, OSC_777),
        ({"TERM": "vte-256color"}, OSC_777),
        ({"TERM": "foot"}, OSC_777),
        ({"TERM": "linux"}, ""),
        ({"TERM": "vt100"}, ""),
        ({"TERM": "screen.xterm-256color"}, ""),
        ({"TERM": ""}, ""),
        ({}, ""),
    ],
)
def test_a_terminal_gets_what_it_understands(environ: dict[str, str], expected: str) -> None:
    assert terminal_sequence("a", "both", environ) == expected + "\a"
    assert terminal_sequence("a", "osc", environ) == expected


@pytest.mark.parametrize(("manner", "expected"), [("bell", "\a"), ("none", "")])
def test_no_more_than_is_wanted(manner: NotifySetting, expected: str) -> None:
    assert terminal_sequence("a", manner, {"TERM": "xterm"}) == expected


def test_through_tmux() -> None:
    """Whatever terminal tmux was started in."""
    environ = {"TERM": "screen", "TMUX": "/tmp/t,1,0", "VTE_VERSION": "1"}
    told = terminal_sequence("a", "both", environ)
    for sequence in (OSC_9, OSC_777):
        assert f"\x1bPtmux;\x1b{sequence}\x1b\\" in told
    assert told.endswith("\x1b\\\a")


def test_a_message_ends_no_sequence() -> None:
    text = cleaned(HOSTILE * 30)
    assert text.startswith("gputop: $(touch x)")
    assert text.isprintable()
    assert len(text) == 400
    told = terminal_sequence(HOSTILE, "osc", {"TERM": "foot"})
    assert (told.count("\x1b"), told.count("\a"), told.count(";")) == (1, 1, 3)


@pytest.mark.system
def test_bytes_on_a_real_terminal_and_through_tmux(tmux: str, tmp_path: Path) -> None:
    """Of a command that has its output elsewhere nothing comes; tmux has to be told to pass on."""
    call = "from gputop.notify import notify_terminal; notify_terminal('a;b', 'both')"
    command = [sys.executable, "-c", call]
    env = {**os.environ, "TERM": "xterm-256color", "TMUX": ""}
    with Terminal(command, cols=80, rows=24, env=env) as terminal:
        assert terminal.exit_code() == 0
        raw = bytes(terminal.raw)
    assert b"\x1b]9;gputop: a,b\a" in raw
    assert b"\x1b]777;notify;gputop;a,b\a" in raw
    assert raw.endswith(b"\a")
    quiet = ["sh", "-c", '"$0" "$@" >/dev/null 2>&1', *command]
    with Terminal(quiet, cols=80, rows=24, env=env) as terminal:
        assert terminal.exit_code() == 0
        assert bytes(terminal.raw) == b""
    config = tmp_path / "tmux.conf"
    config.write_text("set -g allow-passthrough on\nset -g status off\n")
    inside = [tmux, "-f", str(config), "-S", str(tmp_path / "socket"), "new-session", *command]
    env.pop("TMUX")
    with Terminal(inside, cols=80, rows=24, env=env) as terminal:
        assert terminal.exit_code() == 0
        assert b"\x1b]777;notify;gputop;a,b\a" in bytes(terminal.raw)


# A command


@pytest.mark.system
def test_a_command_gets_the_message_as_one_argument(tmp_path: Path) -> None:
    script = tmp_path / "tell it"
    script.write_text(f'#!/bin/sh\nprintf "%s|" "$#" "$@" "$GPUTOP_MESSAGE" > "{tmp_path}/told"\n')
    script.chmod(0o700)
    notify_command(HOSTILE, f"'{script}' --to 'me  you'")
    count, *arguments, variable, _ = (tmp_path / "told").read_text().split("|")
    assert (count, arguments) == ("3", ["--to", "me  you", cleaned(HOSTILE)])
    assert variable == cleaned(HOSTILE)
    assert list(tmp_path.glob("x")) == []


@pytest.mark.system
@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("false", "false ended with status 1: the message may not have arrived"),
        ("no-such-program -x", "no-such-program is not found: give its whole path"),
        ("/etc/passwd", "/etc/passwd cannot be started: "),
    ],
)
def test_a_command_that_fails(command: str, error: str) -> None:
    with pytest.raises(GputopError) as told:
        notify_command("a", command)
    assert str(told.value).startswith(error)


@pytest.mark.parametrize("command", ["", "  ", "say 'it"])
def test_what_is_no_command(command: str) -> None:
    with pytest.raises(UsageError):
        split_command(command)


# A web hook


class Hook(HTTPServer):
    """A web server that answers with one status, and keeps what it was sent."""

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = status
        self.told: list[tuple[str, dict[str, str], bytes]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/secret"


class _Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.told.append((self.path, dict(self.headers), body))
        self.send_response(self.server.status)
        if self.server.status == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()

    do_GET = do_POST  # noqa: N815 - http.server calls it so

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def hook(status: int = 200) -> Iterator[Hook]:
    with Hook(status) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_web_hook_gets_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTOP_WEBHOOK_TOKEN", "s3cret")
    with hook() as server:
        (tmp_path / "hook").write_text(f"{server.url}\n\nX-Team: lab\n")
        notify_webhook(HOSTILE, *webhook_of(f"@{tmp_path}/hook"))
    [(path, headers, body)] = server.told
    assert (path, json.loads(body)) == ("/secret", {"text": cleaned(HOSTILE)})
    assert headers["Content-Type"] == "application/json"
    assert (headers["Authorization"], headers["X-Team"]) == ("Bearer s3cret", "lab")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("<!channel> now", "< !channel> now"),
        ("<!here|x><@U1>", "< !here|x>< @ U1>"),
        ("@all @here", "@ all @ here"),
        ("[login](https://evil)", "[login] (https://evil)"),
        ("bob@node3 <- 2 < 3", "bob@node3 < - 2 < 3"),
    ],
)
def test_the_name_of_a_process_calls_nobody_in_a_chat(name: str, words: str) -> None:
    with hook() as server:
        notify_webhook(f"{name} has ended", server.url, {})
    [(_, _, body)] = server.told
    assert json.loads(body) == {"text": f"gputop: {words} has ended"}


@pytest.mark.parametrize(("status", "reason"), [(500, "HTTP 500"), (302, "HTTP 302")])
def test_a_web_hook_that_refuses(status: int, reason: str) -> None:
    """A redirection is not followed, and the URL, which may be a secret, is not told."""
    with hook(status) as server, pytest.raises(GputopError) as told:
        notify_webhook("a", *webhook_of(server.url))
    assert str(told.value) == f"the web hook at 127.0.0.1 has not taken the message: {reason}"
    assert [path for path, _, _ in server.told] == ["/secret"]


def test_nobody_listens() -> None:
    with hook() as server:
        pass
    with pytest.raises(GputopError, match=r"has not taken the message: .*refused"):
        notify_webhook("a", *webhook_of(server.url))


@pytest.mark.parametrize(
    "text",
    ["", "example.org/x", "file:///etc/passwd", "ftp://a/b", "http://", "https://a/b c", "http://[",
     "https://a/\x1b", "@/no/such/file"],
)  # fmt: skip
def test_what_is_no_web_hook(text: str) -> None:
    with pytest.raises(UsageError):
        webhook_of(text)


@pytest.mark.parametrize("token", ["s3cret\r", "s3cret\n", "s3crét"])
def test_a_token_that_no_header_takes_is_not_shown(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one from a file with the line ends of Windows."""
    monkeypatch.setenv("GPUTOP_WEBHOOK_TOKEN", token)
    with pytest.raises(UsageError, match="GPUTOP_WEBHOOK_TOKEN has a character") as told:
        webhook_of("https://a/b")
    assert "s3cr" not in str(told.value)


@pytest.mark.parametrize("url", ["https://bob:s3cret@a/b", "https://s3cret@a", "http://a:s3cret/"])
def test_a_login_in_a_web_hook_is_not_shown(url: str) -> None:
    with pytest.raises(UsageError) as told:
        webhook_of(url)
    assert "s3cret" not in str(told.value)


def test_what_cannot_be_sent_is_not_shown() -> None:
    for url, name in (("http://a/s3cret\x7f", "X"), ("http://a/", "s3cret: a")):
        with pytest.raises(GputopError, match="a URL or a header that cannot be sent") as told:
            notify_webhook("a", url, {name: "b"})
        assert "s3cret" not in str(told.value)


@pytest.mark.parametrize("line", ["X-Hush", "X hush: b", "X-Team: hush\x07", ": hush"])
def test_headers_that_are_none(line: str, tmp_path: Path) -> None:
    (tmp_path / "hook").write_text(f"https://a/b\n{line}\n")
    with pytest.raises(UsageError, match="not a header") as told:
        webhook_of(f"@{tmp_path}/hook")
    assert "hush" not in str(told.value)
