"""Processes that make of themselves more than anybody can read: they cost little, and what was not
read is told as not known. Real processes, by prctl(PR_SET_MM_MAP), descriptors, mappings, threads.
"""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gputop.agent.process.cuda_context import loaded_frameworks
from gputop.agent.process.detail import read_detail
from gputop.agent.process.device_holders import HolderFinder
from gputop.agent.process.environment import read_environ, read_whole_environ
from gputop.agent.process.holding import holds_gpu
from gputop.agent.process.procfs import open_files
from gputop.agent.process.stat import every_process
from gputop.model.machine.environment import NAME, relevant_variables
from gputop.protocol.messages import Detail
from tests.agent.driving import Agent, Json
from tests.agent.test_detail import answer, id_of
from tests.conftest import MachineFactory, needs_root, rest_long
from tests.driver import Machine, build
from tests.patience import until

pytestmark = pytest.mark.system

GIB, MIB = 2**30, 2**20
MOST_RSS = 400 * MIB
"""Of an agent; it has 40 MiB by itself, and had gigabytes."""
FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

Swell = Callable[..., int]


@pytest.fixture
def swell() -> Iterator[Swell]:
    """Start a process that is too large in some way; its pid."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str, env: dict[str, str] | None = None, prefix: tuple[str, ...] = ()) -> int:
        command = [*prefix, str(build.swollen()), *words]
        program = subprocess.Popen(command, stdout=subprocess.PIPE, env=env or {"A": "1"})
        started.append(program)
        assert program.stdout
        assert program.stdout.read(1) == b"."
        return program.pid

    yield start
    for pid in started:
        pid.kill()
        pid.wait()


@pytest.fixture
def here(machine: MachineFactory) -> Machine:
    """Two GPUs; on the first a process as any other."""
    here = machine({"gpu": {"uuid": "GPU-{i}"}, "gpus": 2})
    here.spawn("train", ["python", "train.py"], used=GIB, env={NAME: "0"})
    return here


def enlist(here: Machine, *pids: int) -> None:
    """Have the driver list them on GPU 1."""
    here.change(gpu=1, compute=[{"pid": pid, "used": 1} for pid in pids])


def peak(agent: Agent) -> int:
    """The most that an agent has had in memory."""
    return of_status(agent, "VmHWM")


def of_status(agent: Agent, field: str) -> int:
    """Bytes of a line of /proc/PID/status."""
    text = Path(f"/proc/{agent.process.pid}/status").read_text()
    return int(dict(line.split(":", 1) for line in text.splitlines())[field].split()[0]) * 1024


def known(agent: Agent) -> dict[int, Json]:
    """A frame in which everything has been looked at; processes by pid."""
    while True:
        frame = agent.refresh()
        if all(process["cuda_context"] and process["origin"] for process in frame["processes"]):
            return {process["pid"]: process for process in frame["processes"]}


@rest_long("words", ("cmdline=2147483648",), ("environ=2147483648",),
    ("cmdline=2147483648", "environ=2147483648"), ("entries=1000000",), ("misspelt=300000",),
    ("cmdline=1073741824", "maps=65000", "fds=100000"))  # fmt: skip
def test_an_agent_takes_no_more_memory_for_it(
    words: tuple[str, ...], here: Machine, swell: Swell
) -> None:
    """Not for the process's row, not for its page; the others are told of as ever."""
    pid, train = swell(*words), here.pids["train"]
    enlist(here, pid)
    with Agent(here) as agent:
        agent.line()
        told = known(agent)
        detail = answer(agent, "detail", "detail", pid, hidden=True)
        assert peak(agent) < MOST_RSS
    assert told[train]["command"] == "python train.py"
    assert told[train]["cuda_context"]["environ"]["variables"] == {NAME: "0"}
    assert detail["process"]["pid"] == pid
    assert len(told[pid]["command"]) <= 4098
    if {"environ=2147483648", "entries=1000000", "misspelt=300000"} & set(words):
        assert told[pid]["cuda_context"]["environ"] == {"missing": "too_long"}
        assert (detail.get("variables"), detail["missing"]) == (None, "too_long")


@pytest.mark.parametrize("form", ["--json", "--once"])
def test_a_single_look_takes_no_more_either(form: str, here: Machine, swell: Swell) -> None:
    enlist(here, *(swell("cmdline=2147483648", "environ=2147483648") for _ in range(3)))
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    done = here.run([sys.executable, "-m", "gputop", form])
    assert (done.returncode, done.stderr) == (0, "")
    assert "train.py" in done.stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert after * 1024 < max(MOST_RSS, before * 1024 + 1)


@pytest.mark.parametrize("words", ["--json", "--device=cuda:0"])
def test_what_is_too_long_is_not_unset(words: str, here: Machine, swell: Swell) -> None:
    """`map --pid`: not known, with the reason; never that every GPU is visible."""
    pid = swell("environ=2147483648")
    enlist(here, pid)
    done = here.run([sys.executable, "-m", "gputop", "map", "--pid", str(pid), words])
    assert done.returncode == 0, done.stderr
    if words == "--json":
        answer = json.loads(done.stdout)
        assert (answer["certainty"], answer["devices"]) == ("unknown", None)
    else:
        assert "too long" in done.stdout
        assert "unset" not in done.stdout.partition("\n")[0]


def test_what_is_long_and_no_longer_than_may_be_is_read(swell: Swell) -> None:
    """The kernel takes 128 KiB a variable, 2 MiB in all where the stack has its usual limit."""
    many = {f"N{n}": "x" * 100_000 for n in range(15)}
    pid = swell("fds=1", env={**many, NAME: "1"})
    assert read_environ(pid).variables == {NAME: "1"}
    assert len(read_whole_environ(pid).variables) == 16
    shorter = swell("entries=16000")
    assert len(read_whole_environ(shorter).variables) == 16000
    assert read_whole_environ(swell("entries=17000")).missing == "too_long"


def test_variables_that_change_while_they_are_read(swell: Swell) -> None:
    """A program that writes over them again and again: an answer that was so at some moment."""
    code = """
import ctypes, os, sys
with open("/proc/self/stat") as file:
    start, end = map(int, file.read().rpartition(")")[2].split()[47:49])
own = (ctypes.c_char * (end - start)).from_address(start)
print(".", flush=True)
size = end - start
while True:
    own.raw = (b"CUDA_VISIBLE_DEVICES=0\\0A=" + b"x" * size)[: size - 1] + b"\\0"
    own.raw = bytes(size)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        env={"LONG": "x" * 90000, NAME: "1"},
    ) as program:
        assert program.stdout
        program.stdout.readline()
        found = {(environ.missing, environ.variables.get(NAME)) for environ in
                 (read_environ(program.pid) for _ in range(300))}  # fmt: skip
        program.kill()
    told = {("unset", "0"), ("unset", "1"), ("unset", None)}
    assert found <= told | {("overwritten", None), ("too_long", None)}


@pytest.mark.long
def test_names_that_are_nearly_right_are_held_against_it_in_bounds(swell: Swell) -> None:
    """Each costs some hundred steps."""
    environ = read_whole_environ(swell("misspelt=16000"))
    assert len(environ.variables) == 16000
    started = time.process_time()
    assert relevant_variables(environ).variables == {}
    assert time.process_time() - started < 1


@pytest.mark.long
def test_a_thousand_long_command_lines_make_no_endless_frame(machine: MachineFactory) -> None:
    """64 KiB each; of a few the beginning is told at length."""
    crowd = {"command": ["python", "x" * 65000], "count": 1000, "on": {"used": 1}}
    here = machine({"gpu": {"uuid": "GPU-0"}, "processes": {"crowd": crowd}})
    with Agent(here, interval=60) as agent:
        frame = agent.line(30)
        while not all(process["command"] for process in frame["processes"]):
            frame = agent.refresh(30)  # not all have their turn at once
        commands = [process["command"] for process in frame["processes"]]
    assert len(commands) == 1000
    assert all(command.startswith("python xxx") for command in commands)
    assert all(command.endswith("…") for command in commands)
    assert sum(map(len, commands)) <= MIB
    assert min(map(len, commands)) >= 256


def test_a_command_line_that_was_cut_says_so(here: Machine, swell: Swell) -> None:
    enlist(here, swell("cmdline=1000000", "fill=y"), swell("cmdline=2000000000"))
    with Agent(here) as agent:
        commands = {process["command"] for process in agent.line()["processes"]}
    assert f"train{'y' * 4090}…" in commands
    assert "train …" in commands


@needs_root
def test_a_name_of_newlines(here: Machine) -> None:
    code = "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'a\\n\\x1b[2J\\nb', 0, 0, 0); "
    code += "print('.', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdout
        program.stdout.readline()
        child = [process for pid, process in every_process().items() if pid == program.pid]
        enlist(here, program.pid)
        with Agent(here) as agent:
            agent.line()
            told = known(agent)
            detail = answer(agent, "detail", "detail", os.getpid())
        once = here.run([sys.executable, "-m", "gputop", "--once"]).stdout
        program.kill()
    assert child[0].name == "a\n\x1b[2J\nb"
    said = json.dumps([told, detail], ensure_ascii=False) + once.replace("\n", "")
    assert not any(ord(character) < 32 for character in said)


@pytest.mark.long
def test_a_process_of_very_many_threads_and_children(here: Machine, swell: Swell) -> None:
    pid = swell("threads=5000", "children=500")
    enlist(here, pid)
    with Agent(here) as agent:
        agent.line()
        assert known(agent)[pid]["threads"] == 5001
        detail = answer(agent, "detail", "detail", pid)
        assert peak(agent) < MOST_RSS
    assert (len(detail["children"]), detail["children_count"]) == (64, 500)


def test_files_are_looked_at_from_where_the_last_look_ended(swell: Swell) -> None:
    pid = swell("fds=15000", env={"FILE": "/etc/passwd"})
    names, looks = set[str](), 0
    first: int | None = 0
    while first is not None:
        found, first = open_files(pid, 0.0, first)
        names, looks = names | found, looks + 1
    assert {"/dev/null", "/etc/passwd"} <= names
    assert looks in (235, 236)
    assert open_files(pid, math.inf).next is None
    assert open_files(pid, 0.0).next is not None
    detail = read_detail(Detail(id_of(pid)))
    assert detail.files == len(os.listdir(f"/proc/{pid}/fd"))


NODES = 'mount -t tmpfs tmpfs /dev && touch /dev/null /dev/nvidia{0} /dev/nvidia-uvm && exec "$@"'


def hides_a_node(swell: Swell, minor: int, count: int) -> int:
    """A process that has a GPU's node open behind many other files."""
    prefix = ("unshare", "--mount", "sh", "-c", NODES.format(minor), "sh")
    return swell(f"fds={count}", env={"FILE": f"/dev/nvidia{minor}"}, prefix=prefix)


@needs_root
@pytest.mark.long
def test_who_hides_a_gpu_behind_many_files_is_found_at_last(swell: Swell) -> None:
    """And until then it is not told that there is nobody."""
    minor = 1000 + os.getpid()
    hidden = [hides_a_node(swell, minor, min(FILES - 100, 19000)) for _ in range(4)]
    finder, looks = HolderFinder(), 0
    while not (found := finder.find([minor], every_process(), frozenset(), 0.02)).complete:
        looks += 1
        assert looks < 500
    assert {process.pid for process in found.by_minor[minor]} == set(hidden)
    assert looks > 3
    again = finder.find([minor], every_process(), frozenset(), 0.02)
    assert {process.pid for process in again.by_minor[minor]} == set(hidden)


@needs_root
def test_a_screen_says_that_others_may_hold_it(machine: MachineFactory, swell: Swell) -> None:
    """Memory of nobody, and more open files than one look takes."""
    minor = 1000 + os.getpid()
    memory = {"total": 2**37, "used": 30 * GIB, "reserved": 0}
    here = machine({"gpu": {"uuid": "GPU-0", "memory": memory, "minor": minor}})
    count = 1 + 400_000 // FILES if FILES < 400_000 else 1
    pids = [hides_a_node(swell, minor, FILES - 100) for _ in range(count)]
    with Agent(here, interval=0.5) as agent:
        agent.line()

        def gpu() -> Json:
            found: Json = agent.line()["gpus"][0]
            return found

        until(lambda: gpu()["holders_known"] is not None, within=20)
        told = gpu()
        if told["holders_known"] is False:
            assert len(told["holders"]) < len(pids)
        before = cpu_seconds(agent.process.pid)
        for _ in range(8):
            agent.line()
        assert cpu_seconds(agent.process.pid) - before < 2
    once = here.run([sys.executable, "-m", "gputop", "--once"]).stdout
    found = [pid for pid in pids if f" {pid} " in once]
    assert len(found) == min(16, len(pids)) or "not every process was searched in time" in once


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_mappings_without_end_are_looked_through_in_bounds(swell: Swell) -> None:
    """65,000 of them took seconds; what was not looked at is not known, and not `no`."""
    pid = swell("maps=65000", "fds=100000", "nocuda=1")
    started = time.process_time()
    assert loaded_frameworks(pid) == ()
    assert holds_gpu(pid) in (None, False)
    assert time.process_time() - started < 1


def test_one_that_takes_too_much_memory_costs_no_other_its_row(here: Machine, swell: Swell) -> None:
    """An agent with little room left, and processes whose variables take it all."""
    for n in range(5):
        here.spawn(f"other-{n}", ["python", f"other-{n}.py"], env={NAME: "1"}, used=1)
    pids = [swell("environ=8000000", "fill=y") for _ in range(3)]
    with Agent(here) as agent:
        agent.line()
        known(agent)
        room = of_status(agent, "VmData") + 13 * MIB
        resource.prlimit(agent.process.pid, resource.RLIMIT_DATA, (room, -1))
        enlist(here, *pids)

        def all_nine() -> dict[int, Json] | None:
            found = known(agent)
            return found if len(found) == 9 else None

        told = until(all_nine)  # a GPU, too, may find no room once
    assert told.keys() >= set(pids)
    commands = {process["command"] for process in told.values()}
    assert {f"python other-{n}.py" for n in range(5)} <= commands
    for pid in pids:
        assert told[pid]["cuda_context"]["environ"] == {"missing": "too_long"}
        assert read_environ(pid).variables == {NAME: "0"}  # with more room
