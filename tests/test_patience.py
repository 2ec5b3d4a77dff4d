"""Tests of how long a test waits."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from tests.driver.machine import REPOSITORY
from tests.patience import Deadline, until


@contextmanager
def starved(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Children that run for ever, and have one core together."""
    core = {min(os.sched_getaffinity(0))}
    with ExitStack() as stack:
        children = []
        for _ in range(count):
            child = stack.enter_context(subprocess.Popen(["sh", "-c", "while :; do :; done"]))
            stack.callback(child.kill)
            os.sched_setaffinity(child.pid, core)
            children.append(child)
        yield children


@pytest.mark.system
def test_what_waits_for_a_core_has_more_time() -> None:
    """And keeps it when it has ended."""
    with starved(4) as children:
        deadline = Deadline(0.2)
        time.sleep(0.2)
        look, left = time.monotonic(), deadline.left()
        assert left > 0.1  # they waited for 0.6 s together, more or less
        for child in children:
            child.kill()
            child.wait()
        while (more := deadline.left()) > 0:
            time.sleep(more)
        assert time.monotonic() >= look + left - 0.001


@pytest.mark.system
def test_what_runs_in_circles_hangs_as_well() -> None:
    with starved(16):
        deadline = Deadline(0.04)
        time.sleep(0.4)
        assert deadline.left() <= 0


@pytest.mark.system
def test_what_waits_for_something_else_has_no_more() -> None:
    """No longer than this process itself has waited for a core."""
    with subprocess.Popen(["sleep", "1000"]) as asleep:
        until(lambda: psutil.Process(asleep.pid).status() == "sleeping")
        before, deadline = waited(), Deadline(0.1)
        time.sleep(0.1)
        assert deadline.left() <= waited() - before
        asleep.kill()


def waited() -> float:
    """Seconds that the threads of this process have waited for a core."""
    paths = Path("/proc/self/task").glob("*/schedstat")
    return sum(int(path.read_text().split()[1]) for path in paths) / 1e9


def test_a_condition_that_does_not_hold_says_what_was_seen() -> None:
    with pytest.raises(AssertionError, match=r"^not within 0\.01 s: \[\]$"):
        until(list, within=0.01)
    with pytest.raises(AssertionError, match=r"^not within 0\.01 s: 'a word'$"):
        until(lambda: 0, within=0.01, seen=lambda: "a word")
    numbers = iter([0, 0, 7])
    assert until(lambda: next(numbers)) == 7


TESTS = """
import os, time, pytest
from tests.test_patience import starved

@pytest.mark.timeout(0.3)
def test_that_is_starved():
    with starved(3):
        time.sleep(0.5)

@pytest.mark.timeout(0.3)
def test_that_hangs():
    time.sleep(60)
"""


@pytest.mark.system
@pytest.mark.long
def test_the_alarm_of_a_test_knows_load_as_well(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    hooks = "pytest_timeout_set_timer, pytest_runtest_makereport"
    (tmp_path / "conftest.py").write_text(f"from tests.conftest import {hooks}\n")
    options = ("-p", "no:xdist", "-p", "no:cacheprovider", "-rA", "--rootdir", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)], capture_output=True, text=True,
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, check=False,
    )  # fmt: skip
    assert "PASSED test_it.py::test_that_is_starved" in done.stdout
    assert "FAILED test_it.py::test_that_hangs - Failed: Timeout" in done.stdout
