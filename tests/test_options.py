"""The options that gputop and its commands share: one meaning before and behind a command."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from gputop.commands import HELP
from gputop.commands.shared.options import OPTIONS
from gputop.errors import UsageError
from gputop.parser import command_module, parse
from tests.conftest import MachineFactory, rest_long
from tests.driver import Machine

GPUTOP = [sys.executable, "-m", "gputop"]
WORDS = {
    "host_words": ["-H", "run"], "hosts_files": ["--hosts", "hosts"], "format": ["--format", "x"],
    "prometheus": ["--prometheus", "http://p"], "login_timeout": ["--timeout", "3"],
    "interval": ["-i", "3"],
    "theme": ["--theme", "dark"], "glyphs": ["--glyphs", "ascii"], "user": ["-u", "kill"],
}  # fmt: skip
"""Words of options that have a value; some are names of commands."""


def answer(*words: str) -> dict[str, Any] | str:
    """The options that a command line means, or its error."""
    try:
        return vars(parse(list(words)))
    except UsageError as error:
        return str(error)


@rest_long("command", *HELP)
def test_before_and_behind_a_command_are_the_same_or_refused(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hosts").write_text("free\n")
    monkeypatch.chdir(tmp_path)
    program = ["--", "true"] if command == "run" else []
    plain = answer(command, *program)
    takes = {*getattr(command_module(command), "TAKES", ()), "readonly"}
    assert takes <= OPTIONS.keys()
    for dest, option in OPTIONS.items():
        flag = option[0].split()[0]
        words = WORDS.get(dest, [flag])
        before, behind = answer(*words, command, *program), answer(command, *words, *program)
        if dest in takes:
            assert isinstance(before, dict)
            assert before == behind != plain
        elif "after the command: gputop" in str(before):  # the command has another of that name
            assert not isinstance(behind, str) or "is not an option" not in behind
        else:
            refusal = f"{flag} is not an option of gputop {command}"
            assert before == behind == refusal


def test_what_is_given_twice() -> None:
    assert parse(["-H", "a", "kill", "1", "-H", "b"]).host_words == ["a", "b"]
    assert parse(["-i", "5", "serve", "-i", "7"]).interval == 7
    assert parse(["--user", "a", "wait", "--user", "b"]).user == "b"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("doctor --with-commands", "--with-commands needs --report"),
        ("--json doctor --report x", "--report cannot be used with --json"),
        ("usage --csv --json", "--json cannot be used with --csv"),
        ("wait --below 0 12", "--below needs --idle"),
        ("free --shared", "--shared needs --min-free"),
        ("map 1 --pid 2", "--pid cannot be used with VALUE"),
        ("-H a map --inventory x", "--inventory cannot be used with -H"),
        ("--prometheus http://p -u me", "--prometheus cannot be used with -u"),
        ("--watch", "--watch needs --json or --line"),
    ],
)
def test_what_an_option_needs_and_cannot_be_used_with(line: str, said: str) -> None:
    assert answer(*line.split()) == said


@pytest.fixture
def here(machine: MachineFactory) -> Machine:
    return machine({"gpus": 1, "processes": {
        "train": {"command": ["python", "train.py"], "on": {"gpu": 0, "used": 2**30}},
    }})  # fmt: skip


@pytest.mark.system
@pytest.mark.parametrize("option", ["--user=daemon", "--readonly"])
def test_an_option_before_kill_keeps_a_process_alive(here: Machine, option: str) -> None:
    done = here.run([*GPUTOP, option, "kill", "train.py", "--yes"])
    assert (done.returncode, done.stdout) == (1, "")
    os.kill(here.pids["train"], 0)


@pytest.mark.system
def test_json_before_a_command(here: Machine) -> None:
    for words in (["free", "--window", "0"], ["topo"], ["map"], ["doctor"]):
        assert here.run([*GPUTOP, "--json", *words]).stdout.startswith("{")
