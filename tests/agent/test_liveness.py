"""Whether processes run, by real ones."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from gputop.agent.process.detail import read_liveness
from gputop.agent.process.stat import read_stat
from gputop.agent.process.users import UserNames
from gputop.model.machine.process_id import LivenessState, ProcessId, ProcessLiveness
from tests.agent.driving import sleeping
from tests.conftest import ME

pytestmark = pytest.mark.system

MAIN_THREAD_ENDS = """
import ctypes, threading
threading.Thread(target=threading.Event().wait).start()
print(end=".", flush=True)
ctypes.CDLL(None).pthread_exit(0)
"""


def state_of(pid: int, ticks: int | None = None) -> LivenessState:
    return told(pid, ticks).state


def told(pid: int, ticks: int | None = None) -> ProcessLiveness:
    return read_liveness(ProcessId(pid, ticks), UserNames())


def test_from_its_start_to_its_end() -> None:
    with sleeping() as process:
        first = told(process.pid)
        stat = read_stat(process.pid)
        assert stat is not None
        assert (first.state, first.process.start_ticks, first.user) == (
            "running",
            stat.start_ticks,
            ME,
        )
        assert first.start_time == psutil.Process(process.pid).create_time()
        assert "sleep" in (first.command or "")
        again = told(process.pid, first.process.start_ticks)
        assert (again.state, again.command, again.user) == ("running", None, None)
        assert state_of(process.pid, stat.start_ticks - 1) == "ended", "the PID is another's now"
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert state_of(process.pid, stat.start_ticks) == "ended", "a zombie"
        process.wait()
        assert state_of(process.pid, stat.start_ticks) == "ended"


def test_one_whose_first_thread_has_ended_runs_on() -> None:
    with subprocess.Popen([sys.executable, "-c", MAIN_THREAD_ENDS], stdout=-1) as process:
        assert process.stdout
        assert process.stdout.read(1) == b"."
        while (stat := read_stat(process.pid)) is not None and stat.state != "Z":
            continue
        assert state_of(process.pid) == "running"
        process.kill()


def test_no_process_has_such_a_number() -> None:
    assert [state_of(pid) for pid in (2**22 + 1, 2**40)] == ["ended", "ended"]
    assert [state_of(pid) for pid in (0, -1)] == ["unknown", "unknown"]
