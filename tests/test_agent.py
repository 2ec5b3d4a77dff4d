"""The agent at its pipe: what it says first, what it obeys, when it ends; and its reader."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from gputop.deadline import Call
from gputop.errors import SourceError
from gputop.model.machine.frame import SCHEMA, Frame
from gputop.model.machine.process_id import ProcessId
from gputop.model.machine.signals import Target
from gputop.protocol.assemble import Assembler
from gputop.protocol.messages import Preview, Refresh, SetInterval, Signal, Stack
from gputop.sources.ask import frames_of, wait_for_frame
from gputop.sources.feed import Feed, Message
from gputop.sources.local import LocalSource
from tests.agent.driving import COMMAND, Agent, Json, gone
from tests.conftest import ME, MachineFactory
from tests.driver import Machine
from tests.patience import until

pytestmark = pytest.mark.system

ONE_GPU: Json = {"gpu": {"uuid": "GPU-{i}", "temperature": 40}}


# What it says and obeys


def test_the_first_line_tells_who_speaks(machine: MachineFactory) -> None:
    with Agent(machine(ONE_GPU)) as agent:
        assert agent.hello["protocol"] == agent.hello["newest"]
        assert agent.hello["version"]
        assert agent.hello["host"] == socket.gethostname()
        assert agent.hello["user"] == ME
        frame = agent.line()
    assert frame["schema"] == SCHEMA
    assert frame["interval"] == 60.0
    assert frame["time"] == pytest.approx(time.time(), abs=5)


def test_hello_comes_before_the_driver_answers(machine: MachineFactory) -> None:
    with Agent(machine("init-hang")) as agent:
        assert agent.hello["protocol"]


def test_frames_come_at_their_interval(machine: MachineFactory) -> None:
    with Agent(machine(ONE_GPU), interval=0.2) as agent:
        times = [agent.line()["time"] for _ in range(6)]
    assert 0.8 <= times[-1] - times[0] < 3
    assert all(later > earlier for earlier, later in pairwise(times))


def test_refresh_gives_one_frame_now(machine: MachineFactory) -> None:
    here = machine(ONE_GPU)
    with Agent(here) as agent:
        agent.line()
        here.change(gpu=0, temperature=77)
        assert agent.refresh(within=5)["gpus"][0]["temperature"] == 77
        with pytest.raises(TimeoutError):
            agent.line(within=0.3)


def test_a_new_interval_holds_at_once(machine: MachineFactory) -> None:
    with Agent(machine(ONE_GPU)) as agent:
        agent.line()
        agent.ask("interval", seconds=0.1)
        assert [agent.line(within=5)["interval"] for _ in range(3)] == [0.1] * 3


@pytest.mark.parametrize(("asked", "kept"), [(0, 0.1), (-5, 0.1), (1e300, 60.0), (0.25, 0.25)])
def test_an_interval_is_brought_into_range(
    asked: float, kept: float, machine: MachineFactory
) -> None:
    with Agent(machine(ONE_GPU)) as agent:
        agent.line()
        agent.ask("interval", seconds=asked)
        assert agent.refresh()["interval"] == kept


GARBAGE = (
    b"",
    b"refresh",
    b"null",
    b"[]",
    b'{"request":"reboot"}',
    b'{"request":"interval"}',
    b'{"request":"interval","seconds":"fast"}',
    b'{"request":"interval","seconds":NaN}',
    b'{"request":"interval","seconds":1e999}',
    b'{"request":"\xff\xfe"}',
    b"\x00\xff\x1b[2J",
    b'{"x":' + b"[" * 100_000,
    b"x" * 1_000_000,
)


def test_lines_that_are_no_request_are_passed_over(machine: MachineFactory) -> None:
    here = machine(ONE_GPU)
    with Agent(here) as agent:
        agent.line()
        for number, garbage in enumerate(GARBAGE):
            agent.send(garbage)
            here.change(gpu=0, temperature=number)
            frame = agent.refresh()
            told = (frame["interval"], frame["gpus"][0]["temperature"])
            assert told == (60.0, number), garbage[:40]
        agent.close_stdin()
        assert agent.process.wait(60) == 0


_FORKING = """
import os, pwd, threading
from gputop.agent import serve
pwd.getpwuid = lambda _: threading.Event().wait()
os.register_at_fork(before=lambda: os.write(2, b"%d" % threading.active_count()))
serve.main({words})
"""


@pytest.mark.parametrize("words", [[], ["--once"]])
def test_it_forks_while_it_has_one_thread(words: list[str], machine: MachineFactory) -> None:
    """Also where the name of its user is long in coming: another may hold a lock just then."""
    command = [sys.executable, "-c", _FORKING.format(words=words)]
    done = machine(ONE_GPU).run(["sh", "-c", 'exec "$@" <&-', "sh", *command])
    assert (done.returncode, done.stderr) == (0, "1")


# When it ends


@pytest.fixture(params=["quick", "hangs in nvmlInit", "all GPUs hang"])
def agent(request: pytest.FixtureRequest, machine: MachineFactory) -> Iterator[Agent]:
    """An agent that was greeted, on drivers of all tempers."""
    here = machine("init-hang" if "nvmlInit" in request.param else ONE_GPU)
    with Agent(here, interval=0.2) as started:
        started.line()
        if "GPUs" in request.param:
            here.hang(gpu="all", wakes=False)
            while started.line()["gpus"][0]["stale_for"] is None:
                pass
        yield started


def test_it_ends_with_its_standard_input(agent: Agent) -> None:
    agent.close_stdin()
    assert agent.process.wait(60) == 0


def test_it_ends_when_nobody_reads(agent: Agent) -> None:
    assert agent.process.stdout
    agent.process.stdout.close()
    assert agent.process.wait(60) == 0
    assert agent.process.stderr
    assert agent.process.stderr.read() == b""


def test_ctrl_c_is_not_for_it(agent: Agent) -> None:
    agent.process.send_signal(signal.SIGINT)
    agent.refresh()
    agent.line()
    assert agent.process.poll() is None


def test_it_starts_with_no_standard_input(machine: MachineFactory) -> None:
    done = machine(ONE_GPU).run(["sh", "-c", 'exec "$@" <&-', "sh", *COMMAND])
    assert (done.returncode, done.stderr) == (0, "")


_READER = """
import subprocess, sys, time
agent = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(agent.pid, flush=True)
for line in agent.stdout:
    pass
"""
_STOPPED_READER = _READER.replace("for line in agent.stdout:\n    pass", "time.sleep(60)")


@pytest.mark.parametrize("reader", [_READER, _STOPPED_READER], ids=["reads", "does not read"])
@pytest.mark.parametrize("hangs", [False, True])
def test_it_ends_when_its_reader_is_killed(
    reader: str, hangs: bool, machine: MachineFactory
) -> None:
    """Frames of 200 processes fill a pipe that nobody reads: the agent is blocked in writing."""
    many = [{"pid": 4194305 + n, "used": n} for n in range(1000)]
    here = machine({"gpu": {"uuid": "GPU-{i}", "compute": many}, "gpus": 2}, log=True)
    if hangs:
        here.hang("nvmlDeviceGetTemperature*", gpu=1, wakes=False)
    program = here.popen([sys.executable, "-c", reader, *COMMAND, "--interval", "0.1"])
    assert program.stdout
    pid = int(program.stdout.readline())
    if reader is _STOPPED_READER:
        until(lambda: _writes(pid), within=10)
    else:
        until(lambda: len(here.calls()) > 40)
    program.kill()
    program.wait()
    until(lambda: gone(pid))


def _writes(pid: int) -> bool:
    """Whether the main thread waits in write(1, ...); where the kernel does not tell, its sleep
    after so many frames is taken for it."""
    try:
        number, *arguments = Path(f"/proc/{pid}/syscall").read_text().split()
    except OSError:
        return psutil.Process(pid).cpu_times().user > 0.5
    return number in ("1", "64") and arguments[0] == "0x1"


# Its reader


@pytest.fixture
def source(machine: MachineFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalSource]:
    """The frames of a machine with one GPU, as gputop gets them."""
    _settle_in(machine(ONE_GPU), monkeypatch)
    with closing(LocalSource(0.1)) as made:
        yield made


def _settle_in(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in here.env.items():
        monkeypatch.setenv(name, value)


def _agent_of(parent: int) -> psutil.Process:
    """Its only agent, once it is one; those that have ended may not be reaped yet."""

    def agents() -> list[psutil.Process]:
        living = []
        for child in psutil.Process(parent).children():
            with suppress(psutil.NoSuchProcess):  # it is just being reaped
                if child.status() != psutil.STATUS_ZOMBIE and COMMAND[1] in child.cmdline():
                    living.append(child)
        return living

    [agent] = until(agents)
    return agent


def test_a_source_gives_frames(source: LocalSource) -> None:
    assert next(frames_of(source)).gpus[0].temperature == 40.0
    assert source.user == ME
    source.request(SetInterval(0.5))
    assert wait_for_frame(source, lambda frame: frame.interval == 0.5, 5.0).interval == 0.5


def test_what_a_stopped_agent_has_no_room_for(source: LocalSource) -> None:
    """Who asks is told at once; the interval is sent later."""
    frames = frames_of(source)
    next(frames)
    agent = _agent_of(os.getpid())
    agent.suspend()
    target = Target(ProcessId(os.getpid(), 1))
    check = Signal("x" * 4000, (target,), 0, 0.0)
    reply = until(lambda: source.request(check))
    assert [verdict.outcome for verdict in reply.verdicts] == ["unknown"]
    assert "nothing was sent" in reply.verdicts[0].words
    for seconds in (0.4, 0.3):
        assert source.request(SetInterval(seconds)) is None
    assert source.request(Stack(ProcessId(1, 1), "s" * 4000)) is not None
    agent.resume()
    assert wait_for_frame(source, lambda frame: frame.interval == 0.3, 5.0).interval == 0.3


def test_a_source_that_reconnects_has_another_agent(source: LocalSource) -> None:
    source.request(SetInterval(0.2))
    before, frames = _agent_of(os.getpid()), frames_of(source)
    next(frames)
    os.kill(before.pid, signal.SIGSTOP)
    source.reconnect()
    assert list(frames) == []
    assert next(frames_of(source)).interval == 0.2
    assert _agent_of(os.getpid()).pid != before.pid
    until(lambda: gone(before.pid))


def test_that_no_other_agent_can_be_started_is_told_by_frames(
    source: LocalSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where this user has as many processes as he may: r on the screen is not its end."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/nonexistent")
        source.reconnect()
        source.reconnect()
        source.request(Refresh())
        for _ in range(2):
            with pytest.raises(SourceError, match="cannot start the agent: /nonexistent: "):
                next(source.frames())
    source.reconnect()
    assert next(frames_of(source)).gpus


def test_that_no_thread_can_be_started_is_told(
    source: LocalSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    told: list[Message] = []
    Feed(source).listen(told.append)
    assert [type(message) for message in told] == [SourceError]
    assert "pids.max" in str(told[0])


def test_a_listener_may_be_replaced_while_it_is_called(source: LocalSource) -> None:
    """Nothing is held while it runs: it may hang, and then the reading thread must not."""
    feed, first, second = Feed(source), threading.Event(), threading.Event()
    feed.listen(lambda _: first.set())
    assert first.wait(10)
    call = Call(lambda: feed.listen(lambda _: feed.listen(lambda _: second.set())))
    assert second.wait(10)
    assert call.wait(10)


def test_a_closed_source_ends_without_a_word(source: LocalSource) -> None:
    frames = source.frames()
    next(frames)
    agent = _agent_of(os.getpid())
    threading.Timer(0.05, source.close).start()
    for _ in frames:
        pass
    source.close()
    source.request(Refresh())
    until(lambda: gone(agent.pid))


def test_an_agent_that_dies_is_an_error(source: LocalSource) -> None:
    frames = source.frames()
    next(frames)
    _agent_of(os.getpid()).kill()
    with pytest.raises(SourceError, match=r"\Athe agent ended with status -9\Z"):
        for _ in frames:
            pass
    source.request(Refresh())


@pytest.mark.parametrize(
    ("says", "error"),
    [
        ("raise RuntimeError('no\\x1b[2J')", "ended with status 1: RuntimeError: no\ufffd[2J"),
        ("os.write(1, b'hello\\n')", "a line that is not a message: JSON is malformed"),
        ('os.write(1, b\'{"schema":1,"version":"0.1"}\\n\')', "a line that is not a message"),
        ("os.write(1, b'\\xff\\xfe\\n')", "not a message"),
        ("os.write(1, b'[' * 100000 + b'\\n')", "not a message"),
        ("os.write(1, b'no end')", "ended with status 0"),
        ("while True: os.write(1, b'x' * 65536)", "a line of more than 16 MiB"),
        ("os._exit(5)", "ended with status 5"),
    ],
)
def test_what_an_agent_says_is_not_trusted(
    says: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent is made to say it by a module that it imports."""
    (tmp_path / "pynvml.py").write_text(f"import os\n{says}\nos._exit(0)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with closing(LocalSource(1.0)) as source, pytest.raises(SourceError) as raised:
        list(source.frames())
    assert error in str(raised.value)
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 400


def test_the_agent_is_out_of_reach_of_the_terminals_signals(source: LocalSource) -> None:
    """Ctrl-C goes to the whole foreground group; only the screen shall get it."""
    next(source.frames())
    assert os.getsid(_agent_of(os.getpid()).pid) != os.getsid(0)


def test_a_preview_says_what_gpus_tell_at_once(machine: MachineFactory) -> None:
    """And the first frame, which is whole, does not wait for its turn."""
    here = machine("h200x8", log=True)
    command = [*COMMAND, "--interval", "60", "--preview"]
    program = here.popen(command, stdin=subprocess.PIPE)
    assert program.stdout
    assembler = Assembler()
    frames: list[object] = []
    while len(frames) < 2:
        if (told := assembler.read(program.stdout.readline().encode())) is not None:
            frames.append(told)
    preview, frame = frames
    assert isinstance(preview, Preview)
    assert isinstance(frame, Frame)
    assert not isinstance(frame, Preview)
    for early, late in zip(preview.gpus, frame.gpus, strict=True):
        assert early.utilization is not None
        assert (early.uuid, early.memory_total) == (late.uuid, late.memory_total)
    assert preview.gpus[0].ecc is None is not frame.gpus[0].ecc
    assert preview.processes == ()
    assert {gpu.memory_unaccounted for gpu in preview.gpus} == {None}  # nobody was asked
    assert frame.processes


def test_serving_once(machine: MachineFactory) -> None:
    here = machine(ONE_GPU)
    done = subprocess.run(
        [*COMMAND, "--once"],
        env=here.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
    )
    assembler = Assembler()
    *_, frame = map(assembler.read, done.stdout.splitlines(keepends=True))
    assert (done.returncode, done.stderr) == (0, b"")
    assert isinstance(frame, Frame)
    assert frame.interval is None
