"""The first frame, painted while the screen is still being loaded."""

from __future__ import annotations

import os
import re
import signal
import sys
import termios
from pathlib import Path

import pytest

from gputop.tui.terminal.splash import picture
from tests.builders import frame, gpu, process
from tests.conftest import MachineFactory, rest_long
from tests.terminal import Terminal

GPUTOP = [sys.executable, "-m", "gputop"]
ROOT = Path(__file__).parent.parent

SLOW_TEXTUAL = """
import sys
open({gate!r}).read()  # until somebody opens the gate
sys.path.remove({here!r})
del sys.modules["textual"]
import textual
sys.modules["textual"] = textual
"""


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A Textual whose import waits until this FIFO is written to."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    package = tmp_path / "slow" / "textual"
    package.mkdir(parents=True)
    text = SLOW_TEXTUAL.format(gate=str(gate), here=str(package.parent))
    (package / "__init__.py").write_text(text)
    return gate


def slow(gate: Path) -> dict[str, str]:
    return {"PYTHONPATH": f"{gate.parent / 'slow'}:{ROOT}"}


@pytest.mark.system
def test_keys_that_come_early_are_not_lost(gate: Path, machine: MachineFactory) -> None:
    """Enter among them, which a terminal may turn into another key."""
    env = {**machine("h200x8").env, **slow(gate)}
    with Terminal(GPUTOP, cols=120, rows=30, env=env) as terminal:
        terminal.wait_for(" 7 H200")
        terminal.send(b"sj\r")
        gate.write_text("open")
        terminal.wait_for(" by CUDA ↑ ")


@pytest.mark.system
def test_gpus_are_there_before_the_screen_is_loaded(gate: Path, machine: MachineFactory) -> None:
    env = {**machine("h200x8").env, **slow(gate)}
    with Terminal(GPUTOP, cols=100, rows=30, env=env) as terminal:
        terminal.wait_for(" 7 H200")
        terminal.wait_for("train.py")
        assert "q quit" not in terminal.text
        assert terminal.raw.count(b"\x1b[?1049h") == 1  # the second picture is over the first
        terminal.send(b"xx")  # of no meaning, and not echoed
        gate.write_text("open")
        terminal.wait_for("q quit")
        assert "xx" not in terminal.text
        assert b"\r\nxx" not in terminal.raw
        terminal.send(b"q")
        assert terminal.exit_code() == 0
        assert termios.tcgetattr(terminal._master) == terminal.initial_modes


@pytest.mark.system
@rest_long("options", [], ["-i", "2", "-u", "me"])
def test_gpus_do_not_wait_for_the_lists_of_processes(
    options: list[str], gate: Path, machine: MachineFactory
) -> None:
    here = machine("h200x8")
    here.slow("nvmlDeviceGetComputeRunningProcesses*", ms=60_000)
    command, env = [*GPUTOP, *options], {**here.env, **slow(gate)}
    with Terminal(command, cols=100, rows=30, env=env) as terminal:
        terminal.wait_for(" 7 H200")
        assert re.search(r" 0 H200 +\d+\.\d/140G +\d+% +\d+C", terminal.text)
        assert "PID" not in terminal.text
        here.heal()
        gate.write_text("open")
        terminal.wait_for("q quit")
        terminal.send(b"q")
        assert terminal.exit_code() == 0


@pytest.mark.system
@pytest.mark.long
def test_keys_of_that_time_are_not_lost(gate: Path, machine: MachineFactory) -> None:
    env = {**machine("h200x8").env, **slow(gate)}
    with Terminal(GPUTOP, cols=100, rows=30, env=env) as terminal:
        terminal.wait_for(" 7 H200")
        terminal.send(b"q")
        gate.write_text("open")
        assert terminal.exit_code() == 0


@pytest.mark.system
@rest_long("number", signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
def test_a_signal_at_that_time(number: signal.Signals, gate: Path, machine: MachineFactory) -> None:
    env = {**machine("h200x8").env, **slow(gate)}
    with Terminal(GPUTOP, cols=100, rows=30, env=env) as terminal:
        terminal.wait_for(" 7 H200")
        terminal.process.send_signal(number)
        assert terminal.exit_code() == 128 + number
        assert bytes(terminal.raw).endswith(b"\x1b[?1049l\x1b[?25h")
        assert termios.tcgetattr(terminal._master) == terminal.initial_modes


@pytest.mark.system
@pytest.mark.long
def test_without_a_driver_nothing_is_painted(gate: Path, machine: MachineFactory) -> None:
    env = {**machine("no-driver").env, **slow(gate)}
    with Terminal(GPUTOP, cols=100, rows=30, env=env) as terminal:
        gate.write_text("open")
        terminal.wait_for("driver is not loaded")
        assert b"driver None" not in terminal.raw
        terminal.send(b"q")
        assert terminal.exit_code() == 0


def test_the_picture_fits_and_is_harmless() -> None:
    gpus = [gpu(0, name="NVIDIA é" + "x" * 99, memory_used=None), gpu(1, error="GPU is lost")]
    gpus += [gpu(2, utilization=None, memory_used=None, state="asleep")]
    gpus += [gpu(index) for index in range(3, 40)]
    shown = frame(gpus, [process(100, user="ali\u202ece")])
    text = picture(shown, 60, 20)
    lines = text.split("\r\n")
    assert len(lines) == 19
    assert max(map(len, lines)) <= 60
    assert text.replace("\r\n", "").isascii()
    assert text.replace("\r\n", "").isprintable()
    assert lines[0].endswith("  driver -  CUDA -")
    assert "GPU is lost" in lines[2]
    assert lines[3].endswith("  asleep")


def test_processes_stand_below_the_gpus() -> None:
    small, large = process(100, gpu_memory=2**30), process(200, gpu_memory=2**33, user="bob")
    lines = picture(frame([gpu(0)], [small, large]), 100, 20).split("\r\n")
    assert [line.split()[1] for line in lines[3:]] == ["PID", "200", "100"]
    assert "train" in lines[4]
    lines = picture(frame([gpu(0)], [small, large]), 100, 20, user="bob").split("\r\n")
    assert [line.split()[1] for line in lines[3:]] == ["PID", "200"]
    assert len(picture(frame([gpu(0)], [small, large]), 100, 6).split("\r\n")) == 5
