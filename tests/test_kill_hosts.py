"""`gputop kill -H` through a real sshd: done there, with that login's rights."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import closing

import pytest
from msgspec.structs import replace

from gputop.cli import main
from gputop.commands.targets.selection import ProcessSelector, selection_of
from gputop.errors import SourceError
from gputop.model.machine.process_id import ProcessId
from gputop.model.machine.signals import Candidate, Target, Verdict
from gputop.protocol.messages import Signal
from gputop.sources.ask import answers, ask, wait_for_frame
from gputop.sources.ssh.names import HostName
from gputop.sources.ssh.source import SshSource
from gputop.sources.ssh.start import remote_command
from tests.agent.driving import sleeping
from tests.builders import frame, id_of, process, typed
from tests.conftest import ME, MachineFactory, needs_root
from tests.driver import Machine
from tests.patience import until
from tests.sshd import Sshd, sshd
from tests.terminal import Terminal

pytestmark = pytest.mark.system

__all__ = ["sshd"]

Done = subprocess.CompletedProcess[str]
GPUTOP = [sys.executable, "-m", "gputop"]
GIB = 2**30
NO_KILL = "setpriv --bounding-set=-kill --inh-caps=-kill"
"""Leaves root the right to signal his own processes only."""


def host(sshd: Sshd, machine: MachineFactory, name: str, prefix: str = "") -> Machine:
    """Add a host with train.py on its GPU; `prefix` is what a login there runs under."""
    here = machine({
        "gpu": {"uuid": "GPU-{i}7777777", "memory": {"total": 80 * GIB, "used": 9 * GIB}},
        "processes": {
            "train": {"command": ["python", "train.py"], "on": {"gpu": 0, "used": 4 * GIB}},
        },
    })  # fmt: skip
    script = f"exec {prefix} /bin/sh -c {shlex.quote(remote_command())}"
    sshd.host(name, here.env, script=script if prefix else "")
    return here


def gputop(*words: str) -> Done:
    return subprocess.run(
        [*GPUTOP, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip


def test_verdicts_of_every_host(sshd: Sshd, machine: MachineFactory) -> None:
    """Before and after the command -H counts, the host that is down is named, twice is once."""
    here = [host(sshd, machine, "n1"), host(sshd, machine, "n2")]
    sshd.host("down", more="Port 1")
    pids = [each.pids["train"] for each in here]
    dry = gputop("-H", "n1", "kill", "--user", "me", "-H", "n2,n1", "--dry-run")
    assert (dry.returncode, dry.stderr) == (0, "")
    assert dry.stdout.splitlines() == [
        f"n{k}: {pid} {ME} train.py: would get SIGTERM (4.00G on GPU 0)"
        for k, pid in enumerate(pids, 1)
    ]
    done = gputop("kill", "-H", "n1,down,n2", "--user", "me", "train.py", "--yes")
    assert done.returncode == 1
    assert done.stderr.startswith("gputop: down: connect to host 127.0.0.1 port 1: ")
    # On a busy machine an end takes more than the 0.1 s that are at once.
    assert re.sub(r"ended \d\.\d s after", "ended at once after", done.stdout).splitlines() == [
        f"n{k}: {pid} {ME} train.py: ended at once after SIGTERM; 4.00G came back on GPU 0"
        for k, pid in enumerate(pids, 1)
    ]
    until(lambda: not (here[0].pids or here[1].pids))
    again = gputop("kill", "-H", "n1,n2", "--user", "me", "--yes")
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr.startswith("gputop: no process on a GPU matches")


def test_on_a_terminal_it_asks_once(sshd: Sshd, machine: MachineFactory) -> None:
    here = [host(sshd, machine, "t1"), host(sshd, machine, "t2")]
    words = ["kill", "-H", "t[1-2]", "train"]
    line = f"t2: {here[1].pids['train']} {ME} train.py: "
    with Terminal([*GPUTOP, *words], cols=160, rows=24, env=dict(os.environ)) as terminal:
        terminal.wait_for("Send SIGTERM to these 2 processes on 2 hosts? [y/N]")
        assert f"{line}would get SIGTERM" in terminal.text
        terminal.send(b"y\r")
        terminal.wait_for(f"{line}ended ")
        assert terminal.exit_code() == 0


@needs_root
def test_not_permitted_there(sshd: Sshd, machine: MachineFactory) -> None:
    """JSON names the host; who may not be signalled by that login lives on."""
    here = host(sshd, machine, "p1", prefix=NO_KILL)
    with sleeping(user=65534) as other:
        here.change(gpu=0, compute=[{"pid": other.pid, "used": GIB}])
        done = gputop("kill", "-H", "p1", str(other.pid), "--yes", "--foreign", "--json")
        lives = other.poll() is None
        other.kill()
    assert (done.returncode, lives) == (1, True)
    [verdict] = json.loads(done.stdout)["verdicts"]
    assert (verdict["host"], verdict["verdict"]) == ("p1", "not_permitted")
    assert f"p1: {other.pid} nobody" in done.stderr


def test_another_identity_gets_nothing(sshd: Sshd, machine: MachineFactory) -> None:
    """Neither who has the number by now, nor anybody of the time before a reboot."""
    here = host(sshd, machine, "i1")
    with closing(SshSource(HostName("i1", "i1", None))) as source:
        seen = wait_for_frame(source, answers, 10)
        [job] = seen.processes
        assert job.start_ticks is not None
        another = replace(job.id, start_ticks=job.start_ticks - 1)
        boot = seen.host.boot_id
        for process, boot_id, outcome in (
            (another, boot, "identity_changed"),
            (job.id, "another boot", "identity_changed"),
            (job.id, boot, "exited"),
        ):
            assert job.pid in here.pids.values()
            assert signalled(source, process, boot_id).outcome == outcome
    until(lambda: not here.pids)


def signalled(source: SshSource, process: ProcessId, boot_id: str | None) -> Verdict:
    order = Signal("", (Target(process),), 15, 5.0, boot_id=boot_id)
    [verdict] = ask(source, order, 10).verdicts
    return verdict


@pytest.mark.parametrize("words", ["21195", "pid:21195", "train or pid:21195"])
def test_a_pid_is_of_one_machine(words: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["kill", "-H", "a,b", words, "--yes"]) == 2
    told = "gputop: a PID belongs to one machine: give one host\n"
    assert capfd.readouterr() == ("", told)


def test_a_user_is_the_one_of_that_machine() -> None:
    here = frame(processes=[process(1), process(2)])
    candidates = [
        Candidate(id_of(pid), "GPU-0", uid=uid) for pid, uid in ((1, 4242), (2, os.getuid()))
    ]
    for words, user in (([], "bob"), (["user:bob"], None)):
        selection = selection_of(typed(words, user=user), False)
        assert selection.users == ("bob",)
        [target] = ProcessSelector(here, candidates, {"bob": 4242}).targets(selection)
        assert target.process.pid == 1
        with pytest.raises(SourceError, match="too old"):  # an agent that ignores who is asked for
            ProcessSelector(here, candidates, {}).targets(selection)
