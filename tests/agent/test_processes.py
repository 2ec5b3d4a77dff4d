"""Facts of real processes, and what becomes of those that are not here."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import pytest

from gputop.agent.process import processes, users
from gputop.agent.process.processes import ProcessCache, read_io
from gputop.agent.process.reader import READER
from gputop.agent.process.stat import ancestors
from gputop.agent.process.users import UserNames
from gputop.model.machine.proc_stat import parse_stat
from tests.agent.driving import Agent, Json, executes, sleeping, start_as
from tests.conftest import ME, NESTED, MachineFactory, needs_everybody, needs_root
from tests.driver import Machine
from tests.patience import until

pytestmark = pytest.mark.system

NOBODY = 4194305
"""Beyond the greatest pid that Linux gives."""

WAITS = "import sys; sys.stdout.write('.'); sys.stdout.flush(); sys.stdin.readline(); "
"""The start of a Python program that says one byte when it runs and goes on when told to."""


@pytest.fixture
def here(machine: MachineFactory) -> Machine:
    """A machine of one idle GPU."""
    return machine({"gpu": {"uuid": "GPU-0"}})


class Program:
    """Python code in a process of its own, which is on GPU 0 of a machine."""

    def __init__(self, here: Machine, code: str, **options: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            **options,
        )
        self.wait()
        here.change(gpu=0, compute=[{"pid": self.process.pid, "used": 1}])

    def wait(self) -> None:
        """Until it says a byte."""
        assert self.process.stdout
        assert self.process.stdout.read(1) == b"."

    def go_on(self) -> None:
        """Past its next readline."""
        assert self.process.stdin
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()


@pytest.fixture
def program(here: Machine) -> Iterator[Any]:
    """Start a Program; it is killed at the end."""
    started: list[Program] = []

    def start(code: str, **options: Any) -> Program:
        started.append(Program(here, code, **options))
        return started[-1]

    yield start
    for pid in started:
        pid.process.kill()
        pid.process.communicate()


def only(frame: Json) -> Json:
    """The process of a frame that has one."""
    [process] = frame["processes"]
    assert isinstance(process, dict)
    return process


def test_facts_are_those_of_psutil(here: Machine, program: Any) -> None:
    code = f"held = bytearray(64 << 20); held[::4096] = b'x' * len(held[::4096]); {WAITS}"
    started = time.time()
    pid = program(code).process.pid
    with Agent(here) as agent:
        told = only(agent.line())
    known = psutil.Process(pid)
    assert told["pid"] == pid
    assert told["user"] == known.username() == ME
    assert told["command"].startswith(f"{sys.executable} -c held = bytearray")
    assert told["start_time"] == pytest.approx(known.create_time(), abs=1.1)
    assert told["start_time"] == pytest.approx(started, abs=3)
    assert told["parent"] == os.getpid()
    assert told["state"] == "S"
    assert told["rss"] == pytest.approx(known.memory_info().rss, abs=4 << 20)
    assert told["rss"] > 64 << 20
    assert told["cpu"] is None


def test_start_times_tell_processes_apart(here: Machine) -> None:
    """To the hundredth of a second, the same in every frame and for every agent."""
    for name in ("one", "two"):
        here.spawn(name, [name])
        time.sleep(0.03)
    seen = []
    for _ in range(2):
        with Agent(here) as agent:
            for frame in (agent.line(), agent.refresh()):
                seen.append([process["start_time"] for process in frame["processes"]])
    assert len(set(map(tuple, seen))) == 1
    one, two = seen[0]
    assert 0.01 < two - one < 5


def test_cpu_is_known_from_the_second_frame_on(here: Machine) -> None:
    pids = [here.spawn("burn", ["burn"], manner="burn"), here.spawn("sleep", ["sleep"])]
    burning = psutil.Process(pids[0])
    with Agent(here, interval=0.5) as agent:
        first = agent.line()
        used, at = burning.cpu_times().user, time.monotonic()
        second = agent.line()
        share = (burning.cpu_times().user - used) / (time.monotonic() - at)
    assert [process["cpu"] for process in first["processes"]] == [None, None]
    cpu = {process["pid"]: process["cpu"] for process in second["processes"]}
    assert cpu[pids[0]] == pytest.approx(share, abs=0.2)
    assert cpu[pids[0]] > 0.05
    assert cpu[pids[1]] < 0.1
    state = {process["pid"]: process["state"] for process in second["processes"]}
    assert state == {pids[0]: "R", pids[1]: "S"}


def test_states(here: Machine, program: Any) -> None:
    running = program(WAITS).process
    with Agent(here) as agent:
        assert only(agent.line())["state"] == "S"
        running.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, running.pid, os.WSTOPPED | os.WNOWAIT)
        assert only(agent.refresh())["state"] == "T"
        running.kill()
        os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT)
        for _ in range(21):  # the command line is looked at again now and then
            zombie = only(agent.refresh())
            assert zombie["state"] == "Z"
            assert zombie["command"].startswith(sys.executable)
    with Agent(here) as agent:
        assert only(agent.line())["command"].startswith("[python")


def test_another_program_in_the_same_process(here: Machine, program: Any) -> None:
    """exec: the same number and start, another command."""
    code = WAITS + "import os; os.execvp('sleep', ['sleep', '1000'])"
    running = program(code)
    with Agent(here) as agent:
        before = only(agent.line())
        running.go_on()
        # The link to the program is another one a moment before the name is.
        until(lambda: executes(running.process.pid, "sleep"))
        until(lambda: only(agent.refresh())["command"] == "sleep 1000")
        after = only(agent.refresh())
    assert after["start_time"] == before["start_time"]


def test_another_command_line_under_the_same_name(here: Machine, program: Any) -> None:
    """It is seen after a while: names are read every time, command lines now and then."""
    again = "print(end='.', flush=True); input()"
    running = program(
        WAITS + f"import os; os.execv({sys.executable!r}, ['later', '-c', {again!r}])"
    )
    with Agent(here) as agent:
        agent.line()
        running.go_on()
        running.wait()
        told = {only(agent.refresh())["command"] for _ in range(30)}
    assert f"later -c {again}" in told


def test_a_process_that_names_itself(here: Machine, program: Any) -> None:
    """prctl changes the short name alone; the command line stays what it is."""
    rename = "import ctypes; ctypes.CDLL(None).prctl(15, b') R 1 (\\xff\\n', 0, 0, 0); "
    pid = program(rename + WAITS).process.pid
    with Agent(here) as agent:
        told = only(agent.line())
    assert told["command"].startswith(sys.executable)
    assert told["parent"] == os.getpid()
    assert told["start_time"] == pytest.approx(psutil.Process(pid).create_time(), abs=1.1)


@needs_root
@pytest.mark.parametrize("name", [r"Uid:\t0\t0\t0", r"\rUid:\t0\t0\t0"])
def test_a_name_that_reads_as_a_line_about_the_user(name: str, here: Machine, program: Any) -> None:
    """/proc/PID/status begins with the name, in which the kernel escapes newlines alone."""
    rename = f"ctypes.CDLL(None).prctl(15, b'{name}', 0, 0, 0); "
    program(f"import ctypes, os; os.setuid(65534); {rename}{WAITS}")
    with Agent(here) as agent:
        agent.line()
        assert only(agent.refresh())["user"] == pwd.getpwuid(65534).pw_name


@needs_root
@pytest.mark.parametrize("uid", [0, 65534, 54321])
def test_users(uid: int, here: Machine) -> None:
    """By name; by number where that has none."""
    names = {user.pw_uid: user.pw_name for user in pwd.getpwall()}
    with sleeping(user=uid) as process, Agent(here) as agent:
        here.change(gpu=0, compute=[{"pid": process.pid}])
        agent.line()
        assert only(agent.refresh())["user"] == names.get(uid, str(uid))
        process.kill()


def test_a_user_without_a_name_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while: a directory service may not have answered."""
    asked = []

    def getpwuid(uid: int) -> pwd.struct_passwd:
        asked.append(uid)
        if len(asked) == 1:
            raise KeyError(uid)
        return pwd.struct_passwd(["ann", "x", uid, uid, "", "/", "/bin/sh"])

    monkeypatch.setattr(pwd, "getpwuid", getpwuid)
    names = UserNames()
    names.prepare([4321])
    until(lambda: asked)
    names.prepare([4321])
    assert (names.name(4321), asked) == ("4321", [4321])
    monkeypatch.setattr(users, "_AGAIN", 0.0)
    names.prepare([4321])
    until(lambda: names.name(4321) == "ann")


@needs_root
def test_a_process_that_becomes_another_user(here: Machine, program: Any) -> None:
    """As those that a scheduler starts: first root's, then its user's, then the program."""
    code = f"import os; {WAITS} os.setuid(65534); os.execv('/bin/sleep', ['sleep', '1000'])"
    running = program(code)
    with Agent(here) as agent:
        assert only(agent.line())["user"] == "root"
        running.go_on()
        until(lambda: executes(running.process.pid, "sleep"))
        assert only(agent.refresh())["user"] == pwd.getpwuid(65534).pw_name


def test_a_process_that_is_not_here(here: Machine) -> None:
    """In another PID namespace, or gone: its row stays, with what the driver says."""
    here.change(gpu=0, compute=[{"pid": NOBODY, "used": 5, "sm": 7}])
    with Agent(here) as agent:
        told = only(agent.line())
    known = ("pid", "gpu_uuid", "type", "gpu_memory", "sm_utilization", "memory_utilization",
             "encoder_utilization", "decoder_utilization")  # fmt: skip
    assert [told[field] for field in known] == [NOBODY, "GPU-0", "C", 5, 0.07, 0.0, 0.0, 0.0]
    assert told.pop("elsewhere") is NESTED
    assert told.pop("idle_for") == 0.0
    assert {told[field] for field in told if field not in known} == {None}


def test_a_process_that_ends_between_frames(here: Machine, program: Any) -> None:
    running = program(WAITS).process
    with Agent(here) as agent:
        assert only(agent.line())["user"]
        running.kill()
        running.wait()
        told = only(agent.refresh())
    assert (told["user"], told["command"], told["start_time"]) == (None, None, None)
    assert told["gpu_memory"] == 1


def ticks_old(pid: int) -> float:
    """How long ago a process was started."""
    start = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK") - start


@needs_root
def test_a_number_that_is_used_again_is_another_process(here: Machine, program: Any) -> None:
    first = program(WAITS).process
    with Agent(here, interval=60) as agent:
        before = only(agent.line())
        agent.refresh()
        first.kill()
        first.wait()
        after_start = start_as(first.pid, ["sleep", "999"])
        try:
            until(lambda: ticks_old(after_start.pid) > 2)  # younger, it came after the list
            told = only(agent.refresh())
            while told["start_time"] is None:  # it may have begun after the GPU named it
                told = only(agent.refresh())
            until(lambda: only(agent.refresh())["command"] == "sleep 999")  # it may begin just now
        finally:
            after_start.kill()
            after_start.wait()
    assert told["start_time"] > before["start_time"]
    assert told["cpu"] is None


def test_a_process_that_may_not_be_looked_into(here: Machine, program: Any) -> None:
    """As one that has dropped privileges: to an ordinary user its descriptors are root's."""
    not_dumpable = "import ctypes; ctypes.CDLL(None).prctl(4, 0); "
    pid = program(not_dumpable + WAITS).process.pid
    with Agent(here) as agent:
        told = only(agent.line())
    assert told["user"] == ME
    assert told["command"]
    assert told["parent"] == os.getpid()
    assert told["pid"] == pid


@needs_everybody
def test_a_process_that_the_agent_may_not_look_into(here: Machine) -> None:
    """Process 1 shows its name and owner to everybody."""
    here.change(gpu=0, compute=[{"pid": 1, "used": 1}])
    with Agent(here) as agent:
        told = only(agent.line())
    assert told["user"] == psutil.Process(1).username()
    assert told["command"]
    assert told["parent"] == 0


@pytest.mark.long
def test_very_many_are_looked_at_in_turn(machine: MachineFactory) -> None:
    """All at first sight, and each again within a few ticks."""
    crowd = {"command": ["python", "worker-{n}.py"], "count": 600, "on": {"used": 1}}
    here = machine({"gpu": {"uuid": "GPU-0"}, "processes": {"crowd": crowd}})
    stopped = here.pids["crowd-7"]
    with Agent(here, interval=60) as agent:
        first = agent.line()["processes"]
        assert {process["command"] for process in first} == {
            f"python worker-{n}.py" for n in range(600)
        }
        os.kill(stopped, signal.SIGSTOP)

        def all_read_again() -> bool:
            """Five ticks have them all; one that takes too long shows what was read before."""
            told = {process["pid"]: process for process in agent.refresh()["processes"]}
            assert len(told) == 600
            read = sum(process["cpu"] is not None for process in told.values())
            return (told[stopped]["state"], read) == ("T", 600)

        until(all_read_again)


def test_rates_come_back_after_a_moment_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(function: Any, pids: Iterable[int]) -> dict[int, Any]:
        return {} if function is read_io else {pid: function(pid) for pid in pids}

    monkeypatch.setattr(processes, "_COMMAND_TURNS", 2)
    cache, own = ProcessCache(), os.getpid()
    with monkeypatch.context() as silent:
        silent.setattr(READER, "ask_all", answers)
        cache.read([own], timeout=5)
    until(lambda: cache.read([own], timeout=5)[own].io_read is not None)


def test_many_processes_are_read_in_few_exchanges(machine: MachineFactory) -> None:
    """Its reader waits once for each exchange; an exchange for each process costs the most CPU."""
    job = {"command": ["python", "job.py"], "count": 100, "on": {"used": 2**20}}
    here = machine({"gpu": {"uuid": "GPU-0"}, "processes": {"job": job}})
    with Agent(here) as agent:
        frames = [agent.line()]
        while not all(process.get("cuda_context") for process in frames[-1]["processes"]):
            frames.append(agent.refresh())
        assert len(frames[-1]["processes"]) == 100
        children = psutil.Process(agent.process.pid).children(recursive=True)
        readers = [child for child in children if not child.children()]
        waits = sum(reader.num_ctx_switches().voluntary for reader in readers)
    assert 0 < waits < 75 * len(frames)


def test_ancestors_whose_numbers_went_to_others_meanwhile_are_no_circle() -> None:
    parents = {7: 8, 8: 9, 9: 7}
    stats = {pid: parse_stat(b"%d (a) S %d %s" % (pid, parent, b"0 " * 48))
             for pid, parent in parents.items()}  # fmt: skip
    assert list(islice(ancestors(7, stats.get), 5)) == [8, 9]
