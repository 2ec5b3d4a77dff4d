"""gputop on Textual's own drawing, as with a Textual whose private names it does not know."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.conftest import MachineFactory, rest_long
from tests.tui.conftest import TextualFactory
from tests.tui.live import ESCAPE, running, tour

pytestmark = pytest.mark.system

IS_SUPPORTED = "from gputop.tui.terminal.compatibility import is_supported; print(is_supported())"

SLOWLY = (
    (b"j", r"(?m)^[▸>]"),
    (b"/", "\n / filter"),
    (b"eval", "/ filter eval"),
    (b"\r", ""),
    (b"s", "Sort by"),
    *((ESCAPE, ""), (b"G", "next metric")),
    *((ESCAPE, ""), (b"H", "All is well")),
    *((ESCAPE, ""), (b"?", "Keys")),
    *((ESCAPE, ""), (b"m", "keep the value")),
    (b"3,1", "DEVICES=3,1"),
    (ESCAPE, ""),
)
"""A tour by which keys have taken effect before the next: only gputop's own queue sees to that."""


@pytest.fixture
def plain(textual_of: TextualFactory) -> dict[str, str | None]:
    env = {"PYTHONPATH": textual_of("9.0.0")}
    done = subprocess.run(
        [sys.executable, "-c", IS_SUPPORTED], env=env, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("False\n", "")
    return dict(env)


@pytest.mark.long
@pytest.mark.parametrize("size", [(80, 24), (160, 50), (40, 12)])
def test_a_tour(
    size: tuple[int, int], plain: dict[str, str | None], machine: MachineFactory
) -> None:
    with running(machine("h200x8"), size=size, env=plain, wait=None) as terminal:
        tour(terminal, steps=SLOWLY, escape=b"\x1b")
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
