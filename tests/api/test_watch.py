"""`gputop.watch`: frames while it is open, and nothing left once it is closed, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.agent.driving import children_of, gone
from tests.api.programs import command, error, run, shown
from tests.conftest import MachineFactory, rest_long
from tests.driver import Machine
from tests.patience import until
from tests.sshd import Sshd, sshd

pytestmark = pytest.mark.system

__all__ = ["sshd"]


@pytest.fixture(scope="module")
def h200x8(kept: MachineFactory) -> Machine:
    return kept("h200x8")


def written(pid: int) -> int:
    """The bytes that a process has written."""
    return int(Path(f"/proc/{pid}/io").read_text().split()[3])


WAYS = {
    "loop": """
    with gputop.watch(0.5) as frames:
        for frame in frames:
            if len(seen) == 3:
                break
            seen.append(len(frame.processes))
    """,
    "no frame": """
    with gputop.watch(0.5):
        seen += [1, 1, 1]
    """,
    "raises": """
    try:
        with gputop.watch(0.5) as frames:
            for frame in frames:
                seen.append(len(frame.processes))
                if len(seen) == 3:
                    raise ValueError
    except ValueError:
        pass
    """,
    "thread": """
    def read():
        with gputop.watch(0.5) as frames:
            for _ in range(3):
                seen.append(len(next(frames).processes))
    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    """,
    "closed by another thread": """
    def read(frames):
        for frame in frames:
            seen.append(len(frame.processes))
            ready.set()
    ready = threading.Event()
    with gputop.watch(0.5) as frames:
        thread = threading.Thread(target=read, args=[frames])
        thread.start()
        ready.wait()
    thread.join()
    seen = seen[:1] * 3
    """,
    "asyncio": """
    import asyncio
    async def read():
        with gputop.watch(0.5) as frames:
            for _ in range(3):
                frame = await asyncio.to_thread(next, frames)
                seen.append(len(frame.processes))
            waiting = asyncio.create_task(asyncio.to_thread(next, frames, None))
            await asyncio.sleep(0)
    asyncio.run(read())
    """,
    "interrupted": """
    import signal
    try:
        with gputop.watch(0.5) as frames:
            for frame in frames:
                seen.append(len(frame.processes))
                if len(seen) == 3:
                    signal.setitimer(signal.ITIMER_REAL, 0.001)
                    signal.signal(signal.SIGALRM, signal.default_int_handler)
    except KeyboardInterrupt:
        seen = seen[:3]
    """,
    "given up, and asked again": """
    import asyncio
    async def read():
        with gputop.watch(0.5) as frames:
            try:
                await asyncio.wait_for(asyncio.to_thread(next, frames), 0.001)
            except asyncio.TimeoutError:
                pass
            for _ in range(3):
                seen.append(len((await asyncio.to_thread(next, frames)).processes))
    asyncio.run(read())
    """,
    "two": """
    with gputop.watch(0.5) as frames, gputop.watch(0.5) as others:
        seen += [len(next(each).processes) for each in (frames, others, frames)]
    """,
}  # fmt: skip


@rest_long("way", *WAYS)
def test_it_leaves_nothing(way: str, h200x8: Machine) -> None:
    code = "before, seen = left(), []" + WAYS[way] + "\n    show([seen, before, left()])"
    seen, before, after = shown(h200x8, f"    {code}")
    assert len(seen) == 3
    assert min(seen) > 0
    assert after == before


@pytest.mark.parametrize("how", ["sys.exit(0)", "os.kill(os.getpid(), 9)", "raise ValueError"])
def test_a_program_that_does_not_close_it(how: str, h200x8: Machine) -> None:
    code = f"""
    opened = gputop.watch(0.1)
    frames = opened.__enter__()
    next(frames)
    show(left()["children"])
    {how}
    """
    done = run(h200x8, code)
    (agent,) = json.loads(done.stdout)
    if "ValueError" not in how:
        assert done.stderr == ""
    else:
        assert done.stderr.splitlines()[-1] == "ValueError"
    until(lambda: gone(int(agent)))


def test_ctrl_c(h200x8: Machine) -> None:
    """The terminal's interrupt goes to the program alone; the agent ends with it."""
    code = """
    with gputop.watch(0.1) as frames:
        for frame in frames:
            show(left()["children"])
    """
    with subprocess.Popen(
        command(code), env=h200x8.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as program:  # fmt: skip
        assert program.stdout
        (agent,) = json.loads(program.stdout.readline())
        os.killpg(program.pid, signal.SIGINT)
        _, errors = program.communicate()
    assert program.returncode == -signal.SIGINT
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    until(lambda: gone(int(agent)))


def test_a_slow_reader_gets_what_is_new(h200x8: Machine) -> None:
    """Not the frames that came while it did something else: there are many."""
    code = """
    with gputop.watch(0.1) as frames:
        first = next(frames).time
        show("begun")
        sys.stdin.readline()
        show(next(frames).time - first)
    """
    program = h200x8.popen(command(code), stdin=subprocess.PIPE)
    assert program.stdout
    assert program.stdin
    assert json.loads(program.stdout.readline()) == "begun"
    (agent,) = children_of(program.pid)
    before = written(agent)
    until(lambda: written(agent) > before + 100_000)
    program.stdin.write("\n")
    program.stdin.flush()
    assert json.loads(program.stdout.readline()) > 0.35


@pytest.mark.long
def test_a_copy_of_the_program(h200x8: Machine) -> None:
    """A fork neither reads what is its parent's, nor ends it, and can watch for itself."""
    code = """
    with gputop.watch(0.1) as frames:
        next(frames)
        agents = left()["children"]
        copy = os.fork()
        if copy == 0:
            try:
                next(frames)
            except gputop.SourceError as e:
                show(str(e))
            with gputop.watch(0.1) as own:
                show(len(next(own).gpus))
            show(len(gputop.snapshot().gpus))
            sys.exit(0)
        status = os.waitpid(copy, 0)[1]
        show([status, left()["children"] == agents, len(next(frames).gpus), len(next(frames).gpus)])
    """
    done = run(h200x8, code)
    assert done.stderr == ""
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        "this is a fork of the process that watches: call watch() again in it",
        8,
        8,
        [0, True, 8, 8],
    ]


def test_the_agent_of_a_killed_program_ends_though_a_copy_runs_on(h200x8: Machine) -> None:
    code = """
    with gputop.watch(0.1) as frames:
        next(frames)
        agents = left()["children"]
        if os.fork() == 0:
            sys.stdin.read()
            os._exit(0)
        show(agents)
        next(frames)
        os.kill(os.getpid(), 9)
    """
    program = h200x8.popen(command(code), stdin=subprocess.PIPE)
    assert program.stdout
    (agent,) = json.loads(program.stdout.readline())
    assert program.wait() == -signal.SIGKILL
    until(lambda: gone(int(agent)))


@pytest.mark.parametrize("reaper", ["signal.SIG_IGN", "reap"])
def test_a_program_that_reaps_its_children_itself(reaper: str, h200x8: Machine) -> None:
    code = f"""
    import contextlib, signal
    def reap(*_):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
    before = left()
    signal.signal(signal.SIGCHLD, {reaper})
    with gputop.watch(0.1) as frames:
        next(frames)
    show([len(gputop.snapshot().gpus), before, settled(before)])
    """
    gpus, before, after = shown(h200x8, code)
    assert (gpus, after) == (8, before)


def test_an_agent_that_dies(h200x8: Machine) -> None:
    code = """
    with gputop.watch(0.1) as frames:
        next(frames)
        os.kill(int(left()["children"][0]), 9)
        for frame in frames:
            pass
    """
    assert error(h200x8, code) == ("SourceError", "the agent ended with status -9")


def test_a_machine_without_a_driver(machine: MachineFactory) -> None:
    """There is a frame that says so, and others once the driver is there."""
    code = """
    with gputop.watch(0.1) as frames:
        frame = next(f for f in frames if f.problem.code != "not_answering")
    show([len(frame.gpus), frame.problem.code, frame.to_dict()["problem"]["code"]])
    """
    assert shown(machine("no-driver"), code) == [0, "driver_not_loaded", "driver_not_loaded"]


@rest_long("arguments", "0", "'1'", "float('nan')", "1e9", "hosts=[]", "hosts='a b'")
def test_bad_arguments(arguments: str, h200x8: Machine) -> None:
    name, words = error(h200x8, f"with gputop.watch({arguments}):\n    pass")
    assert name == "UsageError"
    assert "\n" not in words


# Other machines


def test_two_hosts(sshd: Sshd, kept: MachineFactory, h200x8: Machine) -> None:
    """And one that cannot be reached: each frame says of which machine it is."""
    sshd.host("node1", h200x8.env)
    sshd.host("node2", kept("no-driver").env)
    code = """
    before, seen = left(), {}
    with gputop.watch(0.2, hosts=["node[1-2]", "nowhere.invalid"]) as frames:
        for frame in frames:
            problem = frame.problem and frame.problem.code
            seen[frame.host.requested_name] = [len(frame.gpus), problem]
            late = [problem for _, problem in seen.values() if problem == "not_answering"]
            if len(seen) == 3 and not late:
                break
    one = gputop.snapshot("node1")
    picked = [gpu.index for gpu in gputop.free(host="node1")]
    show([seen, one.host.requested_name, len(one.gpus), len(picked), before, settled(before)])
    """
    h200x8.env["GPUTOP_SSH_CONFIG"] = str(sshd.config)
    seen, name, gpus, picked, before, after = shown(h200x8, code)
    assert seen == {
        "node1": [8, None],
        "node2": [0, "driver_not_loaded"],
        "nowhere.invalid": [0, "agent_ended"],
    }
    assert (name, gpus, picked) == ("node1", 8, 1)
    assert after == before
