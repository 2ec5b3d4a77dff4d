"""How somebody is told: the bytes for a terminal, a command that really runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gputop.errors import GputopError, UsageError
from gputop.notify import (
    cleaned,
    notify_command,
    split_command,
    terminal_sequence,
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
    # tmux passes nothing on before its window is drawn.
    waiting = [sys.executable, "-c", f"input('drawn'); {call}"]
    inside = [tmux, "-f", str(config), "-S", str(tmp_path / "socket"), "new-session", *waiting]
    env.pop("TMUX")
    with Terminal(inside, cols=80, rows=24, env=env) as terminal:
        terminal.wait_for("drawn")
        terminal.send(b"\r")
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
    assert cleaned(f"{name} has ended") == f"gputop: {words} has ended"
