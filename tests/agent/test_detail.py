"""The agent tells more of one real process: never a secret, never of another process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from gputop.agent.process.detail import dump_stack, read_detail
from gputop.model.machine.detail import ProcessDetail
from gputop.model.machine.process_id import ProcessId
from gputop.protocol.messages import Detail
from tests.agent.driving import Agent, Json, start_as
from tests.conftest import MachineFactory, needs_root
from tests.driver import Machine
from tests.patience import Deadline, until

pytestmark = pytest.mark.system

NOBODY = 65534
READY = "print('.', flush=True); sys.stdin.read()"
SECRETS = {
    "WANDB_API_KEY": "plain-words-as-a-key",
    "MY_PASSWORD": "correct horse battery",
    "DATABASE": "postgres://alice:open-sesame@db/runs",
    "NCCL_NOTE": "ghp_R4nd0mR4nd0mR4nd0mR4nd0m",
    "OTHER": "5f4dcc3b5aa765d61d8327deb882cf99",
    "RAY_TOKEN": "\x1b]0;ray\x07",
}
OPEN = {"CUDA_VISIBLE_DEVICES": "0", "NCCL_DEBUG": "IN\x1b[2JFO", "RANK": "3", "PLAIN": "in plain"}


@pytest.fixture
def here(machine: MachineFactory) -> Machine:
    """Two GPUs."""
    return machine({"gpu": {"uuid": "GPU-{i}"}, "gpus": 2})


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start Python code that says a line when it is ready; it is killed at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def popen(*command: str) -> subprocess.Popen[bytes]:
        if len(command) == 1:
            command = (sys.executable, "-c", f"import sys; {command[0]}")
        program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(program)
        assert program.stdout
        assert program.stdout.readline() == b".\n"
        return program

    yield popen
    for program in started:
        program.kill()
        program.communicate()


def start_ticks(pid: int) -> int:
    """As frames tell it."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def id_of(pid: int) -> ProcessId:
    return ProcessId(pid, start_ticks(pid))


def answer(agent: Agent, field: str, request: str, pid: int, **values: object) -> Json:
    """Of the reply, long before the next frame."""
    start = values.pop("start_ticks", None) or start_ticks(pid)
    agent.ask(request, process={"pid": pid, "start_ticks": start}, id=request, **values)
    found: Json = agent.reply(request)[field]
    return found


def values_of(detail: Json) -> dict[str, str | None]:
    return {variable["name"]: variable.get("value") for variable in detail["variables"]}


@pytest.mark.parametrize("hidden", [False, True])
def test_variables(hidden: bool, here: Machine) -> None:
    """Those of GPUs; others where they are asked for; of secrets not a byte leaves the agent."""
    pid = here.spawn("train", ["python", "train.py"], used=1, env={**SECRETS, **OPEN})
    with Agent(here) as agent:
        agent.line()
        agent.refresh()
        detail = answer(agent, "detail", "detail", pid, hidden=hidden)
        lines = [detail, agent.refresh()]
        agent.close_stdin()
        assert agent.process.stdout
        rest = agent.process.stdout.read()
    assert b"OMP" not in rest
    told = values_of(detail)
    assert told["CUDA_VISIBLE_DEVICES"] == "0"
    assert told["RANK"] == "3"
    assert told["NCCL_DEBUG"] == "IN�[2JFO"
    assert told["PLAIN"] == ("in plain" if hidden else None)
    assert [told[name] for name in SECRETS] == [None] * len(SECRETS)
    kinds = {variable["name"]: variable["kind"] for variable in detail["variables"]}
    assert {kinds[name] for name in SECRETS} == {"secret"}
    assert (kinds["PLAIN"], kinds["RANK"]) == ("other", "gpu")
    said = json.dumps(lines, ensure_ascii=False).encode() + rest
    assert b"NCCL_DEBUG" in said
    for value in SECRETS.values():
        assert value.encode() not in said


def test_another_process_with_the_number_is_not_told_of(here: Machine) -> None:
    pid = here.spawn("train", ["train"], env=OPEN)
    with Agent(here) as agent:
        agent.line()
        other = answer(agent, "detail", "detail", pid, start_ticks=start_ticks(pid) - 1)
        assert other == {
            "process": {"pid": pid, "start_ticks": start_ticks(pid) - 1}, "gone": True,
        }  # fmt: skip
        stack = answer(agent, "stack", "stack", pid, start_ticks=start_ticks(pid) - 1)
        assert stack["problem"] == "It has ended."
        assert "gone" not in answer(agent, "detail", "detail", pid)
        assert answer(agent, "detail", "detail", 2**22 + 1, start_ticks=1)["gone"] is True
        assert answer(agent, "detail", "detail", -1, start_ticks=1)["gone"] is True


@needs_root
def test_a_number_that_is_used_again(start: Start) -> None:
    first = start(READY)
    request = Detail(id_of(first.pid))
    assert not read_detail(request).gone
    first.kill()
    first.wait()
    time.sleep(0.02)  # start times count in hundredths
    second = start_as(first.pid, ["sleep", "99"], env=OPEN)
    try:
        assert read_detail(request) == ProcessDetail(request.process, gone=True)
    finally:
        second.kill()
        second.wait()


@needs_root
def test_without_permission(start: Start) -> None:
    """It is said, which is not the same as that there is none."""
    program = start("import subprocess; subprocess.Popen(['sleep', '99'], stdout=2); " + READY)
    found = as_nobody(Detail(id_of(program.pid), hidden=True))
    assert (found.gone, found.variables, found.missing) == (False, None, "unreadable")
    assert (found.files, found.devices) == (None, None)
    assert [child.command for child in found.children] == ["sleep 99"]
    os.kill(found.children[0].process.pid, signal.SIGKILL)


def as_nobody(request: Detail) -> ProcessDetail:
    """Looked at by a user without rights."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setuid(NOBODY)
        os.write(write, msgspec.json.encode(read_detail(request)))
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with open(read, "rb") as pipe:
        return msgspec.json.decode(pipe.read(), type=ProcessDetail)


def test_a_process_that_wrote_over_its_variables(start: Start) -> None:
    program = start(f"import setproctitle; setproctitle.setproctitle('x' * 999); {READY}")
    found = read_detail(Detail(id_of(program.pid)))
    assert (found.variables, found.missing) == (None, "overwritten")


def test_a_zombie(start: Start) -> None:
    program = start(READY)
    request = Detail(id_of(program.pid))
    program.kill()
    until(lambda: b") Z" in Path(f"/proc/{program.pid}/stat").read_bytes())
    assert read_detail(request) == ProcessDetail(request.process, gone=True)


@needs_root
def test_devices_and_files(start: Start) -> None:
    node = f"nvidia{1000 + os.getpid()}"  # other tests find who has theirs open
    nodes = f"mkdir /dev/dri && touch /dev/{node} /dev/nvidia-uvm /dev/dri/card1 /dev/null"
    files = (node, node, "nvidia-uvm", "dri/card1", "null")
    code = f"import sys; held = [open('/dev/' + one) for one in {files!r}]; {READY}"
    script = f'mount -t tmpfs tmpfs /dev && {nodes} && exec "$0" -c "$1"'
    program = start("unshare", "--mount", "sh", "-c", script, sys.executable, code)
    found = read_detail(Detail(id_of(program.pid)))
    assert found.devices == ("/dev/dri/card1", "/dev/nvidia-uvm", f"/dev/{node}")
    assert found.files == len(files) + 3


def test_children(start: Start) -> None:
    """Its own, not theirs; the oldest first, printable."""
    child = "[sys.executable, '-c', 'import time; time.sleep(99)', '\\x1b[2J' + str(n)]"
    several = f"for n in range(70): one = subprocess.Popen({child}); n or time.sleep(0.05)"
    program = start(f"import subprocess, time\n{several}\n{READY}")
    found = read_detail(Detail(id_of(program.pid)))
    assert found.children_count == 70
    assert len(found.children) == 64
    first = found.children[0]
    assert first.command.endswith("�[2J0")
    assert first.process == id_of(first.process.pid)
    assert first.start_time < found.children[-1].start_time
    pids = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
    for pid in map(int, pids):
        os.kill(pid, signal.SIGKILL)


def test_an_answer_waits_for_no_frame_and_makes_none(here: Machine) -> None:
    pid = here.spawn("train", ["train"])
    with Agent(here) as agent:
        agent.line()
        answer(agent, "detail", "detail", pid)
        with pytest.raises(TimeoutError):
            agent.line(within=0.3)


def fake(tmp_path: Path, script: str) -> str:
    """A py-spy that does this; the PATH with it in front."""
    path = tmp_path / "bin" / "py-spy"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return f"{path.parent}:{os.environ['PATH']}"


def test_a_stack_through_py_spy(here: Machine, tmp_path: Path) -> None:
    script = r"""echo "$@"; printf 'Thread 1\n    f (\033[2Ja.py:3)\n\ttab\n'"""
    pid = here.spawn("train", ["train"])
    with Agent(here, env={"PATH": fake(tmp_path, script)}) as agent:
        agent.line()
        stack = answer(agent, "stack", "stack", pid)
    assert "problem" not in stack
    assert stack["lines"] == [f"dump --pid {pid} --nonblocking", "Thread 1",
                              "    f (�[2Ja.py:3)", "        tab"]  # fmt: skip


def test_frames_and_details_go_on_while_py_spy_hangs(here: Machine, tmp_path: Path) -> None:
    pid = here.spawn("train", ["train"], env=OPEN)
    with Agent(here, env={"PATH": fake(tmp_path, "exec sleep 9")}) as agent:
        agent.line()
        agent.ask("stack", process={"pid": pid, "start_ticks": start_ticks(pid)})
        deadline = Deadline(5)
        for _ in range(3):
            agent.refresh(within=2)
        assert values_of(answer(agent, "detail", "detail", pid))["RANK"] == "3"
        assert deadline.left() > 0


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'Permission Denied: Try sudo' >&2; exit 1",
         'not permitted. By hand: sudo env "PATH=$PATH" py-spy dump --pid 1 --nonblocking'),
        ("echo; echo 'Error: \033[2Jno python'; exit 3",
         "py-spy ended with status 3: Error: �[2Jno python"),
        ("exit 4", "py-spy ended with status 4: it said nothing"),
        ("sleep 99", "py-spy did not end within 0.5 s."),
        ("exec >&-; sleep 99", "py-spy did not end within 0.5 s."),
    ],
)  # fmt: skip
def test_why_there_is_no_stack(
    script: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", fake(tmp_path, script))
    assert dump_stack(1, seconds=0.5 if "sleep" in script else 10) == ((), words)


def test_without_py_spy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    lines, problem = dump_stack(1)
    assert lines == ()
    assert "pip install py-spy" in (problem or "")


def test_a_program_that_cannot_be_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", fake(tmp_path, ""))
    (tmp_path / "bin" / "py-spy").write_text("#!/nowhere\n")
    assert "py-spy cannot be started: No such file" in (dump_stack(1)[1] or "")


def test_endless_output_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", fake(tmp_path, "yes $(printf 'x%.0s' $(seq 900))"))
    lines, problem = dump_stack(1)
    assert problem is None
    assert 100 < len(lines) < 1000
    assert max(map(len, lines)) == 400


def test_the_real_py_spy(start: Start) -> None:
    program = start(f"\ndef inner(): {READY}\ninner()")
    lines, problem = dump_stack(program.pid)
    assert problem is None, problem  # it comes with the tests: pip install -e '.[test]'
    assert any("inner (<string>:" in line for line in lines)
