"""gputop as it is used: a terminal, an agent, a driver, real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.tui.themes import USER_ROLES, fitting
from tests.conftest import ME, MachineFactory, rest_long
from tests.driver import Machine
from tests.patience import Deadline
from tests.terminal import Terminal
from tests.tui.live import (
    GPUTOP,
    SIGNALS,
    SIZES,
    agents,
    quit_by,
    restored,
    running,
    strange,
)

pytestmark = pytest.mark.system


def line_of(terminal: Terminal, text: str) -> str:
    return next((line for line in terminal.text.split("\n") if text in line), "")


def gpu_line(terminal: Terminal, index: int) -> str:
    return next(
        (line for line in terminal.text.split("\n")[1:] if line[:4].strip() == str(index)), ""
    )


# --- what is seen ------------------------------------------------------------------------------


@rest_long(("scenario", "size"), *zip(("h200x8", "h200x8-200"), SIZES, strict=True))
def test_the_first_screen(scenario: str, size: tuple[int, int], machine: MachineFactory) -> None:
    with running(machine(scenario), size=size) as terminal:
        terminal.wait_for("train.py")
        line = line_of(terminal, "train.py")
        assert ME[:8] in line
        assert all("H200" in gpu_line(terminal, index) for index in range(8))
        assert terminal.text.count(ME[:8]) >= 8
        assert "CUDA_VISIBLE_DEVICES" in terminal.text
        terminal.send(b"q")
        assert terminal.exit_code() == 0
        assert restored(terminal)


@pytest.mark.long
def test_no_key_of_a_burst_is_lost(machine: MachineFactory) -> None:
    with running(machine("h200x8-200")) as terminal:
        terminal.wait_for("200 processes")
        terminal.send(b"p")  # the cursor stays on its process, whatever place that has
        terminal.wait_for("PAUSED")
        terminal.send(b"j" * 150)
        terminal.wait_for("-150 of ")
        terminal.send(b"k" * 220)
        terminal.wait_for(lambda: "▸" in terminal.display[12])
        terminal.send(b"j" * 220)
        terminal.wait_for(lambda: re.search(r"-(\d+) of \1,", terminal.text) is not None)
        terminal.send(b"+-" * 20)
        terminal.send(b"/" + b"z" * 100)
        terminal.wait_for("no process matches")
        terminal.send(b"\x7f" * 99 + b"\x7ft" + b"r" + b"\r")
        terminal.wait_for("filter: tr ")
        assert terminal.display[0].rstrip().endswith("1s")


# --- drivers that misbehave --------------------------------------------------------------------


def test_one_gpu_hangs_and_the_rest_lives(machine: MachineFactory) -> None:
    here = machine("h200x8")
    with running(here, "-i", "0.2", size=(120, 40)) as terminal:
        here.hang(gpu=3)
        terminal.wait_for(lambda: "≈" in gpu_line(terminal, 3))
        ages = set()

        def growing() -> bool:
            ages.add(gpu_line(terminal, 3).partition("≈ ")[2].strip())
            return len(ages) >= 3

        terminal.wait_for(growing)
        for temperature in (71, 72, 73):
            here.change(gpu=5, temperature=temperature)
            terminal.wait_for(lambda t=temperature: f"{t}°C" in gpu_line(terminal, 5))  # type: ignore[misc]
        deadline = Deadline(3)
        terminal.send(b"j")
        terminal.wait_for("▸")
        terminal.send(b"/eval\r")
        terminal.wait_for("filter: eval")
        terminal.send(b"m1,0")
        terminal.wait_for(lambda: "GPU 0" in line_of(terminal, "cuda:1"))
        assert deadline.left() > 0
        here.heal()
        terminal.wait_for(lambda: "≈" not in gpu_line(terminal, 3))
        here.hang(gpu=3, wakes=False)
        terminal.wait_for(lambda: "≈" in gpu_line(terminal, 3))
        deadline = Deadline(2)
        assert quit_by(terminal, lambda: terminal.send(b"\rq")) == 0
        assert deadline.left() > 0
        assert restored(terminal)


@pytest.mark.long
@pytest.mark.parametrize(
    ("scenario", "said"), [("hang-all", "no answer"), ("init-hang", "not answer")]
)
def test_all_hangs_from_the_start(scenario: str, said: str, machine: MachineFactory) -> None:
    with running(machine(scenario), wait=None) as terminal:
        terminal.wait_for("gputop")
        terminal.wait_for(lambda: said in terminal.text)
        deadline = Deadline(2)
        assert quit_by(terminal, lambda: terminal.send(b"q")) == 0
        assert deadline.left() > 0
        assert restored(terminal)


@pytest.mark.long
def test_a_gpu_is_lost_and_comes_back(machine: MachineFactory) -> None:
    here = machine("h200x8")
    with running(here, "-i", "0.2") as terminal:
        terminal.wait_for("140G")
        here.fail("*", "GPU_IS_LOST", gpu=2)
        terminal.wait_for(lambda: "lost" in gpu_line(terminal, 2).lower())
        assert "140G" in gpu_line(terminal, 1)
        here.heal()
        terminal.wait_for(lambda: "140G" in gpu_line(terminal, 2))


@pytest.mark.long
def test_the_driver_goes_and_comes_back_twice(machine: MachineFactory) -> None:
    here = machine("h200x8")
    with running(here, "-i", "0.2") as terminal:
        terminal.wait_for("train.py")
        terminal.send(b"/train\r")
        terminal.wait_for("filter: train")
        for _ in range(2):
            here.fail("*", "UNINITIALIZED")
            here.update(lambda scenario: scenario.update(init={"error": "DRIVER_NOT_LOADED"}))
            terminal.wait_for("r try again")
            terminal.wait_for("driver is not loaded")
            here.heal()
            terminal.send(b"r")
            terminal.wait_for("filter: train")
            terminal.wait_for(lambda: ME[:8] in line_of(terminal, "train.py"))


def test_an_agent_that_is_killed_is_told_and_replaced(machine: MachineFactory) -> None:
    with running(machine("h200x8")) as terminal:
        terminal.wait_for("train.py")
        for child in agents(terminal):
            os.kill(child, signal.SIGKILL)
        terminal.wait_for("The agent ended")
        terminal.send(b"r")
        terminal.wait_for("train.py")
        assert quit_by(terminal, lambda: terminal.signal(signal.SIGTERM)) == 128 + signal.SIGTERM


# --- text of others ----------------------------------------------------------------------------


def test_nothing_of_a_hostile_process_drives_the_terminal(machine: MachineFactory) -> None:
    with running(machine("hostile"), "-i", "0.2", size=(120, 40)) as terminal:
        terminal.wait_for("train.py")
        for keys, sign in (
            (b"c", "/"),
            (b"\x1b[C\x1b[C", "COMMAND from"),
            (b"c", "COMMAND"),
            (b"I", "by GPU ↓"),
            (b"sjjjjjjjj\r", " by CPU% "),
            (b"/[", "filter: ["),
            (b"\r", "filter: ["),
            (b"m\x1b[200~0,\x1b]0;x\x07\x9b2J\xe2\x80\xae\x1b[201~1", "x�2J"),
            (b"\r/\xff\xfealice", "filter: [��alice"),
            (b"\rq", ""),
        ):
            terminal.send(keys)
            terminal.wait_for(sign)
        assert terminal.exit_code() == 0
        assert strange(bytes(terminal.raw)) == []


# --- terminals ---------------------------------------------------------------------------------


@pytest.mark.long
def test_ascii_alone_under_lang_c(machine: MachineFactory) -> None:
    # Python under LANG=C sets LC_CTYPE for its children, this test's parents among them.
    env = {"LANG": "C", "LC_CTYPE": None, "LC_ALL": None, "CUDA_VISIBLE_DEVICES": "é,0"}
    with running(machine("hostile"), size=(120, 40), env=env) as terminal:
        terminal.wait_for("train.py")
        for keys, sign in (
            (b"j", ">"),
            (b"s", "Sort by"),
            (b"?", "Keys"),
            (b"\x10", "environment  e"),
        ):
            terminal.send(keys)
            terminal.wait_for(sign)
            if keys != b"j":
                terminal.send(b"\x1b")
                terminal.wait_for(lambda gone=sign: gone not in terminal.text)  # type: ignore[misc]
        terminal.send("mü".encode())
        terminal.wait_for("DEVICES=")
        terminal.send(b"\x03")
        assert terminal.exit_code() == 0
        assert bytes(terminal.raw).isascii()


@pytest.mark.long
def test_no_color_sends_no_colour(machine: MachineFactory) -> None:
    with running(machine("h200x8"), env={"NO_COLOR": "1"}) as terminal:
        terminal.wait_for("train.py")
        terminal.send(b"jT")
        terminal.wait_for("▸")
        assert {cell.fg for line in terminal.cells for cell in line} <= {"default", ""}
        assert {cell.bg for line in terminal.cells for cell in line} == {"default"}
        assert any("reverse" in cell.marks for line in terminal.cells for cell in line)


@pytest.mark.long
@pytest.mark.parametrize(
    ("theme", "term"),
    [
        *(("ansi-dark", term) for term in ("xterm-16color", "linux", "tmux-256color", "vt100")),
        ("dark", "vt100"),
    ],
)
def test_terminals(theme: str, term: str, machine: MachineFactory) -> None:
    """tests/tui/test_matrix.py has the others with the theme dark."""
    env = {"TERM": term, "COLORTERM": None}
    with running(machine("h200x8"), "--theme", theme, env=env) as terminal:
        terminal.wait_for("train.py")
        assert b"38;2;" not in terminal.raw
        if "256" not in term:
            assert b"38;5;" not in terminal.raw
            assert b"48;5;" not in terminal.raw
        if term == "linux":
            assert bytes(terminal.raw).isascii()
        terminal.send(b"q")
        assert terminal.exit_code() == 0


def _of_users(terminal: Terminal, theme: str) -> bool:
    """Whether users have the colours of a theme."""
    found = next(each for each in fitting(shades=True) if each.name == theme)
    shades = {found.variables[f"gp-{role}"].strip("#") for role in USER_ROLES}
    return bool(shades & {cell.fg for line in terminal.cells for cell in line})


@rest_long(
    ("background", "arguments", "theme"),
    ("ffff/ffff/ffff", [], "ansi-light"),
    ("0000/0000/0000", [], "ansi-dark"),
    ("", [], "ansi-dark"),
    ("ffff/ffff/ffff", ["--theme=dark"], "dark"),
)
def test_a_light_terminal_gets_the_light_theme_unless_the_user_chose_one(
    background: str, arguments: list[str], theme: str, machine: MachineFactory
) -> None:
    with running(machine("h200x8"), *arguments, background=background) as terminal:
        terminal.wait_for(lambda: _of_users(terminal, theme))
        assert (b"\x1b]11;?" in terminal.raw) == (not arguments)
        terminal.send(b"q")
        assert terminal.exit_code() == 0
        assert restored(terminal)


@rest_long("term", "linux", "vt100", "xterm-256color")
def test_a_terminal_that_would_print_the_question_is_not_asked(
    term: str, machine: MachineFactory
) -> None:
    env = {"TERM": term, "COLORTERM": None, "NO_COLOR": "1" if "xterm" in term else None}
    with running(machine("h200x8"), env=env) as terminal:
        terminal.wait_for("train.py")
        assert b"\x1b]11" not in terminal.raw


def test_a_terminal_that_cannot_move_its_cursor_gets_text(machine: MachineFactory) -> None:
    with running(machine("h200x8"), env={"TERM": "dumb"}, wait=None) as terminal:
        assert terminal.exit_code() == 0
        assert b"\x1b" not in terminal.raw
        assert "train.py" in terminal.raw.decode()


@rest_long("shell", "{} </dev/null", "{} | cat", "{} 2>/dev/null")
def test_without_a_terminal_on_all_streams_it_is_text(shell: str, machine: MachineFactory) -> None:
    argv = ["/bin/sh", "-c", shell.format(" ".join(GPUTOP))]
    with running(machine("h200x8"), argv=argv, wait=None, size=(200, 50)) as terminal:
        assert terminal.exit_code() == 0
        assert b"\x1b[?1049h" not in terminal.raw
        assert "train.py" in terminal.raw.decode()


@rest_long("signum", *SIGNALS)
def test_signals_put_the_terminal_back(signum: signal.Signals, machine: MachineFactory) -> None:
    with running(machine("h200x8")) as terminal:
        terminal.wait_for("train.py")
        assert quit_by(terminal, lambda: terminal.signal(signum)) == 128 + signum
        assert restored(terminal)


def test_ctrl_c_quits(machine: MachineFactory) -> None:
    with running(machine("h200x8")) as terminal:
        terminal.wait_for("train.py")
        assert quit_by(terminal, lambda: terminal.send(b"\x03")) == 0
        assert restored(terminal)


def test_no_agent_outlives_its_terminal(machine: MachineFactory) -> None:
    here = machine("h200x8")
    with running(here) as terminal:
        terminal.wait_for("train.py")
        assert quit_by(terminal, terminal.hang_up) == 128 + signal.SIGHUP
    here.hang(wakes=False)
    with running(here) as terminal:
        terminal.wait_for("has not answered")
        assert quit_by(terminal, lambda: terminal.signal(signal.SIGKILL)) == -signal.SIGKILL


def test_stop_and_go_on(machine: MachineFactory) -> None:
    with running(machine("h200x8")) as terminal:
        terminal.wait_for("train.py")
        terminal.send(b"j")
        terminal.wait_for("▸")
        terminal.send(b"\x1a")
        terminal.wait_stopped()
        terminal.wait_for_raw(b"\x1b[?1049l")
        assert terminal.modes == terminal.initial_modes
        terminal.wipe()
        terminal.signal(signal.SIGCONT)
        terminal.wait_for(lambda: all(gpu_line(terminal, n) for n in range(8)))
        terminal.wait_for("▸")
        terminal.send(b"q")
        assert terminal.exit_code() == 0
        assert restored(terminal)


@pytest.mark.long
def test_a_storm_of_sizes(machine: MachineFactory) -> None:
    with running(machine("h200x8"), "-i", "0.2") as terminal:
        terminal.wait_for("train.py")
        for step in range(60):
            terminal.resize(20 + step * 3, 4 + step)
            terminal.pump(0)
        terminal.resize(1, 1)
        terminal.pump(0.1)
        terminal.resize(80, 24)
        terminal.wait_for("? help")
        terminal.wait_for(lambda: all("H200" in gpu_line(terminal, n) for n in range(8)))
        assert terminal.process.poll() is None


def test_only_the_age_of_the_picture_is_sent_while_paused(machine: MachineFactory) -> None:
    here = machine("h200x8")
    with running(here, "-i", "0.1") as terminal:
        terminal.wait_for("train.py")
        terminal.send(b"p")
        terminal.wait_for("PAUSED, 1s old")
        sent, held = len(terminal.raw), terminal.display[1:]
        late = here.spawn("late", ["python", "late.py"], gpu=2, used=2**37)
        terminal.wait_for("PAUSED, 4s old")
        assert terminal.display[1:] == held
        assert len(terminal.raw) - sent < 3 * 80
        terminal.send(b"p")
        terminal.wait_for(lambda: "PAUSED" not in terminal.text)
        terminal.wait_for(f"{late} ")


@pytest.mark.long
def test_a_terminal_that_takes_nothing_for_a_while(machine: MachineFactory) -> None:
    here = machine("h200x8")
    with running(here, "-i", "0.1", size=(200, 50)) as terminal:
        terminal.wait_for("train.py")
        # Nobody reads: ten pictures fill the terminal's buffer.
        terminal.send(b"T" * 10)
        here.spawn("late", ["python", "late.py"], gpu=2, used=2**37)
        terminal.send(b"/late\r")
        terminal.wait_for("filter: late")
        terminal.wait_for("late.py")
        terminal.send(b"\x1bT" + b"T" * 10 + b"q")
        assert terminal.exit_code(10, reading=False) == 0


CRASH = """
import sys
from gputop.tui.panes.heading import Heading
def broken(self, y):
    secret = "password of bob"
    raise ValueError("no [/] such \\x1b[2J line")
Heading.pieces = broken
from gputop.cli import main
sys.exit(main(["--demo"]))
"""


def test_a_crash_is_a_line_and_a_file(machine: MachineFactory) -> None:
    argv = [GPUTOP[0], "-c", CRASH]
    with running(machine("h200x8"), argv=argv, wait=None) as terminal:
        assert terminal.exit_code() == 1
        assert restored(terminal)
        last = bytes(terminal.raw).rpartition(b"\x1b[?1049l")[2].decode()
        (line,) = (line for line in last.split("\r\n") if "gputop" in line)
        assert "internal error (ValueError: no [/] such \ufffd[2J line)" in line
        path = line.split()[-1]
        with open(path, encoding="utf-8") as file:
            text = file.read()
        assert "in broken" in text
        assert "password of bob" not in last
        assert "secret = " not in text.replace('secret = "password', "")
        os.unlink(path)


def test_keys_typed_at_once_go_where_the_ones_before_them_lead(machine: MachineFactory) -> None:
    with running(machine("h200x8"), size=(120, 40)) as terminal:
        terminal.wait_for("train.py")
        terminal.send(b"/eval\rjjcsjj\rm1,0\rp")
        terminal.wait_for("PAUSED")
        terminal.wait_for("filter: eval ")
        terminal.wait_for(" by PID ")
        terminal.wait_for("CUDA_VISIBLE_DEVICES=1,0")
        assert "▸" in terminal.text
        assert "python" in line_of(terminal, "--shard")


@pytest.mark.long
def test_dialogs_come_and_go(machine: MachineFactory) -> None:
    with running(machine("h200x8"), size=(120, 40)) as terminal:
        terminal.wait_for("train.py")
        for _ in range(3):
            for key, sign in ((b"?", "Keys"), (b"s", "Sort by"), (b"\x10", "environment  e")):
                terminal.send(key)
                terminal.wait_for(sign)
                terminal.send(b"\x1b")
                terminal.wait_for(lambda gone=sign: gone not in terminal.text)  # type: ignore[misc]
                terminal.wait_for("train.py")


@pytest.mark.long
def test_a_tick_sends_what_changed(machine: MachineFactory) -> None:
    with running(machine("h200x8-200"), "-i", "0.2", size=(200, 50)) as terminal:
        terminal.wait_for("train.py")
        frames = set()

        def ten() -> bool:
            frames.add(tuple(gpu_line(terminal, index) for index in range(8)))
            return len(frames) >= 10

        before = len(terminal.raw)
        terminal.wait_for(ten)
        assert (len(terminal.raw) - before) / 10 < 4000


# --- tmux --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_in_tmux(size: tuple[int, int], machine: MachineFactory, tmux: str, tmp_path: Path) -> None:
    """In a window that nobody looks at, which tmux says as soon as it is asked for the focus."""
    here: Machine = machine("h200x8")
    settings = tmp_path / "tmux.conf"
    settings.write_text("set -g focus-events on\n")

    def ask(*arguments: str) -> str:
        done = subprocess.run(
            [tmux, "-f", str(settings), "-S", f"{tmp_path}/tmux", *arguments],
            env={**here.env, "LANG": "C.UTF-8"}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    def until(holds: Callable[[str], bool]) -> str:
        deadline = Deadline(15)
        while not holds(text := ask("capture-pane", "-p")):
            assert deadline.left() > 0, text
        return text

    width, height = map(str, size)
    ask("new-session", "-d", "-x", width, "-y", height, " ".join(GPUTOP) + "; echo status $?; cat")
    try:
        text = until(lambda text: "train.py" in text and "? help" in text)
        for part in ("gputop", "GPU-MEM", "CUDA_VISIBLE_DEVICES", "140G"):
            assert part in text
        ask("send-keys", "j")
        until(lambda text: "▸" in text)
        ask("send-keys", "q")
        assert "H200" not in until(lambda text: "status 0" in text)
    finally:
        ask("kill-server")
