"""`gputop run` and `gputop reserve`, on simulated machines with real programs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gputop.cli import main
from gputop.errors import UsageError
from gputop.parser import split_program
from gputop.reservations.folder import LockFolder
from gputop.reservations.hold import Hold
from gputop.reservations.locks import read_locks
from gputop.variables import callers_environment
from tests.conftest import ME, MachineFactory, needs_everybody
from tests.driver import Machine
from tests.driver.scenario import enlist
from tests.terminal import Terminal
from tests.tui.live import gone

GPUTOP = [sys.executable, "-m", "gputop"]
RUN = [*GPUTOP, "run", "--window", "0.2"]
NOT_RESERVED = "gputop: GPU 2 without a reservation\n"
RESERVE = [*GPUTOP, "reserve", "--window", "0.2"]


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "GPUTOP_RESERVATION"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def h200x8(machine: MachineFactory) -> Machine:
    """Of which GPU 2 and 6 are free."""
    return machine("h200x8")


def start(machine: Machine, *words: str) -> subprocess.Popen[str]:
    return machine.popen([*RUN, *words], stdin=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.system
@needs_everybody
def test_a_slice_is_reserved(machine: MachineFactory) -> None:
    here, uuid = machine("h100-mig"), "MIG-2b0d6f3a-51c4-5d77-8a10-9e4f00a1c004"
    job = start(here, "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; read x")
    assert job.stderr is not None
    assert line(job) == f"{uuid}\n"
    assert job.stderr.readline() == took("GPU 0:13")
    other = here.run([*RUN, "--", "true"])
    assert other.returncode == 1
    assert "GPU 0:13 MIG 1g.10gb+me: it is reserved by " in other.stderr
    listed = here.run([*GPUTOP, "reserve", "--list"]).stdout
    assert listed.splitlines()[1].split()[:2] == ["0:13", ME]
    [slice_] = [d for g in json.loads(here.run([*GPUTOP, "--json"]).stdout)["gpus"]
                for d in g["mig"] if d["uuid"] == uuid]  # fmt: skip
    assert slice_["reservation"]["user"] == ME
    done = here.run([*GPUTOP, "reserve", "--release", "0:13"])
    assert done.stdout.startswith("GPU 0:13 released: sh -c ")
    assert here.run([*RUN, "--", "true"]).returncode == 0
    job.communicate("\n")


def took(gpus: str) -> str:
    """What `gputop run` says before the program begins."""
    return f"gputop: {gpus} reserved until the program ends\n"


def line(process: subprocess.Popen[str]) -> str:
    """What it says next; its errors where it says nothing."""
    assert process.stdout is not None
    assert process.stderr is not None
    return process.stdout.readline() or process.stderr.read()


# The command line


def test_the_programs_words_are_its_own() -> None:
    words = ["run", "-n", "2", "--", "sh", "--", "", "-n", "--x="]
    assert split_program(words) == (["run", "-n", "2"], ["sh", "--", "", "-n", "--x="])
    assert split_program(["map", "--", "run"]) == (["map", "--", "run"], [])
    assert split_program(["run", "--help"]) == (["run", "--help"], [])
    with pytest.raises(UsageError, match="put -- before the program"):
        split_program(["run", "python", "--help"])


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["run", "--"], 2, "nothing to run"),
        (["run", "--", "no-such-program"], 127, "no-such-program: no such program"),
        (["run", "--", "/no/such\x1b"], 127, "/no/such�: no such program"),
        (["run", "--", "/etc/passwd"], 126, "/etc/passwd cannot be executed: is it a program"),
        (["run", "--", "/etc"], 126, "/etc cannot be executed: is it a program"),
        (["run", "-n", "0", "--", "true"], 2, "-n 0 is not a number of GPUs"),
        (["--demo", "run", "--", "true"], 2, "--demo is not an option of gputop run"),
        (["-H", "x", "run", "--", "true"], 2, "-H is not an option of gputop run"),
        (["reserve", "--for", "0"], 2, "'0' is not a time, as 90, 30m or 2h"),
        (["reserve", "--release", "GPU-1"], 1, "you have reserved nothing that 'GPU-1' names"),
    ],
)
def test_what_cannot_be_run(
    words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


# The program


@pytest.mark.system
@needs_everybody
def test_the_program_takes_gputops_place(h200x8: Machine) -> None:
    """Its PID, its environment, its exit status; what was open stays, and nothing else is."""
    h200x8.env.update(PYTHONPATH=f"{h200x8.env['PYTHONPATH']}:/tmp", LD_PRELOAD="")
    script = (
        "echo $$ $CUDA_DEVICE_ORDER $CUDA_VISIBLE_DEVICES $GPUTOP_RESERVATION;"
        " grep SigIgn /proc/$$/status; ls -m /proc/$$/fd;"
        " echo $PYTHONPATH; read line; exit $line"
    )
    job = start(h200x8, "-n", "2", "--", "sh", "-c", script)
    assert line(job) == f"{job.pid} PCI_BUS_ID 2,6 {job.pid}\n"
    assert line(job) == "SigIgn:\t0000000000000000\n"
    assert line(job) == "0, 1, 2, 200, 201\n"
    assert line(job) == h200x8.env["PYTHONPATH"] + "\n"
    assert not Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text()
    locks = read_locks()
    assert [lock.pid for lock in locks] == [job.pid, job.pid]
    assert locks[0].command is not None
    assert locks[0].command.startswith("sh -c 'echo $$ ")
    done = h200x8.run([*RUN, "--", "true"])
    assert re.search(rf"GPU 2 H200: it is reserved by {ME}, \d+s\n", done.stderr)
    assert done.stderr.endswith("gputop: not enough GPUs: 0 free, 1 requested\n")
    assert done.returncode == 1
    assert h200x8.run([*RUN, "--no-reserve", "--shared", "--min-free", "1G", "--max-util", "100",
                       "--", "false"]).returncode == 1  # fmt: skip
    assert job.communicate("7\n")[0] == ""
    assert job.returncode == 7
    assert read_locks() == []


def test_root_gives_the_program_what_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """gputop itself does without what others may have written into the environment."""
    from gputop import trust, variables

    given = {"LD_PRELOAD": "/tmp/x.so", "PYTHONPATH": "/tmp", "A": "b"}
    environ = dict(given)
    monkeypatch.setattr(trust, "_elevated", True)
    monkeypatch.setattr(variables, "_initial", {})
    monkeypatch.setattr(sys, "path", [*sys.path])
    variables.drop_untrusted(environ)
    assert environ.keys() <= {"PYTHONPATH", "PYTHONNOUSERSITE"}
    assert callers_environment() == given


@pytest.mark.system
@needs_everybody
def test_a_terminal_and_its_signals_are_the_programs(h200x8: Machine) -> None:
    script = (
        "trap 'echo caught; exit 5' INT; tty; echo rows $(stty size); while :; do sleep 1; done"
    )
    with Terminal([*RUN, "--", "sh", "-c", script], env=h200x8.env, rows=24, cols=80) as terminal:
        terminal.wait_for("rows 24 80")
        assert "/dev/pts/" in terminal.text
        terminal.send(b"\x03")
        terminal.wait_for("caught")
        assert terminal.exit_code() == 5


@pytest.mark.system
@needs_everybody
def test_a_program_that_takes_its_memory_late(h200x8: Machine) -> None:
    """Nobody else is given its GPU meanwhile; after that it is simply in use, until it is killed
    with all that it has started."""
    job = start(h200x8, "--", "sh", "-c", "echo; sleep 60 & wait")
    assert line(job) == "\n"
    other = start(h200x8, "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; cat")
    assert line(other) == "6\n"
    h200x8.update(lambda scenario: enlist(scenario["gpus"][2], "compute",
                                          {"pid": job.pid, "used": 30 * 2**30}))  # fmt: skip
    gpus = json.loads(h200x8.run([*GPUTOP, "--json"]).stdout)["gpus"]
    assert [gpus[2]["not_free"], gpus[2]["reservation"]["pid"]] == [f"processes of {ME}", job.pid]
    (child,) = map(int, Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split())
    job.send_signal(signal.SIGKILL)
    assert job.wait() == -signal.SIGKILL
    h200x8.reset(job.pid)
    assert [lock.pid for lock in read_locks()] == [None, other.pid]
    os.kill(child, signal.SIGKILL)
    assert gone(child)
    other.communicate()
    assert read_locks() == []


# Together with others


@pytest.mark.system
@needs_everybody
@pytest.mark.long
def test_who_starts_at_the_same_time_gets_another_gpu(h200x8: Machine) -> None:
    jobs = [start(h200x8, "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; cat") for _ in range(4)]
    said = sorted(line(job).splitlines()[-1] for job in jobs)
    assert said[:2] == ["2", "6"]
    assert said[2:] == ["gputop: not enough GPUs: 0 free, 1 requested"] * 2
    for job in jobs:
        job.communicate()
    assert sorted(job.returncode for job in jobs) == [0, 0, 1, 1]


@pytest.mark.system
@needs_everybody
def test_who_waits_holds_nothing(h200x8: Machine) -> None:
    """One who waits for two leaves the one that there is to whom it is enough."""
    with LockFolder() as folder:
        in_the_way = Hold(folder, h200x8.gpu(2)["uuid"], "x")
        pair = start(h200x8, "-n", "2", "--wait", "--", "sh", "-c", "echo pair; read x")
        assert pair.stderr is not None
        assert pair.stderr.readline() == "gputop: waiting: 1 free, 2 requested\n"
        assert [lock.uuid for lock in read_locks()] == [in_the_way.uuid]
        single = start(
            h200x8, "--wait", "1h", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; read x"
        )
        assert line(single) == "6\n"
        in_the_way.release()
        assert single.communicate("\n")[1] == took("GPU 6")
    assert line(pair) == "pair\n"
    assert [lock.pid for lock in read_locks()] == [pair.pid, pair.pid]
    assert pair.communicate("\n")[1] == took("GPUs 2, 6")


@pytest.mark.system
@needs_everybody
def test_the_driver_is_looked_at_again(h200x8: Machine) -> None:
    """Somebody who knows nothing of reservations is on the GPU by the time that it is reserved."""
    rude = h200x8.spawn("rude", ["python", "rude.py"], gpu=0, used=2**30)
    h200x8.slow("nvmlDeviceGetComputeRunningProcesses*", ms=150)
    job = start(h200x8, "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    while not read_locks():  # without a pause: it looks twice more, and no more
        assert job.poll() is None
    entry = {"pid": rude, "used": 2**30}
    h200x8.update(lambda scenario: enlist(scenario["gpus"][2], "compute", entry))
    assert line(job) == "6\n"


@pytest.mark.system
@needs_everybody
@pytest.mark.long
def test_a_folder_that_another_user_keeps_locked(h200x8: Machine, tmp_path: Path) -> None:
    """Programs start, each on a GPU of its own: of two who take the same, one gives it back."""
    for above in (tmp_path, *tmp_path.parents[:3]):
        if os.geteuid() == 0 and above != Path("/tmp"):
            above.chmod(0o755)
    with LockFolder():
        pass
    keeps = ["flock", str(tmp_path / "locks"), "sh", "-c", "echo; exec sleep 1000"]
    user = 4711 if os.geteuid() == 0 else None
    with subprocess.Popen(
        keeps, stdout=subprocess.PIPE, user=user, start_new_session=True
    ) as keeper:  # fmt: skip
        assert keeper.stdout is not None
        assert keeper.stdout.readline()
        jobs = [
            start(h200x8, "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; cat") for _ in range(3)
        ]
        assert all(job.stderr for job in jobs)
        said = sorted(line(job).splitlines()[-1] for job in jobs)
        os.killpg(keeper.pid, signal.SIGKILL)
    assert said[:2] == ["2", "6"]
    assert said[2] == "gputop: not enough GPUs: 0 free, 1 requested"
    errors = [job.communicate()[1] for job in jobs]
    kept = f"gputop: somebody keeps {tmp_path}/locks locked: gputop continues without its lock"
    assert sum(kept in error for error in errors) >= 2


@pytest.mark.system
@needs_everybody
def test_a_folder_that_is_wrong(h200x8: Machine, tmp_path: Path) -> None:
    (tmp_path / "locks").symlink_to("/etc")
    done = h200x8.run([*RUN, "--", "echo", "started"])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"gputop: {tmp_path}/locks is a link, or no folder: remove it"
        " (gputop run --no-reserve starts without a reservation)\n"
    )
    done = h200x8.run([*RUN, "--no-reserve", "--", "echo", "started"])
    assert (done.returncode, done.stdout, done.stderr) == (0, "started\n", NOT_RESERVED)


# For a shell


@pytest.mark.system
@needs_everybody
def test_a_shell_reserves_one(h200x8: Machine) -> None:
    reserve, run, free = (
        " ".join(f"'{word}'" for word in words) for words in (RESERVE, RUN, [*GPUTOP, "free"])
    )
    with Terminal(["sh"], env={**h200x8.env, "PS1": "$ "}, rows=24, cols=200) as terminal:
        terminal.send(f'eval "$({reserve} --for 10m)"; echo got $CUDA_VISIBLE_DEVICES\n'.encode())
        terminal.wait_for("got 2")
        assert re.search(r"gputop: GPU 2 reserved until [\d: -]+, or until this session ends",
                         terminal.text)  # fmt: skip
        (lock,) = read_locks()
        assert lock.pid is not None
        assert lock.command == "gputop reserve --for 10m00s"
        assert lock.until is not None
        assert 590 < lock.until - time.time() < 600
        terminal.send(f"{run} -- echo within $GPUTOP_RESERVATION\n".encode())
        terminal.wait_for(f"within {lock.pid}")
        terminal.send(f"echo for $({free} --window 0)\n".encode())
        terminal.wait_for("for 2")
        terminal.send(b"\x03\n")  # the keys are for the shell, and the holder is not there
        listed = h200x8.run([*GPUTOP, "reserve", "--list"]).stdout.splitlines()
        assert re.fullmatch(rf"2 +{ME} +{lock.pid} +\d+s  [\d: -]+  gputop reserve --for 10m00s",
                            listed[1])  # fmt: skip
        terminal.send(b"exit\n")
        terminal.exit_code()
    assert gone(lock.pid)
    assert read_locks() == []


@pytest.mark.system
@needs_everybody
def test_a_shell_runs_nothing_that_was_in_the_variable(h200x8: Machine, tmp_path: Path) -> None:
    """Whoever set it: only PIDs are read, and all that is printed is quoted."""
    ran = tmp_path / "ran"
    h200x8.env["GPUTOP_RESERVATION"] = f"12;touch {ran},$(touch {ran}),7,x y,{'8' * 40},²"
    reserve = " ".join(f"'{word}'" for word in RESERVE)
    script = f'eval "$({reserve} 2>/dev/null)"; echo $GPUTOP_RESERVATION'
    done = h200x8.run(["sh", "-c", script])
    (lock,) = read_locks()
    assert lock.pid
    os.kill(lock.pid, signal.SIGTERM)  # or it would stay as long as this login does
    assert (done.stdout, done.stderr) == (f"7,{lock.pid}\n", "")
    assert not ran.exists()


@pytest.mark.system
@needs_everybody
def test_others_read_no_secret_in_a_reservation(h200x8: Machine) -> None:
    job = start(h200x8, "--", "sh", "-c", "echo; read line", "--api-key", "correct horse battery")
    line(job)
    (lock,) = read_locks()
    assert lock.command == "sh -c 'echo; read line' --api-key ***"


@pytest.mark.system
@needs_everybody
def test_releasing(h200x8: Machine) -> None:
    done = h200x8.run([*RESERVE, "-n", "2"])
    exported = "export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES="
    assert done.stdout.startswith(f"{exported}2,6 ")
    pid = int(done.stdout.rpartition("=")[2])
    for shared in ("GPU-", "gpu", "mig-"):  # as "GPU-$ID" is without an ID
        assert main(["reserve", "--release", shared]) == 1
        assert len(read_locks()) == 2
    done = h200x8.run([*RESERVE, "--release", "6"])
    assert (done.returncode, done.stdout) == (
        0, "GPU 6 released: gputop reserve --for 1h00m\n"
    )  # fmt: skip
    (lock,) = read_locks()
    assert lock.uuid == h200x8.gpu(2)["uuid"]
    assert main(["reserve", "--release", "gpu-4e02"]) == 0
    assert read_locks() == []
    assert gone(pid)
    assert main(["reserve", "--release", "all"]) == 1


@pytest.mark.system
@needs_everybody
def test_a_program_that_reads_uuids(h200x8: Machine) -> None:
    script = "echo $CUDA_VISIBLE_DEVICES"
    done = h200x8.run([*RUN, "--uuid", "--no-reserve", "--", "sh", "-c", script])
    assert (done.stdout, done.stderr) == (h200x8.gpu(2)["uuid"] + "\n", NOT_RESERVED)
