"""Machines where gputop is not installed: what runs there, and that it leaves nothing there."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gputop.errors import SourceError
from gputop.model.machine.frame import Frame, Process
from gputop.model.machine.signals import Target
from gputop.protocol.codec import encode
from gputop.protocol.messages import (
    AnsweredRequest,
    Candidates,
    Checks,
    Context,
    Detail,
    Liveness,
    Ping,
    Probe,
    Reply,
    Signal,
    Stack,
)
from gputop.sources.ask import ask
from gputop.sources.ssh.connection import AgentOptions, Connection
from gputop.sources.ssh.source import SshSource
from tests.conftest import MachineFactory, rest_long
from tests.patience import until
from tests.ssh.network import through
from tests.ssh.reading import first_frame, source, why_not
from tests.sshd import SYSTEM, Sshd, sshd
from tests.standin.pythons import python_of

pytestmark = pytest.mark.system

__all__ = ["sshd"]

_OLD = """\
#!/bin/sh
echo 8 _bz2
exit 1
"""


def folder_of(folder: Path, **programs: str) -> str:
    """A folder to be all of PATH: the usual programs, and those that lead elsewhere."""
    folder.mkdir()
    for name in ("sh", "cat", "dd", "env", "sleep"):
        (folder / name).symlink_to(f"/bin/{name}")
    for name, target in programs.items():
        (folder / name).symlink_to(target)
    return str(folder)


def old_python(folder: Path) -> str:
    """The path of a Python 3.8."""
    path = folder / "python3"
    path.write_text(_OLD)
    path.chmod(0o755)
    return str(path)


def written_by(pid: int) -> list[str]:
    """The files of a file system that a process has open to write."""
    names = []
    for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            flags = int(entry.read_text().split("flags:")[1].split()[0], 8)
            target = os.readlink(f"/proc/{pid}/fd/{entry.name}")
        except FileNotFoundError:
            continue  # the agent reads files of /proc all the time: it was one of these
        if flags & os.O_ACCMODE and target.startswith("/") and "/memfd:" not in target:
            names.append(target)
    return [name for name in names if name != "/dev/null"]


def test_nothing_is_left_there(sshd: Sshd, kept: MachineFactory) -> None:
    machine = kept("h200x8", reap=False)
    host = sshd.host("bare", machine.env, path=SYSTEM)
    before = sshd.files(host)
    with source(host, 0.2) as opened:
        frame = first_frame(opened)
        assert len(frame.gpus) == 8
        assert {process.pid for process in frame.processes} == set(machine.pids.values())
        assert opened.link[:3] == ("connected", "carried", "")
        agent = sshd.agent(host, "-I")
        assert written_by(agent) == []
        assert_it_answers(opened, frame.processes[0])
    until(lambda: not sshd.processes(host), within=2)
    assert sshd.files(host) == before
    assert not Path("/run/gputop", f"{agent}.idle").exists()


def assert_it_answers(opened: SshSource, target: Process) -> None:
    """Every request; the last one ends the target."""
    assert target.start_time is not None
    requests: list[AnsweredRequest] = [
        Probe("0", None), Detail(target.id), Candidates(),
        Stack(target.id), Context(target.pid), Checks(), Liveness((target.id,)),
        Signal("s1", (Target(target.id, forced=True),), 15, 5.0),
    ]  # fmt: skip
    replies = [ask(opened, request, 20.0) for request in requests]
    assert [reply.error for reply in replies] == [None] * len(replies)
    [verdict] = replies[-1].verdicts
    assert verdict.outcome in ("exited", "zombie")
    assert verdict.audit_error.startswith("not in the audit log: nothing is written on a host")


@rest_long("minor", 9, *range(10, 15))
def test_another_python(minor: int, sshd: Sshd, kept: MachineFactory, tmp_path: Path) -> None:
    """It is found beside one that is too old, tells the same facts, and answers."""
    if (python := python_of(minor)) is None:
        pytest.skip(f"not installed: pyenv install 3.{minor}, or python3.{minor} in PATH")
    machine = kept("h200x8", reap=False)
    name = Path(python).name
    here = sshd.host(f"same-{name}", machine.env, path=SYSTEM)
    path = folder_of(tmp_path / "bin", python3=old_python(tmp_path), **{name: python})
    there = sshd.host(f"other-{name}", machine.env, path=path)
    with source(here) as ours, source(there) as theirs:
        one, other = first_frame(ours), first_frame(theirs)
        assert [gpu.identity for gpu in one.gpus] == [gpu.identity for gpu in other.gpus]
        assert sorted(one.processes, key=lambda row: row.pid)[0].command
        facts = [
            {(row.id, row.user, row.command) for row in frame.processes} for frame in (one, other)
        ]
        assert facts[0] == facts[1]
        assert theirs.link.kind == "carried"
        assert_it_answers(theirs, other.processes[0])
    until(lambda: not sshd.processes(there), within=2)


def test_a_brief_agent_that_is_carried(sshd: Sshd, kept: MachineFactory) -> None:
    machine = kept("h200x8")
    sshd.host("brief", machine.env, path=SYSTEM)
    environ = {**os.environ, "GPUTOP_SSH_CONFIG": str(sshd.config)}
    command = [sys.executable, "-m", "gputop", "-H", "brief", "--once"]
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=300, check=True
    )
    assert "8 GPUs, 2 free" in done.stdout
    assert "cannot read it" not in done.stdout


def test_how_much_is_sent(sshd: Sshd, kept: MachineFactory, tmp_path: Path) -> None:
    """All of it at first; less later if the settings allow that it stays there."""
    counted, machine = tmp_path / "sent", kept("h200x8")
    host = sshd.host("far", machine.env, path=SYSTEM, more=through(sshd, counted))
    (tmp_path / "gputop").mkdir()
    environ = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "gputop", "-H", "far", "--once"]

    def sent() -> int:
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=300, check=True
        )
        assert "8 GPUs, 2 free" in done.stdout
        return int(counted.read_text())

    (tmp_path / "gputop/config.toml").write_text("cache_agent = true\n")
    assert 100_000 < sent() < 120_000
    assert sent() < 15_000
    [cached] = [path for path in sshd.files(host) if path.name == "agent"]
    assert cached == sshd.folder / "hosts/far/home/.cache/gputop/agent"


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_slow_network(sshd: Sshd, kept: MachineFactory, tmp_path: Path) -> None:
    """20 kB/s: what arrives is no silence, though all of it takes longer than that may."""
    more = through(sshd, tmp_path / "sent", rate=20_000)
    host = sshd.host("slow", kept("h200x8").env, path=SYSTEM, more=more)
    connection = Connection(host, AgentOptions(None), (30.0, 3.0))
    seen, frames = [""], list[Frame | Reply]()
    thread = threading.Thread(target=lambda: frames.append(next(connection.messages())))
    thread.start()
    while thread.is_alive():
        if (words := connection.link.words) != seen[-1]:
            seen.append(words)
        thread.join(0.01)
    connection.free()
    [frame] = frames
    assert isinstance(frame, Frame)
    assert len(frame.gpus) == 8
    words = "the agent is sent there: 0%, the agent is sent there: 31%, the agent is sent there: "
    assert words in ", ".join(seen)


def test_no_python_that_is_new_enough(sshd: Sshd, tmp_path: Path) -> None:
    old = sshd.host("old", path=folder_of(tmp_path / "old", python3=old_python(tmp_path)))
    none = sshd.host("none", path=folder_of(tmp_path / "none"))
    for host in (old, none):
        error = why_not(host)
        assert isinstance(error, SourceError)
        assert "there is no Python 3.9 or newer" in str(error)


def test_a_lease(tmp_path: Path) -> None:
    """An agent ends once its reader has been silent for so long, and not while it pings."""
    command = [sys.executable, "-m", "gputop", "agent", "--no-driver", "--lease", "0.5"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=tmp_path) as agent:
        assert agent.stdin
        assert agent.stdout
        for number in range(20):
            agent.stdin.write(encode(Ping(f"p{number}")) + b"\n")
            agent.stdin.flush()
            while f'"request":"p{number}"'.encode() not in agent.stdout.readline():
                pass
            time.sleep(0.05)
        assert agent.wait(60) == 0
