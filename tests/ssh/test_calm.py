"""Being gentle with what is broken: hosts whose logins hang, names that are none, a jump host that
takes few connections; and that nothing of before a cut is shown as if it were live."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from textual.message import Message

from gputop.cli import main
from gputop.errors import GputopError, LoginError, PermanentError
from gputop.model.machine.frame import Frame
from gputop.sources.ask import frames_of
from gputop.sources.feed import Feed
from gputop.sources.follow import follow
from gputop.sources.ssh.client import proxy_of
from gputop.sources.ssh.names import HostName
from gputop.sources.ssh.source import SshSource
from gputop.tui.machine import WatchedMachine
from tests.patience import until
from tests.protocol.streams import lines_of, stream
from tests.ssh.reading import first_frame, source, why_not
from tests.ssh.test_trouble import _DRIPS, _TELLS
from tests.sshd import Sshd

pytestmark = pytest.mark.system

_HANGS = "echo $$ >> ../logins; exec sleep 100"


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """An sshd that lets eight at once ask for a login, and none of them twice."""
    with (
        Sshd(tmp_path_factory.mktemp("gate"), "MaxStartups 8:100:8\nMaxAuthTries 1\n") as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("GPUTOP_SSH_CONFIG", str(server.config))
        server.host("gate")
        yield server


@pytest.fixture
def answers(tmp_path: Path) -> str:
    """A script of a host that sends frames, without an agent."""
    (tmp_path / "lines").write_bytes(b"".join(lines_of(stream())))
    return f"{_TELLS}cat {tmp_path}/lines; exec sleep 100"


def script_of(server: Sshd, host: HostName) -> Path:
    return server.folder / "hosts" / host.target / "script"


class Clock(threading.Event):
    """A clock by which every pause is over at once, and the last one ends the test."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        self.pauses: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.pauses.append(timeout)
        return len(self.pauses) == self.count


def attempts(host: HostName, count: int, timeout: float) -> tuple[list[float], list[GputopError]]:
    """The pauses after attempts to follow a host, which take no time, and their errors."""
    news: list[Frame | GputopError] = []
    clock = Clock(count)
    made = SshSource(host, 1.0, timeout=timeout)
    follow(made, frames_of, news.append, clock)
    made.close()
    return clock.pauses, [error for error in news if isinstance(error, GputopError)]


@pytest.mark.timeout(120)
def test_logins_that_hang_do_not_pile_up(gate: Sshd, answers: str) -> None:
    host = gate.host("hangs", script=_HANGS)
    pauses, errors = attempts(host, 3, timeout=5.0)
    assert [str(error) for error in errors] == [
        "no answer for 5 s: the login there hangs, or the network is down",
        "2 logins hang there: no answer for 5 s",
        "3 logins hang there: no answer for 5 s",
    ]
    assert pauses[0] <= 2
    assert 150 <= pauses[1] <= 300
    assert 1800 <= pauses[2] <= 3600
    script_of(gate, host).write_text(answers)
    with source(host) as opened:
        first_frame(opened)
    script_of(gate, host).write_text(_HANGS)
    _, [error] = attempts(host, 1, timeout=5.0)
    assert str(error).endswith("the login there hangs, or the network is down")


def test_a_name_that_is_none_and_keys_that_are_refused(gate: Sshd) -> None:
    pauses, errors = attempts(gate.host("none", more="HostName nowhere.invalid"), 3, timeout=60.0)
    assert all(isinstance(error, PermanentError) for error in errors)
    assert [pause > 100 for pause in pauses] == [False, True, True]
    assert pauses[2] >= 1800
    refused = why_not(gate.host("refused", key="host_key"))
    assert isinstance(refused, LoginError)
    assert "too many keys were refused" in str(refused)


def test_what_is_in_front_of_a_host(gate: Sshd) -> None:
    assert proxy_of(HostName("gate", "gate", None)) == ""
    assert proxy_of(gate.host("j", more="ProxyJump gate")) == "gate"
    assert proxy_of(gate.host("c", more="ProxyCommand nc %h %p")) == "proxycommand"


@pytest.mark.timeout(120)
def test_few_are_on_their_way_through_a_proxy(gate: Sshd, answers: str, tmp_path: Path) -> None:
    """However long a login takes, the next begins when it is done."""
    begun, held = tmp_path / "begun", tmp_path / "held"
    begun.mkdir()
    held.mkdir()
    through = f"exec ssh -F {gate.config} -W 127.0.0.1:{gate.port} gate"
    (tmp_path / "proxy").write_text(f"touch {begun}/$1; {through}\n")
    names = [f"slow{number}" for number in range(10)]
    for name in names:
        os.mkfifo(tmp_path / name)
        hold = f"touch {held}/{name}; read -r go < {tmp_path}/{name}\n"
        gate.host(name, script=hold + answers, more=f"ProxyCommand sh {tmp_path}/proxy %n")
    command = [sys.executable, "-m", "gputop", "--json", "--timeout=600", "-H", ",".join(names)]

    def first_held(count: int) -> list[str]:
        until(lambda: len(os.listdir(held)) >= count, within=20)
        assert len(os.listdir(begun)) == count
        return os.listdir(held)

    with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
        assert program.stdout
        first, second, *_ = first_held(8)
        (tmp_path / first).write_text("go\n")
        first_held(9)
        (tmp_path / second).write_text("go\n")
        for name in {*first_held(10)} - {first, second}:
            (tmp_path / name).write_text("go\n")
        frames = [json.loads(line) for line in program.stdout]
    assert program.returncode == 0
    assert all(frame["gpus"] for frame in frames)
    assert len(frames) == len(names)


@pytest.mark.timeout(300)
@pytest.mark.long
def test_a_jump_host_loses_nobody(
    gate: Sshd, answers: str, capfd: pytest.CaptureFixture[str]
) -> None:
    names = [f"behind{number}" for number in range(16)]
    for name in names:
        gate.host(name, script=answers, more="ProxyJump gate")
    status = main(["--json", "--timeout=60", "-H", ",".join(names)])
    text, errors = capfd.readouterr()
    assert (status, errors) == (0, "")
    assert len(text.splitlines()) == len(names)


@pytest.mark.timeout(60)
def test_a_key_exchange_that_is_cut_off_is_tried_again(
    gate: Sshd, answers: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """By commands as well."""
    through = f"ssh -F {gate.config} -W 127.0.0.1:{gate.port} gate"
    cut = f"[ -e {tmp_path}/cut ] || {{ touch {tmp_path}/cut; exit; }}\nexec {through}\n"
    (tmp_path / "proxy").write_text(cut)
    gate.host("cut", script=answers, more=f"ProxyCommand sh {tmp_path}/proxy")
    assert main(["--json", "--timeout=60", "-H", "cut"]) == 0
    assert (tmp_path / "cut").exists()
    assert json.loads(capfd.readouterr().out)["gpus"]


def test_the_first_error_is_the_reason(gate: Sshd) -> None:
    down = gate.host("down", more="ProxyJump gate\nPort 1")
    assert "Connection refused" in str(why_not(down))


def test_a_frame_belongs_to_its_connection(gate: Sshd, answers: str) -> None:
    """After a cut the machine is connected again, and has not sent a frame yet."""
    host = gate.host("back", script=answers)
    posts: list[Message] = []
    opened = SshSource(host, 1.0, waits=True)
    machine = WatchedMachine(Feed(opened), posts.append)
    machine.set_open(False)
    machine.listen()
    until(machine.take_arrived)
    assert machine.state.frame is not None
    script_of(gate, host).write_text(f"{_TELLS}exec sleep 100")
    machine.reconnect()
    until(lambda: machine.link.state == "connected")
    assert machine.state.frame is None
    assert machine.snapshot is None
    assert machine.phase == (False, False)
    script_of(gate, host).write_text(answers)
    machine.reconnect()
    until(machine.take_arrived)
    assert machine.state.frame is not None
    opened.close()


def test_the_age_is_that_of_the_data(gate: Sshd, tmp_path: Path) -> None:
    """Lines come, and no frames."""
    (tmp_path / "drips.py").write_text(_DRIPS)
    (tmp_path / "lines").write_bytes(b"".join(lines_of(stream())))
    program = f"exec python3 {tmp_path}/drips.py {tmp_path}/lines"
    with source(gate.host("drips", script=_TELLS + program)) as opened:
        messages = opened.frames()
        came = [time.monotonic() for message in islice(messages, 30) if isinstance(message, Frame)]
        age, now = opened.link.age, time.monotonic()
        assert age is not None
        assert age >= now - came[-1] - 0.5
        assert now - came[-1] > 1
