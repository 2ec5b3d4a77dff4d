"""gputop with standard streams that are closed: `gputop kill 1 <&- >&-`."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from gputop.output import complain
from tests.agent.driving import gone
from tests.conftest import MachineFactory, rest_long
from tests.driver import Machine
from tests.patience import until

pytestmark = pytest.mark.system

GPUTOP = [sys.executable, "-m", "gputop"]
COMMANDS = (
    "", "--once", "--json", "--demo --once", "--demo --json", "--demo", "--version", "--help",
    "--wrong", "map", "map 0", "map --json 0", "map --tf-log -", "map --inventory -", "free",
    "free --json", "topo", "topo --json", "doctor --json", "config", "config --path",
    "kill --dry-run train", "kill --dry-run --json train", "kill nobody", "kill --yes nobody",
    "--completion bash",
)  # fmt: skip
"""All that differ in what they write to standard output."""
READING = ("", "--once", "map --tf-log -", "map --inventory -", "free", "topo", "doctor --json",
           "config", "kill --dry-run train", "kill nobody", "--completion bash")  # fmt: skip
"""Those that look at standard input, and of the others one of each way to begin."""
FEW = ("", "--once", "free", "kill --dry-run train", "--wrong")
CLOSED = tuple(
    streams for count in (1, 2, 3) for streams in itertools.combinations((0, 1, 2), count)
)


@pytest.fixture
def here(machine: MachineFactory) -> Machine:
    return machine(
        {
            "gpu": {"uuid": "GPU-{i}7777777", "memory": {"total": 2**36, "used": 2**30}},
            "processes": {"train": {"command": ["python", "train.py"], "on": {"used": 2**30}}},
        }
    )


def without(here: Machine, streams: tuple[int, ...], words: str, log: Path) -> tuple[int, str, str]:
    """Status and what was written to the streams that are open."""
    closing = " ".join(f"{number}<&-" if number == 0 else f"{number}>&-" for number in streams)
    script = f'exec "$@" {closing}'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *GPUTOP, *words.split()],
        env=here.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.timeout(300)
@rest_long(
    ("streams", "commands"),
    *(((0,), FEW), ((0,), READING), ((1,), COMMANDS), *((streams, FEW) for streams in CLOSED[2:])),
    ids=["0, few", *("".join(map(str, streams)) for streams in CLOSED)],
)
def test_no_command_stumbles(
    streams: tuple[int, ...], commands: tuple[str, ...], here: Machine, tmp_path: Path
) -> None:
    for words in commands:
        status, output, errors = without(here, streams, words, tmp_path)
        assert "Traceback" not in errors, (words, errors)
        assert "internal error" not in errors, (words, errors)
        assert status in (0, 1, 2), (words, status, errors)
        if 1 in streams:
            assert output == ""
            asks_for_text = words not in ("--help", "--version", "--completion bash")
            assert status != 0 or not asks_for_text, (words, errors)


@rest_long(
    "words", "--once", "--json", "map 0", "free --shared --min-free 1G", "topo", "kill train --yes"
)
def test_a_report_that_cannot_be_written_is_said(words: str, here: Machine, tmp_path: Path) -> None:
    status, _, errors = without(here, (1,), words, tmp_path)
    assert (status, errors.count("\n")) == (1, 1), errors
    assert errors == "gputop: standard output is closed: there is nowhere to write to\n"


def test_a_kill_with_no_stream_at_all(here: Machine, tmp_path: Path) -> None:
    """Its report went into the agent's pipe, as a request."""
    pid = here.pids["train"]
    status, _, _ = without(here, (0, 1, 2), f"kill {pid} --yes", tmp_path)
    until(lambda: gone(pid))
    assert status == 1


def test_standard_input_that_is_closed_is_named(here: Machine, tmp_path: Path) -> None:
    status, _, errors = without(here, (0,), "map --tf-log -", tmp_path)
    assert (status, errors) == (2, "gputop: '-' cannot be read: standard input is closed\n")


def test_a_closed_stream_is_not_taken_by_a_pipe(here: Machine) -> None:
    """What a library writes to standard error would be a request to the agent."""
    start = 'exec "$@" <&- 2>&-'
    command = ["sh", "-c", start, "sh", *GPUTOP, "--json", "--watch"]
    with subprocess.Popen(command, env=here.env, stdout=subprocess.PIPE) as gputop:
        assert gputop.stdout is not None
        assert gputop.stdout.readline().startswith(b'{"schema"')
        streams = [os.readlink(f"/proc/{gputop.pid}/fd/{number}") for number in (0, 2)]
        gputop.kill()
    assert streams == [os.devnull, os.devnull]


def test_a_line_that_nobody_can_read_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    unread = os.fdopen(writing, "w")
    monkeypatch.setattr(sys, "stderr", unread)
    complain("the driver cannot be read")
    complain("it can be read again")
    with suppress(BrokenPipeError):
        unread.close()
