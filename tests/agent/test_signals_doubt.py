"""Nothing is called ended that was not seen to be, and nothing ours that is a container's."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gputop.protocol.messages import Signal
from tests.agent.driving import Agent, Json, sleeping, start_as
from tests.agent.test_signals import (
    NOBODY,
    READY,
    Start,
    in_child,
    start,
    target,
    target_of,
    verdict,
)
from tests.conftest import NESTED, MachineFactory, needed, needs_everybody, needs_root, rest_long
from tests.driver import Machine
from tests.driver.scenario import enlist
from tests.patience import until

pytestmark = pytest.mark.system

__all__ = ["start"]

GIB = 2**30
KILL = [sys.executable, "-m", "gputop", "kill"]
_NEW_MOUNTS, _NEW_USER = 0x20000, 0x10000000


@pytest.fixture
def here(machine: MachineFactory, tmp_path: Path) -> Machine:
    """Two GPUs."""
    made = machine({"gpu": {"uuid": "GPU-{i}", "memory": {"total": 80 * GIB, "used": GIB}},
                    "gpus": 2})  # fmt: skip
    made.env["XDG_STATE_HOME"] = str(tmp_path / "state")
    return made


def on_gpu(here: Machine, pid: int, gpu: int = 0) -> int:
    here.update(lambda scenario: enlist(scenario["gpus"][gpu], "compute", {"pid": pid, "used": 1}))
    return pid


def order_for(pid: int, number: int = 15) -> Signal:
    return Signal("a", (target_of(pid),), number, 1.0)


def kill(
    here: Machine, *words: object, prefix: tuple[str, ...] = ()
) -> tuple[int, list[Json], str]:
    """Status, verdicts, errors."""
    done = here.run([*prefix, *KILL, "--yes", "--json", *map(str, words)])
    told = json.loads(done.stdout)["verdicts"] if done.stdout else []
    return done.returncode, told, done.stderr


# What cannot be looked at


def mounted(*commands: str) -> None:
    """Mount in a namespace of our own."""
    assert ctypes.CDLL(None).unshare(_NEW_MOUNTS) == 0
    for command in ("mount --make-rprivate /", *commands):
        subprocess.run(command.split(), check=True)


def hidden(how: str = "2") -> None:
    mounted(f"mount -t proc -o hidepid={how} proc /proc")
    os.setgroups([])
    os.setgid(NOBODY)  # the group of root sees everybody
    os.setuid(NOBODY)


@needs_root
@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("2", "/proc does not show it"),
        ("ptraceable", "/proc does not show it"),
        ("1", "Operation not permitted"),
    ],
)
def test_who_is_hidden_has_not_ended(how: str, why: str, start: Start) -> None:
    """To an ordinary user."""
    program = start(READY)
    [(outcome, words, _)] = in_child(lambda: hidden(how), order_for(program.pid))
    assert (outcome, program.poll()) == ("unknown", None)
    assert words.startswith(f"it could not be checked: {why}; nothing was sent")


@needs_root
def test_who_is_hidden_and_has_ended_is_gone() -> None:
    with sleeping() as program:
        order = order_for(program.pid)
        program.kill()
    [(outcome, _, _)] = in_child(hidden, order)
    assert outcome == "gone"


@needs_root
@pytest.mark.parametrize("words", [("--gpu", "0"), None], ids=["gpu", "pid"])
def test_kill_of_who_is_hidden(
    words: tuple[str, ...] | None, here: Machine, start: Start, tmp_path: Path
) -> None:
    """Root without CAP_SYS_PTRACE, as in a container, sees no other users' there."""
    needed("setpriv", "util-linux")
    program = start(f"os.setuid({NOBODY}); {READY}")
    on_gpu(here, program.pid)
    hide = 'mount -t proc -o hidepid=2 proc /proc && exec setpriv "$@"'
    less = ("--regid", "1", "--clear-groups", "--bounding-set", "-sys_ptrace", "--")
    prefix = ("unshare", "-m", "sh", "-c", hide, "sh", *less)
    status, told, errors = kill(here, *(words or (program.pid,)), "--foreign", prefix=prefix)
    outcome, words_of = "unknown", "could not be checked"
    if NESTED:
        outcome, words_of = "other_namespace", "it cannot be identified here"
    assert (status, [verdict["verdict"] for verdict in told]) == (1, [outcome])
    assert words_of in errors
    assert program.poll() is None
    log = (tmp_path / "state" / "gputop" / "signals.jsonl").read_text()
    assert json.loads(log)["verdict"] == outcome


COVERS = {
    "empty": ("/dev/null", "/proc cannot be read"),
    "an error": ("/proc/{pid}/mem", "Input/output error"),
}


@needs_root
@pytest.mark.parametrize("how", COVERS)
def test_a_proc_that_does_not_answer(how: str, start: Start) -> None:
    program = start(READY)
    cover, why = COVERS[how]
    mount = f"mount --bind {cover.format(pid=program.pid)} /proc/{program.pid}/stat"
    [(outcome, words, _)] = in_child(lambda: mounted(mount), order_for(program.pid))
    assert (outcome, program.poll()) == ("unknown", None)
    assert words.startswith(f"it could not be checked: {why}; nothing was sent")


@needs_root
def test_without_a_proc_at_all(start: Start) -> None:
    program = start(READY)
    order = order_for(program.pid)
    [(outcome, _, _)] = in_child(lambda: mounted("mount -t tmpfs tmpfs /proc"), order)
    assert (outcome, program.poll()) == ("unknown", None)


def test_with_no_descriptor_left(start: Start) -> None:
    program = start(READY)
    for spare in range(2):

        def use_up(spare: int = spare) -> None:
            """The eventfd of Signals takes one more; then `spare` are left."""
            held: list[int] = []
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
            while True:
                try:
                    held.append(os.open("/dev/null", os.O_RDONLY))
                except OSError:
                    break
            for descriptor in held[: spare + 1]:
                os.close(descriptor)

        [(outcome, words, _)] = in_child(use_up, order_for(program.pid))
        assert (outcome, program.poll()) == ("unknown", None), spare
        assert "Too many open files" in words


@rest_long("most", 13, 9, 11, *range(15, 26, 2))
def test_kill_with_few_descriptors(most: int, here: Machine) -> None:
    """It works, says that it does not know, or fails; it never says that a living one is gone."""
    assert_nobody_is_gone(here, f"ulimit -n {most}")


@rest_long("megabytes", 40, 120, 200, 300, 500)
def test_kill_with_little_memory(megabytes: int, here: Machine) -> None:
    assert_nobody_is_gone(here, f"ulimit -v {megabytes * 1024}")


def assert_nobody_is_gone(here: Machine, limit: str) -> None:
    pid = here.spawn("train", ["python", "train.py"], used=GIB)
    prefix = ("sh", "-c", f'{limit} && exec "$@"', "sh")
    status, told, _ = kill(here, pid, "--signal", "URG", prefix=prefix)
    assert {verdict["verdict"] for verdict in told} <= {"unknown", "alive"}
    assert status != 0
    assert here.pids["train"] == pid


def test_who_was_not_seen_when_its_gpu_named_it(
    here: Machine, start: Start, tmp_path: Path
) -> None:
    """As of a GPU that named it before it was there."""
    program, log = start(READY), tmp_path / "state" / "gputop" / "signals.jsonl"
    with Agent(here) as agent:
        agent.line()
        told = verdict(agent, {"process": {"pid": program.pid}})
        assert told["outcome"] == "unknown"
        nobody = "other_namespace" if NESTED else "gone"
        assert verdict(agent, {"process": {"pid": 5_000_000}})["outcome"] == nobody
        until(lambda: log.exists() and len(log.read_text().splitlines()) == 2)
    assert program.poll() is None
    verdicts = [json.loads(line)["verdict"] for line in log.read_text().splitlines()]
    assert verdicts == ["unknown", nobody]


# Containers


UNSHARE = {
    "pid": ["--pid", "--fork", "--mount-proc", "--kill-child"],
    "user": ["--user", "--map-root-user"],
    "both": ["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"],
}


@pytest.fixture
def boxed(here: Machine) -> Iterator[Callable[..., int]]:
    """Start a process in namespaces of its own, on GPU 0; its PID here."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*options: str) -> int:
        code = "import sys; print('.', flush=True); sys.stdin.read()"
        program = subprocess.Popen(
            ["unshare", *options, sys.executable, "-c", code],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        started.append(program)
        assert program.stdout
        assert program.stdout.readline() == b".\n"
        pid = program.pid
        while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            pid = int(children[0])
        return on_gpu(here, pid)

    yield begin
    for program in started:
        program.kill()
        program.communicate()


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").exists()


@needs_root
def test_root_of_a_container_is_not_root(here: Machine, boxed: Callable[..., int]) -> None:
    """Of none, by whatever it is chosen."""
    pids = sorted(boxed(*options) for options in UNSHARE.values())
    for words in (["--gpu", "0"], ["--user", "me"], pids, ["mem>0 sys"]):
        status, told, errors = kill(here, *words)
        verdicts = sorted((verdict["pid"], verdict["verdict"]) for verdict in told)
        assert (status, verdicts) == (1, [(pid, "refused") for pid in pids]), words
        assert errors.count("it is root's, in a container: this needs a confirmation") == 3
        assert "--foreign" in errors
        assert all(map(lives, pids))


@needs_root
def test_a_container_within_a_container(here: Machine, boxed: Callable[..., int]) -> None:
    pid = boxed(*UNSHARE["pid"], "unshare", *UNSHARE["both"])
    assert (
        len(Path(f"/proc/{pid}/status").read_text().partition("NSpid:")[2].split("\n")[0].split())
        == 3
    )
    assert [verdict["verdict"] for verdict in kill(here, "--gpu", "0")[1]] == ["refused"]
    assert lives(pid)
    assert [
        verdict["verdict"] for verdict in kill(here, "--gpu", "0", "--foreign", "-s", "9")[1]
    ] == ["exited"]


@needs_root
def test_a_process_that_enters_a_container_after_the_look(here: Machine, start: Start) -> None:
    """It was one's own when the list was shown."""
    program = start(
        "import ctypes; signal.signal(10, lambda *_: (ctypes.CDLL(None)"
        f".unshare({_NEW_USER}), os.write(1, b'in\\n'))); {READY}",
        here,
    )
    with Agent(here) as agent:
        agent.line()
        check = verdict(agent, target(program.pid), number=0)
        assert (check["outcome"], check["caution"]) == ("alive", None)
        program.send_signal(signal.SIGUSR1)
        assert program.stdout
        assert program.stdout.readline() == b"in\n"
        told = verdict(agent, target(program.pid))
        assert (told["outcome"], told["caution"]) == ("refused", "container")
        assert program.poll() is None
        again = verdict(agent, target(program.pid), number=0)
        assert (again["caution"], again["words"]) == ("container", "it is root's, in a container")
        assert verdict(agent, target(program.pid, forced=True))["outcome"] == "exited"


@needs_root
def test_a_process_that_becomes_anothers_after_the_look(here: Machine, start: Start) -> None:
    program = start(
        f"signal.signal(10, lambda *_: (os.setuid({NOBODY}), os.write(1, b'in\\n'))); {READY}", here
    )
    with Agent(here) as agent:
        agent.line()
        assert verdict(agent, target(program.pid), number=0)["caution"] is None
        program.send_signal(signal.SIGUSR1)
        assert program.stdout
        assert program.stdout.readline() == b"in\n"
        assert verdict(agent, target(program.pid))["outcome"] == "refused"
    assert program.poll() is None


@needs_root
def test_own_is_what_shares_the_namespaces_of_gputop(here: Machine) -> None:
    """gputop in a user namespace, with a process of the same, and with one from outside."""
    code = (
        "import subprocess, sys, threading;"
        "child = subprocess.Popen(['sleep', '999'], stdin=-3);"
        "threading.Thread(target=child.wait, daemon=True).start();"
        "print(child.pid, flush=True); sys.stdin.readline();"
        f"print(subprocess.run({KILL!r} + sys.argv[1:], stdin=-3, stdout=-1).stdout.decode());"
        "child.kill()"
    )
    with sleeping() as outside:
        inside = here.popen(
            [
                "unshare",
                *UNSHARE["user"],
                sys.executable,
                "-c",
                code,
                "--gpu",
                "0",
                "--yes",
                "--json",
            ],
            stdin=subprocess.PIPE,
        )
        assert inside.stdout
        pid = int(inside.stdout.readline())
        for shared_pid in (pid, outside.pid):
            on_gpu(here, shared_pid)
        output, _ = inside.communicate("go\n", timeout=300)
        told = {verdict["pid"]: verdict["verdict"] for verdict in json.loads(output)["verdicts"]}
        still = outside.poll() is None
        outside.kill()
    assert told == {pid: "exited", outside.pid: "other_namespace" if NESTED else "refused"}
    assert still


@needs_root
def test_a_container_that_shares_our_namespaces(here: Machine, start: Start) -> None:
    """As of docker run --pid=host: its control group names it."""
    program = start(READY, here)
    folder = next(
        (
            hierarchy / "docker" / ("c0ffee" + "0" * 58)
            for hierarchy in _hierarchies()
            if os.access(hierarchy, os.W_OK)
        ),
        None,
    )
    if folder is None:
        pytest.skip("no control group can be made here")
    folder.mkdir(parents=True)
    try:
        (folder / "cgroup.procs").write_text(str(program.pid))
        status, told, errors = kill(here, "--gpu", "0")
        assert (status, [verdict["verdict"] for verdict in told]) == (1, ["refused"])
        assert "it is root's, in a container" in errors
        assert program.poll() is None
    finally:
        program.kill()
        program.wait()
        until(lambda: not (folder / "cgroup.procs").read_text())
        folder.rmdir()
        folder.parent.rmdir()


def _hierarchies() -> list[Path]:
    root = Path("/sys/fs/cgroup")
    return [folder for folder in (root, root / "pids", root / "freezer")
            if (folder / "cgroup.procs").exists() and not (folder / "docker").exists()]  # fmt: skip


def become_nobody() -> None:
    os.setgroups([])
    os.setuid(NOBODY)


@needs_root
def test_what_cannot_be_read_is_not_ours(start: Start) -> None:
    """A process of ours that may not be traced, to a gputop without rights over others."""
    secret = f"import ctypes; os.setuid({NOBODY}); ctypes.CDLL(None).prctl(4, 0)"
    program = start(f"{secret}; {READY}")
    [(outcome, words, _)] = in_child(become_nobody, order_for(program.pid))
    if NESTED:  # whether it is on a GPU cannot be read either
        assert outcome == "other_namespace"
        assert "you may not see what the process with this PID has open here" in words
    else:
        assert outcome == "refused"
        assert "cannot be read: this needs a confirmation" in words
    assert program.poll() is None


# Numbers that are used again


@needs_root
def test_a_gpu_that_hangs_names_nobody_who_came_later(here: Machine) -> None:
    pid = here.spawn("train", ["python", "train.py"], used=GIB)
    with Agent(here, interval=0.2) as agent:
        first = agent.line()
        here.hang(gpu=0)
        while agent.line()["gpus"][0]["stale_for"] is None:
            pass
        here.kill("train")
        with start_as(pid, ["sleep", "999"]) as other:
            row = _row(agent.refresh(), pid)
            while row["command"] == first["processes"][0]["command"]:
                row = _row(agent.refresh(), pid)
            assert [row[name] for name in ("start_time", "user", "command", "state")] == [None] * 4
            told = verdict(agent, {"process": {"pid": pid}}, number=9)
            assert told["outcome"] == "unknown"
            assert other.poll() is None
            other.kill()


def _row(frame: Json, pid: int) -> Json:
    rows: list[Json] = [process for process in frame["processes"] if process["pid"] == pid]
    return rows[0]


DEVICES = """
mount -t tmpfs tmpfs /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9 &&
mknod -m 666 /dev/nvidia0 c 195 0 && mknod -m 666 /dev/nvidiactl c 195 255 && exec "$@"
"""
HOLDERS = """
import os, subprocess, sys, threading
code = (
    "import os, sys; [os.open(one, os.O_PATH) for one in sys.argv[1:]];"
    "print(flush=True); sys.stdin.read()"
)
held = (["/dev/nvidia0"], ["/dev/nvidiactl"], [], ["/dev/null"])
command = [sys.executable, "-c", code]
children = [subprocess.Popen(command + one, stdin=-1, stdout=-1) for one in held]
for child in children:
    child.stdout.readline()
    threading.Thread(target=child.wait, daemon=True).start()
print(*(child.pid for child in children), flush=True)
sys.stdin.readline()
command = [sys.executable, "-m", "gputop", "kill", "--gpu", "0", "--yes", "--json"]
print(subprocess.run(command, stdin=-3, stdout=-1).stdout.decode(), flush=True)
print(*(child.poll() is None for child in children))
"""


@needs_root
@needs_everybody
def test_where_there_are_devices_who_is_named_has_to_hold_one(here: Machine) -> None:
    inside = here.popen(
        ["unshare", "-m", "sh", "-c", DEVICES, "sh", sys.executable, "-c", HOLDERS],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert inside.stdout
    pids = [int(word) for word in inside.stdout.readline().split()]
    if not pids:
        pytest.skip(f"no device node can be made here: {inside.communicate()[1]}")
    for pid in pids:
        on_gpu(here, pid)
    output, errors = inside.communicate("go\n", timeout=300)
    line, alive = output.strip().split("\n")[0], output.split("\n")[-2]
    told = {verdict["pid"]: verdict["verdict"] for verdict in json.loads(line)["verdicts"]}
    assert [told[pid] for pid in pids] == ["exited", "refused", "refused", "refused"]
    assert alive == "False True True True"
    assert "has no GPU open" in errors


@needs_root
@pytest.mark.parametrize("offset", [5_000_000, -100])
def test_starts_are_compared_by_the_clock_that_counts_them(offset: int, here: Machine) -> None:
    """In a time namespace the boot is at another time; nobody looks as if he came too late."""
    pid = here.spawn("train", ["python", "train.py"], used=GIB)
    shifted = ["unshare", "--time", "--boottime", str(offset), "--fork"]
    done = here.run([*shifted, sys.executable, "-m", "gputop", "--json"])
    if "unshare" in done.stderr:
        pytest.skip(f"no time namespace can be made here: {done.stderr}")
    row = _row(json.loads(done.stdout), pid)
    assert row["command"] == "python train.py"
    assert row["start_time"] is not None
