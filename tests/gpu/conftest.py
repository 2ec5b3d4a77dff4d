"""What the tests for GPUs share: the machine as gputop and nvidia-smi show it, and free GPUs."""

from __future__ import annotations

import csv
import ctypes
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.report import Report

Frame = dict[str, Any]
GPUTOP = [sys.executable, "-m", "gputop"]
_MOST_USED = 1024
"""MiB in use on a GPU that is free: what the driver needs for itself, and more."""
_WRITTEN = pytest.StashKey[Path]()
_REPORT = pytest.StashKey[Report]()


def smi(*words: str) -> str:
    """Return the output of nvidia-smi. AssertionError, with what it says, if it fails."""
    done = subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"nvidia-smi {' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


def query(what: str, *fields: str) -> list[dict[str, str]]:
    """Return the rows of `nvidia-smi --query-WHAT=FIELDS`, without the units."""
    printed = smi(f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits")
    rows = csv.reader(printed.splitlines(), skipinitialspace=True)
    return [dict(zip(fields, row, strict=True)) for row in rows]


def gputop_frame() -> Frame:
    """Return what `gputop --json` prints."""
    done = subprocess.run([*GPUTOP, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    frame: Frame = json.loads(done.stdout)
    return frame


class Watch:
    """`gputop --json --watch`: frames, one after another; a context manager."""

    def __init__(self) -> None:
        command = [*GPUTOP, "--json", "--watch", "--interval", "0.5"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.communicate()

    def until(self, holds: Callable[[Frame], object], frames: int = 20) -> Frame:
        """Return the first frame, of those made from now on, of which something holds.

        AssertionError if it holds of none of so many frames, half a second apart.
        """
        assert self._process.stdout is not None
        now = time.time()
        for line in self._process.stdout:
            frame: Frame = json.loads(line)
            if frame["time"] < now:
                continue
            if holds(frame):
                return frame
            frames -= 1
            assert frames, f"not within {time.time() - now:.0f} s"
        raise AssertionError("gputop ended")


def _lacking() -> str:
    """Return why there is nothing to test here; empty if there is a driver."""
    if shutil.which("nvidia-smi") is None:
        return "no NVIDIA driver here: there is no nvidia-smi"
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f"no NVIDIA driver here: nvidia-smi says: {' '.join(done.stdout.split())}"
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"no CUDA driver here: {error}"
    return ""


@pytest.fixture(scope="session")
def frame() -> Frame:
    """A frame of the machine before the tests; they are skipped where there is no driver."""
    if reason := _lacking():
        pytest.skip(reason)
    return gputop_frame()


@pytest.fixture(scope="session")
def report(frame: Frame, pytestconfig: pytest.Config) -> Report:
    """The report, which is written when the tests have ended."""
    return pytestconfig.stash.setdefault(_REPORT, Report(frame))


@pytest.fixture(scope="session")
def free(frame: Frame) -> list[Frame]:
    """The GPUs that nobody uses or has reserved, as gputop shows them; skips without one."""
    used = {row["gpu_uuid"] for row in query("compute-apps", "gpu_uuid", "pid", "used_memory")}
    idle = {
        row["uuid"]
        for row in query("gpu", "uuid", "memory.used", "utilization.gpu")
        if _below(row["memory.used"], _MOST_USED) and _below(row["utilization.gpu"], 1)
    }
    listed = {process["gpu_uuid"] for process in frame["processes"]}
    found = [
        gpu
        for gpu in frame["gpus"]
        if gpu["uuid"] in idle - used - listed
        and not (gpu["reservation"] or gpu["mig_mode"] or gpu["display_active"])
        and gpu["compute_mode"] == "default"
    ]
    if not found:
        pytest.skip("no GPU is free: they are in use, reserved, drive a display or are partitioned")
    return found


def _below(text: str, most: float) -> bool:
    try:
        return float(text) <= most
    except ValueError:  # [N/A]
        return False


@pytest.fixture
def watch(frame: Frame) -> Iterator[Watch]:
    """gputop at work, until the test ends."""
    with ExitStack() as stack:
        yield stack.enter_context(Watch())


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Write the report, if there is one."""
    report = session.config.stash.get(_REPORT, None)
    if report is not None:
        folder = Path(session.config.getoption("--gpu-report"))
        ended = f"{session.testscollected} run, {session.testsfailed} failed"
        session.config.stash[_WRITTEN] = report.write(folder, ended)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Name the report in the last lines."""
    page = config.stash.get(_WRITTEN, None)
    if page is not None:
        terminalreporter.write_line(f"report: {page} and {page.with_suffix('.json').name}")
