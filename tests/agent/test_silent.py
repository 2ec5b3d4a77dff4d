"""Processes that block whoever reads them: others are read on, and killed, as ever."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from gputop.reservations.folder import LockFolder
from gputop.reservations.hold import Hold
from gputop.reservations.locks import read_locks
from tests.agent.driving import Agent, Json
from tests.conftest import MachineFactory, needed, needs_root
from tests.driver import Machine, build
from tests.driver.scenario import enlist
from tests.fuse import Fuse
from tests.patience import until

pytestmark = [
    pytest.mark.system,
    needs_root,
]

GPUTOP = [sys.executable, "-m", "gputop"]
MALLORY, VICTIM = 4711, 4712
SILENT = "[blocked] does not answer"
Block = Callable[..., int]


@pytest.fixture
def here(machine: MachineFactory) -> Machine:
    return machine({"gpu": {"uuid": "GPU-0"}})


@pytest.fixture
def block(tmp_path: Path) -> Iterator[Block]:
    """Start a process of another user that blocks whoever reads it; its pid. With `executes` even
    its stat."""
    for above in (tmp_path, *tmp_path.parents[:3]):
        if "pytest" in str(above):
            above.chmod(0o755)
    with ExitStack() as stack:

        def start(*words: str) -> int:
            folder = tmp_path / f"fuse{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            fuse = stack.enter_context(Fuse(folder, MALLORY, has_page=True))
            fuse.serve()
            program = subprocess.Popen(
                [str(build.blocked()), str(folder / "page"), *words],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=MALLORY, group=MALLORY,
            )  # fmt: skip
            stack.callback(program.communicate)
            stack.callback(fuse.end)  # first: it does not end while it waits for the page
            assert program.stdin
            assert program.stdout
            pid = int(program.stdout.readline())
            stack.callback(os.kill, pid, signal.SIGKILL)
            assert fuse.wait_until_asked()
            program.stdin.write(b"x")
            program.stdin.flush()
            assert program.stdout.readline() == b"\n"
            return pid

        yield start


@contextmanager
def sleeping(seconds: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", seconds], user=VICTIM, group=VICTIM) as program:
        try:
            yield program
        finally:
            program.kill()


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    with sleeping("1000") as program:
        yield program


def put_on_gpu(here: Machine, *pids: int) -> None:
    for entry in [{"pid": pid, "used": 2**30} for pid in pids]:
        here.update(partial(_enlist, entry))


def _enlist(entry: Json, scenario: Json) -> None:
    enlist(scenario["gpus"][0], "compute", entry)


def rows(frame: Json) -> dict[int, Json]:
    return {process["pid"]: process for process in frame["processes"]}


def commands(agent: Agent) -> dict[int, str | None]:
    return {pid: row["command"] for pid, row in rows(agent.refresh()).items()}


@pytest.mark.parametrize("words", [(), ("executes",)])
def test_others_are_read_and_killed_as_ever(
    words: tuple[str, ...], here: Machine, block: Block, victim: subprocess.Popen[bytes]
) -> None:
    """Whoever is on the GPU with it, and whoever comes later."""
    bad = block(*words)
    put_on_gpu(here, bad, victim.pid)
    done = here.run([*GPUTOP, "--json"])
    assert (done.returncode, done.stderr) == (0, "")
    processes = rows(json.loads(done.stdout))
    assert processes[victim.pid]["command"] == "sleep 1000"
    assert processes[victim.pid]["user"] == str(VICTIM)
    assert processes[victim.pid]["origin"]["cwd"]
    assert processes[bad]["user"] == str(MALLORY)
    assert processes[bad]["command"] == SILENT
    with Agent(here) as agent:
        agent.line()
        with sleeping("1001") as later:
            put_on_gpu(here, later.pid)
            until(lambda: rows(agent.refresh())[later.pid]["origin"], within=20)
            row = rows(agent.refresh())[later.pid]
            assert (row["user"], row["command"]) == (str(VICTIM), "sleep 1001")
            until(lambda: rows(agent.refresh())[later.pid]["cuda_context"], within=20)
            context = rows(agent.refresh())[later.pid]["cuda_context"]
            assert "missing" not in context["environ"]
    done = here.run([*GPUTOP, "kill", str(victim.pid), "--yes", "--foreign"])
    assert f"{victim.pid} {VICTIM} sleep 1000: it has ended" in done.stdout, done
    assert victim.wait() == -15


def test_it_can_be_signalled_itself(here: Machine, block: Block) -> None:
    """Nothing of that takes its command line; its page says that it does not answer."""
    bad = block()
    put_on_gpu(here, bad)
    with Agent(here) as agent:
        start_ticks = rows(agent.line())[bad]["start_ticks"]
        agent.ask("detail", id="detail", process={"pid": bad, "start_ticks": start_ticks})
        assert agent.done("detail")["detail"]["missing"] == "no_answer"
    done = here.run([*GPUTOP, "kill", str(bad), "--yes", "--foreign", "--grace", "0.1"])
    assert done.returncode == 1
    assert f"{bad} {MALLORY} [blocked] does not answer: " in done.stdout


def test_a_crowd_of_them_delays_nobody_for_long(
    here: Machine, block: Block, victim: subprocess.Popen[bytes]
) -> None:
    """More than there are workers."""
    crowd = [block() for _ in range(10)]
    put_on_gpu(here, *crowd, victim.pid)
    with Agent(here) as agent:
        agent.line()
        until(lambda: rows(agent.refresh())[victim.pid]["origin"], within=20)
        assert rows(agent.refresh())[victim.pid]["command"] == "sleep 1000"
        until(lambda: commands(agent) == {**dict.fromkeys(crowd, SILENT), victim.pid: "sleep 1000"},
              within=20, seen=lambda: commands(agent))  # fmt: skip
        threads = len(list(Path(f"/proc/{agent.process.pid}/task").iterdir()))
        assert threads < 30  # none is lost


def test_reservations_are_read_whatever_process_they_name(
    here: Machine, block: Block, tmp_path: Path
) -> None:
    """By commands, and by the agent."""
    bad = block("executes")
    with LockFolder() as folder:
        theirs, ours = Hold(folder, "GPU-9", "x"), Hold(folder, "GPU-0", "train.py")
        os.fchown(theirs.descriptor, MALLORY, MALLORY)
        os.pwrite(theirs.descriptor, f"{theirs.name} {bad} 1 0\nxxxxxxxxxxxxxxxx".encode(), 0)
        locks = {lock.uuid: (lock.uid, lock.pid) for lock in read_locks()}
        assert locks == {"GPU-9": (MALLORY, None), "GPU-0": (0, os.getpid())}
        with Agent(here) as agent:
            agent.line()
            until(lambda: agent.refresh()["gpus"][0]["reservation"], within=20)
            assert agent.refresh()["gpus"][0]["reservation"]["pid"] == os.getpid()
        ours.release()
        theirs.release()


def test_no_device_is_needed_to_read_them(here: Machine, victim: subprocess.Popen[bytes]) -> None:
    """A container may have no /dev/null, or none that its users may open."""
    put_on_gpu(here, victim.pid)
    unshare = needed("unshare", "util-linux")
    script = 'mount -t tmpfs none /dev; exec "$@"'
    done = here.run([unshare, "--mount", "sh", "-c", script, "sh", *GPUTOP, "--json"])
    assert (done.returncode, done.stderr) == (0, "")
    assert rows(json.loads(done.stdout))[victim.pid]["command"] == "sleep 1000"


def detail(agent: Agent) -> Json:
    agent.ask("detail", id="detail", process={"pid": os.getpid(), "start_ticks": 1})
    return agent.done("detail")


@pytest.mark.parametrize("read", [Agent.refresh, detail], ids=["frame", "request"])
def test_an_agent_ends_without_the_process_that_reads_others(
    read: Callable[[Agent], object], here: Machine, victim: subprocess.Popen[bytes]
) -> None:
    """Its reader starts another: nothing is read unguarded, and no row stays without its facts.
    It says so once, whichever thread meets it, not only the one that keeps records."""
    put_on_gpu(here, victim.pid)
    with Agent(here, options=["--no-files"]) as agent:
        agent.line()
        [keeper] = psutil.Process(agent.process.pid).children()
        keeper.suspend()  # it makes no more of them
        for process in (keeper, *keeper.children()):
            process.kill()
        with pytest.raises((EOFError, BrokenPipeError)):
            until(lambda: read(agent) is None)
        assert agent.process.wait(60) == 1
        assert agent.process.stderr
        lines = agent.process.stderr.read().splitlines()
        assert len(lines) == 1, lines
        assert b"the process that reads the others has ended (status -9)" in lines[0]
