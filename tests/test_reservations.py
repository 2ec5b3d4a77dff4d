"""Reservations, with real processes: who has one, how it ends, and what a hostile folder can do."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

import pytest

from gputop import trust
from gputop.reservations.folder import LockFolder, ReservationError
from gputop.reservations.hold import Hold, tidy
from gputop.reservations.locks import MOST_OF_A_USER, LockFile, entries, read_locks
from tests.conftest import in_child, needs_root
from tests.tui.live import gone

REPOSITORY = Path(__file__).parent.parent
NOBODY = 65534
GPU = "GPU-00000000-0000-0000-0000-000000000007"

TAKER = """
import os, sys
from gputop.reservations.folder import LockFolder
from gputop.reservations.hold import Hold
with LockFolder() as folder, folder.exclusive():
    hold = Hold(folder, sys.argv[1], "train.py")
    hold.inherit()
    os.execvp(sys.argv[2], sys.argv[2:])
"""
CROWD = """
import os, sys
from gputop.reservations.folder import LockFolder
from gputop.reservations.hold import Hold
from gputop.reservations.locks import read_locks
go, begin = os.pipe()
said, say = os.pipe()
for n in range(200):
    if os.fork() == 0:
        os.close(begin)
        if os.geteuid() == 0:
            os.setuid(4711 + n % 2)
        os.read(go, 1)
        with LockFolder() as folder, folder.exclusive():
            taken = {lock.uuid for lock in read_locks(held=folder)}
            free = [f"GPU-{k}" for k in range(8) if f"GPU-{k}" not in taken]
            if free:
                Hold(folder, free[0], f"number {n}").inherit()
            os.write(say, f"{n} {free[0] if free else '-'}\\n".encode())
        if free:
            os.execvp("cat", ["cat"])
        os._exit(0)
os.close(go), os.close(begin), os.close(say)
sys.stdout.writelines(open(said))
sys.stdout.flush()
"""


@pytest.fixture
def locks(tmp_path: Path) -> Path:
    """The folder of the test; others may go there."""
    for folder in (tmp_path, *tmp_path.parents[:3]):
        if os.geteuid() == 0 and folder != Path("/tmp"):
            folder.chmod(0o755)
    tmp_path.chmod(0o1777)
    return tmp_path / "locks"


@contextmanager
def taking(uuid: str, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has reserved a GPU and then become another program; its standard output says
    that it is that program."""
    with subprocess.Popen(
        [sys.executable, "-c", TAKER, uuid, *command],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def only() -> LockFile:
    (lock,) = read_locks()
    return lock


# What one is, and how it ends


@pytest.mark.system
def test_it_is_of_the_program_and_ends_with_it(locks: Path) -> None:
    script = "echo; exec cat"
    before = time.time() - 0.1
    with taking(GPU, "sh", "-c", script) as process:
        lock = only()
        assert (lock.uuid, lock.uid, lock.pid) == (GPU, os.geteuid(), process.pid)
        assert (lock.command, lock.until, lock.folder) == ("train.py", None, str(locks))
        assert before < lock.since < time.time() + 0.1
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert read_locks() == []


@pytest.mark.system
def test_a_child_that_inherits_it_keeps_it(locks: Path) -> None:
    """Whose it is stays known; which process took it does not."""
    with taking(GPU, "sh", "-c", "sleep 60 & echo; wait") as process:
        assert only().pid == process.pid
        (child,) = {int(p) for p in Path(f"/proc/{process.pid}/task/{process.pid}/children")
                    .read_text().split()}  # fmt: skip
        process.kill()
        process.wait()
        assert (only().uid, only().pid) == (os.geteuid(), None)
        os.kill(child, signal.SIGKILL)
        assert gone(child)
        assert read_locks() == []


@pytest.mark.system
def test_two_hundred_at_once_of_two_users(locks: Path) -> None:
    """Eight have a GPU each, and nobody waits so long that he is refused."""
    with subprocess.Popen(
        [sys.executable, "-c", CROWD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=REPOSITORY, start_new_session=True,
    ) as crowd:  # fmt: skip
        try:
            assert crowd.stdout is not None
            lines = [crowd.stdout.readline().split() for _ in range(200)]
            assert sorted(gpu for _, gpu in lines if gpu != "-") == [f"GPU-{k}" for k in range(8)]
            assert len({n for n, _ in lines}) == 200
            taken = {lock.uuid: (lock.command, lock.uid) for lock in read_locks()}
            for n, gpu in lines:
                if gpu != "-":
                    uid = os.geteuid() or 4711 + int(n) % 2
                    assert taken[gpu] == (f"number {n}", uid)
        finally:
            os.killpg(crowd.pid, signal.SIGKILL)


def test_who_takes_a_gpu_reads_the_folder_that_he_has_locked(locks: Path, tmp_path: Path) -> None:
    """Its path may lead there no more: then every GPU would seem to be free."""
    with LockFolder() as folder, folder.exclusive():
        hold = Hold(folder, GPU, "x")
        locks.rename(tmp_path / "moved")
        assert read_locks() == []
        for _ in range(2):
            assert [lock.uuid for lock in read_locks(held=folder)] == [GPU]
        hold.release()
        assert read_locks(held=folder) == []


def test_nothing_is_left_of_what_has_ended(locks: Path) -> None:
    with LockFolder() as folder, folder.exclusive():
        kept, ended = Hold(folder, GPU, "kept"), Hold(folder, "GPU-2", "ended")
        released = Hold(folder, "GPU-3", "released")
        assert [lock.uuid for lock in read_locks()] == [GPU, "GPU-2", "GPU-3"]
        os.close(ended.descriptor)
        released.release()
        assert [lock.uuid for lock in read_locks()] == [GPU]
        assert len(os.listdir(locks)) == 2
        tidy(folder)
        assert os.listdir(locks) == [kept.name]
        kept.release()


def test_a_program_keeps_the_small_descriptors(locks: Path) -> None:
    with LockFolder() as folder:
        hold = Hold(folder, GPU, "x")
        assert not os.get_inheritable(hold.descriptor)
        assert hold.inherit() >= 200
        assert os.get_inheritable(hold.descriptor)
        hold.release()


# The folder


def test_it_is_made_for_everybody(locks: Path) -> None:
    before = os.umask(0o077)
    try:
        with LockFolder() as folder:
            assert folder.path == str(locks)
    finally:
        os.umask(before)
    assert stat.S_IMODE(locks.stat().st_mode) == 0o1777


def refusal() -> str:
    with pytest.raises(ReservationError) as error:
        LockFolder()
    assert "--no-reserve" in str(error.value)
    return str(error.value)


def test_a_folder_that_is_none_is_refused(locks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locks.symlink_to("/etc")
    assert "is a link, or no folder: remove it" in refusal()
    locks.unlink()
    locks.write_text("")
    assert "is a link, or no folder: remove it" in refusal()
    locks.unlink()
    os.mkfifo(locks)
    assert "is a link, or no folder: remove it" in refusal()
    locks.unlink()
    locks.mkdir(mode=0o755)
    assert f"has mode 755: chmod 1777 {locks}" in refusal()
    locks.chmod(0o777)
    assert f"has mode 777: chmod 1777 {locks}" in refusal()
    monkeypatch.setenv("GPUTOP_LOCKS", "/proc/gputop")
    assert "install -d -m 1777 /proc/gputop" in refusal()


def test_who_makes_the_folder_may_get_no_core_for_a_moment(locks: Path) -> None:
    """Between making it and opening it to all."""
    locks.mkdir(mode=0o755)
    with ThreadPoolExecutor() as pool:
        found = pool.submit(LockFolder)
        assert not wait([found], 0.5).done
        locks.chmod(0o1777)
        with found.result() as folder:
            assert folder.path == str(locks)


@needs_root
@pytest.mark.system
def test_anothers_folder_is_good_enough_for_a_user_and_not_for_root(locks: Path) -> None:
    locks.mkdir()
    locks.chmod(0o1777)
    os.chown(locks, NOBODY, NOBODY)
    assert f"belongs to user {NOBODY}, who could remove locks: chown root" in refusal()
    assert in_child(_take, 4711) == ""


def _take() -> None:
    trust._elevated = None  # the child is another user than its parent
    with LockFolder() as folder, folder.exclusive():
        Hold(folder, GPU, "x")


@needs_root
@pytest.mark.system
def test_root_makes_no_folder_where_others_lead_it(
    locks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hers = locks.parent / "hers"
    hers.mkdir()
    os.chown(hers, NOBODY, NOBODY)
    (hers / "link").symlink_to(locks)
    for name in ("new", "link", "link/new"):
        monkeypatch.setenv("GPUTOP_LOCKS", f"{hers}/{name}")
        assert refusal()
    assert (os.listdir(hers), locks.exists()) == (["link"], False)


@needs_root
@pytest.mark.system
def test_a_user_takes_over_from_another(locks: Path) -> None:
    """Nobody opens, needs or can remove what the other has left."""
    assert in_child(_take, NOBODY) == ""
    assert in_child(_take, 4711) == ""
    assert len(os.listdir(locks)) == 2
    assert in_child(lambda: os.unlink(locks / os.listdir(locks)[0]), 4712) != ""


def test_what_is_no_reservation_counts_for_nothing(locks: Path) -> None:
    """Whatever lies in the folder: it is not opened where that does something."""
    with LockFolder() as folder:
        hold = Hold(folder, "GPU-1", "x")
        name = f"{GPU}.{'0' * 15}"
        os.mkfifo(locks / f"{name}1")
        (locks / f"{name}2").mkdir()
        (locks / f"{name}3").symlink_to(locks / hold.name)
        (locks / f"{name}4").write_text(f"{name}4 1 1 0\nnot locked")
        (locks / "GPU-1.x").write_text("")
        assert [lock.uuid for lock in read_locks()] == ["GPU-1"]
        os.link(locks / hold.name, locks / f"{name}5")
        assert [lock.uuid for lock in read_locks()] == ["GPU-1"]
        hold.release()


@pytest.mark.parametrize(
    "text", ["", " 1 1", " x y z\nw", " 1 1 0\n", f" {'9' * 20} 1 nan\n", " -1 -1 1e400\n\x1b[2J"]
)
def test_what_is_written_in_it_is_not_believed(text: str, locks: Path) -> None:
    with LockFolder() as folder:
        hold = Hold(folder, GPU, "x")
        os.ftruncate(hold.descriptor, 0)
        os.pwrite(hold.descriptor, (hold.name + text).encode(), 0)
        lock = only()
        assert (lock.uuid, lock.uid, lock.pid, lock.until) == (GPU, os.geteuid(), None, None)
        assert lock.command is None or "\x1b" not in lock.command
        hold.release()


def test_a_reader_is_in_nobodys_way(locks: Path) -> None:
    """Who reads it cannot take the lock, and to ask for it does not hinder who takes it."""
    with LockFolder() as folder, folder.exclusive():
        hold = Hold(folder, GPU, "x")
        reader = os.open(locks / hold.name, os.O_RDONLY)
        fcntl.flock(reader, fcntl.LOCK_EX)  # another kind of lock: nobody minds
        assert only().uuid == GPU
        os.close(reader)
        hold.release()


KEEPER = """
import fcntl, os, sys
fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)
print(flush=True)
sys.stdin.read()
"""
"""Locks a folder."""


@contextmanager
def keeping(path: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", KEEPER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as keeper:  # fmt: skip
        assert keeper.stdout is not None
        keeper.stdout.readline()
        yield keeper
        assert keeper.stdin is not None
        keeper.stdin.close()


@pytest.mark.system
def test_who_keeps_the_folder_locked_is_waited_for_once(locks: Path) -> None:
    with LockFolder() as folder, keeping(folder.path):
        with folder.exclusive(timeout=0.1) as held:
            assert (held, folder.is_kept) == (False, True)
        with folder.exclusive() as held:  # it is not waited for again
            assert not held
    with LockFolder() as folder, folder.exclusive(timeout=5) as held:
        assert held


@needs_root
@pytest.mark.system
@pytest.mark.long
def test_a_full_file_system(tmp_path: Path) -> None:
    """A tmpfs of two files, in a mount namespace of its own."""
    script = (
        f"mount -t tmpfs -o nr_inodes=2,mode=1777 none {tmp_path} && exec {sys.executable} -c '"
        "from tests.test_reservations import _take; _take()'"
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], cwd=REPOSITORY, capture_output=True, text=True,
        env={**os.environ, "GPUTOP_LOCKS": f"{tmp_path}/locks"}, check=False,
    )  # fmt: skip
    if "permission denied" in done.stderr or "unshare" in done.stderr:
        pytest.skip(done.stderr)
    assert f"ReservationError: {tmp_path}/locks takes no file: No space left on device" in (
        done.stderr.splitlines()[-1].replace("gputop.reservations.folder.", "")
    )


@needs_root
@pytest.mark.system
def test_files_of_another_user_hide_nothing(locks: Path) -> None:
    """5,000 empty ones, and 1,000 that are filled; nobody has to remove them."""

    def fill() -> None:
        for n in range(5000):
            os.mknod(locks / f"{GPU}.{n:016x}")
        for n in range(5000, 6000):
            name = f"{GPU}.{n:016x}"
            (locks / name).write_text(f"{name} 1 1 0\nx")

    with LockFolder() as folder:
        before = [Hold(folder, f"GPU-{n}", "x") for n in range(8)]
        assert in_child(fill, NOBODY) == ""
        after = [Hold(folder, f"GPU-{n}", "x") for n in range(8, 16)]
        assert {lock.uuid for lock in read_locks()} == {f"GPU-{n}" for n in range(16)}
        theirs = [entry for entry in entries(folder.descriptor) if entry.about.st_uid == NOBODY]
        assert len(theirs) == MOST_OF_A_USER
        os.close(before[0].descriptor)
        tidy(folder)
        assert not (locks / before[0].name).exists()
        for hold in (*before[1:], *after):
            hold.release()


# `gputop reserve` keeps one


@pytest.mark.system
@pytest.mark.parametrize("ending", ["time", "leader", "files"])
def test_the_holder_ends(ending: str, locks: Path) -> None:
    with LockFolder() as folder:
        hold = Hold(folder, GPU, "x")
        number = hold.inherit()
        holder = REPOSITORY / "gputop/reservations/holder.py"
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as leader, subprocess.Popen(
            [sys.executable, "-I", "-S", holder, "0.2" if ending == "time" else "60",
             str(leader.pid), str(number)], pass_fds=(number,),
        ) as process:  # fmt: skip
            os.close(number)
            assert ending == "time" or only().uuid == GPU
            if ending == "leader":
                leader.kill()
            if ending == "files":
                os.unlink(locks / hold.name)
            ended = select.select([os.pidfd_open(process.pid)], [], [], 10)[0]
            assert ended
            assert process.wait() == 0
            leader.kill()
        assert read_locks() == []
