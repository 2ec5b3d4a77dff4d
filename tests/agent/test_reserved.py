"""What is reserved is seen by every reader: on the screen, in text, in JSON, of `gputop free`."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from gputop.agent.reserved import ReservationReader
from gputop.reservations.folder import LockFolder
from gputop.reservations.hold import Hold
from tests.conftest import ME, MachineFactory, needs_everybody
from tests.fuse import Fuse
from tests.tui.live import running

pytestmark = pytest.mark.system

GPUTOP = [sys.executable, "-m", "gputop"]


@needs_everybody
def test_a_reserved_gpu_is_shown_everywhere(machine: MachineFactory, tmp_path: Path) -> None:
    here = machine("h200x8")
    with LockFolder() as folder:
        waiting = Hold(folder, here.gpu(2)["uuid"], "train.py \x1b[2J --lr 3", 4e9)
        working = Hold(folder, here.gpu(0)["uuid"], "other.py")
        gpus = json.loads(here.run([*GPUTOP, "--json"]).stdout)["gpus"]
        reservation = gpus[2]["reservation"]
        assert (reservation["user"], reservation["pid"]) == (ME, os.getpid())
        assert (reservation["until"], reservation["command"]) == (4e9, "train.py �[2J --lr 3")
        assert re.fullmatch(rf"it is reserved by {ME}, \d+s", gpus[2]["not_free"])
        assert gpus[0]["not_free"] == f"processes of {ME}"
        assert gpus[0]["reservation"]["command"] == "other.py"
        assert [gpu["index"] for gpu in gpus if gpu["free"]] == [6]
        free = here.run([*GPUTOP, "free", "--window", "0", "-n", "2"])
        assert re.search(rf"GPU 2 H200: it is reserved by {ME}, \d+s\n", free.stderr)
        once = here.run([*GPUTOP, "--once"]).stdout
        assert re.search(rf"^  2  .*  reserved by {ME}, \d+s$", once, re.M)
        assert once.count("reserved by") == 1
        with running(here, size=(200, 50)) as terminal:
            terminal.wait_for(f" 2  H200  reserved by {ME}, ")
            terminal.resize(80, 24)
            terminal.wait_for(" 2 H200 reserved ")
            terminal.send(b"\x1b[Zjj\r")
            terminal.wait_for(f"reserved by {ME}, ")
            terminal.wait_for("train.py")
        waiting.release()
        working.release()


@pytest.mark.parametrize("below", ["", "/site/locks"])
def test_where_the_folder_does_not_answer_it_is_not_known_what_is_reserved(
    below: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it does, no GPU is free (model/test_is_free.py)."""
    monkeypatch.setenv("GPUTOP_LOCKS", f"{tmp_path}/mount{below}")
    (tmp_path / "mount").mkdir()
    reader = ReservationReader()
    with Fuse(tmp_path / "mount") as fuse:
        assert (reader.read(0.1), reader.unknown) == ({}, True)
        fuse.end()
        assert (reader.read(10.0), reader.unknown) == ({}, False)
