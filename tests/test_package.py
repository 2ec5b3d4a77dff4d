"""What comes with the wheel, and what options tell of themselves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import which
from zipfile import ZipFile

import pytest

from gputop.commands import HELP
from gputop.manual import TOPICS, page, plain
from tests.conftest import MachineFactory, needed, needed_module, rest_long
from tests.driver import forked
from tests.terminal import Terminal

pytestmark = pytest.mark.system

GPUTOP = [sys.executable, "-m", "gputop"]
ROOT = Path(__file__).parent.parent


def run(*command: str) -> str:
    done = forked.run(command)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def completed(script: str, *words: str) -> list[str]:
    """What bash itself makes of the script for the last word."""
    line = " ".join(words).replace("@ ", "@")  # readline breaks words at @
    start = f"COMP_LINE='{line}' COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}"
    shown = f'{script}\n{start}; _gputop 2>/dev/null; echo "${{COMPREPLY[@]}}"'
    return run("bash", "-c", shown).split()


def test_completion_in_bash() -> None:
    script = run(*GPUTOP, "--completion", "bash")
    assert completed(script, "gputop", "ma") == ["map"]
    assert completed(script, "gputop", "free", "--min") == ["--min-free"]
    assert completed(script, "gputop", "help", "ke") == ["keys"]
    assert completed(script, "gputop", "--theme", "ansi-l") == ["ansi-light"]


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a recording and settings with groups, and a gputop in PATH that reads them."""
    (tmp_path / "gputop").mkdir()
    (tmp_path / "gputop" / "config.toml").write_text('[groups]\nlab = ["a"]\nlarge = ["b"]\n')
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gputop").write_text(f'#!/bin/sh\nexec {" ".join(GPUTOP)} "$@"\n')
    (tmp_path / "bin" / "gputop").chmod(0o755)
    (tmp_path / "night.gputop").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("groups")
def test_files_programs_and_groups_are_completed() -> None:
    script = run(*GPUTOP, "--completion", "bash")
    assert completed(script, "gputop", "replay", "ni") == ["night.gputop"]
    assert completed(script, "gputop", "free", "--hosts", "ni") == ["night.gputop"]
    assert "env" in completed(script, "gputop", "run", "-n", "2", "--", "en")
    assert completed(script, "gputop", "free", "-H", "@") == ["@slurm", "@lab", "@large"]
    assert completed(script, "gputop", "free", "-H", "@", "la") == ["lab", "large"]


@pytest.mark.usefixtures("groups")
@pytest.mark.long
def test_files_programs_and_groups_are_completed_in_fish() -> None:
    fish = needed("fish", "fish")
    Path("gputop.fish").write_text(run(*GPUTOP, "--completion", "fish"))
    for line, word in (
        ("gputop replay nig", "night.gputop"),
        ("gputop free -H @la", "@large"),
        ("gputop run -n 2 -- en", "env"),
        ("gputop --theme ansi-l", "ansi-light"),
    ):
        found = run(fish, "-c", f"source gputop.fish; complete -C '{line}'")
        assert word in [row.split("\t")[0] for row in found.splitlines()], line


def test_version_names_the_libraries() -> None:
    line = run(*GPUTOP, "--version")
    assert line.count("\n") == 1
    for word in ("gputop 0.", "Python 3.", "textual 8.", "nvidia-ml-py ", "psutil ", "msgspec "):
        assert word in line


@pytest.mark.parametrize("command", HELP)
def test_every_command_has_examples_or_says_what_it_is_for(command: str) -> None:
    text = run(*GPUTOP, command, "--help")
    assert f"gputop {command}" in text.split("options:")[-1], "no example"
    assert "exit status" in text


@pytest.mark.long
def test_the_wheel(tmp_path: Path) -> None:
    needed_module("argparse_manpage")
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(ROOT))
    (wheel,) = tmp_path.glob("gputop_tui-*.whl")
    installed = tmp_path / "installed"
    with ZipFile(wheel) as files:
        names = [name.partition(".data/data/")[2] for name in files.namelist()]
        files.extractall(installed)
    assert {
        "share/bash-completion/completions/gputop",
        "share/zsh/site-functions/_gputop",
        "share/fish/vendor_completions.d/gputop.fish",
        "share/man/man1/gputop.1",
    } <= set(names)
    (path,) = installed.rglob("gputop.1")
    check_man_page(path)
    env = {**os.environ, "PYTHONPATH": str(installed)}
    assert len(list(installed.rglob("gputop/export/prometheus/rules.yml"))) == 1
    for topic in TOPICS:
        command = [*GPUTOP, "help", topic]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, check=True)
        assert done.stdout.decode() == plain(page(topic))


def check_man_page(path: Path) -> None:
    """Every command is in it, what argparse does not know is from the manual, groff reads it."""
    text = path.read_text(encoding="utf-8")
    for command in HELP:
        assert f"gputop {command}" in text.replace(r"\fR", "").replace(r"\fI", "")
    name = text.partition(".SH NAME\n")[2].partition("\n.SH")[0]
    assert name == r"gputop \- a terminal monitor for NVIDIA GPUs"
    about = text.partition(".SH DESCRIPTION\n")[2].partition("\n.SH")[0]
    assert len(about.split()) > 60
    headings = re.findall(r"^\.SH (.+)$", text, re.M)
    assert headings[-4:] == ["KEYS", "FILTER", "FILES", "EXIT STATUS"]
    assert "signals.jsonl" in text.partition(".SH FILES")[2].partition(".SH EXIT")[0]
    assert not re.search(r"<!--|^\||\]\(|`", text.partition(".SH KEYS")[2], re.M)
    if which("groff"):
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", str(path)], capture_output=True, check=True
        )
        assert done.stderr == b""


@rest_long(("arguments", "stays"), (["--print-last"], True), ([], False))
def test_the_last_look_stays_if_it_is_asked_for(
    arguments: list[str], stays: bool, machine: MachineFactory
) -> None:
    env = machine("h200x8").env
    with Terminal([*GPUTOP, *arguments], cols=120, rows=40, env=env) as terminal:
        terminal.wait_for("train.py")
        terminal.send(b"q")
        assert terminal.exit_code() == 0
        after = bytes(terminal.raw).rpartition(b"\x1b[?1049l")[2]
        assert (b"NVIDIA H200" in after or b"H200" in after) == stays
