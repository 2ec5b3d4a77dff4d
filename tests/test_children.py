"""gputop leaves no process to others: under a process 1 that reaps nobody, as of many a container,
a child that is not waited for stays a zombie for ever."""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import venv
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from gputop.agent.process import reader as reader_module
from gputop.agent.process.reader import NoAnswerError, ProcessReader
from gputop.agent.process.stat import read_stat
from gputop.agent.program import run_program
from gputop.sources.child import PipedProcess
from tests.agent.driving import gone
from tests.conftest import MachineFactory, in_child, needed, needs_root, rest_long
from tests.driver import Machine
from tests.patience import until
from tests.terminal import Terminal
from tests.tui.live import agents, running

pytestmark = pytest.mark.system

PR_SET_CHILD_SUBREAPER = 36
GPUTOP = [sys.executable, "-m", "gputop"]
FIRST = """
import json, os, subprocess, sys, time
def others():
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            stat = open(f"/proc/{name}/stat").read().rpartition(")")[2].split()
        except OSError:
            continue  # its own parent has reaped it
        if name != "1":
            yield name, stat[0]
told = []
for command in json.loads(sys.argv[2]):
    before = list(others())
    status = subprocess.run(command).returncode
    end = time.monotonic() + 10
    while any(state != "Z" for _, state in others()) and time.monotonic() < end:
        time.sleep(0.01)
    told.append([status, [one for one in others() if one not in before]])
with open(sys.argv[1], "w") as file:
    json.dump(told, file)
"""
"""Process 1: waits for those that it starts, and for nobody else; tells whom each one left."""


@pytest.fixture
def here(machine: MachineFactory) -> Machine:
    return machine(
        {
            "gpu": {"uuid": "GPU-{i}7777777", "memory": {"total": 2**36, "used": 2**30}},
            "gpus": 2,
            "processes": {"train": {"command": ["python", "train.py"], "on": {"used": 2**30}}},
        }
    )


@pytest.fixture
def under(here: Machine, tmp_path: Path) -> Callable[..., list[str]]:
    """The command line that runs gputop below such a process 1, once for each of these lines of
    arguments; it tells in `left.json`."""
    unshare = needed("unshare", "util-linux")

    def command(*lines: str) -> list[str]:
        told = str(tmp_path / "left.json")
        below = json.dumps([[*GPUTOP, *shlex.split(words)] for words in lines])
        first = [sys.executable, "-c", FIRST, told, below]
        return [unshare, "--pid", "--fork", "--kill-child", "--mount-proc", *first]

    return command


def left(tmp_path: Path) -> list[tuple[int, list[list[str]]]]:
    """Exit status of each gputop, and whom it left: number and state."""
    told = json.loads((tmp_path / "left.json").read_text())
    return [(status, others) for status, others in told]


COMMANDS = (
    "--once", "--json", "map", "map 0", "map --verify 0", "free -n 2", "topo",
    "free --shared --min-free 1", "kill nobody --yes", "kill train --dry-run", "doctor",
    "--demo --once", "config", "--json --nonsense", "-u nobody-like-that --once",
    "kill train --yes",
)  # fmt: skip


@needs_root
@rest_long("commands", COMMANDS[::5], COMMANDS, ids=["some", "all"])
def test_no_command_leaves_anybody(
    commands: tuple[str, ...], here: Machine, under: Callable[..., list[str]], tmp_path: Path
) -> None:
    done = here.run(under(*commands))
    for words, (status, others) in zip(commands, left(tmp_path), strict=True):
        assert others == [], (words, done.stderr)
        assert status in (0, 1, 2), (words, done.stderr)


WRONG = ("-i wrong", "-u nobody-like-that", "--wrong", "--theme pink", "--glyphs x")


@needs_root
def test_options_that_are_wrong_after_the_agent_was_started(
    here: Machine, under: Callable[..., list[str]], tmp_path: Path
) -> None:
    """On a terminal, where it starts before anything else."""
    with Terminal(under(*WRONG), cols=80, rows=24, env=here.env) as terminal:
        assert terminal.exit_code() == 0
    assert left(tmp_path) == [(2, [])] * len(WRONG)


@needs_root
@rest_long("end", b"q", b"\x03", ids=["q", "ctrl-c"])
def test_a_screen_that_is_left_leaves_nobody(
    end: bytes, here: Machine, under: Callable[..., list[str]], tmp_path: Path
) -> None:
    with Terminal(under(""), cols=80, rows=24, env=here.env) as terminal:
        terminal.wait_for("? help")
        terminal.wait_for(lambda: "waiting for the driver" not in terminal.text)
        terminal.send(end)
        assert terminal.exit_code() == 0
    assert left(tmp_path) == [(0, [])]


@needs_root
def test_a_reader_that_has_seen_enough(
    here: Machine, under: Callable[..., list[str]], tmp_path: Path
) -> None:
    script = '"$@" | head -n 1'
    done = here.run(["sh", "-c", script, "sh", *under("--json --watch -i 0.1")])
    assert json.loads(done.stdout)["gpus"]
    until(lambda: (tmp_path / "left.json").exists() and (tmp_path / "left.json").read_text())
    assert left(tmp_path) == [(0, [])]


IGNORING = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])
"""


@rest_long("words", "kill train --yes", "--once", "map --verify 0", "doctor --python {python}")
def test_started_where_nobody_waits_for_children(words: str, here: Machine, tmp_path: Path) -> None:
    """`trap '' CHLD`, as some supervisors have it: the kernel then reaps, and tells no status."""
    python = tmp_path / "env/bin/python"
    venv.create(tmp_path / "env", symlinks=True)
    command = [*GPUTOP, *words.format(python=python).split()]
    ignored = here.run([sys.executable, "-c", IGNORING, *command])
    if words.startswith("kill"):
        assert (ignored.returncode, ignored.stderr) == (0, "")
        return
    expected = here.run(command)
    assert (ignored.returncode, ignored.stderr) == (expected.returncode, expected.stderr)
    if not words.startswith("--once"):
        assert ignored.stdout == expected.stdout


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.long
def test_no_restart_of_the_agent_costs_a_descriptor(here: Machine) -> None:
    """Nor eight of them eight; there are some more, or fewer, while one starts."""
    with running(here, "-i", "0.2") as terminal:
        restart(terminal)
        first = descriptors(terminal.process.pid)
        for _ in range(8):
            restart(terminal)
        until(lambda: descriptors(terminal.process.pid) < first + 8)


def restart(terminal: Terminal) -> None:
    [agent] = agents(terminal)
    os.kill(agent, signal.SIGKILL)
    terminal.wait_for("The agent ended")
    terminal.send(b"r")
    terminal.wait_for(lambda: "The agent ended" not in terminal.text)
    until(lambda: len(now := agents(terminal)) == 1 and now != [agent])


def test_a_keeper_that_can_no_longer_answer_ends_its_readers() -> None:
    """The agent ended between asking for one more and the answer."""

    def run() -> None:
        assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
        reader = ProcessReader()
        reader.start()
        assert reader.ask(read_stat, os.getpid())
        assert reader._control
        assert reader._keeper
        os.kill(reader._keeper, signal.SIGSTOP)
        until(lambda: psutil.Process(reader._keeper).status() == psutil.STATUS_STOPPED)
        reader._control.send(b"1 1")
        reader._control.close()
        os.kill(reader._keeper, signal.SIGCONT)
        reader.stop()
        until(lambda: not children_left())  # on a busy machine `stop` does not wait for their end

    assert in_child(run, os.getuid()) == ""


def test_the_second_of_two_threads_that_end_the_agent_waits_for_the_keeper_as_well() -> None:
    def run() -> None:
        reader_module._END_TIMEOUT = 60
        reader = ProcessReader()
        reader.start()
        keeper, control = reader._keeper, reader._control
        assert keeper
        assert control
        os.kill(keeper, signal.SIGSTOP)
        threading.Thread(target=reader.stop, daemon=True).start()
        until(lambda: control.fileno() < 0)
        goes_on = threading.Timer(0.1, os.kill, (keeper, signal.SIGCONT))
        goes_on.start()
        reader.stop()
        left = psutil.pid_exists(keeper)
        goes_on.join()
        assert not left

    assert in_child(run, os.getuid()) == ""


def test_a_keeper_that_answers_late() -> None:
    """Its answer is not taken for that to the next request, whose reader is another one."""

    def run() -> None:
        reader = ProcessReader()
        reader.start()
        assert reader._control
        assert reader._keeper
        reader._control.settimeout(0.1)
        os.kill(reader._keeper, signal.SIGSTOP)
        with suppress(NoAnswerError):
            reader.ask(read_stat, os.getpid())
        os.kill(reader._keeper, signal.SIGCONT)
        reader._control.settimeout(60)
        assert reader.ask(read_stat, os.getpid())
        assert not reader._silent
        reader.stop()

    assert in_child(run, os.getuid()) == ""


def children_left() -> list[psutil.Process]:
    """Reap those that have ended; who does it in place of `stop` sees what is left."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return psutil.Process().children()


def test_answers_come_in_the_order_of_the_questions() -> None:
    """New processes are asked in a random one, so that one that is stuck hides no other for long;
    children are signalled and listed in theirs."""

    def run() -> None:
        reader, pids = ProcessReader(), psutil.pids()
        reader.start()
        answered = reader.ask_all(read_stat, pids)
        assert len(answered) > 5
        assert list(answered) == [pid for pid in pids if pid in answered]  # some end meanwhile
        reader.stop()

    assert in_child(run, os.getuid()) == ""


def zombies() -> list[str]:
    """Of this process."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [pid for pid in children if gone(int(pid))]


def test_a_program_that_had_to_be_killed_is_none() -> None:
    """In a process of its own: pytest may be process 1, which gets what the killed have started."""

    def run_both() -> None:
        killed = run_program(["sh", "-c", "sleep 99 & sleep 99"], 0.1)
        flooded = run_program(["sh", "-c", "yes"], 5)
        assert (killed.status, flooded.status) == (None, None)
        for stuck in filter(None, (killed.stuck, flooded.stuck)):
            stuck.wait()  # it was given no core to end on in the time that it has
        assert zombies() == []

    assert in_child(run_both, os.getuid()) == ""


@pytest.mark.long
def test_a_program_that_waits_for_a_core_has_its_time_to_tidy_up() -> None:
    """It needs 0.7 s of a core that it shares with four others, and has a second."""

    def run() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        spin = "import sys, time\nsys.stdin.read()\nwhile time.process_time() < {}: pass"
        loops = [subprocess.Popen([sys.executable, "-c", spin.format(99)], stdin=subprocess.DEVNULL)
                 for _ in range(4)]  # fmt: skip
        with open(os.devnull, "r+b") as null:
            words = [sys.executable, "-c", spin.format(0.7)]
            program = PipedProcess(words, os.environ, null.fileno(), null.fileno())
        program.end(1.0)
        for loop in loops:
            loop.kill()
            loop.wait()
        assert program.wait(0) == 0

    assert in_child(run, os.getuid()) == ""
