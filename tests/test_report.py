"""`gputop doctor --report`: what is in it, and what is not unless it is asked for."""

from __future__ import annotations

import re
import socket
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import msgspec
import pytest

from gputop.commands.bug_report import harmless_check
from gputop.model.machine.finding import Finding
from gputop.model.machine.frame import Frame
from tests.conftest import ME, MachineFactory
from tests.driver import Machine

pytestmark = pytest.mark.system

SECRET = "s3cret"


def report(machine: Machine, path: Path, *more: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "gputop", "doctor", "--report", str(path), *more]
    return machine.run(words)


def unpacked(path: Path) -> dict[str, str]:
    with tarfile.open(path) as files:
        members = files.getmembers()
        assert all(member.isreg() and (member.uid, member.uname) == (0, "") for member in members)
        return {member.name: files.extractfile(member).read().decode() for member in members}  # type: ignore[union-attr]


@pytest.fixture
def here(machine: MachineFactory, tmp_path: Path) -> Machine:
    """A process with secrets in its command line and variables, and settings with one."""
    folder = tmp_path / "config/gputop"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(
        f'user = "{SECRET}"\ninterval = 7.5\n'
        f'notify_command = "curl --token {SECRET}-hook https://{SECRET}-server"\n'
        f'[groups]\nlab = ["{SECRET}-person@{SECRET}-host"]\n'
    )
    here = machine("h200x8")
    words = ["python", "train.py", f"--name={SECRET}-command"]
    here.spawn("own", words, gpu=0, used=2**30, env={"CUDA_VISIBLE_DEVICES": f"{SECRET}-value"})
    return here


def test_without_what_is_nobodys_business(here: Machine, tmp_path: Path) -> None:
    path = tmp_path / "bug.tar.gz"
    done = report(here, path)
    assert (done.returncode, done.stderr) == (0, "")
    found = unpacked(path)
    assert list(found) == ["doctor.txt", "doctor.json", "frames.jsonl", "versions.txt",
                           "config.toml"]  # fmt: skip
    assert all(f"  {name} " in done.stdout for name in found)
    assert "left out: command lines" in done.stdout
    assert "`pytest -m gpu`" in done.stdout
    everything = "\n".join(found.values())
    for word in (SECRET, "train.py", socket.gethostname(), str(Path.home()) + "/"):
        assert word not in everything, word
    assert not re.search(f'"{ME}"(?! *:)', everything)  # one may be called as a key of JSON is
    frames = [msgspec.json.decode(line, type=Frame) for line in found["frames.jsonl"].splitlines()]
    assert len(frames) == 3
    [own] = [process for process in frames[-1].processes if process.pid == here.pids["own"]]
    assert (own.user, own.cuda_context is not None) == ("user1", True)
    assert "interval = 7.5" in found["config.toml"]
    assert "driver 580.95.05" in found["versions.txt"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_with_all_of_it(here: Machine, tmp_path: Path) -> None:
    path = tmp_path / "bug.tar.gz"
    done = report(here, path, "--with-commands")
    assert (done.returncode, done.stderr) == (0, "")
    assert "left out: only what may be a secret" in done.stdout
    found = unpacked(path)
    for word in (f"{SECRET}-command", f"{SECRET}-value", socket.gethostname()):
        assert word in found["frames.jsonl"], word
    for word in (f'user = "{SECRET}"', f"{SECRET}-host", f"--token *** https://{SECRET}-server"):
        assert word in found["config.toml"], word


def test_a_machine_without_a_driver(machine: MachineFactory, tmp_path: Path) -> None:
    path = tmp_path / "bug.tar.gz"
    done = report(machine("no-driver"), path)
    assert (done.returncode, done.stderr) == (0, "")
    found = unpacked(path)
    assert "error    driver: the NVIDIA kernel driver is not loaded" in found["doctor.txt"]
    assert found["frames.jsonl"].count("\n") == 1


def test_errors_are_one_line(machine: MachineFactory, tmp_path: Path) -> None:
    here, there = machine("no-driver"), tmp_path / "there.tar.gz"
    there.write_text("mine")
    cases = [
        (there, (), 1, "there.tar.gz exists: give another name"),
        (tmp_path / "no/where", (), 1, "where cannot be written: No such file or directory"),
        (tmp_path, (), 1, "exists: give another name"),
        (tmp_path / "new", ("--json",), 2, "--report cannot be used with --json"),
    ]
    for path, more, status, words in cases:
        done = report(here, path, *more)
        assert (done.returncode, done.stdout) == (status, "")
        assert words in done.stderr
        assert done.stderr.count("\n") == 1
    assert there.read_text() == "mine"
    done = here.run([sys.executable, "-m", "gputop", "doctor", "--with-commands"])
    assert (done.returncode, done.stdout) == (2, "")


def test_names_in_paths_and_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/people/me")
    check = harmless_check(
        Finding(
            "error",
            "x",
            f"/people/me/lib /home/alice/lib /data/{ME}/lib /people/me:/people/megan/x",
            f"sudo usermod -aG video {ME}, then log in again",
        )
    )
    assert check.text == "~/lib ~/lib /data/user/lib ~:/people/megan/x"
    assert check.advice == "sudo usermod -aG video user, then log in again"


def test_no_secret_is_in_it_even_then(here: Machine, tmp_path: Path) -> None:
    """Command lines are there for everybody to see; a file that is sent around is another thing."""
    password = "open-sesame"
    command = ["serve", f"--api-key={password}", "--token", password, f"http://a:{password}@host/x"]
    mask = {"CUDA_VISIBLE_DEVICE": f"https://a:{password}@host"}
    here.spawn("serve", command, used=1, env=mask)
    path = tmp_path / "bug.tar.gz"
    assert report(here, path, "--with-commands").returncode == 0
    found = unpacked(path)
    assert "serve --api-key=*** --token *** ***" in found["frames.jsonl"]
    assert password not in "".join(found.values())
