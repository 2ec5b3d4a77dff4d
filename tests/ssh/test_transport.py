"""Machines over a real sshd: how they are reached, and that nothing stays there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gputop.errors import LoginError
from gputop.model.fleet.link import HostLink
from gputop.protocol.messages import Candidates
from gputop.sources.ask import ask
from gputop.sources.ssh.login import login_command
from gputop.sources.ssh.names import HostName
from gputop.sources.ssh.source import SshSource
from tests.agent.driving import gone
from tests.conftest import MachineFactory
from tests.driver.machine import REPOSITORY
from tests.patience import until
from tests.ssh.reading import client_of, ending, first_frame, source, why_not
from tests.sshd import Sshd, sshd
from tests.terminal import Terminal

pytestmark = pytest.mark.system

__all__ = ["sshd"]

_READER = """
import sys
from gputop.sources.ssh.names import HostName
from gputop.sources.ssh.source import SshSource
for frame in SshSource(HostName(sys.argv[1], sys.argv[1], None), 0.5).frames():
    print("frame", flush=True)
"""


@pytest.fixture(scope="module")
def node(sshd: Sshd, kept: MachineFactory) -> HostName:
    return sshd.host("node", kept("h200x8").env)


def test_an_installed_agent(sshd: Sshd, node: HostName) -> None:
    with source(node) as opened:
        assert opened.link == HostLink()
        assert len(first_frame(opened).gpus) == 8
        link = opened.link
        assert (link.state, link.kind, link.words) == ("connected", "installed", "")
        assert link.age is not None
        assert link.age < 5
        until(lambda: first_frame(opened) and opened.link.round_trip)
        assert 0 < (opened.link.round_trip or 0) < 5
        agent = sshd.agent(node)
    until(lambda: not sshd.processes(node), within=2)
    assert gone(agent)


def test_what_is_asked_before_there_is_an_agent(node: HostName) -> None:
    opened = SshSource(node, 60.0)
    reply = ask(opened, Candidates(), 10.0)
    assert {candidate.process.pid for candidate in reply.candidates}
    opened.close()


def test_one_frame(sshd: Sshd, node: HostName) -> None:
    opened = SshSource(node, None)
    assert [len(frame.gpus) for frame in opened.frames()] == [8]  # type: ignore[union-attr]
    until(lambda: not sshd.processes(node), within=2)


def test_gputop_is_killed(sshd: Sshd, node: HostName) -> None:
    command = [sys.executable, "-c", _READER, node.target]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=REPOSITORY) as reader:
        assert reader.stdout
        assert reader.stdout.readline() == b"frame\n"
        assert sshd.processes(node)
        reader.kill()
        until(lambda: not sshd.processes(node), within=2)


def test_an_agent_that_dies_and_one_that_is_cut_off(sshd: Sshd, node: HostName) -> None:
    with source(node) as opened:
        first_frame(opened)
        agent = sshd.agent(node)
        os.kill(agent, signal.SIGKILL)
        error = ending(opened)
        assert str(error) == "the connection was cut, or the agent killed"
        assert opened.link[:3] == ("ended", "installed", str(error))
        assert list(opened.frames()) == []
        opened.reconnect()
        first_frame(opened)
        os.kill(sshd.sessions()[-1], signal.SIGKILL)
        assert "closed" in str(ending(opened))
        until(lambda: not sshd.processes(node), within=2)
        opened.reconnect()
        first_frame(opened)
        os.kill(client_of(node), signal.SIGSTOP)
        reading = threading.Thread(target=lambda: list(opened.frames()), daemon=True)
        reading.start()
        opened.reconnect()
        until(lambda: not reading.is_alive(), within=2)
        assert len(first_frame(opened).gpus) == 8
        assert opened.link.state == "connected"


def test_through_another_machine(sshd: Sshd, node: HostName, kept: MachineFactory) -> None:
    behind = sshd.host("behind", kept("h200x8").env, more="ProxyJump node")
    with source(behind) as opened:
        assert len(first_frame(opened).gpus) == 8
        until(lambda: len(sshd.sessions()) == 2)


def test_a_master_connection_is_used_and_none_is_made(
    sshd: Sshd, kept: MachineFactory, tmp_path: Path
) -> None:
    socket = f"/tmp/gputop-test-{os.getpid()}"
    more = f"ControlMaster auto\nControlPersist 100\nControlPath {socket}"
    shared = sshd.host("shared", kept("h200x8").env, more=more)
    with source(shared) as opened:
        first_frame(opened)
        assert not os.path.exists(socket)
    until(lambda: not sshd.sessions())
    command = ["ssh", "-F", str(sshd.config), "-N", "-oControlPersist=no", "shared"]
    with subprocess.Popen(command) as master:
        until(lambda: os.path.exists(socket))
        with source(shared) as opened:
            first_frame(opened)
            until(lambda: len(sshd.sessions()) == 1)
        until(lambda: not sshd.processes(shared), within=2)
        master.terminate()


def test_a_login_forwards_nothing(sshd: Sshd) -> None:
    """Whatever the configuration says: it is the stream of the screen, not a shell."""
    more = "ForwardAgent yes\nForwardX11 yes\nLocalForward 7777 a:1\nRemoteForward 7778 a:1\n"
    host = sshd.host("forwards", more=f"{more}DynamicForward 7779\nTunnel yes")
    program, *words = login_command(host)
    told = subprocess.run([program, "-G", *words], check=True, capture_output=True, text=True)
    options = dict(line.split(" ", 1) for line in told.stdout.splitlines())
    assert {options[name] for name in ("forwardagent", "forwardx11", "tunnel")} <= {"no", "false"}
    assert options["clearallforwardings"] == "yes"


def test_a_folder_of_logins_that_was_cleaned_away(sshd: Sshd) -> None:
    host, folders = sshd.host("by-hand"), []
    for _ in range(2):
        path = next(word for word in login_command(host) if word.startswith("ControlPath="))
        folders.append(Path(path.partition("=")[2]).parent)
        folders[-1].rmdir()
    assert folders[0] != folders[1]


def test_somebody_has_to_log_in(sshd: Sshd, kept: MachineFactory) -> None:
    key = sshd.folder / "key"
    locked = sshd.folder / "locked"
    locked.write_bytes(key.read_bytes())
    locked.chmod(0o600)
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "secret", "-f", str(locked)], check=True)
    host = sshd.host("locked", kept("h200x8").env, key="locked")
    with source(host) as opened:
        error = ending(opened)
        assert isinstance(error, LoginError)
        assert str(error) == "login wanted: permission denied (publickey,password)"
        assert opened.link[:3] == ("login", None, str(error))
        words = login_command(host)
        with Terminal(words) as terminal:
            terminal.wait_for("Enter passphrase for key")
            terminal.send(b"secret\r")
            assert terminal.exit_code() == 0
        opened.reconnect()
        assert len(first_frame(opened).gpus) == 8
    until(lambda: not sshd.processes(host), within=2)
    until(lambda: len(sshd.sessions()) == 1)
    socket = next(word for word in words if word.startswith("ControlPath="))
    assert os.stat(os.path.dirname(socket.partition("=")[2])).st_mode & 0o777 == 0o700
    subprocess.run(["ssh", "-o", socket, "-O", "exit", "x"], check=True, capture_output=True)
    until(lambda: not sshd.sessions())


def test_keys_that_do_not_fit(sshd: Sshd) -> None:
    wrong = sshd.folder / "wrong"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(wrong)], check=True)
    other = f"[127.0.0.1]:{sshd.port} {(sshd.folder / 'wrong.pub').read_text()}"
    (sshd.folder / "other_hosts").write_text(other)
    denied = sshd.host("denied", key="wrong")
    changed = sshd.host("changed", more=f"UserKnownHostsFile {sshd.folder}/other_hosts")
    unknown = sshd.host("unknown", more="UserKnownHostsFile none")
    assert str(why_not(denied)) == "login wanted: permission denied (publickey,password)"
    assert str(why_not(changed)).startswith("the host key has changed: ")
    assert not isinstance(why_not(changed), LoginError)
    assert isinstance(why_not(unknown), LoginError)
    assert str(why_not(unknown)).startswith("the host key is not known yet: ")


def test_a_host_that_is_down(sshd: Sshd) -> None:
    down = sshd.host("down", more="Port 1")
    assert str(why_not(down)) == "connect to host 127.0.0.1 port 1: Connection refused"
    nowhere = sshd.host("nowhere", more="HostName nowhere.invalid")
    assert "resolve hostname nowhere.invalid" in str(why_not(nowhere))
