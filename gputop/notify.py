"""Notifies a user who is not watching: through the terminal, a command, or a web hook.

No shell ever reads a message, and every message is made harmless first: users choose the names of
their processes freely.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from gputop.deadline import within
from gputop.errors import GputopError, UsageError
from gputop.headers import bearer, header_of
from gputop.model.machine.text import printable
from gputop.settings import NotifySetting
from gputop.trust import find_program, is_elevated
from gputop.variables import callers_environment, foreign_sign

TOKEN = "GPUTOP_WEBHOOK_TOKEN"
"""The variable with the bearer token of a web hook."""
MESSAGE = "GPUTOP_MESSAGE"
"""The variable that gives the message to a command, as its last argument does."""
_TITLE = "gputop"
_MAX_MESSAGE_CHARS = 400
_CALLS = re.compile(r"<(?=\S)|(?<!\w)@(?=\w)|\](?=\()")
"""Where a chat's markup begins: Slack's <...>, the @name of others, Markdown's [text](link)."""
_COMMAND_TIMEOUT = 30.0
_WEBHOOK_TIMEOUT = 10.0
_WHOLE_TIMEOUT = 30.0
"""Seconds for a whole request: a server may send one byte at a time."""
_ONLY_9 = ("iterm", "kitty", "ghostty", "wezterm", "warp")
_ONLY_777 = ("rxvt", "foot", "konsole", "vte")
_NEITHER = ("linux", "dumb", "unknown", "screen", "vt1", "vt2", "cons", "eterm", "sun", "ansi")
"""How TERM begins for terminals without notifications. The console of older kernels and some serial
terminals would print a sequence that they do not know."""


def cleaned(message: str) -> str:
    """Return a message as one harmless line that begins with `gputop:`, in which chats find nobody
    to call (`<!channel>`, `@here`) and no link with a text of its own."""
    return _CALLS.sub(r"\g<0> ", printable(f"{_TITLE}: {message}", _MAX_MESSAGE_CHARS))


# The terminal


def terminal_sequence(message: str, manner: NotifySetting, environ: Mapping[str, str]) -> str:
    """Return what makes a terminal notify: OSC 9, OSC 777, or both if it is not known which one it
    understands; and the bell.

    tmux passes on a sequence wrapped in its own if its option allow-passthrough is on, and drops it
    otherwise. A message never begins with a digit, which ConEmu would take for a command.
    """
    bell = "\a" if manner in ("bell", "both") else ""
    if manner not in ("osc", "both"):
        return bell
    # A semicolon would end the text of OSC 777.
    text = cleaned(message).replace(";", ",")
    body = text.removeprefix(f"{_TITLE}: ")
    sequences = {9: f"\x1b]9;{text}\a", 777: f"\x1b]777;notify;{_TITLE};{body}\a"}
    in_tmux = bool(environ.get("TMUX"))
    wanted = [sequences[number] for number in _understood(environ, in_tmux)]
    if in_tmux:
        wanted = [f"\x1bPtmux;\x1b{sequence}\x1b\\" for sequence in wanted]
    return "".join(wanted) + bell


def _understood(environ: Mapping[str, str], in_tmux: bool) -> tuple[int, ...]:
    """Return which of the two sequences to send to the terminal."""
    term = environ.get("TERM", "").lower()
    if not in_tmux and (not term or term.startswith(_NEITHER)):
        return ()
    # The terminal around tmux is not known: the variables may be those of an earlier one.
    names = [environ.get("LC_TERMINAL", "")]
    if not in_tmux:
        names += [term, environ.get("TERM_PROGRAM", ""), "vte" * ("VTE_VERSION" in environ)]
        names += ["konsole" * ("KONSOLE_VERSION" in environ)]
    called = " ".join(names).lower()
    if any(name in called for name in _ONLY_9):
        return (9,)
    return (777,) if any(name in called for name in _ONLY_777) else (9, 777)


def notify_terminal(message: str, manner: NotifySetting) -> None:
    """Make the terminal notify; do nothing if neither standard output nor error is a terminal."""
    if not any(map(os.isatty, (1, 2))):
        return
    sequence = terminal_sequence(message, manner, os.environ)
    # Do not wait for a terminal that is stopped (Ctrl-S).
    flags = os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK
    with suppress(OSError), open(os.open("/dev/tty", flags), "wb", buffering=0) as terminal:
        terminal.write(sequence.encode("utf-8", "replace"))


# A command


def split_command(text: str) -> list[str]:
    """Return the words of a command that is quoted as for a shell; no shell runs it. UsageError."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{printable(text, 100)!r} is not a command: {error}") from None
    if not words:
        raise UsageError("the command to notify by is empty (an unset variable?)")
    return words


def notify_command(message: str, command: str) -> None:
    """Run a command with the message as its last argument. GputopError if that fails."""
    words = split_command(command)
    shown = printable(words[0], 100)
    text = cleaned(message)
    program, refused = (words[0], None) if "/" in words[0] else find_program(words[0])
    if program is None:
        raise GputopError(refused or f"{shown} is not found: give its whole path")
    try:
        done = subprocess.run(
            [program, *words[1:], text], env={**_environment(), MESSAGE: text}, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=_COMMAND_TIMEOUT,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise GputopError(f"{shown} did not end within {_COMMAND_TIMEOUT:g} s") from None
    except (OSError, ValueError) as error:
        raise GputopError(f"{shown} cannot be started: {error}") from None
    if done.returncode:
        raise GputopError(
            f"{shown} ended with status {done.returncode}: the message may not have arrived"
        )


def _environment() -> dict[str, str]:
    """Return the user's own variables; for root, who may have another user's, only trusted ones."""
    is_others = is_elevated() and foreign_sign()
    return dict(os.environ) if is_others else callers_environment()


# A web hook


def webhook_of(text: str) -> tuple[str, dict[str, str]]:
    """Return the URL and the headers of a web hook: a URL, or @FILE with the URL in its first line
    and one header in each line below. UsageError."""
    lines = [text]
    if text.startswith("@"):
        lines = _lines_of(text[1:])
    headers = {"Content-Type": "application/json", "User-Agent": "gputop"}
    for line in lines[1:]:
        header = header_of(line)
        if header is None:
            raise UsageError(f"{text[1:]!r} has a line that is not a header (Name: value)")
        headers.update([header])
    if token := os.environ.get(TOKEN):
        headers["Authorization"] = bearer(token, TOKEN)
    url = lines[0].strip()
    try:
        parts = urlsplit(url)
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname and parts.port != 0)
        has_login = parts.username is not None
    except ValueError:
        is_web = has_login = False
    if has_login:
        raise UsageError(
            "the web hook has a login in its URL, which is not sent: give it as a header,"
            " Authorization: Basic ..., in the file of --webhook @FILE"
        )
    if not (is_web and url.isascii() and url.isprintable() and " " not in url):
        raise UsageError("the web hook is not a URL that begins with https:// or http://")
    return url, headers


def _lines_of(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read(1 << 16).splitlines()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path!r} cannot be read: {reason}") from None
    return [line for line in lines if line.strip()] or [""]


def notify_webhook(message: str, url: str, headers: Mapping[str, str]) -> None:
    """Post `{"text": message}`. GputopError names only the host: a URL may be a secret."""
    host = printable(urlsplit(url).hostname or "", 100)
    data = json.dumps({"text": cleaned(message)}).encode()
    try:
        within(_WHOLE_TIMEOUT, lambda: _post(url, data, headers))
    except (OSError, ValueError) as error:
        code, reason = getattr(error, "code", None), getattr(error, "reason", None)
        words = f"HTTP {code}" if code is not None else printable(str(reason or error), 200)
        if isinstance(error, ValueError):  # its text quotes the header or the URL
            words = "it has a URL or a header that cannot be sent"
        raise GputopError(f"the web hook at {host} has not taken the message: {words}") from None


def _post(url: str, data: bytes, headers: Mapping[str, str]) -> None:
    """Post the data. OSError, which urllib's errors are; ValueError."""
    from http.client import HTTPException, InvalidURL
    from urllib import request

    from gputop.sources.prometheus.client import NoRedirect

    try:
        opener = request.build_opener(NoRedirect)
        wanted = request.Request(url, data, dict(headers), method="POST")
        opener.open(wanted, timeout=_WEBHOOK_TIMEOUT).close()
    except InvalidURL as error:
        raise ValueError(str(error)) from None
    except HTTPException as error:
        raise OSError(type(error).__name__) from None
