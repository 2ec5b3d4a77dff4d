"""The mapping in a real terminal: bytes that leave it, keys as fast as they come."""

from __future__ import annotations

import base64

import pytest

from tests.conftest import MachineFactory, needs_everybody, rest_long
from tests.tui.live import ESCAPE, restored, running, strange

pytestmark = pytest.mark.system


@rest_long("env", {}, {"NO_COLOR": "1", "LANG": "C", "LC_CTYPE": None})
def test_a_copy_reaches_the_terminal(env: dict[str, str | None], machine: MachineFactory) -> None:
    with running(machine("h200x8"), size=(120, 40), env=env) as terminal:
        terminal.send(b"m2,1\r")
        terminal.wait_for("export CUDA_VISIBLE_DEVICES=2,1")
        since = len(terminal.raw)
        terminal.send(b"y")
        line = base64.b64encode(b"export CUDA_VISIBLE_DEVICES=2,1")
        terminal.wait_for_raw(b"\x1b]52;c;" + line + b"\x07", since)
        terminal.wait_for("copied (OSC 52): export CUDA_VISIBLE_DEVICES=2,1")
        terminal.wait_for(lambda: "copied" not in terminal.text)
        terminal.send(b"q")
        assert terminal.exit_code() == 0
        assert restored(terminal)


@needs_everybody
@pytest.mark.long
def test_no_key_is_lost_while_every_key_gives_an_answer(machine: MachineFactory) -> None:
    with running(machine("h200x8"), size=(120, 40)) as terminal:
        terminal.wait_for("train.py")
        terminal.send(b"m" + b"0,1," * 25 + b"\r" + b"o" * 2)
        terminal.wait_for("CUDA_DEVICE_ORDER=FASTEST_FIRST")
        terminal.wait_for("! error: A GPU is named twice")
        terminal.send(b"m" + b"\x7f" * 100 + b"3,\t\r")
        terminal.wait_for("export CUDA_VISIBLE_DEVICES=3,2 ")
        terminal.send(b"m\x1b[A\x1b[A\x1b[B\x1b[B\x7f\x7f\r")
        terminal.wait_for("export CUDA_VISIBLE_DEVICES=3 ")
        uuid = "GPU-4e047c1a-90b3-5d2e-8f44-a1b2c3d4e504"
        terminal.send(b"MMMMM" + f"m\x15{uuid}\rM".encode() * 2)
        terminal.wait_for("Physical to logical")
        terminal.wait_for(f"export CUDA_VISIBLE_DEVICES={uuid}")
        terminal.send(b"Mq")
        assert terminal.exit_code() == 0


@pytest.mark.long
def test_the_driver_itself_is_asked(machine: MachineFactory) -> None:
    here = machine({"base": "h200x8", "cuda_order": [0, 1, 3, 2, 4, 5, 6, 7]})
    with running(here, "-i", "0.2", size=(120, 40)) as terminal:
        terminal.send(b"m1,0\rv")
        terminal.wait_for("verified by the driver")
        terminal.send(b"m\x152\rv")
        terminal.wait_for("! the driver says cuda:0 is GPU 3, gputop expected GPU 2")
        assert "/device:GPU:0   →  GPU 3 " in terminal.text
        terminal.send(b"Mov")  # by PCI bus id there is nothing to differ in
        terminal.wait_for("Physical to logical")
        terminal.wait_for(lambda: "expected GPU 2" not in terminal.text)
        terminal.wait_for("verified by the driver")
        terminal.send(b"oo")
        terminal.wait_for("! the driver says cuda:0 is GPU 3, gputop expected GPU 2")
        terminal.send(b"Mq")
        assert terminal.exit_code() == 0


@pytest.mark.long
def test_hostile_processes_on_the_whole_screen(machine: MachineFactory) -> None:
    with running(machine("hostile"), size=(120, 40)) as terminal:
        terminal.send(b"Mm\x1b[200~0,\x1b]0;x\x07\xc2\x9b2J\xe2\x80\xae\x1b[201~1\r")
        terminal.wait_for("Physical to logical")
        terminal.wait_for("no GPU is visible")
        terminal.send(ESCAPE)
        terminal.wait_for("? help")
        terminal.send(b"q")
        assert terminal.exit_code() == 0
        assert strange(bytes(terminal.raw)) == []
