"""The program and its terminal: who may start, signals, hangups, stops and stalls."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TextIO

import pytest
from textual import _time

from gputop.tui.terminal.app import TerminalApp
from gputop.tui.terminal.capabilities import (
    colours,
    drop_inherited_colours,
    initial_environ,
    nearest_theme,
    unfit_reason,
)
from tests.conftest import rest_long
from tests.terminal import Terminal

GALLERY = [sys.executable, "-m", "tests.tui.apps.gallery", "ansi-dark"]
# Alternate screen left, cursor shown, keys as before.
LEFT = (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?2004l", b"\x1b[<u")


# --- before the start --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("term", "closed", "reason"),
    [
        ("xterm-256color", None, None),
        ("linux", None, None),
        ("xterm", 0, "standard input is not a terminal"),
        ("xterm", 1, "standard output is not a terminal"),
        ("xterm", 2, "standard error is not a terminal"),
        ("dumb", None, "TERM=dumb cannot move the cursor"),
        ("", None, "TERM is not set"),
        (None, None, "TERM is not set"),
    ],
)
def test_unfit_reason(term: str | None, closed: int | None, reason: str | None) -> None:
    environ = {} if term is None else {"TERM": term}
    assert unfit_reason(environ, lambda descriptor: descriptor != closed) == reason


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, 1 << 24),
        ({"TERM": "xterm-256color"}, 256),
        ({"TERM": "linux"}, 16),
        ({"TERM": "dumb"}, 0),
        ({}, 0),
        ({"TERM": "xterm-256color", "NO_COLOR": ""}, 0),
    ],
)
def test_colours(environ: dict[str, str], expected: int) -> None:
    assert colours(environ) == expected
    assert nearest_theme("dark", environ) == ("ansi-dark" if expected <= 16 else "dark")


@pytest.mark.parametrize(
    ("environ", "wanted", "theme"),
    [
        ({}, "auto", "ansi-dark"),
        ({"COLORFGBG": "0;15"}, "auto", "ansi-light"),
        ({"COLORFGBG": "0;default;15"}, "auto", "ansi-light"),
        ({"COLORFGBG": "0;7"}, "auto", "ansi-light"),
        ({"COLORFGBG": "15;0"}, "auto", "ansi-dark"),
        ({"COLORFGBG": "15;default"}, "auto", "ansi-dark"),
        ({"COLORFGBG": "0;15"}, "ansi-dark", "ansi-dark"),
        ({"COLORFGBG": "0;15"}, "colorblind", "colorblind"),
    ],
)
def test_colorfgbg_decides_only_what_nobody_has_chosen(
    environ: dict[str, str], wanted: str, theme: str
) -> None:
    assert nearest_theme(wanted, environ) == theme


@pytest.mark.parametrize(
    ("around", "expected"),
    [
        ({}, 1 << 24),
        ({"STY": "1.x"}, 16),
        ({"STY": "1.x", "TMUX": "y"}, 1 << 24),
    ],
)
def test_colours_in_a_multiplexer(around: dict[str, str], expected: int) -> None:
    environ = {"TERM": "screen", "COLORTERM": "truecolor", **around}
    drop_inherited_colours(environ)
    assert colours(environ) == expected


@pytest.mark.system
def test_the_locale_is_read_as_python_found_it() -> None:
    code = (
        "import os, sys; from gputop.tui.glyphs import choose;"
        "from gputop.tui.terminal.capabilities import initial_environ;"
        "print(os.environ.get('LC_CTYPE'), choose(initial_environ(), 'utf-8').name,"
        " [name for name in sys.modules if name.split('.')[0] in ('textual', 'rich')])"
    )
    unset = {name: value for name, value in os.environ.items() if not name.startswith("LC_")}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**unset, "LANG": "C"}, capture_output=True, text=True
    )
    assert done.stdout.split(maxsplit=1) == ["C.UTF-8", "ascii []\n"], done.stderr


def test_without_proc_the_environment_is_the_present_one(tmp_path: Path) -> None:
    assert initial_environ({"LANG": "x"}, tmp_path / "none") == {"LANG": "x"}


# --- the end -----------------------------------------------------------------------------------


def started(argv: list[str], **env: str) -> Terminal:
    terminal = Terminal(argv, cols=80, rows=24, env=env)
    try:
        terminal.wait_for("palette")
    except BaseException:
        terminal.close()
        raise
    return terminal


def assert_restored(terminal: Terminal) -> None:
    assert terminal.modes == terminal.initial_modes
    for sequence in LEFT:
        assert sequence in terminal.raw
    assert terminal.raw.rindex(b"\x1b[?1049l") > terminal.raw.rindex(b"\x1b[?1049h")
    assert terminal.raw.rindex(b"\x1b[?25h") > terminal.raw.rindex(b"\x1b[?25l")


@pytest.mark.system
@rest_long("signum", signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
def test_a_signal_puts_the_terminal_back(signum: signal.Signals) -> None:
    with started(GALLERY) as terminal:
        assert terminal.modes != terminal.initial_modes
        terminal.signal(signum)
        assert terminal.exit_code() == 128 + signum
        assert_restored(terminal)


@pytest.mark.system
@pytest.mark.long
def test_mouse_movements_are_not_asked_for() -> None:
    with started(GALLERY) as terminal:
        terminal.send(b"q")
        assert terminal.exit_code() == 0
        assert_restored(terminal)
        assert b"\x1b[?1003h" not in terminal.raw


@pytest.mark.system
@rest_long("theme", "ansi-dark", "textual-dark")
def test_no_color_sends_no_colour(theme: str) -> None:
    with started([*GALLERY[:-1], theme], NO_COLOR="1") as terminal:
        terminal.send(b"t")
        terminal.wait_for("tick 1")
        assert {(cell.fg, cell.bg) for line in terminal.cells for cell in line} <= {
            ("default", "default"),
            ("", "default"),
        }


@pytest.mark.system
def test_a_closed_terminal_ends_the_program() -> None:
    with started(GALLERY) as terminal:
        terminal.hang_up()
        assert terminal.exit_code(5) == 128 + signal.SIGHUP


@pytest.mark.system
@pytest.mark.long
def test_a_closed_terminal_ends_a_program_that_gets_no_hangup(tmp_path: Path) -> None:
    """The kernel signals the session's leader, here a shell that ignores it."""
    code = tmp_path / "code"
    script = f'trap "" HUP; "$@"; echo $? > {code}'
    with started(["/bin/sh", "-c", script, "sh", *GALLERY]) as terminal:
        terminal.hang_up()
        terminal.exit_code(5)
        assert code.read_text() == f"{128 + signal.SIGHUP}\n"


# --- stops -------------------------------------------------------------------------------------


@pytest.mark.system
@pytest.mark.long
def test_every_line_is_drawn_again_after_a_stop() -> None:
    with started(GALLERY) as terminal:
        terminal.send(b"jj")
        terminal.wait_for("row 2")
        before = terminal.text
        terminal.send(b"\x1a")
        terminal.wait_stopped()
        terminal.wait_for_raw(b"\x1b[?1049l")
        assert terminal.modes == terminal.initial_modes
        terminal.wipe()
        terminal.signal(signal.SIGCONT)
        terminal.wait_for(lambda: terminal.text == before)
        terminal.send(b"q")
        assert terminal.exit_code() == 0
        assert_restored(terminal)


@pytest.mark.system
@pytest.mark.long
def test_a_needless_continue_changes_nothing() -> None:
    with started(GALLERY) as terminal:
        terminal.signal(signal.SIGCONT)
        terminal.send(b"t")
        terminal.wait_for("tick 1")
        terminal.send(b"q")
        assert terminal.exit_code() == 0
        assert terminal.raw.count(b"\x1b[?1049h") == 1
        assert_restored(terminal)


# --- stalls ------------------------------------------------------------------------------------


class Stall:
    """A program that draws all the time on a terminal that has stopped to take it."""

    def __init__(self, terminal: Terminal, reports: TextIO) -> None:
        self.terminal, self.reports = terminal, reports
        full = 0
        while full < 10:  # once may only mean that the writer is about to wake up
            full = full + 1 if self.report()[1] >= 3 else 0

    def report(self) -> tuple[int, int]:
        """The next tick, and the chunks that wait."""
        tick, backlog = self.reports.readline().split()
        return int(tick), int(backlog)


@pytest.fixture
def stall(tmp_path: Path) -> Iterator[Stall]:
    pipe = tmp_path / "reports"
    os.mkfifo(pipe)
    argv = [sys.executable, "-m", "tests.tui.apps.ticker", str(pipe)]
    with Terminal(argv, cols=120, rows=40) as terminal, pipe.open() as reports:
        terminal.wait_for("tick")
        yield Stall(terminal, reports)


@pytest.mark.system
def test_the_program_goes_on_without_its_terminal(stall: Stall) -> None:
    cpu = stall.terminal.cpu_seconds()
    first = stall.report()[0]
    reports = [stall.report() for _ in range(60)]
    assert reports[-1][0] == first + 60
    assert max(backlog for _, backlog in reports) < 8
    # 60 ticks of 20 ms; a loop that spins would take about the whole of them.
    assert stall.terminal.cpu_seconds() - cpu < 0.6


@pytest.mark.system
@pytest.mark.long
def test_a_fresh_picture_comes_when_the_terminal_does(stall: Stall) -> None:
    for _ in range(40):
        last, _ = stall.report()
    taken, before = len(stall.terminal.raw), _tick(stall.terminal)
    stall.terminal.wait_for(lambda: _tick(stall.terminal) >= last)
    # Over 50 ticks passed; four pictures were under way, and then come those of now.
    pictures = stall.terminal.raw.count(b"\x1b[?2026l", taken)
    assert pictures < _tick(stall.terminal) - before - 20


@pytest.mark.system
def test_a_picture_that_was_held_back_comes_although_nothing_changes_any_more(
    stall: Stall,
) -> None:
    stall.terminal.send(b"p")
    mark, last = stall.report()
    while mark >= 0:
        mark, last = stall.report()
    stall.terminal.wait_for(lambda: _tick(stall.terminal) == last)


def _tick(terminal: Terminal) -> int:
    word, _, number = terminal.display[0].strip().partition(" ")
    return int(number) if word == "tick" and number.isdigit() else 0


@pytest.mark.system
@pytest.mark.long
def test_q_ends_it_in_spite_of_the_stall(stall: Stall) -> None:
    stall.terminal.send(b"q")
    assert stall.terminal.exit_code(5, reading=False) == 0
    assert stall.terminal.modes == stall.terminal.initial_modes


@pytest.mark.system
def test_a_signal_ends_it_in_spite_of_the_stall(stall: Stall) -> None:
    stall.terminal.signal(signal.SIGTERM)
    assert stall.terminal.exit_code(5, reading=False) == 128 + signal.SIGTERM
    while stall.terminal.pump(0):
        pass
    assert_restored(stall.terminal)


# --- a core that others have ---------------------------------------------------------------------


async def test_a_call_after_a_delay_comes_however_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next size of the terminal is taken by such a call, and a key that waits."""
    app, has_come = TerminalApp[None](), asyncio.Event()
    async with app.run_test():
        clock = count(1.0)  # each time that Textual looks at it, a second has gone by
        monkeypatch.setattr(_time, "get_time", lambda: next(clock))
        app.set_timer(0.01, has_come.set)
        await has_come.wait()
