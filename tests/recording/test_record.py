"""gputop record: on a machine whose driver goes and comes, over ssh, and how it ends."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from gputop.cli import main
from gputop.commands.shared.unit import quoted
from gputop.recording.datafile import SUMS
from gputop.recording.reader import Recording
from gputop.sources.follow_hosts import HostNews
from gputop.sources.ssh.names import HostName
from tests.builders import frame, process
from tests.conftest import ME, MachineFactory
from tests.patience import until
from tests.recording.made import START, frames_from, write
from tests.sshd import Sshd, sshd

__all__ = ["sshd"]

GPUTOP = [sys.executable, "-m", "gputop"]


@contextmanager
def recorder(
    path: Path | str, *arguments: str, env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """`gputop record`, which is killed at the end if it still runs."""
    command = [*GPUTOP, "record", str(path), "--every=1s", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, env={**os.environ, **(env or {})}
    ) as program:
        try:
            yield program
        finally:
            program.kill()


def line(program: subprocess.Popen[str]) -> str:
    assert program.stdout
    return program.stdout.readline()


def complaint(program: subprocess.Popen[str]) -> str:
    assert program.stderr
    return program.stderr.readline()


def await_complaint(program: subprocess.Popen[str], beginning: str) -> None:
    """Read until it complains so. On a busy machine a driver is late in between."""
    while not (said := complaint(program)).startswith(beginning):
        assert "has not answered for" in said


def has_samples(path: Path, count: int) -> bool:
    """Whether there are so many samples of each host."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return False
    recording = Recording(path)
    return bool(recording.hosts) and all(
        len(recording.times(host)) >= count for host in recording.hosts
    )


@pytest.mark.system
def test_a_driver_that_goes_and_comes_back(machine: MachineFactory, tmp_path: Path) -> None:
    here, path = machine("h200x8"), tmp_path / "recordings"
    with recorder(f"{path}/", env=here.env) as program:
        assert line(program) == f"recording this machine every 1 s to {path}\n"
        until(lambda: has_samples(path, 1))
        here.fail("nvmlDevice*", "DRIVER_NOT_LOADED")
        await_complaint(program, "gputop: the NVIDIA kernel driver is not loaded")
        with recorder(path) as second:
            assert complaint(second).startswith(f"gputop: another gputop records to {path}/")
            assert second.wait(60) == 1
        here.heal()
        await_complaint(program, "gputop: the GPUs can be read again\n")
        program.send_signal(signal.SIGTERM)
        assert program.wait(60) == 0
        assert program.stdout
        assert program.stderr
        assert program.stdout.read() + program.stderr.read() == ""
    recording = Recording(path)
    [host] = recording.hosts
    frames = list(recording.frames(host))
    assert recording.losses == ()
    problems = [frame.problem is not None for frame in frames]
    assert (problems[0], True in problems, problems[-1]) == (False, True, False)
    assert {process.user for process in frames[0].processes} == {ME}
    assert any("train.py --lr" in (process.command or "") for process in frames[0].processes)
    assert recording.at(host, frames[0].time) == frames[0]


@pytest.mark.system
def test_hosts_and_ctrl_c(sshd: Sshd, machine: MachineFactory, tmp_path: Path) -> None:
    here, path = machine("h200x8"), tmp_path / "both"
    sshd.host("w1", here.env)
    sshd.host("w2", here.env)
    sshd.host("refused", key="no_such_key")
    with recorder(f"{path}/", "-H", "w1,w2,refused", "--commands=none") as program:
        assert line(program) == f"recording 3 hosts every 1 s to {path}\n"
        assert complaint(program).startswith("gputop: refused: login wanted: ")
        until(lambda: has_samples(path, 2) and len(Recording(path).hosts) == 2, within=20)
        program.send_signal(signal.SIGINT)
        assert program.wait(60) == 0
    assert {folder.name for folder in path.iterdir()} == {"w1", "w2", "refused"}
    recording = Recording(path)
    assert sorted(recording.hosts) == ["w1", "w2"]
    for host in recording.hosts:
        frames = list(recording.frames(host))
        assert {frame.host.requested_name for frame in frames} == {host}
        assert frames[0].processes != ()


class Following:
    """A follower of a machine that gives one frame and is lost."""

    user: str | None = None
    """The user that it is read as."""

    def __init__(self, hosts: Sequence[HostName], *_: object) -> None:
        self._host = hosts[0]

    def __iter__(self) -> Iterator[HostNews]:
        rows = [process(pid + 1, user=user, command=f"python {user}.py --lr 1")
                for pid, user in enumerate((ME, "svc"))]  # fmt: skip
        yield self._host, frame(processes=rows)

    def user_of(self, _: HostName | None) -> str | None:
        """As HostFollower has it."""
        return self.user

    def close(self) -> None:
        """Close nothing."""


@pytest.mark.parametrize(
    ("host", "told", "own"), [("w1", "svc", "svc"), ("svc@w1", None, "svc"), ("w1", None, None)]
)
def test_whose_commands_are_whole_on_a_host(
    host: str, told: str | None, own: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the user that ssh logs in as, and not of who has that name here."""
    monkeypatch.setattr(Following, "user", told)
    monkeypatch.setattr("gputop.commands.record.HostFollower", Following)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert main(["record", f"{tmp_path}/file", "-H", host]) == 1
    [seen] = Recording(tmp_path / "file").frames(host)
    assert {row.user for row in seen.processes if "--lr" in (row.command or "")} == {own} - {None}


@pytest.mark.system
@pytest.mark.long
def test_killed_at_any_moment_it_loses_the_last_second_at_most(tmp_path: Path) -> None:
    path, chance = tmp_path / "killed", random.Random(5)
    for _ in range(4):
        with recorder(path, "--demo") as program:
            assert line(program).startswith("recording the demo ")
            begun = time.time()
            time.sleep(0.3 + chance.random())
            program.kill()
            killed = time.time()
            program.wait(60)
        times = [when for when in Recording(path).times("demo") if when > begun - 0.5]
        assert times[0] < begun + 0.5
        assert times[-1] > killed - 1.2
        assert Recording(path).losses == ()
        assert len(list(Recording(path).frames("demo"))) == len(Recording(path).times("demo"))


@pytest.mark.system
def test_recordings_of_years_ago_stay_as_the_clock_may_be_ahead(tmp_path: Path) -> None:
    """They get sums meanwhile."""
    folder = tmp_path / "days"
    folder.mkdir(mode=0o700)
    old = [folder / f"2019-01-0{day}.gputop" for day in range(1, 9)]
    for path in old:
        write(path, frames_from(START, 2))
    with recorder(f"{folder}/", "--demo") as program:
        assert line(program).startswith("recording the demo ")
        until(lambda: len(list(folder.glob("*.gputop"))) == len(old) + 1)
        until(lambda: len(list(folder.glob(f"*{SUMS}"))) == len(old))
    assert all(path.exists() for path in old)


@pytest.mark.system
def test_a_unit_for_systemd(tmp_path: Path) -> None:
    words = [*GPUTOP, "record", "--unit", f"{tmp_path}/a b/", "--keep=7d", "-H", "n[1-2]"]
    unit = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True).stdout
    [command] = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    main = Path(__file__).parents[2] / "gputop" / "__main__.py"
    assert command == (
        f'ExecStart={sys.executable} {main} record "{tmp_path}/a b/" --every=10s --keep=7d '
        "--max-size=2147483648 --commands=script --host=n1 --host=n2"
    )
    assert not (tmp_path / "a b").exists()


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("/usr/bin/gputop", "/usr/bin/gputop"),
        ("--host=bob@n1:22", "--host=bob@n1:22"),
        ("100% $HOME", '"100%% $$HOME"'),
        ('a"b\\c', '"a\\"b\\\\c"'),
        ("new\nline", '"new\\x0aline"'),
        ("\udcff", '"\\xff"'),
        ("für", '"für"'),
        ("", '""'),
    ],
)
def test_words_of_a_unit(word: str, text: str) -> None:
    assert quoted(word) == text


@pytest.mark.system
def test_the_demo_is_not_recorded_among_real_machines(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gputop", "--demo", "record"]
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "gputop: --demo needs a path to record to, such as demo/\n"
    assert not list(tmp_path.rglob("*.gputop"))
