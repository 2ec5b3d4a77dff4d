"""Every kind of terminal, locale and size: a short tour of the screens, and the end.

tests/tui/test_live.py has what one of them does in detail; signals, hangups, stops and stalls are
there and in tests/tui/test_terminal.py.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from bench.tree import cpu_seconds, tree
from tests.conftest import MachineFactory, needed, rest_long
from tests.driver import Machine
from tests.terminal import Cell, Terminal
from tests.tui.live import (
    ESCAPE,
    GPUTOP,
    HELP,
    gone,
    quit_by,
    restored,
    running,
    shows,
    strange,
    tour,
)

pytestmark = pytest.mark.system

MARGIN = 20
"""Cells beyond the edges of the window, where nothing may be drawn."""


class Kind(NamedTuple):
    """A terminal as programs know it, and what may be sent to it."""

    env: dict[str, str | None]
    colours: int = 16
    only_ascii: bool = False


KINDS = {
    "xterm-256color": Kind({"TERM": "xterm-256color"}, 256),
    "truecolor": Kind({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, 1 << 24),
    "xterm": Kind({"TERM": "xterm"}),
    "linux": Kind({"TERM": "linux"}, only_ascii=True),
    "screen": Kind({"TERM": "screen"}),
    "tmux-256color": Kind({"TERM": "tmux-256color"}, 256),
    "vt220": Kind({"TERM": "vt220"}),
    "no-color": Kind({"NO_COLOR": "1"}, 0),
    "c": Kind({"LC_ALL": "C"}, 256, only_ascii=True),
    "latin-1": Kind({"LC_ALL": "de_DE.ISO-8859-1"}, 256, only_ascii=True),
}
TINY, SMALL, LARGE, HUGE = (40, 10), (80, 24), (200, 50), (300, 100)
MATRIX = [
    ("xterm-256color", HUGE),
    ("truecolor", LARGE),
    ("xterm", SMALL),
    ("linux", TINY),
    ("screen", SMALL),
    ("tmux-256color", TINY),
    ("vt220", SMALL),
    ("no-color", HUGE),
    ("c", TINY),
    ("latin-1", LARGE),
]


def locales(name: str, folder: Path) -> dict[str, str]:
    """The variables that make a locale there is for sure, which the system need not have."""
    language, _, charmap = name.partition(".")
    argv = [needed("localedef", "locales"), "-i", language, "-f", charmap, str(folder / name)]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode and not os.environ.get("CI"):
        pytest.skip(
            f"this test needs the sources of locales: apt-get install -y locales: {done.stderr}"
        )
    assert done.returncode == 0, f"apt-get install -y locales\n{done.stderr}"
    return {"LOCPATH": str(folder)}


def most_colours(raw: bytes) -> int:
    """How many colours a terminal needs for what it was sent."""
    most = 0
    for found in re.finditer(rb"\x1b\[([0-9;]*)m", raw):
        words = iter([int(word or 0) for word in found[1].split(b";")])
        for word in words:
            if word in (38, 48):
                most = max(most, 256 if next(words) == 5 else 1 << 24)
                break
            if 30 <= word % 60 < 50 and word % 10 < 8:
                most = max(most, 16)
    return most


def beyond(terminal: Terminal, size: tuple[int, int]) -> list[str]:
    """What is drawn outside of the window."""
    cells = [cell for line in terminal.cells for cell in line[size[0] :]]
    cells += [cell for line in terminal.cells[size[1] :] for cell in line]
    return [cell.text for cell in cells if cell != Cell(" ", "", "default", "")]


@rest_long(("kind", "size"), *MATRIX)
def test_a_tour(kind: str, size: tuple[int, int], machine: MachineFactory, tmp_path: Path) -> None:
    here, (env, colours, only_ascii) = machine("h200x8"), KINDS[kind]
    if kind == "latin-1":
        env = {**env, **locales(str(env["LC_ALL"]), tmp_path)}
    env = {"COLORTERM": None, "PYTHONIOENCODING": None, "PYTHONUTF8": None, **env}
    with running(here, "--theme", "dark", size=size, env=env, wait=None) as terminal:
        terminal._screen.resize(size[1] + MARGIN, size[0] + MARGIN)
        tour(terminal, lambda: beyond(terminal, size) == [])
        assert quit_by(terminal, lambda: terminal.send(b"q")) == 0
        assert restored(terminal)
        raw = bytes(terminal.raw)
    assert strange(raw) == []
    assert most_colours(raw) <= colours
    assert raw.isascii() or not only_ascii


# --- terminals in terminals --------------------------------------------------------------------

MULTIPLEXERS = {
    "tmux": ["-f", "{folder}/tmux.conf", "-S", "{folder}/socket", "new-session", "--"],
    "screen": ["-c", "/dev/null", "-S", "matrix"],
}
INNER = 'echo $$ > "$0"; "$@"; echo "status $?"; exec cat'
"""A shell that says who it is, and what became of gputop."""


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@contextmanager
def window(program: str, size: tuple[int, int], here: Machine) -> Iterator[tuple[Terminal, int]]:
    """gputop in tmux or screen, and the shell in there; the server ends with it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)  # private, which screen insists on, and short, as a socket needs it
        (folder / "tmux.conf").write_text("set -g status off\n")
        arguments = [word.format(folder=folder) for word in MULTIPLEXERS[program]]
        inner = ["/bin/sh", "-c", INNER, str(folder / "pid"), *GPUTOP, "-i", "60", "--theme=dark"]
        env = {**here.env, "SCREENDIR": name, "TMUX": None, "STY": None}
        argv = [needed(program, program), *arguments, *inner]
        with Terminal(argv, cols=size[0], rows=size[1], env=env) as terminal:
            terminal.wait_for(lambda: HELP in terminal.text and "train.py" in terminal.text)
            shell = int((folder / "pid").read_text())
            server = parent(shell)
            try:
                yield terminal, shell
            finally:
                if not gone(shell, 0):
                    os.kill(server, signal.SIGKILL)


@rest_long("size", SMALL, LARGE)
@pytest.mark.parametrize("program", MULTIPLEXERS)
def test_in_a_window(program: str, size: tuple[int, int], machine: MachineFactory) -> None:
    with window(program, size, machine("h200x8")) as (terminal, _):
        # The nearest of 256 to the blue of keys: GNU screen takes 24 bits for something else.
        assert "5fafff" in {cell.fg for line in terminal.cells for cell in line}
        tour(terminal)
        terminal.send(b"q")
        # The line is its own: what has no alternate screen keeps the picture above it.
        terminal.wait_for(lambda: re.search("(?m)^status 0$", terminal.text))


@rest_long("signum", signal.SIGTERM, signal.SIGKILL)
@pytest.mark.parametrize("program", MULTIPLEXERS)
def test_nothing_outlives_its_window(
    program: str, signum: signal.Signals, machine: MachineFactory
) -> None:
    with window(program, SMALL, machine("h200x8")) as (terminal, shell):
        processes = tree(shell)
        assert len(processes) in (3, 4, 5)  # the shell, the screen, the agent, its two readers
        while terminal.pump(0.3):
            pass
        used, sent = cpu_seconds(shell), len(terminal.raw)
        assert not gone(processes[1], timeout=2)
        assert cpu_seconds(shell) - used < 0.1
        assert not terminal.pump(0), bytes(terminal.raw[sent:])
        os.kill(parent(shell), signum)
        assert all(gone(process) for process in processes)


# --- leaks -------------------------------------------------------------------------------------


PAGES = (
    (b"?", "Keys"),
    (b"G", "peak"),
    (b"H", "All is well"),
    (b"M", "Esc back"),
    (b"s", "Sort by"),
    (b"K", "SIGTERM to"),
    (b"\r", "On the GPUs"),
    (b"\x1b[Zj\r", "The last minute"),
)
"""Keys, of which the last opens the page again, and what is on it."""


def held(terminal: Terminal) -> Counter[str]:
    """How many processes, threads and open files there are, of screen and agent together."""
    found: Counter[str] = Counter()
    for pid in tree(terminal.process.pid):
        found["processes"] += 1
        found["threads"] += len(os.listdir(f"/proc/{pid}/task"))
        found["files"] += len(os.listdir(f"/proc/{pid}/fd"))
    return found


def settled(terminal: Terminal) -> Counter[str]:
    """What is held while nothing is under way: a look opens files, and closes them again."""
    terminal.send(b"+" * 8)
    terminal.wait_for(" 60s")
    before = held(terminal)
    while terminal.pump(0.3) or (now := held(terminal)) != before:
        before = held(terminal)
    terminal.send(b"-" * 7)
    terminal.wait_for(" 0.2s")
    return now


def open_and_leave(terminal: Terminal, key: bytes, times: int) -> None:
    """Open a page, and go back to the main screen."""
    terminal.send((key + ESCAPE) * times + b"/done")
    terminal.wait_for("/ filter done", timeout=60)
    terminal.send(ESCAPE)
    terminal.wait_for(lambda: shows(terminal, ""))


@pytest.mark.timeout(300)  # on a machine that is busy with other things
@pytest.mark.long
def test_pages_leave_nothing_behind(machine: MachineFactory) -> None:
    """Each time; a thread that another takes the place of just then is told by a second round."""
    with running(machine("h200x8"), "-i", "0.2") as terminal:
        terminal.wait_for("train.py")
        terminal.send(b"j")
        for keys, sign in PAGES:
            terminal.send(keys)
            terminal.wait_for(sign)
            terminal.send(ESCAPE)
            terminal.wait_for(lambda: shows(terminal, ""))
            rounds = [settled(terminal)]  # what a page starts at its first time stays
            while len(rounds) < 4 and rounds[-1:] != rounds[-2:-1]:
                open_and_leave(terminal, keys[-1:], 5)
                rounds.append(settled(terminal))
            assert rounds[-1] == rounds[-2], (sign, rounds)
