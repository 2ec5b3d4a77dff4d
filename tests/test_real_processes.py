"""Real processes that tell, hide or change their variables: what `gputop` makes of each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gputop.agent.process.environment import read_environ
from gputop.model.machine.environment import Environ
from tests.conftest import MachineFactory, in_child, needs_root
from tests.driver import Machine, build
from tests.driver.scenario import enlist

pytestmark = pytest.mark.system

N = "CUDA_VISIBLE_DEVICES"
EIGHT = {"base": "h200x8", "processes": {}}
READY = "print('ready', flush=True); sys.stdin.read()"
Start = Callable[..., int]


@contextmanager
def started(
    here: Machine,
    program: str | list[str],
    gpu: int,
    env: dict[str, str] | None = None,
    prefix: tuple[str, ...] = (),
) -> Iterator[int]:
    """A program (Python's, or a whole command) that prints `ready`, is on a GPU and lives on."""
    command = [*prefix, sys.executable, "-c", program] if isinstance(program, str) else program
    plain = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**plain, **build.loading_cuda(), **(env or {})},
    ) as child:
        assert child.stdout is not None
        line = child.stdout.readline().split()
        assert line[:1] == [b"ready"]
        pid = int(line[1]) if line[1:] else child.pid
        entry = {"pid": pid, "used": 2**30}
        here.update(lambda scenario: enlist(scenario["gpus"][gpu], "compute", entry))
        yield pid
        child.communicate()


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as stack:
        yield lambda *arguments, **named: stack.enter_context(started(*arguments, **named))


def column(here: Machine) -> dict[int, str]:
    """By pid, what the CUDA column of `gputop --once` says."""
    done = here.run([sys.executable, "-m", "gputop", "--once"])
    assert (done.returncode, done.stderr) == (0, "")
    _, rows = done.stdout.split("GPU  CUDA", 1)
    words = [line.split() for line in rows.splitlines()[1:]]
    return {int(row[2]): row[1] for row in words}


def cuda_contexts(here: Machine) -> dict[int, Any]:
    done = here.run([sys.executable, "-m", "gputop", "--json"])
    return {
        process["pid"]: process["cuda_context"] for process in json.loads(done.stdout)["processes"]
    }


def told(here: Machine, pid: int) -> str:
    return here.run([sys.executable, "-m", "gputop", "map", "--pid", str(pid)]).stdout


def test_each_kind_of_environment(machine: MachineFactory, start: Start) -> None:
    here = machine(EIGHT)
    program = f"import sys; {READY}"
    masked = start(here, program, 2, {N: "2,1", "SECRET_TOKEN": "hush"})
    empty = start(here, program, 3, {N: ""})
    unset = start(here, program, 4)
    typo = start(here, program, 5, {"CUDA_VISIBLE_DIVICES": "5"})
    hidden = start(here, program, 7, {N: "0"})
    cuda = [f"{name}={value}" for name, value in build.loading_cuda().items()]
    bare = start(here, ["env", "-i", *cuda, sys.executable, "-c", program], 0)
    names = column(here)
    assert names[masked] == "cuda:0"
    assert names[empty] == "?"  # it runs there although its variables hide every GPU
    assert names[unset] == "cuda:4?"
    assert names[typo] == "cuda:5?"
    assert names[hidden] == "?"
    assert names[bare] == "cuda:0"
    found = cuda_contexts(here)
    assert found[masked]["environ"] == {"variables": {N: "2,1"}}
    assert found[typo]["environ"]["variables"] == {"CUDA_VISIBLE_DIVICES": "5"}
    once = here.run([sys.executable, "-m", "gputop", "--once"]).stdout
    assert once.count("(! CUDA_VISIBLE_DIVICES)") == 1


def test_of_a_name_that_stands_twice_the_first_counts(
    machine: MachineFactory, start: Start
) -> None:
    here = machine(EIGHT)
    cuda = [f"{name}={value}".encode() for name, value in build.loading_cuda().items()]
    block = [f"{N}=3".encode(), f"{N}=0".encode(), b"PATH=/bin", *cuda, None]
    arguments = [sys.executable.encode(), b"-c", f"import sys; {READY}".encode(), None]
    program = (
        "import ctypes\n"
        f"argv, envp = {arguments!r}, {block!r}\n"
        "strings = lambda texts: (ctypes.c_char_p * len(texts))(*texts)\n"
        f"ctypes.CDLL(None).execve({arguments[0]!r}, strings(argv), strings(envp))\n"
    )
    pid = start(here, program, 3)
    assert Path(f"/proc/{pid}/environ").read_bytes().count(N.encode()) == 2
    assert column(here)[pid] == "cuda:0"


def test_a_rewritten_title(machine: MachineFactory, start: Start) -> None:
    here = machine(EIGHT)
    title = f"import setproctitle, sys; setproctitle.setproctitle('ray::Trainer'); {READY}"
    pid = start(here, title, 6, {N: "6"})
    assert column(here)[pid] == "env-lost"
    assert cuda_contexts(here)[pid]["environ"] == {"missing": "overwritten"}
    assert "wrote over the variables" in told(here, pid)


WORKERS = """
import os, setproctitle, sys
title = setproctitle.setproctitle
if sys.argv[1] == "master": title("gunicorn: master [app]")
if os.fork():
    os.wait()
else:
    title("gunicorn: worker [app]")
    print('ready', os.getpid(), flush=True); sys.stdin.read(); os._exit(0)
"""


@pytest.mark.parametrize("renamed", ["worker", "master"])
def test_a_renamed_worker_has_the_variables_of_who_started_it(
    machine: MachineFactory, start: Start, renamed: str
) -> None:
    """vLLM's main process shows them; gunicorn's is renamed as well, and a shell started it."""
    here = machine(EIGHT)
    command = [sys.executable, "-c", WORKERS, renamed]
    pid = start(here, ["sh", "-c", '"$@"; true', "sh", *command], 6, {N: "5,6"})
    assert column(here)[pid] == "cuda:1?"
    found = cuda_contexts(here)[pid]
    assert found["environ"] == {"missing": "overwritten"}
    assert found["ancestor"]["environ"] == {"variables": {N: "5,6"}}
    text = told(here, pid)
    assert "which fits the variables of the process that started it" in text
    assert "env-lost" not in text
    elsewhere = start(here, ["sh", "-c", '"$@"; true', "sh", *command], 2, {N: "5,6"})
    assert column(here)[elsewhere] == "env-lost"


SETS = f"""
import multiprocessing, os, subprocess, sys
os.environ["{N}"] = "5"
sleeper = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]
"""


def test_a_child_that_it_executes_shows_what_a_program_set_itself(
    machine: MachineFactory, start: Start
) -> None:
    here = machine(EIGHT)
    spawns = f"{SETS}c = subprocess.Popen(sleeper, stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
    pid = start(here, f"{spawns}c.stdout.readline(); {READY}", 5)
    assert column(here)[pid] == "cuda:0?"
    found = cuda_contexts(here)[pid]
    assert found["environ"] == {}
    assert found["descendant"]["environ"] == {"variables": {N: "5"}}
    assert "it has probably set them itself" in told(here, pid)


def test_a_forked_child_shows_nothing_new(machine: MachineFactory, start: Start) -> None:
    here = machine(EIGHT)
    forks = f"{SETS}child = os.fork()\nif child == 0: sys.stdin.read(); os._exit(0)\n"
    pid = start(here, f"{forks}{READY}", 5)
    assert column(here)[pid] == "cuda:5?"
    assert "descendant" not in cuda_contexts(here)[pid]


NARROWS = f"""
import os, sys
os.environ["{N}"] = "2"
if os.fork() == 0:
    print('ready', os.getpid(), flush=True); sys.stdin.read(); os._exit(0)
os.wait()
"""


@pytest.mark.parametrize("rank", [None, "2"])
def test_a_list_that_its_program_may_have_narrowed_is_only_likely(
    machine: MachineFactory, start: Start, rank: str | None
) -> None:
    """A forked worker that sets the variable: /proc shows the list that its parent was given."""
    here = machine(EIGHT)
    ranks = {"LOCAL_RANK": rank} if rank else {}
    pid = start(here, NARROWS, 2, {N: "0,1,2,3", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", **ranks})
    assert column(here)[pid] == ("cuda:2" if rank else "cuda:2?")
    text = told(here, pid)
    assert ("is cuda:0 in the first case and cuda:2 in the second" in text) == (rank is None)
    assert ("(exact:" in text) == (rank is not None)


def test_children_that_disagree_prove_nothing(machine: MachineFactory, start: Start) -> None:
    """A launcher that gives each worker a GPU of its own."""
    here = machine(EIGHT)
    workers = (
        f"{SETS}\nfor gpu in '01':\n"
        f"    c = subprocess.Popen(sleeper, env={{**os.environ, '{N}': gpu}},"
        " stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n    c.stdout.readline()\n"
    )
    pid = start(here, f"{workers}{READY}", 0)
    assert column(here)[pid] == "cuda:0"
    assert "descendant" not in cuda_contexts(here)[pid]


def test_a_framework_is_seen_by_its_libraries(
    machine: MachineFactory, start: Start, tmp_path: Path
) -> None:
    """TensorFlow opens every GPU that it sees; on one of eight, it sees one."""
    here = machine(EIGHT)
    library = tmp_path / "libtensorflow_framework.so.2"
    library.write_bytes(bytes(4096))
    maps = f"import mmap, sys; f = open({str(library)!r}, 'r+b'); m = mmap.mmap(f.fileno(), 0)"
    pid = start(here, f"{maps}; {READY}", 6)
    assert column(here)[pid] == "cuda:0?"
    assert cuda_contexts(here)[pid]["frameworks"] == ["tensorflow"]


@needs_root
def test_in_a_private_mount_namespace_integers_count_its_own_nodes(
    machine: MachineFactory, start: Start
) -> None:
    here = machine(EIGHT)
    nodes = "mount -t tmpfs tmpfs /dev && touch /dev/nvidiactl /dev/nvidia2 /dev/nvidia5"
    script = f'{nodes} && exec "$0" -c "$1"'
    program = f"import sys; {READY}"
    command = ["unshare", "--mount", "sh", "-c", script, sys.executable, program]
    pid = start(here, command, 5, {N: "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert column(here)[pid] == "cuda:0"
    assert cuda_contexts(here)[pid]["minors"] == [2, 5]
    assert "It reaches GPU 2, GPU 5" in told(here, pid)


@needs_root
def test_in_a_private_pid_namespace_it_is_found_by_the_number_that_we_see(
    machine: MachineFactory, start: Start
) -> None:
    here = machine(EIGHT)
    unshare = ("unshare", "--pid", "--fork", "--mount-proc")
    outer = subprocess.Popen(
        [*unshare, sys.executable, "-c", f"import os, sys; print('ready', os.getpid()); {READY}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, N: "4"},
    )
    with outer:
        assert outer.stdout is not None
        assert outer.stdout.readline() == b"ready 1\n"  # so it is called inside
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text()
        pid = int(children.split()[0])
        entry = {"pid": pid, "used": 2**30}
        here.update(lambda scenario: enlist(scenario["gpus"][4], "compute", entry))
        assert column(here)[pid] == "cuda:0"
        outer.communicate()


def missing_for_nobody(pid: int) -> str:
    """What the variables of a process are for another user than root."""
    read, write = os.pipe()
    words = in_child(lambda: os.write(write, read_environ(pid).missing.encode()), 65534)
    os.close(write)
    assert words == ""
    with open(read) as pipe:
        return pipe.read()


@needs_root
def test_anothers_variables_are_private() -> None:
    assert missing_for_nobody(os.getpid()) == "unreadable"
    assert read_environ(2**22 + 1) == Environ({}, "gone")


@needs_root
def test_variables_of_a_zombie_are_gone_and_not_private() -> None:
    """Its file is root's alone, whoever it was."""
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert missing_for_nobody(process.pid) == "gone"
        assert read_environ(process.pid) == Environ({}, "gone")
