"""`gputop --line`: fields and formats, and the line in a real tmux."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.cli import main
from gputop.commands.line import Rounds
from gputop.errors import GputopError, SourceError, UsageError
from gputop.export.line import DEFAULT, FIELDS, LineView, format_line
from gputop.manual import FOLDER
from gputop.model.machine.frame import Frame, Host, Problem
from gputop.sources.ssh.names import HostName
from tests.builders import GIB, frame, gpu, process
from tests.conftest import MachineFactory, needs_everybody
from tests.patience import until
from tests.terminal import Terminal

PAGE = (FOLDER / "line.md").read_text(encoding="utf-8")
GPUTOP = [sys.executable, "-m", "gputop"]


def line(text: str, *frames: Frame, asked: int = 1) -> str:
    return format_line(text)(LineView(frames, asked))


def _machine(name: str = "node") -> Frame:
    """Two GPUs, one free; the other is alice's."""
    known = {"listed": "all", "temperature": 40.0, "power": 70.4, "memory_total": 100 * GIB}
    gpus = [
        gpu(0, **{**known, "temperature": 61.0, "utilization": 0.9, "memory_used": 50 * GIB}),
        gpu(1, **known),
    ]
    return replace(frame(gpus, [process(1, gpu_memory=50 * GIB)]), host=Host(name=name))


def test_a_machine() -> None:
    assert line(DEFAULT, _machine()) == "1/2 free 45% 50.0G/200G 61C"
    rest = "{free_gpus}|{memory}|{power}|{users}|{who}|{alarms}|{problem}|{host}|{hosts}"
    assert line(rest, _machine()) == "1|25|141|1|alice|0||node|1"


def test_several_machines_are_added_up() -> None:
    machines = (_machine("a"), _machine("b"))
    assert line("{free}/{gpus} {memory_used} {users} {hosts}", *machines, asked=2) == (
        "2/4 100G 1 2"
    )
    assert line("{hosts} {free_gpus} {host}", *machines, asked=3) == "2/3 a:1 b:1 a,b"


def test_what_is_not_known_is_not_zero() -> None:
    everything = " ".join(f"{{{name}}}" for name in FIELDS)
    problem = Problem(code="not_answering", text="the driver does not answer", advice="wait")
    broken = replace(_machine(), gpus=(), processes=(), problem=problem)
    assert line(everything, broken) == (
        "- - - - - - - - - - - - the driver does not answer node 0/1"
    )
    assert format_line("{hosts}|{free}|{problem}")(LineView((), asked=None)) == "-|-|"
    nobody = LineView((), asked=2)
    assert format_line("{hosts} {free} {problem}|{host}")(nobody) == "0/2 - |-"
    unlisted = replace(_machine(), gpus=(gpu(listed="none"),), processes=())
    assert line("{users} {who} {free}", unlisted) == "- - -"
    some = replace(unlisted, processes=(process(1),))
    assert line("{users} {who}", some) == "1+ alice"


def test_a_gpu_that_does_not_answer_is_left_out() -> None:
    machine = _machine()
    hung = replace(
        machine, gpus=(machine.gpus[0], replace(machine.gpus[1], state="silent", stale_for=9.0))
    )
    assert line("{free}/{gpus} {util} {memory_total} {alarms} {problem}", hung) == (
        "0/2 90 100G 1 HUNG GPU 1"
    )


def test_what_a_bar_would_read_more_into() -> None:
    """A remote machine names its users as it likes."""
    name = "#[bg=red]#(id)<b>\"x\\'`$%{gpus}"
    hostile = replace(_machine(name), processes=(process(1, user=name),))
    clean = "??bg?red??(id)?b??x??????gpus?"
    assert line("{who} {host}", hostile) == f"{clean} {clean}"
    assert json.loads(line('{{"text": "{who}"}}', hostile)) == {"text": clean}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{frog}", "no field {frog}: choose from free, gpus, "),
        ("{free.real}", "no field {free.real}"),
        ("{free!r}", "no field {free!r}"),
        ("{0}", "no field {0}"),
        ("{}", "no field {}"),
        ("{\x1b[2J}", "no field {\ufffd[2J}"),
        ("{free", "a { by itself: write {{ for a brace"),
        ("free}", "a } by itself: write }} for a brace"),
        ("{{free}", "a } by itself"),
    ],
)
def test_formats_that_are_none(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        format_line(text)
    assert words in str(caught.value)


@needs_everybody
@pytest.mark.system
def test_a_line_once_and_every_interval(machine: MachineFactory) -> None:
    here = machine({"base": "h200x8", "frozen_at": 2.5})
    done = here.run([*GPUTOP, "--line"])
    assert (done.returncode, done.stdout, done.stderr) == (0, "2/8 free 34% 430G/1.10T 62C\n", "")
    watching = here.popen([*GPUTOP, "--line", "--watch", "-i", "0.1", "--format", "{free} {{"])
    lines = watching.stdout
    assert lines is not None
    # On a busy machine not every GPU answers in time for each frame.
    until(lambda: [lines.readline() for _ in range(3)] == ["2 {\n"] * 3)


@pytest.mark.system
def test_a_driver_that_is_not_there(machine: MachineFactory) -> None:
    here = machine({"base": "no-driver", "processes": None})
    done = here.run([*GPUTOP, "--line"])
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("gputop: the NVIDIA kernel driver is not loaded")
    assert done.stderr.count("\n") == 1
    watching = here.popen([*GPUTOP, "--line", "--watch", "-i", "0.1"])
    lines = watching.stdout
    assert lines is not None
    until(lambda: lines.readline().startswith("-/- free -% -/- -C the NVIDIA kernel driver"))


@pytest.mark.system
def test_several_hosts(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    command = [*GPUTOP, "--demo", "-H", "a,b", "--line", "--format", "{hosts} {host} {gpus}"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2 a,b 16\n", "")
    with subprocess.Popen(
        [*command, "--watch", "-i", "0.1"], env=env, stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout
        lines = [watching.stdout.readline() for _ in range(3)]
        watching.kill()
    assert lines[1:] == ["2 a,b 16\n"] * 2


def test_rounds_of_several_hosts(capfd: pytest.CaptureFixture[str]) -> None:
    """A line when all hosts have sent a frame, or one of them a second time."""
    a, b = (HostName(name, name, None) for name in "ab")
    rounds = Rounds((a, b), format_line("{hosts} {host}"))
    written = []
    news: list[tuple[HostName, Frame | GputopError]] = [
        (a, _machine("a")), (b, _machine("b")), (a, _machine("a")), (a, _machine("a")),
        (b, SourceError("lost")), (a, _machine("a")), (a, _machine("a")),
    ]  # fmt: skip
    for host, message in news:
        rounds.receive(host, message)
        written.append(capfd.readouterr().out)
    assert written == ["", "2 a,b\n", "", "2 a,b\n", "1/2 a\n", "", "1/2 a\n"]


@pytest.mark.system
def test_a_host_that_cannot_be_reached(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--line", "-H", "no-such-host.invalid"]) == 1
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("gputop: no-such-host.invalid: ")


@needs_everybody
@pytest.mark.system
def test_in_the_status_line_of_tmux(tmux: str, machine: MachineFactory, tmp_path: Path) -> None:
    """The lines of the manual: tmux reads `#` and `%` of a setting itself."""
    here = machine({"base": "h200x8", "frozen_at": 2.5})
    script = tmp_path / "gputop"
    script.write_text(f'#!/bin/sh\nexec {" ".join(GPUTOP)} "$@"\n')
    script.chmod(0o700)
    settings = tmp_path / "tmux.conf"
    watched, once = PAGE.split("```tmux\n")[1].split("```")[0].splitlines()[-2:]
    settings.write_text(f"set -g status-interval 1\nset -g status-right-length 60\n{watched}\n")
    env = {**here.env, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TMUX": None}
    server = [tmux, "-S", str(tmp_path / "socket")]
    with Terminal([*server, "-f", str(settings), "new", "cat"], env=env) as terminal:
        try:
            terminal.wait_for("2/8 free 34% 430G/1.10T 62C")
            settings.write_text(f"{once}\n")
            subprocess.run([*server, "source-file", str(settings)], check=True, timeout=300)
            terminal.wait_for("2/8 free, 34%")
        finally:
            subprocess.run([*server, "kill-server"], check=False, timeout=300)
