"""`gputop replay` as it is used: on a terminal, and what it says of what is no recording."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from gputop.parser import parse
from gputop.settings import session_of
from tests.builders_tui import NOON
from tests.terminal import Terminal
from tests.tui.live import GPUTOP, restored
from tests.tui.replays import EVERY, HOUR, record


def refused(*arguments: str) -> tuple[int, str]:
    """The exit status, and the only line."""
    done = subprocess.run(
        [*GPUTOP, "replay", *arguments], capture_output=True, text=True, timeout=300, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("words", "at"),
    [(["-2h"], "-2h"), (["x", "--at", "-2h"], "-2h"), (["--at", "03:00", "x"], "03:00"),
     (["--at=-7d"], "-7d"), ([], None)],
)  # fmt: skip
def test_a_span_is_no_option(words: list[str], at: str | None) -> None:
    assert parse(["replay", *words]).at == at


def test_a_user_of_a_recording_may_be_no_user_of_this_machine(
    capfd: pytest.CaptureFixture[str],
) -> None:
    for words in (["replay"], ["--prometheus", "http://p"]):
        options = parse(words)
        options.user = "nobody-like-that"
        assert session_of(options).user == "nobody-like-that"
    assert capfd.readouterr().err == ""


@pytest.mark.system
def test_what_cannot_be_shown_is_said_in_a_line(tmp_path: Path) -> None:
    two = record(tmp_path / "two", range(3), "node1")
    record(two, range(3), "node2")
    status, line = refused(str(two), "--at", "soon")
    assert (status, "--at 'soon' is not a time: write 2026-11-21 03:00" in line) == (2, True)
    status, line = refused(str(tmp_path / "none"))
    assert (status, "No such file" in line) == (1, True)
    (tmp_path / "empty").mkdir()
    status, line = refused(str(tmp_path / "empty"))
    assert (status, "has no recordings: gputop record makes one" in line) == (1, True)
    (tmp_path / "text").write_text("hello\n" * 1000)
    status, line = refused(str(tmp_path / "text"))
    assert (status, "is not a recording" in line) == (1, True)
    status, line = refused(str(two))
    assert (status, "2 hosts were recorded: choose one with -H: node1, node2" in line) == (2, True)
    status, line = refused(str(two), "-H", "node3")
    assert (status, "'node3' was not recorded, but node1, node2" in line) == (2, True)
    status, line = refused(str(two), "-H", "node1")
    assert (status, "not a terminal" in line) == (2, True)


@pytest.mark.system
def test_on_a_terminal(tmp_path: Path) -> None:
    path = record(tmp_path / "hour")
    shown = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(NOON + 1200))
    with Terminal(
        [*GPUTOP, "replay", str(path), "--at", shown], cols=80, rows=24, env={"NO_COLOR": "1"}
    ) as terminal:
        terminal.wait_for(f"REPLAY {shown}")
        terminal.wait_for("20%")
        terminal.send(b">")
        terminal.wait_for("21%")
        terminal.send(b"9")
        last = time.strftime("%H:%M:%S", time.localtime(NOON + (HOUR - 1) * EVERY))
        terminal.wait_for(f"{last} ")
        terminal.wait_for("the recording ends at")
        terminal.send(b"q")
        assert terminal.exit_code() == 0
        assert restored(terminal)
