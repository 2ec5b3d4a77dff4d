"""The manual's examples: what they print, and that every command in it is one that gputop takes.

A fence called `console` has commands and their output. A comment before it in the page's source
says on which machine it is run here: the demo, or the simulated driver. Numbers, the user and the
name of the machine are compared by their shape, and a line `...` stands for further lines.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gputop.manual import FOLDER, TOPICS
from gputop.parser import parse
from tests.conftest import ME, MachineFactory
from tests.driver import Machine
from tests.terminal import Terminal

SOURCES = {topic: (FOLDER / f"{topic}.md").read_text(encoding="utf-8") for topic in TOPICS}
_FENCE = re.compile(r"(?:^<!-- example on (.*?) -->\n+)?^```(\w*)\n(.*?)^```", re.S | re.M)
_CONSOLE = [
    pytest.param(place, text, id=f"{topic}-{text.split(maxsplit=3)[2]}")
    for topic in TOPICS
    for place, language, text in _FENCE.findall(SOURCES[topic])
    if language == "console" or text.startswith("$ ")
    if not place.startswith("a recording")  # tests/test_usage.py makes it
]
_GROUPS = '[groups]\nlab = ["node[01-04]"]\ngpu = ["gpu[01-40]"]\n'
_TRAIN = {
    "base": "h200x8",
    "gpu": {"memory": {"used": 41645455933}},
    "processes": {
        **dict.fromkeys(("notebook", "pretrain", "vllm", "eval", "small")),
        "train": {
            "command": ["python", "train.py", "--lr", "3e-4"],
            "on": [{"gpu": 2, "used": 41016309350}],
        },
    },
}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings that the pages speak of, and a Slurm job."""
    (tmp_path / "gputop").mkdir()
    (tmp_path / "gputop" / "config.toml").write_text(_GROUPS)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node[01-02]")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)


def shape(text: str) -> list[str]:
    """Lines in which numbers, times, the user and the machine are those of any example."""
    text = text.replace(os.uname().nodename, "node-07")
    text = re.sub(rf"\b{re.escape(ME)}\b", "alice", text)
    text = re.sub(r"ended (?:at once|[\d.]+ s) after", "ended at once after", text)
    text = re.sub(r"\b(?:\d+[dhms])+\b", "1s", text)
    text = re.sub(r"\d+(?:\.\d+)?", "1", text)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def transcripts(text: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a fence, each with the lines that it prints."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, output = part.partition("\n")
        yield command, shape(output)


def printed(command: str, place: str, env: dict[str, str], here: Machine | None) -> str:
    """What a command prints on a terminal: with an answer where it asks, and an end of the
    process where it waits for one."""
    program = f"{sys.executable} -m gputop{' --demo' if place.startswith('the demo') else ''}"
    words = ["/bin/sh", "-c", re.sub(r"^gputop\b", program, command)]
    with Terminal(words, cols=160, rows=24, env=env) as terminal:
        if "gputop kill" in command:
            terminal.wait_for("[y/N]")
            terminal.send(b"y\n")
        if "gputop wait" in command:
            assert here is not None
            terminal.wait_for("waiting for")
            os.kill(here.pids["train"], signal.SIGKILL)
        assert terminal.exit_code(60) == 0, terminal.text
        return terminal.text


@pytest.mark.system
@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize(("place", "text"), _CONSOLE)
def test_an_example_prints_what_the_page_shows(
    place: str, text: str, machine: MachineFactory
) -> None:
    here = machine(_TRAIN) if place.startswith("the simulated driver") else None
    assert here or place.startswith("the demo"), "the page does not say on which machine"
    env = {"XDG_CONFIG_HOME": os.environ["XDG_CONFIG_HOME"], **(here.env if here else {})}
    for command, wanted in transcripts(text):
        found = shape(printed(command, place, env, here))
        if wanted[-1] == "...":
            wanted, found = wanted[:-1], found[: len(wanted) - 1]
        assert found == wanted, command


# Commands without output: those that need a network, another machine or root are only parsed.

_PLACEHOLDERS = {"TOPIC": "keys", "COMMAND": "free", "URL": "http://prometheus:9090"}
_OTHER = {"agent", "viewer"}


def commands_in(text: str) -> Iterator[list[str]]:
    """The words of each gputop command in a text of shell."""
    text = text.replace("$host", "node1").replace("$url", "http://node1")
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, "#"
    words: list[str] | None = None
    for token in [*lexer, ";"]:
        if "$(gputop" in token:
            yield from commands_in(token.partition("$(")[2].rpartition(")")[0])
        if words is not None and set(token) <= set("();<>|&"):
            yield words
            words = None
        elif words is not None:
            words.append(_PLACEHOLDERS.get(token, token))
        elif token == "gputop":
            words = []


def shell_of(topic: str) -> Iterator[str]:
    """The lines of shell on a page, and the commands within its sentences and tables."""
    source = SOURCES[topic]
    for _, language, text in _FENCE.findall(source):
        if language == "sh":
            yield from text.replace("\\\n", " ").splitlines()
        elif language == "console":
            yield from re.findall(r"^\$ (.*)", text, re.M)
    yield from re.findall(r"^\| `(gputop [^`\n]*)`", _FENCE.sub("", source), re.M)


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("topic", TOPICS)
def test_gputop_takes_every_command_of_the_manual(
    topic: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", None)
    for line in shell_of(topic):
        for words in commands_in(line):
            with suppress(SystemExit):  # of --version and --completion
                parse(words)
