"""The page about security says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import gputop

PACKAGE = Path(gputop.__file__).parent
PAGE = (PACKAGE / "manual" / "security.md").read_text()
CODE = {str(path.relative_to(PACKAGE)): path.read_text() for path in PACKAGE.rglob("*.py")}


@pytest.mark.parametrize(
    ("words", "places"),
    [
        (r"\bsubprocess\.(?:Popen|run|call|check)", {"agent/program.py", "agent/probe.py",
                                                       "tui/terminal/app.py", "notify.py"}),
        (r"\bposix_spawn\(|os\.(?:exec\w+|system|popen|fork)\(",
         {"sources/child.py", "commands/run.py", "commands/reserve.py",
          "agent/process/keeper.py", "agent/process/reader.py"}),
        (r"ctypes\.CDLL\(",
         {"agent/probe.py", "agent/doctor/installation.py", "agent/doctor/python_env.py",
          "sources/ssh/standin/python39.py", "allocation/cuda_started.py"}),
        (r"\bshutil\.which|import which", set()),
        (r"AF_UNIX|\.connect\(|urlopen|build_opener|http\.client",
         {"sources/shared.py", "sources/prometheus/client.py",
          "agent/process/reader.py"}),
        (r"create_server\(|\.bind\(\(|TCPSite\(", {"export/http.py", "export/browser/server.py"}),
        (r"/proc/\{[\w.]*pid\}/root", {"agent/process/mounts.py"}),
    ],
)  # fmt: skip
def test_where_things_are_run_loaded_and_followed(words: str, places: set[str]) -> None:
    """A new place has to be thought about: by trust.py's rule, and for the page."""
    assert {name for name, text in CODE.items() if re.search(words, text)} == places


def test_what_keeps_a_rule_is_there() -> None:
    places = " ".join(line.split("|")[2] for line in PAGE.splitlines() if line.startswith("| **"))
    names = {word for word in re.findall(r"`([\w/.]+)`", places) if not word.endswith(".py")}
    defined = {name for text in CODE.values() for name in re.findall(r"(?:class|def) (\w+)", text)}
    assert names
    assert {name.rpartition(".")[2] for name in names} <= defined


def test_every_program_is_on_the_page() -> None:
    named = set()
    for text in CODE.values():
        named |= set(re.findall(r'find_program\(\s*"([\w-]+)"', text))
        named |= set(re.findall(r'yield \["([a-z]+)", ', text))
        for names in re.findall(r"for name in \(((?:\"[\w-]+\"(?:, )?)+)\):\n\s+program", text):
            named |= set(re.findall(r'"([\w-]+)"', names))
    assert named == {"py-spy", "nvcc", "ldconfig", "docker", "podman", "nvidia-ctk", "crictl",
                     "nerdctl", "ssh"}  # fmt: skip
    assert all(f"`{name} " in PAGE for name in named)


def test_the_readme_leads_to_it() -> None:
    assert "(gputop/manual/security.md)" in (PACKAGE.parent / "README.md").read_text()
