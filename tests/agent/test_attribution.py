"""Where real processes belong: directory, environment, terminal, container, job."""

from __future__ import annotations

import json
import os
import shutil
import socket as sockets
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from gputop.agent.process import stat
from gputop.agent.process.environment import read_whole_environ
from gputop.agent.process.origin import read_origin
from gputop.agent.process.processes import read_io
from gputop.model.machine.origin import Origin
from tests.agent.driving import Agent, Json, gone
from tests.conftest import MachineFactory, needs_root, rest_long
from tests.driver import Machine, build
from tests.patience import until

pytestmark = pytest.mark.system

ID = "9ec39b91f3d70e1beff50a308f77067065ea6be0d91a3378375056cd4422cf3d"
WAITS = "print(end='.', flush=True); input()"

Start = Callable[..., int]

BARE = os.path.realpath(sys.executable)
"""The interpreter itself, of no environment."""


@pytest.fixture
def here(machine: MachineFactory) -> Machine:
    return machine({"gpu": {"uuid": "GPU-0", "memory": {"total": 2**37, "used": 1, "reserved": 0}}})


@pytest.fixture
def start(here: Machine) -> Iterator[Start]:
    """Start a program that writes a byte and lives on, on GPU 0; its pid."""
    started: list[subprocess.Popen[bytes]] = []

    def popen(command: list[str], env: dict[str, str] | None = None, **options: Any) -> int:
        plain = {"PATH": os.environ["PATH"], **build.loading_cuda(), **(env or {})}
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, env=plain, stdin=pipe, stdout=pipe, **options))
        assert started[-1].stdout
        assert started[-1].stdout.read(1) == b"."
        here.change(gpu=0, compute=[{"pid": started[-1].pid, "used": 1}])
        return started[-1].pid

    yield popen
    for pid in started:
        pid.kill()
        pid.communicate()


def look(here: Machine, *prefix: str) -> Json:
    """The process on the GPU, as `gputop --json` tells it."""
    done = here.run([*prefix, sys.executable, "-m", "gputop", "--json"])
    assert (done.returncode, done.stderr) == (0, "")
    [process] = json.loads(done.stdout)["processes"]
    assert isinstance(process, dict)
    return process


def place(here: Machine, *prefix: str) -> Json:
    found: Json = look(here, *prefix)["origin"]
    return found


def test_directory_and_variables(here: Machine, start: Start, tmp_path: Path) -> None:
    variables = {
        "VIRTUAL_ENV": "/srv/en\x1bv",
        "SSH_CONNECTION": "192.0.2.7 50022 192.0.2.1 22",
        "TMUX": "/tmp/tmux-1000/default,3310,4",
        "SLURM_JOB_ID": "4711",
        "SLURM_STEP_ID": "4294967291",
    }
    start([BARE, "-c", WAITS], variables, cwd=tmp_path)
    told = place(here)
    assert told["cwd"] == str(tmp_path)
    assert told["venv"] == "/srv/en\ufffdv"
    assert told["ssh_from"] == "192.0.2.7"
    assert told["session"] == "tmux default:$4"
    assert not {"slurm_job", "slurm_step"} & told.keys()  # no control group agrees
    if os.getpid() == 1:  # the first process of a container is not told of
        assert "ancestors" not in told
    else:
        assert told["ancestors"][0] == [os.getpid(), psutil.Process().name()[:15]]


def test_what_is_not_known_is_not_there(here: Machine, start: Start) -> None:
    start([BARE, "-c", WAITS])
    absent = {"venv", "ssh_from", "session", "container", "pod", "slurm_job", "slurm_step"}
    assert not absent & place(here).keys()


@pytest.mark.parametrize("called", ["path", "relative", "name"])
def test_a_venv_is_that_of_the_interpreter(
    called: str, here: Machine, start: Start, tmp_path: Path
) -> None:
    """Although /proc/PID/exe leads out of it. What is called by its name has the active one."""
    venv.create(tmp_path / "env", symlinks=True)
    program = {"path": str(tmp_path / "env/bin/python"), "relative": "./env/bin/python"}
    path = f"{tmp_path}/env/bin:{os.environ['PATH']}"
    command = [program.get(called, "python"), "-c", WAITS]
    start(["env", *command], {"VIRTUAL_ENV": "/another", "PATH": path}, cwd=tmp_path)
    assert place(here)["venv"] == ("/another" if called == "name" else str(tmp_path / "env"))


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_a_venv_is_the_active_one_of_what_is_no_interpreter(
    variable: str, here: Machine, start: Start, tmp_path: Path
) -> None:
    """As a server that writes over its command, or a program of conda's."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/vllm").symlink_to(BARE)
    start([str(tmp_path / "bin/vllm"), "-c", WAITS], {variable: "/srv/env"})
    assert place(here)["venv"] == "/srv/env"


@pytest.mark.parametrize("called", ["path", "name"])
def test_a_conda_environment_that_is_not_active(
    called: str, here: Machine, start: Start, tmp_path: Path
) -> None:
    """Its interpreter is no link; conda's own one is active in most shells."""
    (tmp_path / "envs/x/bin").mkdir(parents=True)
    program = shutil.copy("/bin/sh", tmp_path / "envs/x/bin/python3.12")
    words = [program if called == "path" else "python", "-c", "printf .; read line"]
    start(words, {"CONDA_PREFIX": "/opt/conda"}, executable=program)
    assert place(here)["venv"] == str(tmp_path / "envs/x")


def test_screen_has_names(here: Machine, start: Start) -> None:
    start([sys.executable, "-c", WAITS], {"STY": "4242.work"})
    assert place(here)["session"] == "screen 4242.work"


def test_threads_and_storage(here: Machine, start: Start, tmp_path: Path) -> None:
    code = (
        f"import threading; file = open({str(tmp_path / 'x')!r}, 'wb')\n"
        "import os; write = lambda: (file.seek(0), file.write(bytes(1 << 20)), os.fsync(file))\n"
        "write(); print(end='.', flush=True)\n"
        "threading.Thread(target=input).start()\n"
        "while threading.active_count() > 1: write()"
    )
    pid = start([sys.executable, "-c", code])
    with Agent(here, interval=0.2) as agent:
        first = agent.line()["processes"][0]
        before, at = psutil.Process(pid).io_counters().write_bytes, time.monotonic()
        told, *later = [agent.line()["processes"][0] for _ in range(8)]
        written = psutil.Process(pid).io_counters().write_bytes - before
        seconds = time.monotonic() - at
    assert (first["io_read"], first["io_write"]) == (None, None)
    assert told["threads"] == 2
    assert told["io_read"] == 0.0
    rates = [process["io_write"] for process in later]  # of a disk that others write to, as well
    assert sum(rates) / len(rates) == pytest.approx(written / seconds, rel=0.7)


# Containers


@pytest.fixture
def contained(start: Start, tmp_path: Path) -> tuple[str, ...]:
    """A process in a container of docker, and the prefix for those who are to see that."""
    return within(f"/system.slice/docker-{ID}.scope", start, tmp_path)


def within(cgroup: str, start: Start, tmp_path: Path, **variables: str) -> tuple[str, ...]:
    pid = start([sys.executable, "-c", WAITS], variables)
    (tmp_path / "cgroup").write_text(f"0::{cgroup}\n")
    script = f'mount --bind {tmp_path}/cgroup /proc/{pid}/cgroup && exec "$@"'
    return ("unshare", "--mount", "sh", "-c", script, "sh")


def docker(here: Machine, tmp_path: Path, script: str, called: str = "docker") -> Path:
    """A docker on the PATH, and a socket that may be used; the file with its calls."""
    calls, program, socket = (tmp_path / name for name in ("calls", called, "socket"))
    program.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n{script}\n')
    program.chmod(0o755)
    with closing(sockets.socket(sockets.AF_UNIX)) as server:
        server.bind(str(socket))
    here.env["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    here.env["DOCKER_HOST"] = f"unix://{socket}"
    return calls


@needs_root
def test_docker_tells_name_and_image(
    here: Machine, contained: tuple[str, ...], tmp_path: Path
) -> None:
    calls = docker(here, tmp_path, "printf '/vllm-1\\tvllm/vllm-openai:v0.9\\n'")
    told = place(here, *contained)["container"]
    assert told == {
        "id": ID,
        "runtime": "docker",
        "name": "vllm-1",
        "image": "vllm/vllm-openai:v0.9",
    }
    [call] = calls.read_text().splitlines()
    assert call.startswith(f"--host unix://{tmp_path}/socket inspect --type container")


@needs_root
@pytest.mark.parametrize("script", ["exit 1", "echo '\x1b[31m'", ":"])
def test_a_docker_that_does_not_tell(
    script: str, here: Machine, contained: tuple[str, ...], tmp_path: Path
) -> None:
    docker(here, tmp_path, script)
    assert place(here, *contained)["container"] == {"id": ID, "runtime": "docker"}


@needs_root
@rest_long(
    ("group", "account"), ("slurmstepd.scope/job_4711/step_0", "physics"), ("job_4711", None)
)
def test_the_account_of_a_slurm_job(
    here: Machine, start: Start, tmp_path: Path, group: str, account: str | None
) -> None:
    """The variable counts only in a control group of slurmd's."""
    within_job = within(f"/system.slice/{group}", start, tmp_path, SLURM_JOB_ACCOUNT="physics")
    told = place(here, *within_job)
    assert told.get("slurm_account") == account


@needs_root
def test_without_a_socket_docker_is_left_alone(
    here: Machine, contained: tuple[str, ...], tmp_path: Path
) -> None:
    calls = docker(here, tmp_path, "exit 1")
    (tmp_path / "socket").unlink()
    assert place(here, *contained)["container"] == {"id": ID, "runtime": "docker"}
    assert not calls.exists()


@needs_root
def test_a_docker_that_hangs_delays_no_frame(
    here: Machine, contained: tuple[str, ...], tmp_path: Path
) -> None:
    calls = docker(here, tmp_path, f"sleep 1000 & echo $! > {tmp_path}/sleeping; wait")
    with Agent(here, interval=0.2, prefix=contained) as agent:
        agent.line()
        until(lambda: (tmp_path / "sleeping").exists() and (tmp_path / "sleeping").read_text())
        sleeping = int((tmp_path / "sleeping").read_text())
        while not gone(sleeping):
            frame = agent.line(within=1.0)
        assert frame["processes"][0]["origin"]["container"]["id"] == ID
        for _ in range(3):
            agent.line()
    assert len(calls.read_text().splitlines()) == 1


ROUNDS = """
import sys
from gputop.agent.process.enrichment import Enricher, EnrichmentRequest
from gputop.agent.process.processes import ProcessCache
from gputop.model.machine.process_id import ProcessId

pid = int(sys.argv[1])
start_ticks = ProcessCache().read([pid], timeout=5)[pid].start_ticks
enricher, request = Enricher(), EnrichmentRequest(frozenset({ProcessId(pid, start_ticks)}))
rounds = [enricher.read(request, 5.0)]
while len(rounds) < 50 and (len(rounds) < 2 or rounds[-1] is not rounds[-2]):
    enricher.settle(5.0)
    rounds.append(enricher.read(request, 5.0))
[origin] = rounds[-1].origins.values()
print(origin.container.runtime, origin.container.name, "rests" if len(rounds) < 50 else "goes on")
"""
"""Reads until a reading makes no round: that answers with the same object."""


@needs_root
@pytest.mark.parametrize("script", ["exit 1", "printf '/vllm-1\\tvllm:v0.9\\n'"])
def test_rounds_rest_although_a_name_cannot_be_learnt(
    script: str, here: Machine, contained: tuple[str, ...], tmp_path: Path
) -> None:
    calls = docker(here, tmp_path, script)
    pid = contained[4].split("/proc/")[1].split("/")[0]
    done = here.run([*contained, sys.executable, "-c", ROUNDS, pid])
    assert done.stdout == f"docker {None if script == 'exit 1' else 'vllm-1'} rests\n", done.stderr
    assert len(calls.read_text().splitlines()) == 1


LABELS = {
    "io.kubernetes.container.name": "vllm",
    "io.kubernetes.pod.name": "llama-0",
    "io.kubernetes.pod.namespace": "ml",
}
CRICTL = {
    "status": {
        "id": ID,
        "metadata": {"attempt": 0, "name": "vllm"},
        "image": {"annotations": {}, "image": "docker.io/vllm/vllm-openai:v0.9"},
        "labels": LABELS,
    },
    "info": {"pid": 4711},
}
IMAGE = "docker.io/vllm/vllm-openai:v0.9"
NERDCTL = [{"Id": ID, "Image": IMAGE, "Name": "vllm-1"}]
IN_POD = [{"Id": ID, "Image": IMAGE, "Name": "k8s_vllm_1", "Config": {"Labels": LABELS}}]
OF_POD = {"name": "vllm", "image": IMAGE, "pod": "llama-0", "namespace": "ml"}


@needs_root
@rest_long(
    ("program", "answer", "known", "asked"),
    ("crictl", CRICTL, OF_POD, f"--runtime-endpoint unix://{{}} inspect -o json {ID}"),
    (
        "nerdctl",
        NERDCTL,
        {"name": "vllm-1", "image": IMAGE},
        f"--address {{}} --namespace default inspect {ID}",
    ),
    ("nerdctl", IN_POD, OF_POD, f"--address {{}} --namespace default inspect {ID}"),
    ("nerdctl", [{}], {}, f"--address {{}} --namespace default inspect {ID}"),
    ("crictl", {"status": []}, {}, f"--runtime-endpoint unix://{{}} inspect -o json {ID}"),
    ("crictl", [], {}, f"--runtime-endpoint unix://{{}} inspect -o json {ID}"),
)
def test_containerd_tells_name_and_image(
    program: str, answer: Json, known: Json, asked: str, here: Machine, start: Start, tmp_path: Path
) -> None:
    pod = "kubepods-pod0a1b2c3d_0000_4000_8000_0123456789ab.slice"
    prefix = within(f"/kubepods.slice/{pod}/cri-containerd-{ID}.scope", start, tmp_path)
    (tmp_path / "answer").write_text(json.dumps(answer, indent="\t"))
    calls = docker(here, tmp_path, f"cat {tmp_path}/answer", program)
    here.env["CONTAINERD_ADDRESS"] = f"{tmp_path}/socket"
    told = place(here, *prefix)["container"]
    assert told == {"id": ID, "runtime": "containerd", **known}
    assert calls.read_text().splitlines()[0] == asked.format(tmp_path / "socket")


# The driver's PIDs in a container


@needs_root
def test_a_local_process_is_not_taken_for_one_of_the_host(here: Machine, tmp_path: Path) -> None:
    nodes = "mknod /dev/null c 1 3; mknod /dev/urandom c 1 9; touch /dev/nvidia0 /dev/nvidiactl"
    script = (
        f"mount -t tmpfs t /dev; {nodes}; sleep 1000 3</dev/nvidia0 & echo $! > {tmp_path}/holds; "
        f'sleep 1000 3</dev/nvidiactl & echo $! > {tmp_path}/innocent; exec "$@"'
    )
    unshare = ("unshare", "--mount", "--mount-proc", "--pid", "--fork", "--kill-child")
    with Agent(here, prefix=(*unshare, "sh", "-c", script, "sh")) as agent:
        assert agent.line()["host"]["nested"] is True
        holds, innocent = (int((tmp_path / name).read_text()) for name in ("holds", "innocent"))
        here.update(lambda scenario: scenario.update(pids="host"))
        before = listed(here, agent, holds, innocent, 1)
        after = listed(here, agent, holds, innocent, 1, 4194305)
    assert [process["elsewhere"] for process in before] == [False, True, True]
    assert (before[0]["command"], before[0]["user"]) == ("sleep 1000", "root")
    assert [process["elsewhere"] for process in after] == [True] * 4  # all are numbers of the host
    about = ("user", "command", "start_time", "state", "origin", "cuda_context", "cpu")
    for process in (*before[1:], *after):
        assert {process[field] for field in about} == {None}
        assert process["gpu_memory"] == 1


def listed(here: Machine, agent: Agent, *pids: int) -> list[Json]:
    """What is told of processes once the driver lists them."""
    here.change(gpu=0, compute=[{"pid": pid, "used": 1} for pid in pids])
    processes = {process["pid"]: process for process in agent.refresh()["processes"]}
    return [processes[pid] for pid in pids]


def origin_of(pid: int) -> Origin:
    variables = read_whole_environ(pid).variables
    return read_origin(pid, variables, stat.read_stat)


def test_what_is_read_and_written_is_that_of_storage(tmp_path: Path) -> None:
    """What a process writes into a pipe, or reads from memory, is not."""
    with open(tmp_path / "file", "wb", buffering=0) as file, open("/dev/null", "wb") as nothing:
        file.write(bytes(1 << 16))
        nothing.write(bytes(1 << 16))
    assert read_io(os.getpid()) == psutil.Process().io_counters()[2:4]


@needs_root
def test_another_users_process_tells_little() -> None:
    """Only root and its owner may see its directory, its variables and its I/O."""
    ours = os.getpid()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        place = origin_of(ours)
        known = [place.cwd, place.venv, place.session, place.ssh_from]
        try:
            read_io(ours)
            known.append("read")
        except OSError:
            known.append(None)
        os.write(write, json.dumps([known, len(place.ancestors)]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    known, ancestors = json.loads(os.read(read, 1000))
    assert known == [None] * 5
    assert ancestors == len(origin_of(ours).ancestors)
    assert (ancestors > 0) == (os.getppid() > 1)
