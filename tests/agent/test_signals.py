"""The agent signals real processes: every verdict, and that nobody else is ever hit."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import queue
import random
import re
import signal
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from gputop.agent.gpu.memory_watch import MemoryWatch
from gputop.agent.process.stat import read_stat
from gputop.agent.signals.audit import audit_path
from gputop.agent.signals.handle import NotSentError, ProcessHandle, process_of
from gputop.agent.signals.sender import SignalSender
from gputop.model.machine.frame import Frame, Host
from gputop.model.machine.process_id import ProcessId
from gputop.model.machine.signals import Target, Verdict, signal_name, signal_number
from gputop.protocol.messages import Reply, Signal
from tests.agent.driving import Agent, Json, gone, sleeping, start_as, started_as, starter
from tests.conftest import NESTED, OURSELVES, MachineFactory, needs_everybody, needs_root, rest_long
from tests.driver import Machine, build
from tests.driver.scenario import enlist
from tests.patience import Deadline, until

GIB = 2**30
NOBODY = 65534
READY = "print('.', flush=True); sys.stdin.read()"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Where the audit log is."""
    return tmp_path / "state" / "gputop" / "signals.jsonl"


@pytest.fixture
def here(machine: MachineFactory) -> Machine:
    """Two GPUs."""
    return machine({"gpu": {"uuid": "GPU-{i}", "memory": {"total": 80 * GIB, "used": GIB}},
                    "gpus": 2})  # fmt: skip


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start Python code that says when it is ready, with `sys` at hand; reaped when it ends."""
    started: list[subprocess.Popen[bytes]] = []

    def popen(code: str, here: Machine | None = None, **options: Any) -> subprocess.Popen[bytes]:
        options.setdefault("env", {**os.environ, **build.loading_cuda()})
        program = subprocess.Popen(
            [sys.executable, "-c", f"import os, signal, sys; {code}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options,
        )  # fmt: skip
        started.append(program)
        assert program.stdout
        assert program.stdout.readline() == b".\n"
        threading.Thread(target=_reap, args=(program, here), daemon=True).start()
        if here is not None:
            entry = {"pid": program.pid, "used": GIB}
            here.update(lambda scenario: enlist(scenario["gpus"][0], "compute", entry))
        return program

    yield popen
    for program in started:
        program.kill()
        program.wait()
        for pipe in (program.stdin, program.stdout):
            if pipe:
                pipe.close()


def _reap(program: subprocess.Popen[bytes], here: Machine | None) -> None:
    program.wait()
    if here is not None:
        here.reset(program.pid)


def target(pid: int, **more: Any) -> Json:
    found = process_of(pid)
    assert found is not None
    return {"process": msgspec.structs.asdict(found), **more}


def target_of(pid: int) -> Target:
    return msgspec.convert(target(pid), Target)


_orders = iter(range(10**9))


def send(agent: Agent, *targets: Json, number: int = 15, grace: float = 5.0, **more: Any) -> str:
    order = f"order {next(_orders)}"
    agent.ask("signal", id=order, targets=targets, number=number, grace=grace, **more)
    return order


def verdicts_of(agent: Agent, order: str) -> list[Json]:
    """Once none waits."""
    while True:
        found: list[Json] = agent.reply(order)["verdicts"]
        if all(verdict["outcome"] != "waiting" for verdict in found):
            return found


def verdict(agent: Agent, *targets: Json, **more: Any) -> Json:
    [found] = verdicts_of(agent, send(agent, *targets, **more))
    return found


# Verdicts


@pytest.mark.system
def test_exited_and_the_memory_came_back(here: Machine) -> None:
    pid = here.spawn("train", ["python", "train.py"], gpu=1, used=3 * GIB)
    with Agent(here) as agent:
        agent.line()
        told = verdict(agent, target(pid))
    assert (told["process"]["pid"], told["signal"], told["outcome"]) == (pid, 15, "exited")
    assert told["command"] == "python train.py"
    assert told["freed"] == [{"gpu_uuid": "GPU-1", "bytes": 3 * GIB}]
    assert told["words"].startswith("ended ")
    assert told["words"].endswith(" after SIGTERM; 3.00G came back on GPU 1")
    assert 0 <= told["seconds"] < 3


@pytest.mark.system
def test_memory_that_somebody_else_takes_at_once_is_not_told(here: Machine) -> None:
    pid = here.spawn("train", ["python", "train.py"], used=3 * GIB)
    with Agent(here) as agent:
        agent.line()
        here.update(lambda scenario: scenario["gpus"][0]["memory"].update(used=9 * GIB))
        told = verdict(agent, target(pid))
    assert (told["outcome"], told["freed"]) == ("exited", [])
    assert "the memory on GPU 0 has not come back yet" in told["words"]


@pytest.mark.system
@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("signal.signal(15, lambda *_: None)", "it handles SIGTERM and continues; SIGKILL ends it"),
        ("signal.pthread_sigmask(signal.SIG_BLOCK, [15])", "it blocks SIGTERM; SIGKILL ends it"),
    ],
)
def test_ignored_and_then_killed(code: str, words: str, here: Machine, start: Start) -> None:
    program = start(f"{code}; {READY}", here)
    with Agent(here) as agent:
        agent.line()
        first = verdict(agent, target(program.pid), grace=0.2)
        assert (first["outcome"], first["words"]) == ("ignored", words)
        assert first["seconds"] >= 0.2
        second = verdict(agent, target(program.pid), number=9)
        assert second["outcome"] == "exited"
    assert program.wait() == -9


@pytest.mark.system
def test_a_stopped_process(here: Machine, start: Start) -> None:
    program = start(READY, here)
    with Agent(here) as agent:
        agent.line()
        stop = verdict(agent, target(program.pid), number=signal.SIGSTOP)
        assert stop["outcome"] == "alive"
        assert stop["words"] == "SIGSTOP was sent, which does not end a process"
        # Of two signals that wait for it the kernel takes SIGTERM first, which has a lower number.
        until(lambda: psutil.Process(program.pid).status() == psutil.STATUS_STOPPED)
        told = verdict(agent, target(program.pid), grace=0.2)
        assert told["outcome"] == "ignored"
        words = (
            f"it is stopped, and takes SIGTERM only when it continues (kill -CONT {program.pid})"
        )
        assert words in told["words"]
        assert verdict(agent, target(program.pid), number=9)["outcome"] == "exited"


@pytest.mark.system
def test_a_process_that_a_debugger_has_stopped(here: Machine, start: Start) -> None:
    """SIGCONT would not let it go on."""
    program = start(READY, here)
    attach, wait = f"libc.ptrace(16, {program.pid}, 0, 0)", f"os.waitpid({program.pid}, 0)"
    debugger = start(f"import ctypes; libc = ctypes.CDLL(None); {attach}; {wait}; {READY}")
    with Agent(here) as agent:
        agent.line()
        told = verdict(agent, target(program.pid), grace=0.2)
        assert told["outcome"] == "ignored"
        assert f"process {debugger.pid} traces it, and has stopped it" in told["words"]
        assert "CONT" not in told["words"]
    debugger.kill()  # whom it traces belongs to it until then
    debugger.wait()


@pytest.mark.system
def test_its_end_need_not_be_awaited(here: Machine, start: Start) -> None:
    program = start(f"signal.signal(15, lambda *_: None); {READY}")
    with Agent(here) as agent:
        assert verdict(agent, target(program.pid), grace=0)["outcome"] == "alive"


CLONE = {"x86_64": 56, "aarch64": 220}


@pytest.mark.system
@pytest.mark.skipif(platform.machine() not in CLONE, reason="the number of clone(2)")
@needs_everybody
def test_uninterruptible(here: Machine, start: Start) -> None:
    """A parent waits in the kernel while its child of CLONE_VFORK has not executed a program."""
    vfork = 0x4000 | signal.SIGCHLD
    program = start(
        "import ctypes; signal.signal(15, lambda *_: None);"
        f" child = ctypes.CDLL(None).syscall({CLONE[platform.machine()]}, {vfork},"
        " 0, 0, 0, 0); print('.', flush=True); sys.stdin.read()",
        here,
    )
    until(lambda: Path(f"/proc/{program.pid}/stat").read_text().split()[2] == "D")
    with Agent(here) as agent:
        agent.line()
        told = verdict(agent, target(program.pid), grace=0.2)
        assert told["outcome"] == "uninterruptible"
        assert told["words"].startswith("it waits in the kernel")
        assert verdict(agent, target(program.pid), number=9)["outcome"] == "exited"


@pytest.mark.system
def test_zombie(here: Machine, start: Start) -> None:
    """Its parent does not wait for it until it is told to."""
    code = "import subprocess; child = subprocess.Popen(['sleep', '99'], stdin=subprocess.DEVNULL);"
    parent = start(f"{code} print('.', flush=True); sys.stdin.read(1); child.wait(); {READY}")
    [child] = _children(parent.pid)
    here.change(gpu=0, compute=[{"pid": child, "used": GIB}])
    with Agent(here) as agent:
        agent.line()
        order = send(agent, target(child))
        until(lambda: gone(child))
        here.change(gpu=0, compute=[], memory={"used": 0})
        [told] = verdicts_of(agent, order)
        assert told["outcome"] == "zombie"
        assert f"its parent {parent.pid} (python" in told["words"]
        assert told["freed"] == [{"gpu_uuid": "GPU-0", "bytes": GIB}]
        again = verdict(agent, target(child))
        assert (again["outcome"], again["seconds"]) == ("zombie", None)
        assert parent.stdin
        parent.stdin.write(b"x")
        parent.stdin.flush()
        until(lambda: not Path(f"/proc/{child}").exists())
        agent.refresh()
        while agent.reply(order)["verdicts"][0]["outcome"] != "exited":
            pass


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.system
def test_gone(here: Machine) -> None:
    pid = here.spawn("train", ["python", "train.py"], used=GIB)
    with Agent(here) as agent:
        agent.line()
        ours = target(pid)
        here.kill("train")
        told = verdict(agent, ours)
    assert (told["outcome"], told["seconds"]) == ("gone", None)
    assert told["words"] == "it had already ended; nothing was sent"


@pytest.mark.system
def test_identity_changed(here: Machine) -> None:
    pid = here.spawn("train", ["python", "train.py"], used=GIB)
    with Agent(here) as agent:
        agent.line()
        ours = target(pid)
        _until_older([pid])
        here.kill("train")
        with start_as(pid, ["sleep", "999"]) as other:
            told = verdict(agent, ours, number=9)
            lives = other.poll() is None
            other.kill()
    assert lives
    assert told["outcome"] == "identity_changed"
    assert told["words"] == "another process has this PID now; nothing was sent"


@pytest.mark.system
def test_a_start_that_differs_by_a_tick_is_another_process(start: Start, here: Machine) -> None:
    program = start(READY, here)
    with Agent(here) as agent:
        agent.line()
        ours = target(program.pid)
        for off in (-1, 1):
            process = {**ours["process"], "start_ticks": ours["process"]["start_ticks"] + off}
            told = verdict(agent, {"process": process, "forced": True}, number=9)
            assert (told["outcome"], program.poll()) == ("identity_changed", None)
        assert verdict(agent, {"process": {"pid": program.pid}})["outcome"] == "unknown"
        assert program.poll() is None
        assert verdict(agent, ours, number=9)["outcome"] == "exited"


def _until_older(pids: list[int]) -> None:
    """Until who starts now has another start time, which the kernel counts in ticks."""
    stats = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids)
    youngest = max(int(fields[19]) for fields in stats) / os.sysconf("SC_CLK_TCK")
    until(lambda: time.clock_gettime(time.CLOCK_BOOTTIME) > youngest + 0.02)


@pytest.mark.system
def test_refused(here: Machine) -> None:
    with Agent(here) as agent:
        agent.line()
        own = agent.process.pid
        cases: list[tuple[Json, str]] = [
            (
                {"process": {"pid": 0, "start_ticks": 1}},
                "0 and negative numbers are groups of processes",
            ),
            (
                {"process": {"pid": -1, "start_ticks": 1}, "forced": True},
                "0 and negative numbers are groups",
            ),
            (target(own, forced=True), "quit it"),
            (target(os.getpid()), f"{OURSELVES}: this needs a confirmation"),
        ]
        told = verdicts_of(agent, send(agent, *(target for target, _ in cases), number=15))
        assert [verdict["outcome"] for verdict in told] == ["refused"] * len(cases)
        for refused, (_, words) in zip(told, cases, strict=True):
            assert words in refused["words"]
        first = verdict(agent, target(1))
        if NESTED:  # and on no GPU
            assert first["outcome"] in ("other_namespace", "refused")
        elif os.getuid() in (0, Path("/proc/1").stat().st_uid):
            words = "it is process 1, and everything here ends with it: this needs a confirmation"
            assert (first["outcome"], first["words"]) == ("refused", words)
        else:
            assert first["outcome"] == "not_permitted"
        bad = verdict(agent, target(os.getpid(), forced=True), number=999)
        assert (bad["outcome"], bad["words"]) == ("refused", "999 is not a signal")
        assert verdict(agent, {"process": {"pid": 2**31, "start_ticks": 1}})["outcome"] == "gone"
        late = {"process": {"pid": 1, "start_ticks": 2**63 - 1}}
        assert verdict(agent, late)["outcome"] == "identity_changed"
        unknown = "other_namespace" if NESTED else "gone"
        assert verdict(agent, {"process": {"pid": 5_000_000}})["outcome"] == unknown
        assert agent.refresh()["problem"] is None


@pytest.mark.system
@needs_root
def test_anothers_process_wants_a_confirmation(here: Machine, start: Start) -> None:
    program = start(f"os.setuid({NOBODY}); {READY}", here)
    with Agent(here) as agent:
        agent.line()
        check = verdict(agent, target(program.pid), number=0)
        assert (check["outcome"], check["caution"]) == ("alive", "foreign")
        told = verdict(agent, target(program.pid))
        assert told["outcome"] == "refused"
        assert "this needs a confirmation" in told["words"]
        assert program.poll() is None
        assert verdict(agent, target(program.pid, forced=True))["outcome"] == "exited"


NO_GPUS = Frame(host=Host(name="node"), time=0.0)


def in_process(*orders: Signal) -> list[Verdict]:
    """What Signals of this process say, when nothing waits."""
    replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()
    signals = SignalSender(replies.put, MemoryWatch(tuple), NO_GPUS)
    for order in orders:
        signals.send(order)
    done: dict[str, Reply] = {}
    while len(done) < len(orders):
        reply = replies.get(timeout=60)
        if reply.done:
            done[reply.request] = reply
    return [verdict for order in orders for verdict in done[order.id].verdicts]


def in_child(prepare: Callable[[], object], order: Signal) -> list[Json]:
    """The same in a process that `prepare` changes first."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            prepare()
            told = [
                [process.outcome, process.words, process.audit_error]
                for process in in_process(order)
            ]
            os.write(write, json.dumps(told).encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    result: list[Json] = json.loads(text)
    return result


@pytest.mark.system
@needs_root
def test_not_permitted(start: Start, state: Path) -> None:
    """The log of root is not ours to write to, either: that is said, and stops nothing."""
    program = start(READY)
    pid = program.pid
    order = Signal("a", (target_of(pid),), 15, 1.0)
    [(outcome, words, audit_error)] = in_child(lambda: os.setuid(NOBODY), order)
    if NESTED:  # what another user's has open shows nothing
        assert outcome == "other_namespace"
        assert program.poll() is None
        return
    assert outcome == "not_permitted"
    assert f"not permitted; this would do it: sudo kill -TERM {pid}" in words
    assert audit_error == f"not in the audit log: {state}: Permission denied"
    assert program.poll() is None


@pytest.mark.system
def test_without_pidfd_nothing_is_sent(start: Start) -> None:
    """A kernel before Linux 5.3, by a seccomp filter that answers ENOSYS."""
    program = start(READY)
    order = Signal("a", (target_of(program.pid),), 15, 1.0)
    [(outcome, words, _)] = in_child(_without_pidfd_open, order)
    assert (outcome, words) == (
        "refused", "gputop needs pidfd_open (Linux 5.3) to send signals",
    )  # fmt: skip
    assert program.poll() is None


def _without_pidfd_open() -> None:
    load, equal, answer = 0x20, 0x15, 0x06
    steps = [(load, 0, 0, 0), (equal, 0, 1, 434), (answer, 0, 0, 0x50000 | 38),
             (answer, 0, 0, 0x7FFF0000)]  # fmt: skip
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, program) == 0  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER


# Orders


COUNTS = "signal.signal(15, lambda *_: os.write(1, b'!')); " + READY


@pytest.mark.system
def test_an_order_is_done_once(here: Machine, start: Start) -> None:
    program = start(COUNTS, here)
    with Agent(here) as agent:
        agent.line()
        order = {"id": "one", "targets": [target(program.pid)], "number": 15, "grace": 0.1}
        order["targets"] = [target(program.pid)] * 2
        agent.ask("signal", **order)
        [told] = verdicts_of(agent, "one")
        assert program.stdout
        assert program.stdout.read(1) == b"!"  # it need not have had a core within its grace
        agent.ask("signal", **order)
        verdict(agent, target(program.pid), number=9)
    assert told["outcome"] == "ignored"
    assert program.stdout.read() == b""


@pytest.mark.system
def test_signals_do_not_wait_for_a_gpu_that_hangs(here: Machine) -> None:
    pid = here.spawn("train", ["python", "train.py"], gpu=1, used=GIB)
    with Agent(here, interval=0.2) as agent:
        ours = target(pid)
        agent.line()
        here.hang(gpu=0)
        told = verdict(agent, ours)
    assert (told["outcome"], told["freed"]) == ("exited", [{"gpu_uuid": "GPU-1", "bytes": GIB}])


@pytest.mark.system
def test_a_verdict_waits_for_no_gpu_that_hangs_and_makes_no_frame(
    machine: MachineFactory, start: Start
) -> None:
    """The GPU that the process was on is asked for its memory, and nobody for anything else."""
    gpu = {"uuid": "GPU-{i}", "memory": {"total": 80 * GIB, "used": GIB}}
    here = machine({"gpu": gpu, "gpus": 3}, log=True)
    pid = here.spawn("train", ["python", "train.py"], gpu=1, used=GIB)
    other = start(READY)
    with Agent(here) as agent:
        agent.line()
        until(lambda: None not in map(agent.refresh().get, ("links", "topology")))
        until(lambda: ("nvmlEventSetFree", None) in here.calls())
        here.hang("*", gpu=0)
        calls, deadline = len(here.calls()), Deadline(2)
        assert verdict(agent, target(other.pid))["outcome"] == "exited"
        assert here.calls()[calls:] == []
        told = verdict(agent, target(pid))
        assert (told["outcome"], told["freed"]) == (
            "exited", [{"gpu_uuid": "GPU-1", "bytes": GIB}],
        )  # fmt: skip
        assert deadline.left() > 0
        asked = {(re.sub("_v[0-9]+$", "", name), gpu) for name, gpu in here.calls()[calls:]}
        assert asked <= {("nvmlDeviceGetMemoryInfo", 1)} | {
            (f"nvmlDeviceGet{kind}RunningProcesses", 1)
            for kind in ("Compute", "Graphics", "MPSCompute")
        }
        with pytest.raises(TimeoutError):
            agent.line(within=0.3)


@pytest.mark.system
def test_fifty_at_once(here: Machine) -> None:
    for n in range(50):
        here.spawn(f"rank{n}", ["python", "rank.py", str(n)], gpu=n % 2, used=GIB)
    with Agent(here) as agent:
        agent.line()
        pids = list(here.pids.values())
        told = verdicts_of(agent, send(agent, *map(target, pids)))
    assert [each["process"]["pid"] for each in told] == pids
    assert {verdict["outcome"] for verdict in told} == {"exited"}
    assert sum(freed["bytes"] for target in told for freed in target["freed"]) == 50 * GIB


LAUNCHER = """
import subprocess
def start(code):
    return subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE)
loader = "print('.', flush=True); import sys; sys.stdin.read()"
rank = f'''
import subprocess, sys
loaders = [subprocess.Popen([sys.executable, '-c', {loader!r}], stdout=subprocess.PIPE)
           for _ in '12']
for one in loaders: one.stdout.readline()
print('.', flush=True)
sys.stdin.read()
'''
ranks = [start(rank) for _ in '12']
for one in ranks: one.stdout.readline()
"""


@pytest.mark.system
def test_a_process_with_its_descendants(here: Machine, start: Start) -> None:
    """The shape of torchrun: a launcher, ranks, data loaders. It gets the signal first."""
    program = start(f"exec({LAUNCHER!r}); {READY}", here)
    with Agent(here) as agent:
        agent.line()
        [*listed] = verdicts_of(agent, send(agent, target(program.pid), number=0, descendants=True))
        assert [verdict["outcome"] for verdict in listed] == ["alive"] * 7
        ranks = _children(program.pid)
        first, *rest = (each["process"]["pid"] for each in listed[:3])
        assert (first, {*rest}) == (program.pid, {*ranks})  # numbers may begin anew between two
        loaders = {child for rank in ranks for child in _children(rank)}
        assert {each["process"]["pid"] for each in listed[3:]} == loaders
        frozen = [{"process": each["process"]} for each in listed]
        told = verdicts_of(agent, send(agent, *frozen, number=9))
    assert [each["process"]["pid"] for each in told] == [each["process"]["pid"] for each in listed]
    assert {verdict["outcome"] for verdict in told} <= {"exited", "gone", "zombie"}
    assert all(gone(each["process"]["pid"]) for each in listed)


@pytest.mark.system
def test_what_started_gputop_has_no_descendants_to_signal(here: Machine) -> None:
    with Agent(here) as agent:
        agent.line()
        ours = (target(1), target(os.getpid()))
        told = verdicts_of(agent, send(agent, *ours, number=0, descendants=True))
    cautions = {os.getpid(): "ancestor", 1: "first"}  # the tests may run in process 1
    assert {verdict["process"]["pid"]: verdict["caution"] for verdict in told} == cautions


def test_no_more_than_two_hundred_verdicts_are_kept() -> None:
    signals = SignalSender(lambda _: None, MemoryWatch(tuple), NO_GPUS)
    nobody = tuple(Target(ProcessId(5_000_000 + n, 1)) for n in range(150))
    for order in "ab":
        signals.send(Signal(order, nobody, 15, 1.0))
    kept = [*"a" * 50, *"b" * 150]
    until(lambda: [attempt.verdict.request_id for attempt in signals._attempts] == kept)


@pytest.mark.system
def test_no_verdict_goes_while_another_of_its_order_waits(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("attempt", "sender"):
        monkeypatch.setattr(f"gputop.agent.signals.{module}.KEPT", 0.1)
    quick, stubborn = start(READY), start(f"signal.signal(15, signal.SIG_IGN); {READY}")
    targets = tuple(target_of(program.pid) for program in (quick, stubborn))
    found = in_process(Signal("a", targets, 15, 1.0))
    assert [verdict.outcome for verdict in found] == ["exited", "ignored"]


def test_verdicts_go_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("attempt", "sender"):
        monkeypatch.setattr(f"gputop.agent.signals.{module}.KEPT", 0.3)
    replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()
    signals = SignalSender(replies.put, MemoryWatch(tuple), NO_GPUS)
    signals.send(Signal("a", (Target(ProcessId(5_000_000, 1)),), 15, 1.0))
    assert [verdict.outcome for verdict in replies.get(timeout=60).verdicts] == ["gone"]
    until(lambda: signals._attempts == [])


# The audit log


@pytest.mark.system
def test_the_audit_log(here: Machine, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.7 50000 192.0.2.1 22")
    here.env.update(XDG_STATE_HOME=str(state.parents[1]), SSH_CONNECTION="192.0.2.7 5 192.0.2.1 22")
    pid = here.spawn("evil", ['evil\n\x1b[2J\u202e{"pid": 1}', "\udcff"], used=GIB)
    with Agent(here) as agent:
        agent.line()
        verdict(agent, target(pid), number=0)
        verdict(agent, target(pid))
        verdict(agent, {"process": {"pid": 0}})
        until(lambda: state.read_bytes().count(b"\n") == 3)  # no verdict waits for the log
    lines = state.read_text(encoding="utf-8").splitlines()
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    sent, ended, refused = (json.loads(line) for line in lines)
    assert (sent["verdict"], ended["verdict"], refused["verdict"]) == ("sent", "exited", "refused")
    assert set(sent) == {"time", "uid", "login", "client", "pid", "start_ticks", "start_time",
                         "command", "user", "signal", "verdict", "seconds"}  # fmt: skip
    assert (sent["pid"], sent["signal"], sent["uid"]) == (pid, "SIGTERM", os.getuid())
    assert sent["client"] == "192.0.2.7"
    assert sent["time"].endswith("+00:00")
    assert "\x1b" not in sent["command"]
    assert audit_path() == state


# Nobody else


@pytest.mark.system
def test_the_number_may_change_hands_between_the_look_and_the_signal() -> None:
    """And within one tick of the clock, where the start time does not tell them apart."""
    with sleeping() as victim:
        held = ProcessHandle(target_of(victim.pid).process, set())
        victim.kill()
    bystander = start_as(victim.pid, ["sleep", "999"])
    try:
        for number in (0, 1, 9, 15):
            with pytest.raises(NotSentError, match="it had already ended"):
                held.send(number)
        assert bystander.poll() is None
        assert (held.ended, held.reaped) == (True, True)
    finally:
        held.close()
        bystander.kill()
        bystander.wait()


class Duel:
    """A process that is meant, and the one that may take its number."""

    def __init__(self) -> None:
        self.victim = sleeping()
        self.pid = self.victim.pid
        self.target = target(self.pid)
        self.bystander: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Have its number taken as soon as it is free, by a process that blocks all signals."""
        old = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._starter = starter(self.pid, ["sleep", "999"])
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, old)

    def swap(self) -> None:
        """End it, and give its number away."""
        self.victim.kill()
        self.victim.wait()
        self.bystander = started_as(self.pid, self._starter)

    def hit(self) -> bool:
        """Whether the bystander got a signal: it waits, since all are blocked, or has killed it."""
        if self.bystander is None:
            return False
        status = Path(f"/proc/{self.bystander.pid}/status").read_text()
        pending = [line.split()[1] for line in status.splitlines() if "Pnd:" in line]
        return self.bystander.poll() is not None or set(pending) != {"0" * 16}

    def end(self) -> None:
        for program in (self.victim, self.bystander):
            if program is not None:
                program.kill()
                program.wait()


@pytest.mark.system
@needs_root
@pytest.mark.timeout(120)
@rest_long("rounds", 8, 40)
def test_a_bystander_is_never_hit(rounds: int, here: Machine) -> None:
    """Processes end, and their numbers change hands, before, while and after they are signalled."""
    chance = random.Random(7)
    with Agent(here) as agent:
        agent.line()
        for _ in range(rounds):
            duels = [Duel() for _ in range(10)]
            early, late = chance.sample(duels, 4), chance.sample(duels, 4)
            for duel in {*early, *late}:
                duel.prepare()
            _until_older([duel.pid for duel in duels])
            for duel in early:
                duel.swap()
            number = chance.choice([1, 9, 10, 15, 34])
            chance.shuffle(duels)
            order = send(agent, *(duel.target for duel in duels), number=number, grace=0.05)
            for duel in late:
                if duel.bystander is None:
                    duel.swap()
            for duel in duels:
                if duel not in late:
                    duel.victim.wait()
            told = {
                verdict["process"]["pid"]: verdict["outcome"]
                for verdict in verdicts_of(agent, order)
            }
            assert [duel.pid for duel in duels if duel.hit()] == []
            assert {told[duel.pid] for duel in early} == {"identity_changed"}
            for duel in duels:
                duel.end()


# Names


@pytest.mark.parametrize(
    ("text", "number"),
    [("TERM", 15), ("sigterm", 15), ("15", 15), ("SIGKILL", 9), ("RTMIN+3", signal.SIGRTMIN + 3),
     ("FOO", None), ("0", None), ("-9", None), ("999", None), ("", None), ("32", None)],
)  # fmt: skip
def test_signals_by_name_and_number(text: str, number: int | None) -> None:
    assert signal_number(text) == number


def test_every_signal_has_a_name_that_is_read_back() -> None:
    numbers: Sequence[int] = sorted(signal.valid_signals())
    assert [signal_number(signal_name(number)) for number in numbers] == list(numbers)


@pytest.mark.system
@needs_root
def test_a_pid_of_another_namespace_is_left_alone(here: Machine) -> None:
    """In a container: the driver tells 2, and an innocent process is called so there."""
    here.update(lambda scenario: scenario.update(driver_version="525.147.05"))
    here.change(gpu=0, compute=[{"pid": 2, "used": GIB}])
    script = 'sleep 99 & "$0" -m gputop kill 2 --yes --json; kill -0 $! && echo $! lives'
    command = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", script, sys.executable]
    done = here.run(command)
    line, lives = done.stdout.splitlines()
    assert lives == "2 lives"
    assert json.loads(line)["verdicts"][0]["verdict"] == "other_namespace"
    assert "if the PID is the host's, signal it on the host" in done.stderr


def _kernels_thread() -> int | None:
    """The pid of one, where one is seen; ps shows them in brackets, and so do we."""
    for name in os.listdir("/proc"):
        if name.isdecimal() and (stat_ := read_stat(int(name))) and stat_.flags & 0x200000:
            return int(name)
    return None


@pytest.mark.system
@needs_root
def test_no_signal_is_said_to_end_a_thread_of_the_kernel(here: Machine) -> None:
    pid = _kernels_thread()
    if pid is None:
        pytest.skip("no thread of the kernel can be seen here")
    with Agent(here) as agent:
        agent.line()
        told = verdict(agent, target(pid), number=9)
    assert told["outcome"] == "refused"
    assert told["words"] == "it is a kernel thread, which no signal ends; nothing was sent"
