"""Notifies a user who is not watching: through the terminal, or by a command.

No shell ever reads a message, and every message is made harmless first: users choose the names of
their processes freely.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from contextlib import suppress

from gputop.errors import GputopError, UsageError
from gputop.model.machine.text import printable
from gputop.settings import NotifySetting
from gputop.trust import find_program, is_elevated
from gputop.variables import callers_environment, foreign_sign

MESSAGE = "GPUTOP_MESSAGE"
"""The variable that gives the message to a command, as its last argument does."""
_TITLE = "gputop"
_MAX_MESSAGE_CHARS = 400
_CALLS = re.compile(r"<(?=\S)|(?<!\w)@(?=\w)|\](?=\()")
"""Where a chat's markup begins: Slack's <...>, the @name of others, Markdown's [text](link)."""
_COMMAND_TIMEOUT = 30.0
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
