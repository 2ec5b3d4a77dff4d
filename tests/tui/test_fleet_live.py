"""Many hosts in a terminal, over a real sshd: one is down, one wants a login."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import MachineFactory
from tests.driver import Machine
from tests.patience import until
from tests.sshd import Sshd, sshd
from tests.terminal import Terminal
from tests.tui.live import GPUTOP, has_ended, restored

pytestmark = pytest.mark.system
__all__ = ["sshd"]

GIB = 2**30
ASKS = "Enter passphrase for key"


def lab(machine: MachineFactory, name: str) -> Machine:
    """Two GPUs of its own, with a process on the first."""
    usual = {"uuid": f"GPU-{name}-{{i}}", "memory": {"total": 80 * GIB, "used": 0},
             "utilization": {"gpu": 0, "memory": 0}, "compute": []}  # fmt: skip
    job = {"command": [f"train-{name}"], "on": {"gpu": 0, "used": 9 * GIB}}
    return machine({"gpu": usual, "gpus": 2, "processes": {"job": job}})


def line_with(terminal: Terminal, text: str) -> str:
    return next((line for line in terminal.display if text in line), "")


def asks(terminal: Terminal) -> bool:
    """Whether ssh asks at the terminal, and waits: a Ctrl-C just before that is lost on it."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            stat = (path.parent / "stat").read_text(errors="replace")
            ours = stat.rpartition(")")[2].split()[:2] == ["S", str(terminal.process.pid)]
            if ours and b"ControlMaster=yes" in path.read_bytes():  # others' may be endless
                return ASKS in terminal.text
    return False


def children(pid: int) -> set[str]:
    """The names of the programs that a process runs."""
    names = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, facts = path.read_text(errors="replace").rpartition(")")
            names |= {name.partition("(")[2]} if facts.split()[1] == str(pid) else set()
    return names


def test_a_login_by_hand_a_signal_there_and_back(sshd: Sshd, machine: MachineFactory) -> None:
    folder, secret = sshd.folder, "open sesame"
    make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", secret, "-f", str(folder / "locked")]
    subprocess.run(make, check=True)
    with (folder / "authorized_keys").open("a") as keys:
        keys.write((folder / "locked.pub").read_text())
    sshd.host("open1", lab(machine, "open1").env)
    sshd.host("shut1", lab(machine, "shut1").env, key="locked")
    with sshd.config.open("a") as config:
        config.write("Host down1\n    HostName 127.0.0.1\n    Port 9\n")
    environ = {**os.environ, "SSH_AUTH_SOCK": None, "COLUMNS": None, "LINES": None}
    command = [*GPUTOP, "-H", "open1,shut1,down1"]
    with Terminal(command, cols=120, rows=30, env=environ) as terminal:
        terminal.wait_for(lambda: "1/2" in line_with(terminal, "open1 "))
        # No agent of this machine; an ssh that is just starting still has the name of gputop.
        until(lambda: children(terminal.process.pid) == {"ssh"})
        terminal.wait_for("log in with L: permission denied")
        terminal.wait_for("Connection refused; again in")
        terminal.send(b"jj")
        terminal.wait_for("▸shut1")
        terminal.send(b"L")
        terminal.wait_for(lambda: asks(terminal))
        terminal.send(b"\x03")  # gives up the login, and gputop goes on
        terminal.wait_for(lambda: ASKS not in terminal.text and "▸shut1" in terminal.text)
        terminal.send(b"L")
        terminal.wait_for(lambda: asks(terminal))
        terminal.send(f"{secret}\r".encode())
        terminal.wait_for(lambda: "1/2" in line_with(terminal, "shut1 "))
        terminal.send(b"\r")
        terminal.wait_for("train-shut1")
        terminal.send(b"j")
        terminal.wait_for("▸  0")
        terminal.send(b"\x1b[20~")
        terminal.wait_for("SIGTERM to 1 process on shut1")
        terminal.wait_for("[ Send SIGTERM ]")
        terminal.send(b"\r")
        terminal.wait_for(lambda: has_ended(terminal, "SIGTERM"))
        terminal.send(b"\x1b")
        terminal.wait_for(lambda: "SIGTERM to" not in terminal.text)
        terminal.send(b"q")
        terminal.wait_for("train-open1")  # all hosts: the line of shut1 is no heading by now
        terminal.wait_for(lambda: "2/2" in line_with(terminal, "shut1 "))
        assert "open1:1" in line_with(terminal, "free  ")
        terminal.send(b"q")
        assert terminal.exit_code() == 0
        assert restored(terminal)
