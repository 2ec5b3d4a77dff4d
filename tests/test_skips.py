"""The summary of pytest says why tests were skipped in a line for each reason."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.driver.machine import REPOSITORY

LACKING = """
import pytest
from tests.conftest import needed
needs = pytest.mark.skipif(True, reason="needs root")

@needs
def test_marked(): pass

@needs
@pytest.mark.parametrize("case", "ab")
def test_cases(case): pass

@pytest.fixture
def tmux(): return needed("no-such-tmux", "no-such-package")

def test_fixture(tmux): pass

def test_inside(): needed("no-such-tmux-client", "no-such-package")
"""


@pytest.mark.system
@pytest.mark.parametrize("ci", [None, "true"])
@pytest.mark.long
def test_a_line_for_each_reason(ci: str | None, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text(LACKING)
    environ = {name: value for name, value in os.environ.items() if name != "CI"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-ra", "-n", "1", "-p", "no:cacheprovider", "."],
        cwd=tmp_path, env={**environ, "PYTHONPATH": str(REPOSITORY), **({"CI": ci} if ci else {})},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    summary = done.stdout.partition("short test summary info")[2]
    skipped = re.findall(r"^SKIPPED \[(\d+)\] tests: (.*)$", summary, re.M)
    install = "not installed: apt-get install -y no-such-package"
    if ci:
        assert skipped == [("6", "needs root")], done.stdout
        assert summary.count(install) == 4
    else:
        assert sorted(skipped) == [("4", install), ("6", "needs root")], done.stdout
    assert summary.count("SKIPPED") == len(skipped)
