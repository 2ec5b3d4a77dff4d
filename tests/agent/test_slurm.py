"""Which GPUs Slurm's jobs hold: control groups as slurmd makes them, around real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gputop.agent.slurm import SlurmReader
from tests.agent.driving import Json
from tests.conftest import MachineFactory, in_child, needs_everybody, needs_root
from tests.driver import Machine
from tests.patience import until

pytestmark = [pytest.mark.system, needs_root, needs_everybody]

GPUTOP = [sys.executable, "-m", "gputop"]
ALICE = 4711
"""A uid that has no name."""
SCOPE = "system.slice/slurmstepd.scope"
BATCH = "step_batch/user/task_special"
DEVICES = Path("/sys/fs/cgroup/devices")
needs_version_1 = pytest.mark.skipif(
    not os.access(DEVICES / "devices.allow", os.W_OK), reason="needs control groups version 1"
)
Start = Callable[..., int]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process with these variables and no others; its PID."""
    started: list[subprocess.Popen[bytes]] = []

    def start(user: int = ALICE, **variables: str) -> int:
        command = ["sleep", "1000"]
        process = subprocess.Popen(
            command,
            env={"A": "1", **variables},
            user=user,
            group=user,
            extra_groups=(),
        )
        started.append(process)
        proc = Path(f"/proc/{process.pid}")  # an exec sets the name first, then the variables
        until(lambda: proc.joinpath("comm").read_text() == "sleep\n")
        until(lambda: proc.joinpath("environ").read_bytes())
        return process.pid

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    """The control groups of a machine on which slurmd runs."""
    (tmp_path / "groups" / SCOPE / "system").mkdir(parents=True)
    return tmp_path / "groups"


@pytest.fixture
def h200x8(machine: MachineFactory) -> Machine:
    here = machine("h200x8")
    here.env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    return here


def put(groups: Path, path: str, *pids: int) -> None:
    folder = groups / path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))


def on(here: Machine, groups: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run gputop where these are the control groups."""
    script = 'mount --rbind "$0" /sys/fs/cgroup && exec "$@"'
    return here.run(["unshare", "--mount", "sh", "-c", script, str(groups), *GPUTOP, *words])


def free(here: Machine, groups: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return on(here, groups, "free", "--window", "0.2", *words)


def gpus(here: Machine, groups: Path) -> list[Json]:
    found: list[Json] = json.loads(on(here, groups, "--json").stdout)["gpus"]
    return found


def test_what_a_job_holds_without_a_process_on_it_is_not_free(
    h200x8: Machine, groups: Path, start: Start
) -> None:
    assert free(h200x8, groups).stdout == "2\n"
    put(groups, f"{SCOPE}/job_4711/{BATCH}", start(SLURM_JOB_GPUS="2,5", SLURM_JOB_ID="99"))
    done = free(h200x8, groups)
    assert (done.stdout, done.stderr) == ("6\n", "")
    done = free(h200x8, groups, "-n", "2")
    assert (done.returncode, done.stdout) == (1, "")
    assert "GPU 2 H200: it is held by Slurm job 4711 of 4711\n" in done.stderr
    found = gpus(h200x8, groups)
    assert found[2]["slurm_job"] == {"number": "4711", "user": "4711"}
    assert (found[2]["free"], found[6]["free"], found[6]["slurm_job"]) == (False, True, None)
    rows = on(h200x8, groups, "--once").stdout.splitlines()
    assert [row[-30:] for row in rows if row[:4] == "  2 "] == ["held by Slurm job 4711 of 4711"]


def test_a_job_may_have_its_own_gpus(h200x8: Machine, groups: Path, start: Start) -> None:
    put(groups, f"{SCOPE}/job_4711/{BATCH}", start(SLURM_JOB_GPUS="2"))
    assert free(h200x8, groups).stdout == "6\n"
    h200x8.env["SLURM_JOB_ID"] = "4711"
    assert free(h200x8, groups).stdout == "2\n"


def test_what_cannot_be_known_is_said_and_nothing_is_offered(
    h200x8: Machine, groups: Path, start: Start
) -> None:
    put(groups, f"{SCOPE}/job_4711/step_extern/user/task_special", start(0))
    done = free(h200x8, groups)
    assert (done.returncode, done.stdout) == (1, "")
    note = "gputop: Slurm's jobs run here, and which GPUs they hold cannot be read: only root can\n"
    assert done.stderr.count(note) == 1
    assert {gpu["free"] for gpu in gpus(h200x8, groups)} == {False, None}
    assert free(h200x8, groups, "--shared", "--min-free", "100G").returncode == 0


@needs_version_1
def test_devices_list_comes_before_what_a_user_says(
    h200x8: Machine, tmp_path: Path, start: Start
) -> None:
    """The group is a real one of the devices controller."""
    real = DEVICES / f"gputop-test-{os.getpid()}"
    job = real / f"slurm/uid_{ALICE}/job_4711"
    step = job / "step_0"
    made = [real, real / "slurm", job.parent, job, step]
    tree = tmp_path / "tree"
    liar = start(SLURM_STEP_GPUS="0-7")
    try:
        for folder in made[:-1]:
            folder.mkdir()
        (job / "devices.deny").write_text("a")
        for line in ("c 1:3 rwm", "c 195:255 rwm", "c 195:2 rwm"):
            (job / "devices.allow").write_text(line)
        step.mkdir()
        (step / "cgroup.procs").write_text(str(liar))
        (tree / "devices").mkdir(parents=True)
        binds = f"mount --rbind {real} {tree}/devices && mount --rbind {tree} /sys/fs/cgroup"
        inside = ["unshare", "--mount", "sh", "-c", f'{binds} && exec "$@"', "sh"]
        bound = h200x8.run([*inside, *GPUTOP, "--json"])
        found = json.loads(bound.stdout)["gpus"]
        held = {gpu["index"]: gpu["slurm_job"] for gpu in found if gpu["slurm_job"]}
        assert held == {2: {"number": "4711", "user": str(ALICE)}}
        assert found[6]["free"] is True
    finally:
        (DEVICES / "cgroup.procs").write_text(str(liar))
        for folder in reversed(made):
            folder.rmdir()


# The parts


def held(groups: Path) -> tuple[dict[int, tuple[str | None, str | None]], bool]:
    reader = SlurmReader(str(groups))
    jobs = reader.read(10)
    return {minor: (job.number, job.user) for minor, job in jobs.items()}, reader.unknown


def test_without_slurm_there_is_nothing_to_know(tmp_path: Path, start: Start) -> None:
    put(tmp_path, "system.slice/ssh.service/job_1/step_0", start(SLURM_JOB_GPUS="1"))
    assert held(tmp_path) == ({}, False)


def test_each_step_and_the_batch_script_count(groups: Path, start: Start) -> None:
    job = f"{SCOPE}/job_5"
    put(groups, f"{job}/step_batch/slurm", start(0))
    put(groups, f"{job}/{BATCH}", start(SLURM_JOB_GPUS="0-1"))
    put(groups, f"{job}/step_0/user/task_0", start(SLURM_STEP_GPUS="3", SLURM_JOB_GPUS="7"))
    assert held(groups) == (dict.fromkeys((0, 1, 3), ("5", "4711")), False)


def test_slurmstepd_is_believed_before_the_user(groups: Path, start: Start) -> None:
    job = f"{SCOPE}/job_5"
    put(groups, f"{job}/step_0/slurm", start(0, SLURM_STEP_GPUS="1"))
    put(groups, f"{job}/step_0/user/task_0", start(SLURM_STEP_GPUS="0-7"))
    assert held(groups) == ({1: ("5", "4711")}, False)


def test_a_lie_takes_no_gpu_from_a_job_that_root_tells_of(groups: Path, start: Start) -> None:
    put(groups, f"{SCOPE}/job_5/step_0/slurm", start(0, SLURM_STEP_GPUS="1"))
    put(groups, f"{SCOPE}/job_5/step_0/user/task_0", start(4712))
    lie = {"SLURM_STEP_GPUS": "1", "SLURM_JOB_ID": "5"}
    put(groups, f"{SCOPE}/job_9/step_0/user/task_0", start(**lie), start(0, **lie))
    assert held(groups) == ({1: ("5", "4712")}, False)


def test_a_job_without_gpus_holds_none(groups: Path, start: Start) -> None:
    put(groups, f"{SCOPE}/job_5/{BATCH}", start())
    assert held(groups) == ({}, False)


def test_anothers_job_is_not_known_without_root(start: Start) -> None:
    nobody = 65534
    with TemporaryDirectory() as folder:  # the tests' own is closed to others
        groups = Path(folder)
        put(groups, f"{SCOPE}/job_5/{BATCH}", start(nobody, SLURM_JOB_GPUS="2"))
        for path in (groups, *groups.rglob("*")):
            path.chmod(0o755)
        assert in_child(lambda: check(groups, unknown=False), nobody) == ""
        put(groups, f"{SCOPE}/job_6/{BATCH}", start(SLURM_JOB_GPUS="3"))
        assert in_child(lambda: check(groups, unknown=True), nobody) == ""


def check(groups: Path, unknown: bool) -> None:
    assert held(groups) == ({2: ("5", "nobody")}, unknown)
