"""The mouse in real terminals: what is asked of them, and that text can be copied all the same."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import MachineFactory, needed, rest_long
from tests.driver import Machine
from tests.patience import Deadline, until
from tests.terminal import Terminal
from tests.tui.live import GPUTOP, HELP, restored, running, switched

pytestmark = pytest.mark.system

BUTTONS, DECIMAL = 1000, 1006
OTHER = rb"\x1b\[\?(?:9|1001|1002|1003|1005|1015|1016)h|\x1b\[>[0-9]*s"
"""Movements, coordinates in other forms or in pixels, and Shift for the program (XTSHIFTESCAPE)."""
SIZE = (120, 40)


def report(button: int, x: int, y: int, end: str = "M") -> bytes:
    """A report of the mouse at a cell, which are counted from 0; `m` where a button is released."""
    return f"\x1b[<{button};{x + 1};{y + 1}{end}".encode()


def clicked(x: int, y: int, times: int = 1) -> bytes:
    return (report(0, x, y) + report(0, x, y, "m")) * times


def place(terminal: Terminal, text: str) -> tuple[int, int]:
    """Where a text begins."""
    lines = list(enumerate(terminal.display))
    return next((line.index(text), y) for y, line in lines if text in line)


def test_only_buttons_and_the_wheel_are_asked_for(machine: MachineFactory) -> None:
    with running(machine("h200x8"), size=SIZE) as terminal:
        assert {BUTTONS, DECIMAL} < switched(terminal.raw)
        terminal.send(b"q")
        assert terminal.exit_code() == 0
        assert restored(terminal)
        assert re.search(OTHER, terminal.raw) is None


@rest_long("how", "option", "settings")
def test_without_a_mouse_nothing_is_asked_for(how: str, machine: MachineFactory) -> None:
    here = machine("h200x8")
    if how == "settings":
        path = Path(here.env["XDG_CONFIG_HOME"], "gputop", "config.toml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mouse = false\n")
    with running(here, *["--no-mouse"] * (how == "option")) as terminal:
        terminal.send(b"q")
        assert terminal.exit_code() == 0
        assert b"?1000h" not in terminal.raw
        assert b"?1006h" not in terminal.raw
        assert restored(terminal)


def test_clicks_as_a_terminal_reports_them(machine: MachineFactory) -> None:
    with running(machine("h200x8"), size=SIZE) as terminal:
        terminal.wait_for("train.py")
        terminal.send(clicked(*place(terminal, "train.py")))
        terminal.wait_for(lambda: "▸" in terminal.text)
        selected = next(line for line in terminal.display if "▸" in line)
        assert "train.py" in selected
        x, y = place(terminal, "  PID")
        terminal.send(clicked(x + 3, y))
        terminal.wait_for(lambda: re.search("[↓↑]PID", terminal.text))
        terminal.send(clicked(*place(terminal, "train.py"), times=2))
        terminal.wait_for("Origin")


@pytest.mark.long
def test_a_size_in_pixels_is_not_taken_for_a_mouse_in_pixels(machine: MachineFactory) -> None:
    """As kitty and others report it where they are asked whether they can."""
    with running(machine("h200x8"), size=SIZE) as terminal:
        terminal.wait_for("train.py")
        terminal.send(b"\x1b[?2048;2$y\x1b[48;40;120;800;1200t")
        terminal.send(clicked(*place(terminal, "train.py")))
        terminal.wait_for(lambda: "▸" in terminal.text)
        assert "train.py" in next(line for line in terminal.display if "▸" in line)
        terminal.send(b"q")
        assert terminal.exit_code() == 0
        assert re.search(OTHER, terminal.raw) is None


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_no_mode_on(number: signal.Signals, machine: MachineFactory) -> None:
    with running(machine("h200x8")) as terminal:
        terminal.signal(number)
        assert terminal.exit_code() == 128 + number
        assert restored(terminal)


def test_a_stop_leaves_no_mode_on_and_fg_asks_again(machine: MachineFactory) -> None:
    with running(machine("h200x8")) as terminal:
        terminal.send(b"\x1a")
        terminal.wait_stopped()
        terminal.wait_for_raw(b"\x1b[?1049l")
        while terminal.pump(0.1):
            pass
        assert not switched(terminal.raw)
        begun = len(terminal.raw)
        terminal.signal(signal.SIGCONT)
        terminal.wait_for_raw(b"\x1b[?1000h\x1b[?1006h", since=begun)
        terminal.wait_for("train.py")
        terminal.send(b"q")
        assert terminal.exit_code() == 0
        assert restored(terminal)


# --- tmux --------------------------------------------------------------------------------------


class Tmux:
    """A tmux whose client is on a terminal of ours, with gputop in it."""

    def __init__(self, program: str, folder: Path, here: Machine, mouse: str) -> None:
        self._argv = [program, "-f", str(folder / "tmux.conf"), "-S", str(folder / "tmux")]
        (folder / "tmux.conf").write_text(f"set -g mouse {mouse}\nset -g set-clipboard off\n")
        self._env = {**os.environ, **here.env, "LANG": "C.UTF-8", "TERM": "xterm-256color"}
        command = [*self._argv, "new-session", " ".join(GPUTOP)]
        self.terminal = Terminal(command, cols=SIZE[0], rows=SIZE[1], env=here.env)

    def ask(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._argv, *arguments], env=self._env, capture_output=True, text=True, check=False
        )
        return done.stdout

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = Deadline(15)
        while not holds():
            assert deadline.left() > 0, self.terminal.text
            self.terminal.pump(0.05)


@contextmanager
def in_tmux(program: str, folder: Path, here: Machine, mouse: str) -> Iterator[Tmux]:
    tmux = Tmux(program, folder, here, mouse)
    try:
        with tmux.terminal:
            tmux.terminal.wait_for(HELP)
            tmux.terminal.wait_for("train.py")
            yield tmux
            tmux.ask("kill-server")
    finally:
        tmux.ask("kill-server")


@pytest.mark.parametrize("mouse", ["off", "on"])
def test_clicks_go_through_tmux_and_its_copy_mode_copies(
    mouse: str, machine: MachineFactory, tmux: str, tmp_path: Path
) -> None:
    with in_tmux(tmux, tmp_path, machine("h200x8"), mouse) as inside:
        copy(inside, by_mouse=mouse == "on")
        click(inside, asked_by_tmux=mouse == "on")


def copy(inside: Tmux, by_mouse: bool) -> None:
    """As Prefix [ begins it, also while the program has the mouse; there a drag is tmux's own."""
    terminal = inside.terminal
    x, y = place(terminal, "train.py")
    inside.ask("copy-mode")
    inside.until(lambda: inside.ask("display", "-p", "#{pane_in_mode}").strip() == "1")
    if by_mouse:
        terminal.send(report(0, x, y) + report(32, x + 4, y) + report(32, x + 8, y))
        terminal.send(report(0, x + 8, y, "m"))
    else:
        for keys in ("top-line", "start-of-line", f"-N{y} cursor-down", f"-N{x} cursor-right",
                     "begin-selection", "-N8 cursor-right",
                     "copy-selection-and-cancel"):  # fmt: skip
            *count, command = keys.split()
            inside.ask("send-keys", "-X", *count, command)
    inside.until(lambda: inside.ask("show-buffer").startswith("train.py"))
    inside.until(lambda: inside.ask("display", "-p", "#{pane_in_mode}").strip() == "0")


def click(inside: Tmux, asked_by_tmux: bool) -> None:
    """Without its own mouse tmux asks the terminal for what the program asks for, and no more."""
    terminal = inside.terminal
    assert (b"?1002h" in terminal.raw) is asked_by_tmux
    assert b"?1003h" not in terminal.raw
    terminal.send(clicked(*place(terminal, "train.py")))
    terminal.wait_for(lambda: "▸" in terminal.text)
    inside.ask("send-keys", "q")
    inside.until(lambda: terminal.process.poll() is not None)


# --- xterm -------------------------------------------------------------------------------------


@pytest.mark.long
def test_shift_selects_in_xterm(machine: MachineFactory, tmp_path: Path) -> None:
    """A drag with Shift is xterm's: it selects, and gputop sees nothing of it. Without Shift it is
    gputop's, and selects no text."""
    for program in ("Xvfb", "xterm", "xdotool", "xclip"):
        needed(program, "xvfb xterm xdotool xclip")
    with x_server() as display:
        env = {**os.environ, **machine("h200x8").env, "DISPLAY": display, "LANG": "C.UTF-8"}
        log = tmp_path / "screen"
        inside = f"{' '.join(GPUTOP)}; echo $? > {tmp_path}/status"
        argv = ["xterm", "-geometry", "120x40+0+0", "-fn", "fixed", "-b", "0", "-l", "-lf",
                str(log), "-e", "sh", "-c", inside]  # fmt: skip
        with subprocess.Popen(argv, env=env) as xterm:
            try:
                _drag_in_xterm(env, log)
            finally:
                xterm.kill()


def _drag_in_xterm(env: dict[str, str], log: Path) -> None:
    """Drag over the heading, without Shift and with it, and look at what is selected."""

    def ask(*argv: str) -> str:
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=False).stdout

    def drag(*held: str) -> None:
        keys_down = [word for key in held for word in ("keydown", key)]
        keys_up = [word for key in held for word in ("keyup", key)]
        ask("xdotool", *keys_down, "mousemove", "10", "6", "mousedown", "1", "mousemove", "60", "6",
            "mousemove", "100", "6", "mouseup", "1", *keys_up)  # fmt: skip

    def holds(condition: Callable[[], bool]) -> None:
        until(condition, 20, lambda: ask("xclip", "-o", "-selection", "primary"))

    holds(lambda: log.exists() and b"?1006h" in log.read_bytes() and b"help" in log.read_bytes())
    drag()
    assert ask("xclip", "-o", "-selection", "primary") == ""
    drag("shift")
    holds(lambda: "gputop" in ask("xclip", "-o", "-selection", "primary"))
    ask("xdotool", "mousemove", "300", "40", "click", "1", "key", "q")
    status = log.parent / "status"
    holds(lambda: status.exists() and status.read_text() == "0\n")


@contextmanager
def x_server() -> Iterator[str]:
    """An X server, and what DISPLAY is on it."""
    read, write = os.pipe()
    argv = ["Xvfb", "-displayfd", str(write), "-screen", "0", "1280x1024x24", "-nolisten", "tcp"]
    with subprocess.Popen(argv, pass_fds=(write,), stderr=subprocess.DEVNULL) as server:
        os.close(write)
        try:
            with os.fdopen(read) as displays:
                yield f":{displays.readline().strip()}"
        finally:
            server.terminate()
