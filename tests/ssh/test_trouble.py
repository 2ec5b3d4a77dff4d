"""Machines that say nothing, too much, or something else."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.cli import main
from gputop.errors import SourceError
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.signals import Target
from gputop.protocol.messages import Signal
from gputop.protocol.split import Splitter
from gputop.protocol.versions import SPOKEN
from gputop.sources.ask import ask
from gputop.sources.ssh.connection import AgentOptions, Connection
from gputop.sources.ssh.names import HostName
from tests.agent.test_detail import id_of
from tests.patience import until
from tests.protocol.streams import FRAME, HELLO, lines_of, stream
from tests.ssh.reading import client_of, ending, first_frame, in_thread, source, why_not
from tests.sshd import Sshd, sshd

pytestmark = pytest.mark.system

__all__ = ["sshd"]

_TELLS = f"""\
echo welcome to the cluster
echo gputop-start
echo gputop {SPOKEN} /opt/gputop
echo gputop-ready
read -r choice
"""
_SMI = _TELLS.replace(f"gputop {SPOKEN} /opt/gputop", "nvidia-smi /usr/bin/nvidia-smi")
_ENDLESS = """\
import json, sys
for line in open(sys.argv[1]):
    print(line, end="")
number, sample = json.loads(line)
while True:
    number += 1
    print(json.dumps([number, sample]))
"""
_DRIPS = """\
import sys, time
lines = open(sys.argv[1]).readlines() if sys.argv[1:] else []
print(end="".join(lines))
number = len(lines)
while True:
    drip = '[%d,{"kind":"reply","request":"x"}]' % number if lines else "welcome"
    print(drip, flush=True)
    number += 1
    time.sleep(0.1)
"""
_ZEROS = "head -c %d /dev/zero"


def words_of(sshd: Sshd, name: str, script: str) -> str:
    return str(why_not(sshd.host(name, script=script)))


def test_floods_before_the_agent(sshd: Sshd) -> None:
    assert words_of(sshd, "talks", "yes").startswith("the host did not answer as a shell does")
    zeros = words_of(sshd, "zeros", _ZEROS % 1e5 + "; sleep 100")
    assert zeros == "the host sent a line that is too long: disconnected"
    errors = words_of(sshd, "errors", "exec cat /dev/zero >&2")
    assert errors == "the host sends more than an agent would: disconnected"
    assert words_of(sshd, "ends", "exit 3") == "the agent ended with status 3"
    wants = _TELLS.replace(f"gputop {SPOKEN} /opt/gputop", "python python3 12") + "echo 1000000000"
    assert words_of(sshd, "wants", wants) == "the host did not take the agent: try ssh by hand"
    records = words_of(sshd, "records", f"{_SMI}{_ZEROS % 600000} | tr '\\0' '\\036'; echo")
    assert records == "the host sends more than an agent would: disconnected"
    said = words_of(sshd, "said", "printf 'no\\033[2J room\\n' >&2; exit 1")
    assert said == "no\ufffd[2J room"


@pytest.mark.long
def test_floods_of_an_agent(sshd: Sshd, tmp_path: Path) -> None:
    line = words_of(sshd, "line", _TELLS + _ZEROS % 17e6 + "; sleep 100")
    assert line == "the host sent a line that is too long: disconnected"
    garbage = words_of(sshd, "garbage", f"{_TELLS}yes")
    assert garbage.startswith("the agent sent a line that is not a message")
    (tmp_path / "lines").write_bytes(b"".join(lines_of(stream())))
    (tmp_path / "endless.py").write_text(_ENDLESS)
    program = f"{sys.executable} {tmp_path}/endless.py {tmp_path}/lines"
    host = sshd.host("endless", script=_TELLS + program)
    quiet = sshd.host("quiet", script=f"{_TELLS}cat {tmp_path}/lines; exec sleep 100")
    with source(host) as opened, source(quiet) as other:
        first_frame(other)
        thread, errors = in_thread(opened, frames=100_000)
        thread.join(60)
        assert [str(error) for error in errors] == [
            "the host sends more than an agent would: disconnected"
        ]
        assert other.link.state == "connected"


def test_one_that_says_nothing(sshd: Sshd) -> None:
    """After the login, after it told what is there, in the middle of a line, and where nvidia-smi
    is asked: it may be silent for an interval longer."""
    hangs = sshd.host("hangs-at-first", script="exec sleep 100")
    mute = sshd.host("mute", script=f"{_TELLS}exec sleep 100")
    stops = sshd.host("stops", script=f"{_TELLS}printf '[0,{{'; exec sleep 100")
    smi = sshd.host("smi", script=f"{_SMI}exec sleep 100")
    with ThreadPoolExecutor() as pool:
        words = list(pool.map(silence, (hangs, mute, stops, smi)))
    agent = "no answer for 5 s: the agent is stopped, or the network is down"
    login = "no answer for 5 s: the login there hangs, or the network is down"
    stuck = "no answer for 6 s: nvidia-smi hangs there, or the network is down"
    assert words == [login, agent, agent, stuck]


def silence(host: HostName, whole: float = math.inf) -> str:
    connection = Connection(host, AgentOptions(1.0), (5.0, 5.0), whole)
    with pytest.raises(SourceError) as error:
        list(connection.messages())
    return str(error.value)


@pytest.mark.timeout(60)
def test_lines_without_end_are_no_answer(sshd: Sshd, tmp_path: Path) -> None:
    """Before there is an agent, before its first frame, and after it: no line comes late."""
    (tmp_path / "drips.py").write_text(_DRIPS)
    (tmp_path / "lines").write_bytes(b"".join(lines_of(stream())))
    (tmp_path / "hello").write_bytes(lines_of(stream())[0])
    program = f"exec {sys.executable} {tmp_path}/drips.py"
    greets = sshd.host("greets", script=program)
    drips = sshd.host("drips", script=f"{_TELLS}{program} {tmp_path}/hello")
    stops = sshd.host("stops-later", script=f"{_TELLS}{program} {tmp_path}/lines")
    with ThreadPoolExecutor() as pool:
        words = list(pool.map(partial(silence, whole=4.0), (greets, drips, stops)))
    assert words == ["only part of an answer came in time: try again"] * 3


@pytest.mark.timeout(60)
def test_a_host_that_drips_costs_the_others_nothing(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It sends a line every tenth of a second, and never a frame."""
    monkeypatch.setattr("gputop.sources.ssh.source.ANSWER", 6.0)
    (tmp_path / "drips.py").write_text(_DRIPS)
    (tmp_path / "hello").write_bytes(lines_of(stream())[0])
    (tmp_path / "lines").write_bytes(b"".join(lines_of(stream())))
    script = f"{_TELLS}exec {sys.executable} {tmp_path}/drips.py {tmp_path}/hello"
    evil = sshd.host("evil", script=script)
    good = sshd.host("good", script=f"{_TELLS}cat {tmp_path}/lines; exec sleep 100")
    hosts = f"{evil.requested_name},{good.requested_name}"
    assert main(["--json", "--timeout=60", "-H", hosts]) == 1
    output, errors = capfd.readouterr()
    assert json.loads(output)["host"]["requested_name"] == good.requested_name
    assert errors.startswith("gputop: evil: only part of an answer came in time")


def test_rows_have_a_bound(sshd: Sshd, tmp_path: Path) -> None:
    """A line of 4 KB is work for 1,024 GPUs."""
    gpus = tuple(Gpu(index=n) for n in range(1024))
    wide = replace(FRAME, gpus=gpus, processes=())
    (tmp_path / "lines").write_bytes(b"".join(lines_of([HELLO, *Splitter().split(wide)])))
    (tmp_path / "endless.py").write_text(_ENDLESS)
    program = f"exec {sys.executable} {tmp_path}/endless.py {tmp_path}/lines"
    with source(sshd.host("wide", script=_TELLS + program)) as opened:
        error = ending(opened, frames=40)
    assert str(error) == "the host sends more than an agent would: disconnected"


@pytest.mark.timeout(40)
@pytest.mark.long
def test_silence_of_ten_seconds(sshd: Sshd) -> None:
    """ssh gives them to a host that accepts and says nothing, and whoever quits meanwhile does not
    wait for it; an agent gives them to a reader that is cut off without a word, and goes on for
    the others."""
    cut_off, well = sshd.host("cut-off"), sshd.host("well")
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        source(cut_off) as stopped,
        source(well, 60.0) as lives,
    ):
        first_frame(stopped)
        first_frame(lives)
        agent = sshd.agent(well)
        assert sshd.processes(cut_off)
        os.kill(client_of(cut_off), signal.SIGSTOP)
        host = sshd.host("silent", more=f"Port {silent.getsockname()[1]}")
        with source(host) as opened, source(host) as quits:
            thread, errors = in_thread(opened, frames=1000)
            other = threading.Thread(target=lambda: list(quits.frames()), daemon=True)
            other.start()
            until(lambda: quits.link.state == "connecting")
            quits.close()
            until(lambda: not other.is_alive())
            assert thread.is_alive()
            thread.join(60)
            assert "timed out" in str(errors[0])
        until(lambda: not sshd.processes(cut_off))
        os.kill(client_of(cut_off), signal.SIGCONT)
        assert agent in sshd.processes(well)


def test_a_clock_that_is_wrong_and_another_boot(sshd: Sshd, tmp_path: Path) -> None:
    """The age of what came is counted here; a signal is for the boot in which it was asked."""
    (tmp_path / "lines").write_bytes(b"".join(lines_of(stream())))
    host = sshd.host("skewed", script=f"{_TELLS}cat {tmp_path}/lines; exec sleep 100")
    with source(host) as opened:
        frame = first_frame(opened)
        assert abs(frame.time - time.time()) > 3600
        assert opened.link.age is not None
        assert 0 <= opened.link.age < 5
        (sshd.folder / "hosts" / host.target / "script").unlink()
        opened.reconnect()
        with subprocess.Popen(["sleep", "100"]) as process:
            target = Target(id_of(process.pid), forced=True)
            order = Signal("s1", (target,), signal.SIGKILL, 1.0, boot_id=frame.host.boot_id)
            [verdict] = ask(opened, order, 10.0).verdicts
            process.terminate()
            assert process.wait(60) == -signal.SIGTERM
        assert verdict.outcome == "identity_changed"
        assert "has been restarted since" in verdict.words
        assert first_frame(opened).host.boot_id != frame.host.boot_id
