"""gputop on Textual's own drawing, as with a Textual whose private names it does not know."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.conftest import MachineFactory, rest_long
from tests.tui.conftest import TextualFactory
from tests.tui.live import running

pytestmark = pytest.mark.system

FITS = "from gputop.tui.terminal.compatibility import fits; print(fits())"
DIALOG = "╭"
TOUR = (
    (b"j", "PID"),
    (b"s", DIALOG),
    (b"\x1b", None),
    (b"/", "\n / filter"),
    (b"train", "/ filter train"),
    (b"\r", "? help"),
    (b"G", "next metric"),
    (b"\x1b", "? help"),
    (b"H", "Esc back"),
    (b"\x1b", "? help"),
    (b"?", "Keys"),
    (b"\x1b", "? help"),
    (b"T\x0c", "? help"),
    (b"m", "keep the value"),
    (b"3,1", "CUDA_VISIBLE_DEVICES=3,1"),
    (b"\x1b", "? help"),
)
"""What is typed, and what then is on the screen; None: no dialog."""


@pytest.fixture
def plain(textual_of: TextualFactory) -> dict[str, str | None]:
    env = {"PYTHONPATH": textual_of("9.0.0")}
    done = subprocess.run([sys.executable, "-c", FITS], env=env, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")
    return dict(env)


@rest_long("size", (80, 24), (160, 50), (40, 12))
def test_a_tour(
    size: tuple[int, int], plain: dict[str, str | None], machine: MachineFactory
) -> None:
    wait = "? help" if size[0] >= 80 else "H200"
    with running(machine("h200x8"), size=size, env=plain, wait=wait) as terminal:
        for keys, marker in TOUR if wait == "? help" else ():
            terminal.send(keys)
            terminal.wait_for(marker or (lambda: DIALOG not in terminal.text))
        terminal.resize(100, 30)
        terminal.wait_for("? help")
        terminal.send(b"\x03")
        assert terminal.exit_code() == 0
        assert terminal.modes == terminal.initial_modes
        assert b"Traceback" not in terminal.raw


@rest_long("env", {"NO_COLOR": "1"}, {"LANG": "C", "LC_ALL": "C"}, {"TERM": "linux"})
def test_other_terminals(
    env: dict[str, str | None], plain: dict[str, str | None], machine: MachineFactory
) -> None:
    with running(machine("h200x8"), size=(100, 30), env={**plain, **env}) as terminal:
        terminal.send(b"j")
        terminal.wait_for(
            lambda: any("reverse" in cell.marks for line in terminal.cells for cell in line)
        )
        terminal.send(b"q")
        assert terminal.exit_code() == 0


@rest_long("number", signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
def test_a_signal_puts_the_terminal_back(
    number: signal.Signals, plain: dict[str, str | None], machine: MachineFactory
) -> None:
    with running(machine("h200x8"), env=plain) as terminal:
        terminal.signal(number)
        assert terminal.exit_code() == 128 + number
        assert terminal.modes == terminal.initial_modes
        assert terminal.raw.rindex(b"\x1b[?1049l") > terminal.raw.rindex(b"\x1b[?1049h")
