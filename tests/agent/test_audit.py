"""The audit log of signals under attack: no kill waits for it, and what is not noted is said."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent.driving import Agent, gone
from tests.agent.test_signals import GIB, send, target, verdict, verdicts_of
from tests.conftest import MachineFactory, needs_root, rest_long
from tests.driver import Machine
from tests.fuse import Fuse, small_disk
from tests.patience import Deadline, until
from tests.tui.live import running

pytestmark = pytest.mark.system

KILL = [sys.executable, "-m", "gputop", "kill"]
ALICE = 65534


@pytest.fixture
def here(machine: MachineFactory) -> Machine:
    jobs = {f"job{n}": {"command": ["python", f"job{n}.py"], "on": {"used": GIB}} for n in range(3)}
    return machine(
        {"gpu": {"uuid": "GPU-{i}", "memory": {"total": 80 * GIB, "used": GIB}}, "processes": jobs}
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "state" / "gputop" / "signals.jsonl"
    path.parent.mkdir(parents=True, mode=0o700)
    return path


@pytest.fixture
def dead(log: Path) -> Iterator[Path]:
    """The folder of the log on a FUSE file system whose server never answers."""
    with Fuse(log.parent):
        yield log


@pytest.fixture
def disk(log: Path) -> Iterator[Path]:
    """The same on a file system of 64 KiB."""
    with small_disk(log.parent):
        yield log


def noted(log: Path) -> list[tuple[int, str]]:
    """Pid and verdict of each line, which is whole."""
    lines = log.read_bytes().split(b"\n")
    assert lines.pop() == b""
    return [(line["pid"], line["verdict"]) for line in map(json.loads, lines)]


def kill(here: Machine, *words: str) -> subprocess.CompletedProcess[str]:
    """Kill, without waiting for a log for long."""
    deadline = Deadline(8)
    done = here.run([*KILL, *words, "--yes"])
    assert deadline.left() > 0
    return done


Obstacle = Callable[[Path], object]


def by_fifo(log: Path) -> None:
    os.mkfifo(log)


def by_link(log: Path) -> None:
    (log.parent.parent / "victim").write_text("root's\n")
    log.symlink_to(log.parent.parent / "victim")


def by_dangling_link(log: Path) -> None:
    log.symlink_to(log.parent.parent / "victim")


def by_hard_link(log: Path) -> None:
    (log.parent.parent / "victim").write_text("root's\n")
    os.link(log.parent.parent / "victim", log)


def by_linked_folder(log: Path) -> None:
    log.parent.rename(log.parent.parent / "elsewhere")
    log.parent.symlink_to(log.parent.parent / "elsewhere")


def by_device(log: Path) -> None:
    os.mknod(log, 0o600 | stat.S_IFCHR, os.makedev(1, 7))  # /dev/full


def by_folder(log: Path) -> None:
    log.mkdir()


def by_socket(log: Path) -> None:
    os.mknod(log, 0o600 | stat.S_IFSOCK)


def by_mode(log: Path) -> None:
    log.touch()
    log.chmod(0o666)


def by_open_folder(log: Path) -> None:
    log.parent.chmod(0o777)


def by_owner(log: Path) -> None:
    log.touch()
    os.chown(log, ALICE, ALICE)


def by_folder_of_another(log: Path) -> None:
    os.chown(log.parent, ALICE, ALICE)


OBSTACLES: list[tuple[Obstacle, str]] = [
    (by_fifo, "is not a regular file"),
    (by_link, "is not a regular file"),
    (by_dangling_link, "is not a regular file"),
    (by_hard_link, "has another name: a hard link"),
    (by_linked_folder, "is a link, or no folder"),
    (by_device, "is not a regular file"),
    (by_folder, "is not a regular file"),
    (by_socket, "is not a regular file"),
    (by_mode, "is writable by others"),
    (by_open_folder, "may be written to by others"),
    (by_owner, "belongs to user 65534"),
    (by_folder_of_another, "belongs to user 65534"),
]


@needs_root
@rest_long(
    ("obstacle", "words"), *OBSTACLES, ids=lambda obstacle: getattr(obstacle, "__name__", "")
)
def test_a_kill_says_what_it_could_not_note(
    obstacle: Obstacle, words: str, here: Machine, log: Path
) -> None:
    obstacle(log)
    victim = log.parent.parent / "victim"
    before = victim.read_bytes() if victim.exists() else None
    pids = [here.pids["job0"], here.pids["job1"]]
    done = kill(here, *map(str, pids))
    assert done.returncode == 0, done.stderr
    assert all(map(gone, pids))
    assert done.stdout.count("ended") == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("gputop: not in the audit log: /")
    assert words in line
    assert (victim.read_bytes() if victim.exists() else None) == before
    assert not list(log.parent.parent.glob("elsewhere/*"))


def test_a_disk_that_does_not_answer_delays_no_signal(here: Machine, dead: Path) -> None:
    with Agent(here, interval=0.2) as agent:
        agent.line()
        for name in ("job0", "job1"):
            pid = here.pids[name]
            order = send(agent, target(pid))
            until(lambda pid=pid: gone(pid), within=0.8)  # type: ignore[misc]
            [told] = verdicts_of(agent, order)
            assert told["outcome"] == "exited"
            assert told["audit_error"] == "not in the audit log yet: no answer for 1 s"
        agent.close_stdin()
        assert until(lambda: agent.process.poll() is not None, within=3)


def test_a_kill_waits_a_second_for_its_report_alone(here: Machine, dead: Path) -> None:
    pid = here.pids["job0"]
    done = kill(here, str(pid))
    assert (done.returncode, gone(pid)) == (0, True)
    assert done.stderr == "gputop: not in the audit log yet: no answer for 1 s\n"


@pytest.mark.long
def test_the_dialog_says_it(here: Machine, dead: Path) -> None:
    with running(here, "-i", "0.2", size=(120, 40)) as terminal:
        terminal.wait_for("job0.py")
        terminal.send(b"j")
        terminal.wait_for("▸")
        terminal.send(b"\x1b[20~")
        terminal.wait_for("▸[ Send SIGTERM ]")
        terminal.send(b"\r")
        terminal.wait_for("ended")
        terminal.wait_for("not in the audit log yet: no answer for 1 s")
        terminal.send(b"q")
        terminal.wait_for(lambda: "Close" not in terminal.text)
        terminal.send(b"q")
        assert terminal.exit_code(4) == 0


def test_a_log_that_answers_again_gets_its_lines(here: Machine, log: Path) -> None:
    """Another writer has held it for longer than a note may take: the line waits for it."""
    log.touch(mode=0o600)
    pids = [here.pids["job0"], here.pids["job1"]]
    with Agent(here, interval=0.2) as agent, log.open("a") as other:
        agent.line()
        fcntl.flock(other, fcntl.LOCK_EX)
        order = send(agent, target(pids[0]))
        while "no answer for 1 s" not in agent.reply(order)["verdicts"][0]["audit_error"]:
            pass
        fcntl.flock(other, fcntl.LOCK_UN)
        until(lambda: (pids[0], "sent") in noted(log))
        told = verdict(agent, target(pids[1]))
        until(lambda: (pids[1], "exited") in noted(log))
    assert told["outcome"] == "exited"
    both = [(pid, word) for pid in pids for word in ("sent", "exited")]
    assert [note for note in noted(log) if note in both] == both


def test_an_agent_that_ends_at_once_has_noted_all(here: Machine, log: Path) -> None:
    pids = [here.pids[f"job{n}"] for n in range(3)]
    with Agent(here) as agent:
        agent.line()
        send(agent, *map(target, pids))
        agent.close_stdin()
        assert agent.process.wait(60) == 0
    until(lambda: all(gone(pid) for pid in pids))
    assert {pid for pid, _ in noted(log)} == set(pids)


def test_a_full_disk_is_said_and_leaves_no_half_line(here: Machine, disk: Path) -> None:
    pids = [here.pids[f"job{n}"] for n in range(3)]
    assert kill(here, str(pids[0])).stderr == ""
    before = disk.read_bytes()
    ballast = disk.parent / "ballast"
    with ballast.open("wb", buffering=0) as file:
        while file.tell() < 1 << 20:
            try:
                file.write(bytes(4096))
            except OSError:
                break
    with disk.open("ab", buffering=0) as file:  # but for a few bytes of the last page
        file.write(b" " * (4096 - len(before) - 20) + b"\n")
    before = disk.read_bytes()
    done = kill(here, str(pids[1]))
    assert f"not in the audit log: {disk}: No space left on device" in done.stderr
    assert done.returncode == 0
    assert disk.read_bytes() == before
    ballast.unlink()
    assert kill(here, str(pids[2])).stderr == ""
    assert disk.read_bytes().startswith(before)
    assert b'"pid":%d' % pids[2] in disk.read_bytes()


def test_a_line_that_was_cut_takes_no_other_with_it(here: Machine, log: Path) -> None:
    log.write_text('{"time": "20')
    log.chmod(0o600)
    pid = here.pids["job0"]
    assert kill(here, str(pid)).stderr == ""
    lines = log.read_text().splitlines()
    assert lines[0] == '{"time": "20'
    assert [json.loads(line)["pid"] for line in lines[1:]] == [pid, pid]


WRITER = """
import sys
from gputop.agent.signals.audit import append
from gputop.files import open_folder
for number in range(400):
    line = (sys.argv[2] * 200 + f" {number}").encode() + b"\\n"
    with open_folder(sys.argv[1]) as folder:
        append(folder, "log", line, 60_000)
"""


def test_many_writers_and_a_log_that_turns(tmp_path: Path) -> None:
    """No line is cut or mixed with another, and what is left is what came last of each."""
    folder = tmp_path / "many"
    folder.mkdir(mode=0o700)
    names = "abcd"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, folder, name]) for name in names]
    assert [writer.wait() for writer in writers] == [0] * len(names)
    assert sorted(os.listdir(folder)) == ["log", "log.1"]
    assert max((folder / name).stat().st_size for name in ("log", "log.1")) <= 60_000
    lines = (folder / "log.1").read_text() + (folder / "log").read_text()
    numbers: dict[str, list[int]] = {name: [] for name in names}
    for line in lines.splitlines():
        word, number = line.split()
        assert word == word[0] * 200
        numbers[word[0]].append(int(number))
    last = [name for name in names if numbers[name]]
    assert last
    for name in last:
        assert numbers[name] == list(range(numbers[name][0], 400))


@needs_root
def test_a_log_that_cannot_turn_grows_on(tmp_path: Path) -> None:
    from gputop.agent.signals.audit import append
    from gputop.files import open_folder

    folder = tmp_path / "log"
    (folder / "log.1").mkdir(parents=True)
    folder.chmod(0o700)
    with open_folder(str(folder)) as here:
        for _ in range(3):
            append(here, "log", b"x" * 80 + b"\n", 100)
    assert (folder / "log").read_text().count("\n") == 3


def test_a_limit_of_file_sizes(here: Machine, log: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50, resource.RLIM_INFINITY))

    pid = here.pids["job0"]
    done = subprocess.run([*KILL, str(pid), "--yes"], env=here.env, preexec_fn=limit,
                          capture_output=True, text=True, timeout=300, check=False)  # fmt: skip
    assert (done.returncode, gone(pid)) == (0, True)
    assert "not in the audit log" in done.stderr
    assert log.read_bytes() == b""


def test_two_hundred_at_once_are_noted_in_order(here: Machine, log: Path) -> None:
    pids = [here.spawn(f"rank{n}", ["python", "rank.py"], used=1) for n in range(60)]
    with Agent(here) as agent:
        agent.line()
        agent.done(send(agent, *map(target, pids)))
    sent = [pid for pid, word in noted(log) if word == "sent"]
    assert sent == pids
    assert {pid for pid, word in noted(log) if word == "exited"} == set(pids)
