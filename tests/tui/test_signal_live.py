"""Processes are stopped as a person does it: a terminal, the real agent, real processes."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gputop.tui.terminal.unmarked_paste import BURST
from tests.agent.driving import python_on_gpu, start_as
from tests.conftest import MachineFactory, needs_root, rest_long
from tests.driver import Machine
from tests.terminal import Terminal
from tests.tui.live import SIZES, agents, gone, has_ended, running

pytestmark = pytest.mark.system

GIB = 2**30
KEY = 0.03
"""Seconds between two keys of somebody who types fast."""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where the audit log is."""
    return tmp_path / "state" / "gputop" / "signals.jsonl"


@pytest.fixture
def here(machine: MachineFactory) -> Machine:
    """Two GPUs."""
    return machine({"gpu": {"uuid": "GPU-{i}", "memory": {"total": 80 * GIB, "used": GIB}},
                    "gpus": 2})  # fmt: skip


@pytest.fixture
def counter(here: Machine, tmp_path: Path) -> Iterator[tuple[int, Callable[[], int]]]:
    """A process on GPU 0 that only counts its SIGTERMs, and how many there were."""
    counted = tmp_path / "counted"
    counted.touch()
    code = (
        "import signal, sys\n"
        f"signal.signal(15, lambda *_: print('T', file=open({str(counted)!r}, 'a')))\n"
        "print(flush=True)\nwhile True: signal.pause()"
    )
    with python_on_gpu(here, code) as (program, _):
        yield program.pid, lambda: len(counted.read_text().splitlines())


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def sent(log: Path) -> list[int]:
    """The pids that were signalled, as the audit log has them."""
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return sorted({line["pid"] for line in lines})


def ask(terminal: Terminal, pid: int) -> None:
    """Select the process and open the dialog, and wait until it may be signalled."""
    terminal.send(f"/\x15{pid}\r".encode())
    terminal.wait_for(f"filter: {pid}")
    terminal.send(b"j\x1b[20~")
    terminal.wait_for("SIGTERM to 1 process ")
    terminal.wait_for("[ Send SIGTERM ]")


def type_fast(terminal: Terminal, *keys: bytes) -> None:
    """A key every 30 ms."""
    for key in keys:
        terminal.send(key)
        until = time.monotonic() + KEY
        while time.monotonic() < until:
            terminal.pump(until - time.monotonic())


def confirm(terminal: Terminal) -> None:
    """Type the word, and send."""
    type_word(terminal, "kill")
    terminal.send(b"\r")


def type_word(terminal: Terminal, word: str, begun: str = "") -> None:
    """A letter once the one before is seen: what comes faster is no hand's."""
    for letter in word:
        terminal.send(letter.encode())
        begun += letter
        terminal.wait_for(f"type kill: {begun} ")
        time.sleep(5 * BURST)


@rest_long("size", *SIZES)
def test_term_ends_it_and_its_memory_comes_back(size: tuple[int, int], here: Machine) -> None:
    pid = here.spawn("train", ["python", "train.py"], gpu=1, used=3 * GIB)
    other = here.spawn("other", ["python", "other.py"], gpu=1, used=5 * GIB)
    with running(here, size=size) as terminal:
        ask(terminal, pid)
        for fact in (str(pid), "train.py", "3.00G on GPU 1", "▸[ Send SIGTERM ]"):
            assert fact in terminal.text
        terminal.send(b"\r")
        terminal.wait_for(
            lambda: has_ended(terminal, "SIGTERM", after="; 3.00G came back on GPU 1")
        )
        assert "▸[ Close ]" in terminal.text
        assert gone(pid)
        terminal.send(b"\r")
        terminal.wait_for("ended (TERM)")
        assert "under way" not in terminal.text
    assert alive(other)


@rest_long("ways", [b"\t", b"\x1b"], [b"q", b"\r\x1b", b"9\r\x1b", b"\t\x1b"])
def test_cancel_does_nothing(ways: list[bytes], here: Machine, log: Path) -> None:
    pid = here.spawn("train", ["python", "train.py"], used=GIB)
    with running(here) as terminal:
        for keys in ways:
            ask(terminal, pid)
            terminal.send(keys)
            if keys == b"\t":
                terminal.wait_for("▸[ Cancel ]")
                time.sleep(5 * BURST)  # what comes sooner is from no hand, and ignored
                terminal.send(b"\r")
            terminal.wait_for(
                lambda: "Cancel" not in terminal.text and "Processes" in terminal.text
            )
            assert (alive(pid), sent(log)) == (True, []), keys
        terminal.send(b"q")
        assert terminal.exit_code() == 0
    assert (alive(pid), sent(log)) == (True, [])


@rest_long("size", *SIZES, (40, 12))
def test_who_ignores_term_is_offered_kill_at_once(
    size: tuple[int, int], here: Machine, log: Path
) -> None:
    """Dialog, row and log all say which signal was ignored, and which one ended it."""
    pid = here.spawn("stub", ["python", "stub.py"], used=GIB, manner="stubborn")
    with running(here, size=size, wait=None) as terminal:
        terminal.wait_for(str(pid))
        ask(terminal, pid)
        terminal.wait_for("it ignores SIGTERM: 9")
        terminal.send(b"\r")
        terminal.wait_for("▸[ Close ]  [ SIGKILL to 1 ]")
        assert alive(pid)
        terminal.send(b"\t")
        terminal.wait_for("▸[ SIGKILL to 1 ]")
        time.sleep(5 * BURST)  # Enter at once after Tab would be a paste
        terminal.send(b"\r")
        terminal.wait_for("Done")
        assert gone(pid)
        assert has_ended(terminal, "SIGKILL", "SIGTERM: ignored ", "; 1.00G came back on GPU 0")
        terminal.send(b"\x1b")
        if size[0] >= 80:
            terminal.wait_for("ended (KILL, not TERM)")
    lines = map(json.loads, log.read_text().splitlines())
    assert [(line["signal"], line["verdict"]) for line in lines] == [
        ("SIGTERM", "ignored"), ("SIGKILL", "sent"), ("SIGKILL", "exited"),
    ]  # fmt: skip


@pytest.mark.long
def test_kill_takes_three_keys(here: Machine, log: Path) -> None:
    pid = here.spawn("stub", ["python", "stub.py"], used=GIB, manner="stubborn")
    with running(here) as terminal:
        ask(terminal, pid)
        terminal.send(b"9")
        terminal.wait_for("▸[ Send SIGKILL ]")
        terminal.send(b"\r")
        terminal.wait_for("after SIGKILL; 1.00G came back on GPU 0")
        terminal.send(b"\x1b")
        terminal.wait_for("ended (KILL)")
    assert gone(pid)


def test_three_that_are_tagged_and_a_signal_by_name(here: Machine) -> None:
    pids = [here.spawn(f"w{k}", ["python", f"w{k}.py"], used=GIB) for k in range(4)]
    with running(here, size=(120, 40)) as terminal:
        terminal.wait_for("w3.py")
        terminal.send(b"sP\r/w\rj   ")
        terminal.wait_for("3 tagged")
        terminal.send(b"K")
        terminal.wait_for("SIGTERM to 3 processes")
        terminal.wait_for("[ Send SIGTERM ]")
        terminal.send(b"s")
        terminal.wait_for("Which signal?")
        terminal.send(b"int\r")
        terminal.wait_for("type kill: then Enter sends SIGINT")
        confirm(terminal)
        terminal.wait_for("Done")
        assert has_ended(terminal, "SIGINT")
    assert sum(map(alive, pids)) == 1


def test_with_what_it_started(here: Machine) -> None:
    code = (
        "import subprocess as s; p = s.Popen(['sleep', '999']); print(p.pid, flush=True); p.wait()"
    )
    with python_on_gpu(here, code) as (program, line), running(here) as terminal:
        child = int(line)
        terminal.wait_for(str(program.pid))
        ask(terminal, program.pid)
        assert "with 1 started" in terminal.text
        terminal.send(b"d")
        terminal.wait_for("SIGTERM to 2 processes")
        terminal.wait_for(str(child))
        confirm(terminal)
        assert program.wait() == -signal.SIGTERM
        here.reset(program.pid)
        assert gone(child)


@needs_root
def test_somebody_elses_process_wants_the_word(here: Machine, log: Path) -> None:
    code = "import os, time; os.setuid(65534); print(flush=True); time.sleep(999)"
    with python_on_gpu(here, code) as (program, _), running(here) as terminal:
        terminal.wait_for(str(program.pid))
        ask(terminal, program.pid)
        terminal.wait_for("it is nobody's")
        for letters in ("", "kil"):
            type_word(terminal, letters)
            terminal.send(b"\t")
            terminal.wait_for("▸[ Send")
            time.sleep(5 * BURST)  # Enter at once after Tab would be a paste
            terminal.send(b"\r")
            terminal.wait_for(lambda: "▸[" not in terminal.text)  # it leads back to the word
            terminal.wait_for("nothing was sent: type kill, then Enter")
            assert sent(log) == []
        type_word(terminal, "l", begun="kil")
        terminal.send(b"\r")
        assert program.wait() == -signal.SIGTERM
        here.reset(program.pid)
        terminal.wait_for(lambda: has_ended(terminal, "SIGTERM"))


def test_the_agent_ends_while_one_waits(
    here: Machine, counter: tuple[int, Callable[[], int]], log: Path
) -> None:
    """It is said, another agent shows the machine, and is told nothing of the signal."""
    pid, count = counter
    with running(here) as terminal:
        ask(terminal, pid)
        terminal.send(b"\r")
        terminal.wait_for("SIGTERM was sent; 1 process may take")
        [agent] = agents(terminal)
        os.kill(agent, signal.SIGKILL)
        terminal.wait_for("the agent ended: the outcome of these is unknown")
        assert "SIGKILL" not in terminal.text
        assert "▸[ Close ]" in terminal.text
        terminal.send(b"\x1b")
        terminal.wait_for(lambda: "[ Close ]" not in terminal.text)
        terminal.wait_for("agent ended: outcome of 1 signal unknown")
        terminal.wait_for(
            lambda: [agent_pid for agent_pid in agents(terminal) if agent_pid != agent]
        )
        late = here.spawn("late", ["python", "late.py"], used=GIB)
        terminal.send(b"/\x15late\r")
        terminal.wait_for(str(late))  # the new agent has made a frame
        assert count() == 1
        assert sent(log) == [pid]
        ask(terminal, late)  # and does what it is asked for
        terminal.send(b"\r")
        terminal.wait_for(lambda: has_ended(terminal, "SIGTERM"))
        assert count() == 1


@rest_long(("argument", "variable"), ("--readonly", None), ("-i1", "1"))
def test_readonly(argument: str, variable: str | None, here: Machine, log: Path) -> None:
    pid = here.spawn("train", ["python", "train.py"], used=GIB)
    env = {"GPUTOP_READONLY": variable}
    with running(here, argument, size=(160, 72), env=env) as terminal:
        terminal.wait_for("train.py")
        assert "read only" in terminal.text
        assert "F9" not in terminal.text
        terminal.send(b"j\x1b[20~K\x1b")
        terminal.send(b"?")
        terminal.wait_for("Reverse the order")
        assert "Signal" not in terminal.text
        terminal.send(b"\x1b[6~")
        terminal.wait_for("What holds the clocks back")
        assert "Signal" not in terminal.text
        assert "f9" not in terminal.text
        terminal.send(b"\x1b\x10signal")
        terminal.wait_for("No matches found")
        terminal.send(b"\x03")
        assert terminal.exit_code() == 0
    assert alive(pid)
    kill = [sys.executable, "-m", "gputop", "kill", str(pid), "--yes"]
    done = here.run(["env", "GPUTOP_READONLY=1", *kill])
    assert (done.returncode, done.stdout) == (1, "")
    assert "GPUTOP_READONLY is set" in done.stderr
    assert alive(pid)
    assert sent(log) == []


@needs_root
@pytest.mark.long
def test_a_gpu_that_hangs_and_a_number_that_is_used_again(here: Machine, log: Path) -> None:
    """The row says what the GPU said, and nothing of the process that has its number now."""
    pid = here.spawn("train", ["python", "train.py"], used=GIB)
    with running(here, "-i", "0.2", size=(160, 50)) as terminal:
        terminal.wait_for("train.py")
        here.hang(gpu=0)
        here.kill("train")
        with start_as(pid, ["sleep", "987654"]) as other:
            terminal.wait_for(lambda: "≈" in terminal.text)
            terminal.send(f"/\x15{pid}\r".encode())
            terminal.wait_for(f"filter: {pid}")
            terminal.wait_for(lambda: "987654" not in terminal.text)
            terminal.send(b"zj\x1b[20~")
            terminal.wait_for("it could not be checked: its start time was not known when the")
            assert "987654" not in terminal.text
            assert "[ Send" not in terminal.text
            terminal.send(b"\t\t\x1b")
            terminal.wait_for(lambda: "SIGTERM to" not in terminal.text)
            assert other.poll() is None
            other.kill()
    assert sent(log) == []
