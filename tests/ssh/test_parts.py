"""What needs no other machine: the text for its shell, waves, bounds, what ssh's words mean."""

from __future__ import annotations

import os
import subprocess
import threading
import time

import pytest

from gputop.errors import LoginError, PermanentError, SourceError
from gputop.protocol.versions import SPOKEN, Versions
from gputop.sources.follow import Backoff
from gputop.sources.many import in_order, whole_answers
from gputop.sources.ssh.carry import parcel
from gputop.sources.ssh.connection import AgentOptions, choice
from gputop.sources.ssh.names import HostName
from gputop.sources.ssh.pacing import ConnectLimiter, Pinger
from gputop.sources.ssh.process import Allowance, failure
from gputop.sources.ssh.source import link_check
from gputop.sources.ssh.start import Remote, RemotePython, read_remote, remote_command
from tests.conftest import needed, rest_long
from tests.patience import Deadline, until
from tests.sshd import INSTALLED

pytestmark = pytest.mark.system

_OLD = """\
#!/bin/sh
echo 8 _bz2
exit 1
"""
_SHELLS = ("sh", "sh"), ("bash", "bash"), ("dash", "dash"), ("zsh", "zsh"), ("fish", "fish"), (
    "tcsh", "tcsh"), ("ksh", "ksh"), ("mksh", "mksh"), ("busybox sh", "busybox")  # fmt: skip
OPTIONS = AgentOptions(1.0)


def told(text: bytes) -> Remote | None:
    lines = iter(text.splitlines(keepends=True))
    return read_remote(lambda _: next(lines, b""))


@rest_long(("shell", "package"), *_SHELLS)
def test_every_login_shell_takes_the_text(shell: str, package: str) -> None:
    needed(shell.split()[0], package)
    done = subprocess.run(
        [*shell.split(), "-c", remote_command()],
        input=b'shell 15\necho ran "$PWD"and no more',
        capture_output=True,
        env={"PATH": f"{INSTALLED}:{os.environ['PATH']}", "HOME": "/nonexistent"},
        check=False,
    )
    remote = told(done.stdout)
    assert remote is not None, done
    assert remote.gputop == "gputop"
    assert remote.spoken == SPOKEN
    assert remote.python is not None
    assert remote.python.packer == "bz2"
    assert done.stdout.endswith(f"ran {os.getcwd()}\n".encode())


def test_what_a_machine_tells() -> None:
    text = b"""\
hello
python fake 12 _bz2
gputop-start
gputop  gputop
python python3
python /a/python3.8 8 _bz2
python /b/python3 12
nvidia-smi /usr/bin/nvidia-smi
else what
gputop-ready
"""
    python = RemotePython("/b/python3", 12, "zlib")
    old = ("python3", "/a/python3.8")
    assert told(text) == Remote("gputop", None, python, old, "/usr/bin/nvidia-smi")
    assert told(text[:-3]) is None
    assert told(b"gputop-start\ngputop 2-7 /x y/gputop\ngputop-ready\n") == Remote(
        "y/gputop", Versions(2, 7)
    )
    with pytest.raises(SourceError, match="did not answer as a shell does"):
        told(b"y\n" * 1000)


def test_the_choice() -> None:
    """The best that there is; what there is of another protocol is not enough."""
    other = Versions(SPOKEN.newest + 1, SPOKEN.newest + 2)
    python = RemotePython("python3", 12, "bz2")
    how, why, start, agent = choice(Remote("gputop", SPOKEN, python), OPTIONS)
    assert (how, why, agent) == ("installed", "", None)
    assert start == b"installed 0 --protocol 2-2 --interval 1.0 --lease 10.0\n"
    how, why, start, agent = choice(Remote("gputop", other, python), OPTIONS)
    assert (how, why) == ("carried", f"gputop there speaks protocol {other}, this one {SPOKEN}")
    assert agent == parcel("bz2")
    assert start.startswith(b"carried %d --protocol" % len(agent.loader))
    assert start.endswith(b" --no-files\n")
    with pytest.raises(SourceError, match=r"no Python 3\.9 or newer"):
        choice(Remote("gputop", None, None, ("python3",)), OPTIONS)
    assert AgentOptions(None).words(files=True) == "--protocol 2-2 --once"


@pytest.mark.parametrize(
    ("written", "status", "words"),
    [
        ("bob@x: Permission denied (publickey,password).\r\n", 255,
         "login wanted: permission denied (publickey,password)"),
        ("No ED25519 host key is known for x.\r\nHost key verification failed.\r\n", 255,
         "the host key is not known yet: log in by hand once to accept it"),
        ("ssh: connect to host x port 22: No route to host\r\n", 255,
         "connect to host x port 22: No route to host"),
        ("Warning: Permanently added 'x' (ED25519) to the list of known hosts.\r\n", 255,
         "the connection was cut, or the agent killed"),
        ("client_loop: x\r\nssh: Could not resolve hostname x: Name or service not known\r\n"
         "kex_exchange_identification: Connection closed by remote host\r\n", 255,
         "Could not resolve hostname x: Name or service not known"),
        ("welcome to the gate\r\nkex_exchange_identification: read: Connection reset by peer\r\n"
         "Connection closed by UNKNOWN port 65535\r\n", 255, "read: Connection reset by peer"),
        ("Received disconnect from x port 22:2: Too many authentication failures\r\n"
         "Disconnected from x port 22\r\n", 255,
         "login wanted: too many keys were refused: set IdentitiesOnly for it"),
        ("Traceback:\n  x\nKeyError: 1\n", 1, "KeyError: 1"),
        ("", 2, "the agent ended with status 2"),
        ("a\x1b[2Jb\n", 1, "a\ufffd[2Jb"),
    ],
)  # fmt: skip
def test_what_ssh_has_written(written: str, status: int, words: str) -> None:
    error = failure(written, status)
    assert str(error) == words
    assert isinstance(error, LoginError) is ("login" in words or "log in" in words)


def test_a_host_key_that_has_changed_is_no_login() -> None:
    text = "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.\n"
    assert not isinstance(failure(text, 255), LoginError)


def test_pauses_grow_to_half_a_minute() -> None:
    backoff, error = Backoff(), SourceError("no route")
    pauses = [backoff.pause(error) for _ in range(2000)]
    assert all(1 <= pause <= min(30, 2**n) for n, pause in enumerate(pauses, 1))
    assert len(set(pauses[10:30])) > 1


def test_what_lasts_is_tried_again_after_minutes_and_then_hours() -> None:
    """Until there is a frame, whatever else is wrong in between."""
    backoff, hangs = Backoff(), PermanentError("the login there hangs")
    failures = [hangs, hangs, SourceError("refused"), hangs, hangs]
    pauses = [backoff.pause(failure) for failure in failures]
    assert pauses[0] <= 2
    assert 150 <= pauses[1] <= 300
    assert pauses[2] <= 8
    assert all(1800 <= pause <= 3600 for pause in pauses[3:])


def test_eight_at_once() -> None:
    limiter, lock = ConnectLimiter(8, 60.0), threading.Condition()
    inside, most, go_on = 0, 0, threading.Event()

    def connect() -> None:
        nonlocal inside, most
        with limiter.place(lambda: False):
            with lock:
                inside, most = inside + 1, max(most, inside + 1)
                lock.notify()
            go_on.wait(10)
            with lock:
                inside -= 1

    threads = [threading.Thread(target=connect) for _ in range(30)]
    for thread in threads:
        thread.start()
    with lock:
        assert lock.wait_for(lambda: inside == 8, 60)
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert most == 8


def test_a_host_has_a_deadline_for_its_whole_answer() -> None:
    """The others' answers are there, in their order, whatever one does in the meantime."""
    hosts = [HostName(name, name, None) for name in ("evil", "good", "down", "well")]
    over = threading.Event()

    def ask(host: HostName) -> str:
        if host.requested_name == "down":
            raise SourceError("no route")
        if host.requested_name == "evil":
            over.wait(60)
        return host.requested_name

    answers = dict(in_order(hosts, whole_answers(hosts, ask, 1.0, ". It may have been sent")))
    over.set()
    assert list(answers) == hosts
    assert [str(answers[host]) for host in hosts] == [
        "no complete answer within 1 s. It may have been sent", "good", "no route", "well",
    ]  # fmt: skip
    assert isinstance(answers[hosts[0]], SourceError)


def test_those_that_are_down_delay_nobody() -> None:
    limiter = ConnectLimiter(2, 0.05)
    begun, deadline = time.monotonic(), Deadline(5)
    with limiter.place(bool), limiter.place(bool), limiter.place(bool), limiter.place(bool):
        assert time.monotonic() - begun >= 0.05
        assert deadline.left() > 0


def test_who_quits_waits_for_no_place() -> None:
    limiter, over = ConnectLimiter(1, 60.0), threading.Event()
    with limiter.place(bool):
        waiting = threading.Thread(target=lambda: limiter.place(over.is_set).__enter__())
        waiting.start()
        over.set()
        limiter.wake()
        until(lambda: not waiting.is_alive())


def test_an_allowance() -> None:
    allowance = Allowance(100, 1e-6)
    allowance.take(60)
    allowance.take(40)
    with pytest.raises(SourceError, match="more than an agent would"):
        allowance.take(1)


def test_why_a_machine_is_read_in_one_of_three_ways() -> None:
    python = RemotePython("/usr/bin/python3", 12, "bz2")
    installed = link_check("installed", Remote("/usr/bin/gputop", SPOKEN, python))
    assert (installed.level, installed.advice) == ("ok", "")
    assert "installed there answers (/usr/bin/gputop)" in installed.text
    carried = link_check("carried", Remote("gputop", Versions(7, 8), python))
    assert carried.text.startswith("the gputop there speaks protocol 7-8, this one 2-2 (gputop): ")
    assert "memory of Python 3.12 (/usr/bin/python3)" in carried.text
    assert "too old (x�[2J)" in link_check("carried", Remote("x\x1b[2J", None, python)).text
    smi_only = link_check("nvidia-smi", Remote(old_pythons=("python3", "/opt/python3.8")))
    assert (smi_only.level, smi_only.advice) == ("warning", "install gputop or Python 3.9 there")
    assert "no Python there is 3.9 or newer (python3, /opt/python3.8)" in smi_only.text
    assert "no Python is found there: only nvidia-smi" in link_check("nvidia-smi", Remote()).text


def test_a_ping_that_raises_leaves_the_others_theirs() -> None:
    """They would lose their agents, which end when no ping comes."""
    pinger, pings = Pinger(0.01), {"broken": 0, "whole": 0}

    def ping() -> None:
        pings["whole"] += 1

    def broken() -> None:
        pings["broken"] += 1
        raise ValueError

    pinger.add(broken)
    pinger.add(ping)
    until(lambda: pings["whole"] > 3)
    pinger.forget(ping)
    assert pings["broken"] == 1
