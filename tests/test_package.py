"""What comes with the wheel, and what options tell of themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from gputop.commands import HELP
from tests.conftest import MachineFactory
from tests.terminal import Terminal

GPUTOP = [sys.executable, "-m", "gputop"]
ROOT = Path(__file__).parent.parent


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def completed(script: str, *words: str) -> list[str]:
    """What bash itself makes of the script for the last word."""
    line = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _shtab_gputop 2>/dev/null"
    return run("bash", "-c", f'{script}\n{line}; echo "${{COMPREPLY[@]}}"').split()


def test_completion_in_bash() -> None:
    script = run(*GPUTOP, "--completion", "bash")
    assert completed(script, "gputop", "ma") == ["map"]
    assert completed(script, "gputop", "free", "--min") == ["--min-free"]
    assert completed(script, "gputop", "--theme", "ansi-l") == ["ansi-light"]


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


def test_the_wheel(tmp_path: Path) -> None:
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(ROOT))
    (wheel,) = tmp_path.glob("gputop_tui-*.whl")
    with ZipFile(wheel) as files:
        names = [name.partition(".data/data/")[2] for name in files.namelist()]
        page = files.read(next(name for name in files.namelist() if name.endswith("gputop.1")))
    assert {
        "share/bash-completion/completions/gputop",
        "share/zsh/site-functions/_gputop",
        "share/man/man1/gputop.1",
    } <= set(names)
    for command in HELP:
        assert f"gputop {command}".encode() in page.replace(b"\\fR", b"").replace(b"\\fI", b"")


def test_the_last_look_stays_if_it_is_asked_for(machine: MachineFactory) -> None:
    here = machine("h200x8")
    for arguments, stays in ((["--print-last"], True), ([], False)):
        with Terminal([*GPUTOP, *arguments], cols=120, rows=40, env=here.env) as terminal:
            terminal.wait_for("train.py")
            terminal.send(b"q")
            assert terminal.exit_code() == 0
            after = bytes(terminal.raw).rpartition(b"\x1b[?1049l")[2]
            assert (b"NVIDIA H200" in after or b"H200" in after) == stays
