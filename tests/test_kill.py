"""`gputop kill`, through the command line, on simulated machines with real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from gputop.commands.kill import _QUIET
from tests.agent.driving import gone, python_on_gpu, sleeping
from tests.conftest import OURSELVES, MachineFactory, needs_root, rest_long
from tests.driver import Machine
from tests.patience import until
from tests.terminal import Terminal

pytestmark = pytest.mark.system

Done = subprocess.CompletedProcess[str]
Kill = Callable[..., Done]
AT_ONCE = r"ended (?:at once|\d\.\d s) after SIGTERM"
"""On a busy machine it takes more than the 0.1 s that are at once."""
KILL = [sys.executable, "-m", "gputop", "kill"]
GIB = 2**30
NAMES = ("train", "eval", "stuck")
NO_CORE = "no core was there for a hand that does not pause"


def log_of(machine: Machine) -> str:
    """The audit log of who signals there, as far as there is one."""
    path = Path(machine.env["XDG_STATE_HOME"]) / "gputop" / "signals.jsonl"
    return path.read_text() if path.exists() else ""


@pytest.fixture
def here(machine: MachineFactory, tmp_path: Path) -> Machine:
    """Two GPUs, a job on each, and one that ignores TERM on both."""
    made = machine({
        "gpu": {"uuid": "GPU-{i}7777777", "memory": {"total": 80 * GIB, "used": GIB}},
        "gpus": 2,
        "processes": {
            "train": {"command": ["python", "train.py"], "on": {"gpu": 0, "used": 4 * GIB}},
            "eval": {"command": ["python", "eval.py"], "on": {"gpu": 1, "used": 2 * GIB}},
            "stuck": {"command": ["python", "stuck.py"], "manner": "stubborn",
                      "on": {"gpu": "all", "used": GIB}},
        },
    })  # fmt: skip
    made.update(lambda scenario: [gpu["memory"].update(used=20 * GIB) for gpu in scenario["gpus"]])
    made.env["XDG_STATE_HOME"] = str(tmp_path)
    return made


def kill(here: Machine, *words: object) -> Done:
    return subprocess.run(
        [*KILL, *map(str, words)], env=here.env, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=300, check=False,
    )  # fmt: skip


@rest_long(
    ("words", "status", "error"),
    ("", 2, "which processes? Give PIDs, words of the filter, --gpu or --user"),
    ("0", 2, "0 is a process group, not a PID: give each PID"),
    ("-1", 2, "-1 is a process group, not a PID: give each PID"),
    ("1", 1, "process 1 is on no GPU"),
    ("1 --descendants", 2, "gputop itself is a descendant of it: name what is to end"),
    ("99999999999", 2, "99999999999 is not a PID"),
    ("train 17", 2, "PIDs or words of the filter, not both"),
    ("host:node3 train", 2, "host: is a word of the screen: here -H names the hosts"),
    ("--user nobody-like-that", 2, "no user nobody-like-that on this machine"),
    ("--gpu 9", 2, "'9' is no GPU here: give an index or more of its UUID"),
    ("--gpu GPU-", 2, "'GPU-' is no GPU here: give an index or more of its UUID"),
    ("nothing-like-it", 1, "no process on a GPU matches: gputop --once shows who is there"),
    ("--signal FOO train", 2, "argument -s/--signal: 'FOO' is not a signal: give a name or"),
    ("--signal 0 train", 2, "argument -s/--signal: '0' is not a signal"),
    ("--grace -1 train", 2, "argument --grace: '-1' is not a number of seconds"),
    ("--grace nan train", 2, "argument --grace: 'nan' is not a number of seconds"),
)
def test_errors_are_one_line(words: str, status: int, error: str, here: Machine) -> None:
    done = kill(here, *words.split(), "--dry-run")
    assert done.returncode == status, done.stderr
    assert done.stderr.startswith(f"gputop: {error}")
    assert (done.stderr.count("\n"), done.stdout) == (1, "")
    assert len(here.pids) == 3


def test_a_wrong_setting_that_is_not_about_signals(here: Machine, tmp_path: Path) -> None:
    (tmp_path / "gputop").mkdir()
    here.env |= {"XDG_CONFIG_HOME": str(tmp_path), "GPUTOP_THEME": "pink"}
    for text, status in (("theme = 'pink'", 0), ("readonly = 'perhaps'", 2)):
        (tmp_path / "gputop" / "config.toml").write_text(text)
        assert kill(here, str(here.pids["train"]), "--dry-run").returncode == status


@pytest.mark.parametrize("how", ["option", "variable"])
def test_read_only_it_signals_nothing(how: str, here: Machine) -> None:
    if how == "variable":
        here.env["GPUTOP_READONLY"] = "1"
    words = ["--readonly"] if how == "option" else []
    done = here.run([*KILL[:-1], *words, "kill", "--yes", str(here.pids["train"])])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("gputop: --readonly is given, or GPUTOP_READONLY is set, or")
    assert not gone(here.pids["train"])


def test_the_demo_has_no_processes(here: Machine) -> None:
    done = here.run([sys.executable, "-m", "gputop", "--demo", "kill", "train", "--yes"])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gputop: --demo is not an option of gputop kill")


def test_without_a_terminal_it_wants_a_yes(here: Machine) -> None:
    done = kill(here, "train.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nobody can be asked: give --yes, or --dry-run" in done.stderr
    assert kill(here, "train.py", "--dry-run", "--foreign").returncode == 2
    assert len(here.pids) == 3


def test_a_dry_run_sends_nothing(here: Machine) -> None:
    done = kill(here, "--user", "me", "--dry-run", "--signal", "kill")
    assert (done.returncode, done.stderr) == (0, "")
    pids = here.pids
    assert done.stdout.splitlines() == [
        f"{pids[name]} {psutil.Process().username()} {name}.py: would get SIGKILL ({held})"
        for name, held in (
            ("train", "4.00G on GPU 0"),
            ("stuck", "1.00G on GPU 0; 1.00G on GPU 1"),
            ("eval", "2.00G on GPU 1"),
        )
    ]
    assert len(here.pids) == 3


def test_all_of_mine_on_a_gpu(here: Machine) -> None:
    """What ignores the signal is told with what to do, and counts."""
    pids = here.pids
    done = kill(here, "--gpu", "1", "--user", "me", "--yes", "--grace", "3")
    assert (done.returncode, done.stderr) == (1, "")
    [first, second] = sorted(done.stdout.splitlines(), key=lambda line: "eval" not in line)
    assert first.startswith(f"{pids['eval']} ")
    assert re.search(rf"eval\.py: {AT_ONCE}; 2\.00G came back on GPU 1$", first)
    assert second.endswith("stuck.py: it ignores SIGTERM; SIGKILL ends it")
    assert kill(here, "--gpu", "GPU-1", "--signal", "9", "--yes").returncode == 0
    until(lambda: set(here.pids) == {"train"})


@pytest.mark.parametrize("name", ["TERM", "SIGTERM", "15", "term"])
def test_json(name: str, here: Machine) -> None:
    pid = here.pids["train"]
    done = kill(here, pid, "--yes", "--json", "--signal", name)
    assert (done.returncode, done.stderr) == (0, "")
    [told] = json.loads(done.stdout)["verdicts"]
    assert told.pop("start_ticks") > 0
    assert told.pop("start_time") == pytest.approx(psutil.boot_time(), abs=10**8)
    assert 0 <= told.pop("seconds") < 5
    assert told == {
        "pid": pid,
        "command": "python train.py",
        "signal": 15,
        "verdict": "exited",
        "freed": [{"gpu_uuid": "GPU-07777777", "bytes": 4 * GIB}],
    }


def test_a_signal_that_ends_nobody(here: Machine) -> None:
    done = kill(here, here.pids["train"], "--yes", "--signal", "STOP")
    assert done.returncode == 1
    assert "SIGSTOP was sent, which does not end a process" in done.stdout
    until(lambda: psutil.Process(here.pids["train"]).status() == "stopped")


@needs_root
def test_others_processes_are_left_alone_unless_told_otherwise(here: Machine) -> None:
    with sleeping(user=65534) as other:
        here.change(gpu=0, compute=[{"pid": other.pid, "used": GIB}])
        done = kill(here, other.pid, "--yes")
        assert done.returncode == 1
        assert "nobody's: this needs a confirmation" in done.stdout
        assert "--foreign signals other users' and containers' processes as well" in done.stderr
        lives = other.poll() is None
        assert kill(here, other.pid, "--yes", "--foreign", "--signal", "9").returncode in (0, 1)
        other.wait(60)
    assert lives


def test_gputops_own_ancestors_are_never_hit_by_a_script(here: Machine) -> None:
    here.change(gpu=0, compute=[{"pid": os.getpid(), "used": GIB}])
    done = kill(here, os.getpid(), "--yes")
    assert done.returncode == 1
    assert f"{OURSELVES}: this needs a confirmation" in done.stdout


def test_descendants_of_a_launcher_that_is_on_no_gpu(here: Machine) -> None:
    code = (
        "import subprocess, sys; child = subprocess.Popen(['sleep', '99']);"
        "print(child.pid, flush=True); child.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout
        rank = int(launcher.stdout.readline())
        here.change(gpu=0, compute=[{"pid": rank, "used": GIB}])
        assert kill(here, launcher.pid, "--dry-run").returncode == 1
        done = kill(here, launcher.pid, "--descendants", "--dry-run")
        assert [line.split()[0] for line in done.stdout.splitlines()] == [
            str(launcher.pid), str(rank),
        ]  # fmt: skip
        kill(here, launcher.pid, "--descendants", "--yes", "--grace", "1")
        until(lambda: gone(rank))


# On a terminal


def on_terminal(here: Machine, *words: object) -> Terminal:
    return Terminal([*KILL, *map(str, words)], cols=200, rows=24, env=dict(here.env))


@rest_long(("answer", "status"), ("y", 0), ("YES", 0), ("", 1), ("n", 1), ("no", 1))
def test_it_asks(answer: str, status: int, here: Machine) -> None:
    pid = here.pids["train"]
    with on_terminal(here, pid) as terminal:
        terminal.wait_for("Send SIGTERM to this process? [y/N]")
        assert f"{pid} {psutil.Process().username()} train.py: would get SIGTERM" in terminal.text
        terminal.send(answer.encode() + b"\r")
        last = AT_ONCE if status == 0 else "nothing was sent"
        terminal.wait_for(lambda: re.search(last, terminal.text) is not None)
        assert terminal.exit_code() == status
    assert ("train" in here.pids) == bool(status)


@rest_long("typed", b"y\r", b"yes\r", b"y\ry\ry\r", b"y", b"\r\ry\r", b"kill\r")
def test_what_was_typed_before_it_asks_answers_nothing(typed: bytes, here: Machine) -> None:
    with on_terminal(here, "train") as terminal:
        terminal.send(typed)
        terminal.wait_for("[y/N]")
        terminal.send(b"\r")
        terminal.wait_for("nothing was sent")
        assert terminal.exit_code() == 1
    assert "train" in here.pids


@pytest.mark.parametrize("keys", [b"y\r", b"\ry"])
def test_keys_that_come_in_a_stream_answer_nothing(keys: bytes, here: Machine) -> None:
    """Whoever types through the question has not read it."""
    for name in NAMES:
        with on_terminal(here, name) as terminal:
            type_until(terminal, keys, "would get SIGTERM")  # a pause is none before the question
            if type_until(terminal, keys, "without a pause", turns=30):
                terminal.wait_for("[y/N]")
                terminal.send(b"\r")
                terminal.wait_for("nothing was sent")
                assert terminal.exit_code() == 1
                assert name in here.pids
                return
    pytest.skip(NO_CORE)


@pytest.mark.long
def test_keys_without_an_end_are_no_answer(here: Machine) -> None:
    for name in NAMES:
        with on_terminal(here, name) as terminal:
            if type_until(terminal, b"y\r", "without a pause"):
                assert terminal.exit_code() == 1
                assert name in here.pids
                return
    pytest.skip(NO_CORE)


def type_until(terminal: Terminal, keys: bytes, shown: str, turns: int = 1000) -> bool:
    """Type until this is shown, or so often; return whether the hand never came near a pause."""
    longest, last = 0.0, time.monotonic()
    while shown not in terminal.text and turns:
        type_for(terminal, keys, 0.03)
        last, before, turns = time.monotonic(), last, turns - 1
        longest = max(longest, last - before)
    return longest < _QUIET / 2


def type_for(terminal: Terminal, keys: bytes, seconds: float) -> None:
    """Type, and take what is written for so long."""
    with suppress(OSError):  # it has ended
        terminal.send(keys)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        terminal.pump(end - time.monotonic())


def test_the_word_is_not_taken_from_before_it_asks(here: Machine) -> None:
    here.change(gpu=0, compute=[{"pid": os.getpid(), "used": GIB}])
    with on_terminal(here, os.getpid(), "--signal", "CONT") as terminal:
        terminal.send(b"kill\rkill\r")
        terminal.wait_for("Type kill to continue")
        terminal.send(b"\r")
        terminal.wait_for("nothing was sent")
        assert terminal.exit_code() == 1


def test_ctrl_c_sends_nothing(here: Machine) -> None:
    with on_terminal(here, "train") as terminal:
        terminal.wait_for("[y/N]")
        terminal.send(b"\x03")
        terminal.wait_for("nothing was sent")
        assert terminal.exit_code() == 130
    assert "train" in here.pids


@pytest.fixture
def goes_on(here: Machine) -> Iterator[int]:
    """A process on GPU 0 that handles SIGTERM, and goes on."""
    code = (
        "import signal; signal.signal(15, lambda *_: None); print(flush=True)\n"
        "while True: signal.pause()"
    )
    with python_on_gpu(here, code) as (program, _):
        yield program.pid


def test_ctrl_c_afterwards_says_that_it_was_sent(here: Machine, goes_on: int) -> None:
    with on_terminal(here, goes_on, "--yes", "--grace", "30") as terminal:
        terminal.pump(0)
        until(lambda: log_of(here))
        terminal.send(b"\x03")
        terminal.wait_for("SIGTERM was sent; gputop does not wait for the result")
        assert terminal.exit_code() == 130


def test_it_does_without_textual() -> None:
    program = "import sys, gputop.commands.kill; sys.exit('textual' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(("answer", "sent"), [("y", False), ("kill", True)])
def test_what_it_runs_under_wants_a_typed_word(answer: str, sent: bool, here: Machine) -> None:
    here.change(gpu=0, compute=[{"pid": os.getpid(), "used": GIB}])
    with on_terminal(here, os.getpid(), "--signal", "CONT") as terminal:
        terminal.wait_for("Type kill to continue")
        assert f"{OURSELVES}, which needs a confirmation" in terminal.text
        terminal.send(answer.encode() + b"\r")
        terminal.wait_for("SIGCONT was sent" if sent else "nothing was sent")
        assert terminal.exit_code() == 1


def test_an_agent_that_dies_in_the_middle(here: Machine, goes_on: int) -> None:
    program = here.popen(
        [*KILL, str(goes_on), "--yes", "--grace", "30"],
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    until(lambda: log_of(here))
    [agent] = psutil.Process(program.pid).children()
    agent.send_signal(signal.SIGKILL)
    output, errors = program.communicate(timeout=300)
    assert (program.returncode, output) == (4, "")
    assert errors == "gputop: the agent ended with status -9\n"
    [line] = log_of(here).split("\n")[:-1]
    assert json.loads(line)["verdict"] == "sent"
