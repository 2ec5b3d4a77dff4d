"""`gputop wait`, through a command line of its own, on simulated machines with real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from gputop.cli import main
from gputop.commands.targets.selection import selection_of
from gputop.commands.targets.wait_conditions import GpusFree, GpusIdle, ProcessesEnd
from gputop.model.cuda.pick import PickRequest
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import MigDevice, Reservation
from gputop.model.machine.process_id import LivenessState, ProcessLiveness
from gputop.protocol.messages import Candidates, Reply
from gputop.sources.source import Source
from tests.agent.driving import children_of, sleeping
from tests.builders import frame, gpu, process, typed
from tests.conftest import ME, MachineFactory, needs_everybody
from tests.driver import Machine
from tests.sshd import Sshd, sshd
from tests.terminal import Terminal

__all__ = ["sshd"]

WAIT = [sys.executable, "-m", "gputop", "wait", "--every", "0.2"]
GIB = 2**30


class Waiting:
    """A `gputop wait` under way, and what it says line by line."""

    def __init__(self, machine: Machine, *words: object, **env: str) -> None:
        self.process = machine.popen(
            [*WAIT, *map(str, words)], stderr=subprocess.PIPE, env={**machine.env, **env}
        )

    def says(self) -> str:
        """Return the next line of standard error."""
        assert self.process.stderr
        return self.process.stderr.readline().rstrip("\n")

    def ends(self) -> tuple[int, str, str]:
        """Return its status, and what is left of its output."""
        out, errors = self.process.communicate(timeout=300)
        return self.process.returncode, out.rstrip("\n"), errors.rstrip("\n")

    @property
    def agent(self) -> int:
        return children_of(self.process.pid)[0]


@pytest.fixture
def here(machine: MachineFactory) -> Machine:
    """Two GPUs with a job each."""
    return machine({
        "gpu": {"uuid": "GPU-{i}7777777", "memory": {"total": 80 * GIB, "used": 9 * GIB}},
        "gpus": 2,
        "processes": {
            "train": {"command": ["python", "train.py"], "on": {"gpu": 0, "used": 4 * GIB}},
            "eval": {"command": ["python", "eval.py"], "on": {"gpu": 1, "used": 2 * GIB}},
        },
    })  # fmt: skip


@contextmanager
def a_sleep() -> Iterator[subprocess.Popen[bytes]]:
    with sleeping() as process:
        yield process
        process.kill()


def sentence(process: str, ended: str) -> bool:
    return bool(re.fullmatch(rf"{re.escape(process)} has ended on \S+ after \d+s", ended))


@pytest.mark.system
def test_processes_end(here: Machine, tmp_path: Path) -> None:
    """One that leaves its GPU, or is on none, goes on; somebody is told once all have ended."""
    train = here.pids["train"]
    with a_sleep() as other:
        told = f"sh -c 'printf %s \"$0\" > {tmp_path}/told'"
        waiting = Waiting(here, train, other.pid, "--notify-command", told)
        line = waiting.says()
        assert line == (f"gputop: waiting for train.py (PID {train}) of {ME}, "
                        f"sleep (PID {other.pid}) of {ME} to end")  # fmt: skip
        here.reset("train")
        other.kill()
        other.wait()
        ended = waiting.says().removeprefix("gputop: ")
        assert not (tmp_path / "told").exists()
        os.kill(train, signal.SIGKILL)
    status, out, errors = waiting.ends()
    assert (status, errors) == (0, "")
    assert out.startswith("2 processes have ended: ")
    first, second = out.removeprefix("2 processes have ended: ").split("; ")
    assert sentence(f"sleep (PID {other.pid}) of {ME}", first)
    assert first == ended
    assert sentence(f"train.py (PID {train}) of {ME}", second)
    assert (tmp_path / "told").read_text() == f"gputop: {out}"


@pytest.mark.system
def test_a_filter_means_who_is_there_at_the_start(here: Machine) -> None:
    train = here.pids["train"]
    words = "train.py", "or", "no-such-thing", "--user", "me", "--gpu", "0"
    waiting = Waiting(here, *words, "--every", "0.5")  # the first frame has its command line
    assert waiting.says() == f"gputop: waiting for train.py (PID {train}) of {ME} to end"
    here.spawn("later", ["python", "train.py"], gpu=0, used=GIB)
    here.kill("train")
    status, out, errors = waiting.ends()
    assert (status, errors) == (0, "")
    assert sentence(f"train.py (PID {train}) of {ME}", out)


@pytest.mark.system
def test_nothing_is_said_to_have_ended_that_has_not(here: Machine) -> None:
    """While the driver is away, and when the agent dies."""
    train = here.pids["train"]
    waiting = Waiting(here, "train.py", "--every", "0.5")
    waiting.says()
    here.fail("*", "DRIVER_NOT_LOADED", gpu="all")
    here.fail("*", "DRIVER_NOT_LOADED")
    line = waiting.says()
    assert line.startswith("gputop: ")
    assert line.endswith("; still waiting")
    here.heal()
    assert waiting.says() == "gputop: it can be read again"
    os.kill(waiting.agent, signal.SIGKILL)
    assert waiting.says() == "gputop: the agent ended with status -9; still waiting"
    assert waiting.says() == "gputop: it can be read again"
    here.kill("train")
    status, out, _ = waiting.ends()
    assert status == 0
    assert sentence(f"train.py (PID {train}) of {ME}", out)


class UnseenAtFirst(Source):
    """A source whose process cannot be looked at when it is asked about first."""

    host = "here"

    def __init__(self) -> None:
        self._asked: list[Any] = []

    def request(self, request: Any) -> None:
        self._asked.append(request)

    def frames(self) -> Iterator[Frame | Reply]:
        request = self._asked[-1]
        if isinstance(request, Candidates):
            yield Reply(request=request.id)
            return
        [asked] = request.processes
        state: LivenessState = "running" if asked.start_ticks in (None, 7) else "ended"
        if len(self._asked) == 2:
            state = "unknown"
        yield Reply(request=request.id, liveness=(ProcessLiveness(process=asked, state=state),))

    def reconnect(self) -> None: ...

    def close(self) -> None: ...


def test_who_cannot_be_looked_at_has_not_ended() -> None:
    """A process that was in the frame is hidden for a moment: that is no other process."""
    source, now = UnseenAtFirst(), frame([gpu(0)], [process(42, 0, command="train.py")])
    condition = ProcessesEnd(selection_of(typed(["train.py"]), False))
    assert condition.begin(source, now) is None
    assert condition.check(source, now) is None
    gone = frame([gpu(0)], [])
    assert condition.check(source, gone) is not None


@pytest.mark.system
@needs_everybody
def test_a_user_leaves(here: Machine) -> None:
    """What comes later counts, and what only draws the screen does not."""
    waiting = Waiting(here, "--user", "me")
    assert waiting.says() == "gputop: waiting for me to leave"
    here.spawn("later", ["python", "late.py"], gpu=0, used=GIB)
    here.spawn("screen", ["Xorg"], gpu=0, list="graphics", used=GIB)
    here.kill("train", "eval")
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.process.wait(0.5)
    here.kill("later")
    status, out, _ = waiting.ends()
    assert (status, re.sub(r" of \S+$", "", out)) == (0, "me is on no GPU")


@pytest.mark.system
@needs_everybody
def test_gpus_get_free(machine: MachineFactory) -> None:
    """In the meaning of gputop free; among those that --gpu names."""
    h200x8 = machine("h200x8")
    assert Waiting(h200x8, "--free", "2", "--every", "20s").ends()[::2] == (0, "")
    waiting = Waiting(h200x8, "--free", "2", "--gpu", "1,2")
    assert waiting.says() == "gputop: waiting for GPUs (1 suitable, 2 requested)"
    h200x8.kill("notebook")
    status, out, errors = waiting.ends()
    assert (status, errors) == (0, "")
    assert re.fullmatch(r"GPUs 1, 2 are suitable on \S+", out)
    never = Waiting(h200x8, "--free", "--min-free", "200G").ends()
    assert (never[0], never[1]) == (1, "")
    assert never[2].splitlines()[-1].startswith("gputop: there will never be enough GPUs: ")
    status, out, errors = Waiting(machine("h100-mig"), "--free", "--gpu", "0").ends()
    assert (status, errors) == (0, "")
    assert re.fullmatch(r"GPU 0:13 is free on \S+", out)


def test_ones_own_reservation_keeps_nobody_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is of this machine, of this user, and of a process that GPUTOP_RESERVATION names."""
    monkeypatch.setenv("GPUTOP_RESERVATION", "7,8")
    own = Reservation(user=ME, since=0.0, pid=8)
    others = [replace(own, pid=9), replace(own, pid=None), replace(own, user="else")]
    slices = [
        MigDevice(gi=i, ci=0, uuid=f"MIG-{i}", memory_total=GIB, memory_used=0, reservation=held)
        for i, held in enumerate((*others, own))
    ]
    for gpus, free in (
        ([gpu(i, reservation=held) for i, held in enumerate((*others, own))], "GPU 3"),
        ([gpu(0, mig_mode=True, mig=tuple(slices))], "GPU 0:3"),
    ):
        now = frame(gpus)
        condition = GpusFree(PickRequest(), ())
        assert condition.begin(UnseenAtFirst(), now) == f"{free} is free on node"
        assert GpusFree(PickRequest(), (), elsewhere=True).begin(UnseenAtFirst(), now) is None


@pytest.mark.system
def test_gpus_are_idle_and_then_somebody_has_no_time(here: Machine) -> None:
    """A command that fails is told, and is an exit status."""
    here.update(lambda scenario: [gpu.update(utilization={"gpu": 50, "memory": 0})
                                  for gpu in scenario["gpus"]])  # fmt: skip
    busy = "waiting for GPU 0 to be below 5 %"
    for seconds in (1, 4, 16):  # the agent starts within them, unless the machine is busy
        late = Waiting(here, "--idle", "1s", "--gpu", "0", "--timeout", f"{seconds}s").ends()
        if late[2].startswith(f"gputop: {busy}\n"):
            break
    assert late == (124, "", f"gputop: {busy}\ngputop: timed out after {seconds}s: {busy}")
    waiting = Waiting(
        here, "--idle", "1s", "--gpu", "0", "--below", "4.5", "--notify-command", "false"
    )
    waiting.says()
    here.change(gpu=0, utilization={"gpu": 4, "memory": 0})
    status, out_, errors = waiting.ends()
    assert status == 5
    assert re.fullmatch(r"GPU 0 on \S+ has been below 4.5 % for 1s", out_)
    assert errors == "gputop: false ended with status 1: the message may not have arrived"


@pytest.mark.system
@pytest.mark.long
def test_what_is_over_or_cannot_be(here: Machine, machine: MachineFactory) -> None:
    env = {**here.env, "TERM": "xterm-256color", "TMUX": ""}
    with Terminal([*WAIT, "4194305", "--notify"], cols=200, rows=24, env=env) as terminal:
        assert terminal.exit_code() == 0
        raw = bytes(terminal.raw)
        said = terminal.text.strip()
    assert re.fullmatch(r"no process on \S+ has PID 4194305: it has ended", said)
    assert b"\x1b]9;gputop: no process on " in raw
    assert raw.endswith(b": it has ended\a\a")
    status, out, errors = Waiting(here, "nothing-like-it").ends()
    assert (status, out) == (1, "")
    assert errors == "gputop: no process on a GPU matches: gputop --once shows who is there"
    bare = machine("no-driver")
    assert Waiting(bare, "--free").ends()[:2] == (3, "")
    waiting = Waiting(bare, here.pids["train"])
    assert waiting.says().startswith("gputop: waiting for train.py ")
    here.kill("train")
    status, out, errors = waiting.ends()
    assert (status, errors) == (0, ""), "a PID needs no driver"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("", "nothing to wait for: give PIDs, words of the filter, --user, --free or --idle"),
        ("--gpu 0", "nothing to wait for: "),
        ("12 --free", "--free and processes: wait for one of them at a time"),
        ("--free --idle", "--free and --idle: wait for one of them at a time"),
        ("--free 0", "--free 0 is not a number of GPUs"),
        ("train --min-free 1G", "--min-free needs --free"),
        ("--free --below 3", "--below needs --idle"),
        ("--idle --below 0", "--below 0: nothing is below that"),
        ("12 --user me", "PIDs cannot be used with --gpu and --user"),
        ("12 train", "PIDs or words of the filter, not both"),
        ("-H a,b 12", "a PID belongs to one machine: give one host"),
        ("12 --webhook https://a/b", "unrecognized arguments: --webhook https://a/b"),
        ("12 --notify-command 'x", '"\'x" is not a command: No closing quotation'),
        ("12 --notify --notify-command 'x", '"\'x" is not a command: No closing quotation'),
        ("12 --every 90", "argument --every: '90' is not a number of seconds from 0.1 to 60"),
        ("12 --idle 0", "argument --idle: '0' is not a time, as 90, 10m or 2h"),
    ],
)
def test_usage(words: str, error: str, capfd: pytest.CaptureFixture[str]) -> None:
    """What is wrong in settings that it has no need of does not matter."""
    settings = Path(os.environ["XDG_CONFIG_HOME"], "gputop", "config.toml")
    settings.parent.mkdir(parents=True)
    settings.write_text("intervall = 2\n")
    assert main(["wait", *words.split(" ")][: None if words else 1]) == 2
    out, errors = capfd.readouterr()
    assert (out, errors.count("\n")) == ("", 1)
    assert errors.startswith(f"gputop: {error}")


@pytest.mark.system
def test_on_other_machines(sshd: Sshd, machine: MachineFactory) -> None:
    """All have to come to it; the host that is down is named, and is a failure."""

    def host(name: str) -> Machine:
        made = machine({
            "gpu": {"uuid": "GPU-{i}7777777", "memory": {"total": 80 * GIB, "used": 9 * GIB}},
            "processes": {"train": {"command": ["python", "train.py"], "on": {"gpu": 0}}},
        })  # fmt: skip
        sshd.host(name, made.env)
        return made

    here = [host("w1"), host("w2")]
    sshd.host("down", more="Port 1")
    waiting = Waiting(here[0], "-H", "w[1-2],down", "train.py")
    lines = sorted(waiting.says() for _ in range(3))
    assert lines[0].startswith("gputop: down: connect to host 127.0.0.1 port 1: ")
    pids = [each.pids["train"] for each in here]
    assert lines[1:] == [f"gputop: w{k}: waiting for train.py (PID {pid}) of {ME} to end"
                         for k, pid in enumerate(pids, 1)]  # fmt: skip
    here[0].kill("train")
    assert waiting.process.stdout
    assert waiting.process.stdout.readline().startswith(f"train.py (PID {pids[0]}) of {ME} has ")
    here[1].kill("train")
    status, out, _ = waiting.ends()
    assert status == 1
    assert out.startswith(f"train.py (PID {pids[1]}) of {ME} has ended on w2 after ")


def pending(monkeypatch: pytest.MonkeyPatch, *looks: tuple[float, list[Any]]) -> list[str]:
    """Return what `gputop wait --idle` still waits for at each look: a time, and the GPUs then."""
    condition, said = GpusIdle(600.0, 0.05, (), 1.0), list[str]()
    for now, gpus in looks:
        clock = SimpleNamespace(monotonic=lambda now=now: now)
        monkeypatch.setattr("gputop.commands.targets.wait_conditions.time", clock)
        condition.check(cast(Source, None), replace(frame(), gpus=tuple(gpus)))
        said.append(condition.pending.removesuffix(" more below 5 %"))
    return said


def test_utilization_has_to_stay_low(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit is not below it, and what is unknown is not idle."""
    loads = [0.0, 0.04, None, 0.0, 0.0, 0.05, 0.0, 0.0]
    looks = [(100.0 + k, [gpu(utilization=load)]) for k, load in enumerate(loads)]
    assert pending(monkeypatch, *looks) == [
        "10m00s", "9m59s", "a span without work", "10m00s", "9m59s",
        "GPU 0 to be below 5 %", "10m00s", "9m59s",
    ]  # fmt: skip


def test_all_gpus_have_to_be_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    idle, busy = [gpu(0), gpu(1)], [gpu(0), gpu(1, utilization=0.5)]
    looks: list[list[Any]] = [busy, [gpu(0), gpu(1, stale_for=2.0)], [], idle, idle]
    assert pending(monkeypatch, *((100.0 + k, gpus) for k, gpus in enumerate(looks))) == [
        "GPU 1 to be below 5 %", "a span without work", "a span without work", "10m00s", "9m59s",
    ]  # fmt: skip


def test_a_time_in_which_nobody_looked_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [(100.0 + now, [gpu()]) for now in (0, 2, 5, 500, 502)]
    assert pending(monkeypatch, *looks) == ["10m00s", "9m58s", "9m55s", "10m00s", "9m58s"]
