"""The files of gputop itself, under attack: by the user whose HOME root has, by the file system."""

from __future__ import annotations

import codecs
import ctypes
import os
import resource
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gputop.errors import GputopError, UsageError
from gputop.files import UnsafeFileError, open_folder, open_parent
from gputop.settings import Settings, from_file, keep_settings
from tests.conftest import MachineFactory, in_child, needed, needs_root, rest_long
from tests.fuse import Fuse, small_disk
from tests.patience import Deadline, until
from tests.terminal import Terminal

ALICE = 65534
GPUTOP = [sys.executable, "-m", "gputop"]
OLD = 'theme = "light"\n'
CHOSEN = {"theme": "dark"}
_LIBC = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Our own, with settings in it."""
    path = tmp_path / "own" / "gputop"
    path.mkdir(parents=True, mode=0o700)
    (path / "config.toml").write_text(OLD)
    return path


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file that is not gputop's."""
    path = tmp_path / "victim"
    path.write_text("root:x:0:0\n")
    return path


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that other users can look into, as those of tests are not."""
    with tempfile.TemporaryDirectory(prefix="gputop-test-") as path:
        os.chmod(path, 0o755)
        yield Path(path)


@pytest.fixture
def home(public: Path) -> Path:
    """Of another user, who may do in it what she likes."""
    path = public / "alice"
    (path / ".config" / "gputop").mkdir(parents=True)
    (path / ".config" / "gputop" / "config.toml").write_text(OLD)
    for file in (path, *path.rglob("*")):
        os.chown(file, ALICE, ALICE)
    return path


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    path = tmp_path / "disk"
    path.mkdir()
    with small_disk(path):
        yield path


def state_of(path: Path) -> object:
    """All that a write could have changed."""
    return sorted(
        (str(file), file.lstat().st_mode, file.lstat().st_uid, file.lstat().st_mtime_ns)
        for file in (path, *path.rglob("*"))
    )


# Somebody else's HOME


@pytest.mark.system
@needs_root
def test_root_with_the_home_of_another_writes_nothing(machine: MachineFactory, home: Path) -> None:
    """Her variables do not count (tests/test_variables.py); root's own do."""
    here, before = machine("h200x8"), state_of(home)
    env = {**here.env, "HOME": str(home), "XDG_CACHE_HOME": str(home), "XDG_RUNTIME_DIR": str(home)}
    with Terminal(GPUTOP, cols=120, rows=30, env=env) as terminal:
        terminal.wait_for("train.py")
        terminal.wait_for("? help")
        terminal.send(b"T")
        until(lambda: Path(env["XDG_CONFIG_HOME"], "gputop", "config.toml").exists(), within=20)
        terminal.send(b"q")
        assert terminal.exit_code() == 0
    assert state_of(home) == before


@needs_root
@pytest.mark.parametrize("manner", ["home", "folder of root's", "link", "linked folder", "file"])
def test_root_writes_to_no_folder_of_another(manner: str, home: Path, victim: Path) -> None:
    folder = home / ".config" / "gputop"
    path = folder / "config.toml"
    if manner == "home":
        (folder / f"config.toml.{os.getpid()}").symlink_to(victim)
    elif manner == "folder of root's":
        os.chown(folder, 0, 0)
        os.chown(path, 0, 0)
    elif manner == "link":
        path.unlink()
        path.symlink_to(victim)
    elif manner == "linked folder":
        path.unlink()
        folder.rmdir()
        folder.symlink_to(victim.parent)
    else:
        for file in (home, home / ".config", folder):
            os.chown(file, 0, 0)
    before = state_of(home)
    for _ in range(2):
        with pytest.raises(UnsafeFileError, match=rf"/alice\S* belongs to user {ALICE}"):
            keep_settings(path, CHOSEN)
    assert (state_of(home), victim.read_text()) == (before, "root:x:0:0\n")


def test_settings_are_kept_again_after_a_thread_that_could_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    path = tmp_path / "gputop" / "config.toml"
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", start)
        with pytest.raises(OSError, match="can't start new thread"):
            keep_settings(path, CHOSEN)
    keep_settings(path, CHOSEN)
    assert path.exists()


@pytest.mark.system
@needs_root
@pytest.mark.timeout(120)
def test_a_folder_that_is_swapped_during_the_write(public: Path) -> None:
    """By a program of hers that does nothing else: folder, link, folder, link."""
    shared, target = public / "shared", public / "system"
    shared.mkdir()
    shared.chmod(0o1777)
    target.mkdir(mode=0o755)
    (target / "config.toml").write_text("root's\n")
    swap = f"""
import os
os.setgid({ALICE}); os.setuid({ALICE})
os.chdir({str(shared)!r})
os.mkdir("real"); os.symlink({str(target)!r}, "link")
print(".", flush=True)
while True:
    for one in ("real", "link"):
        try:
            os.rename(one, "gputop"); os.rename("gputop", one)
        except OSError:
            pass
"""
    attacker = subprocess.Popen([sys.executable, "-c", swap], stdout=subprocess.PIPE)
    try:
        assert attacker.stdout
        assert attacker.stdout.readline() == b".\n"
        outcomes = set()
        for _ in range(3000):
            try:
                with open_folder(f"{shared}/gputop", make=False) as folder:
                    folder.replace("config.toml", b"")
                outcomes.add("written")
            except OSError as error:
                outcomes.add(type(error).__name__)
    finally:
        attacker.kill()
        attacker.communicate()
    assert outcomes <= {"UnsafeFileError", "FileNotFoundError"}
    assert "UnsafeFileError" in outcomes
    assert (target / "config.toml").read_text() == "root's\n"


@needs_root
def test_what_others_may_write_to_is_not_on_roots_way(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / "own" / "gputop").mkdir(parents=True)
    path = shared / "own" / "gputop" / "config.toml"
    for mode in (0o777, 0o775, 0o722):
        shared.chmod(mode)
        with pytest.raises(UnsafeFileError, match="may be written to by others"):
            keep_settings(path, CHOSEN)
    shared.chmod(0o1777)  # as /tmp
    keep_settings(path, CHOSEN)
    path.parent.chmod(0o770)
    with pytest.raises(UnsafeFileError, match="may be written to by others"):
        keep_settings(path, CHOSEN)


@pytest.mark.system
@needs_root
def test_an_ordinary_user(home: Path, public: Path) -> None:
    path, victim = home / ".config" / "gputop" / "config.toml", public / "victim"
    victim.write_text("root:x:0:0\n")
    assert in_child(lambda: keep_settings(path, CHOSEN), ALICE) == ""
    path.parent.chmod(0o775)  # umask 002, a group of her own
    assert in_child(lambda: keep_settings(path, CHOSEN), ALICE) == ""
    path.parent.chmod(0o777)
    assert "is writable by others" in in_child(lambda: keep_settings(path, CHOSEN), ALICE)
    path.parent.chmod(0o700)
    os.chown(path, 1, 1)
    assert "config.toml belongs to user 1" in in_child(lambda: keep_settings(path, CHOSEN), ALICE)
    path.unlink()
    path.symlink_to(victim)
    os.chown(path, 1, 1, follow_symlinks=False)
    assert "is a link and belongs to user 1" in in_child(lambda: keep_settings(path, CHOSEN), ALICE)
    os.chown(path, ALICE, ALICE, follow_symlinks=False)
    assert "belongs to user 0" in in_child(lambda: keep_settings(path, CHOSEN), ALICE)
    assert victim.read_text() == "root:x:0:0\n"


# Links that we made


@pytest.mark.parametrize("manner", ["file", "relative", "chain", "folder", "dangling"])
def test_a_link_is_written_through(manner: str, folder: Path, tmp_path: Path) -> None:
    dotfiles = tmp_path / "dotfiles"
    dotfiles.mkdir(mode=0o700)
    target, path = dotfiles / "gputop.toml", folder / "config.toml"
    path.unlink()
    if manner != "dangling":
        target.write_text("# mine\n" + OLD)
        target.chmod(0o640)
    if manner == "folder":
        target = target.rename(dotfiles / "config.toml")
        folder.rmdir()
        folder.symlink_to("../dotfiles")
    elif manner == "relative":
        path.symlink_to("../../own/./../dotfiles/gputop.toml")
    elif manner == "chain":
        (dotfiles / "other").symlink_to("gputop.toml")
        path.symlink_to(dotfiles / "other")
    else:
        path.symlink_to(target)
    link = folder if manner == "folder" else path
    keep_settings(path, CHOSEN)
    assert link.is_symlink()
    assert not target.is_symlink()
    assert from_file(target).theme == from_file(path).theme == "dark"
    if manner != "dangling":
        assert "# mine" in target.read_text()
        assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert not [path for path in dotfiles.iterdir() if path.name.startswith(".gputop")]


def test_links_in_a_circle(folder: Path) -> None:
    path = folder / "config.toml"
    path.unlink()
    path.symlink_to(folder / "other")
    (folder / "other").symlink_to(path)
    for run in (lambda: keep_settings(path, CHOSEN), lambda: open_parent(str(path))):
        with pytest.raises(OSError, match="symbolic links"):
            run()


@pytest.mark.parametrize("target", ["/dev/null", "/dev/zero", "/proc/self/mem", "/", "fifo"])
def test_a_link_to_what_is_no_file(target: str, folder: Path) -> None:
    path = folder / "config.toml"
    path.unlink()
    if target == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(target)
    before = os.stat("/dev/null")
    with pytest.raises(OSError, match=r"is not a regular file|denied|belongs|Input/output error"):
        keep_settings(path, CHOSEN)
    with pytest.raises(UsageError, match=r"config\.toml (is not|cannot be) read: ") as refused:
        from_file(path)
    assert "no answer" not in str(refused.value)  # as from one that waits
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert os.stat("/dev/null").st_ino == before.st_ino


# Disks


@needs_root
def test_a_full_disk_keeps_the_old_file_and_leaves_nothing(disk: Path) -> None:
    path = disk / "config.toml"
    path.write_text(OLD)
    (disk / "ballast").write_bytes(bytes(56 << 10))
    chosen = {"keys.x": "y" * 20_000}
    with pytest.raises(OSError, match="No space left"):
        keep_settings(path, chosen)
    assert path.read_text() == OLD
    assert sorted(path.name for path in disk.iterdir()) == ["ballast", "config.toml"]
    (disk / "ballast").unlink()
    keep_settings(path, chosen)
    assert [path.name for path in disk.iterdir()] == ["config.toml"]


@pytest.mark.system
@needs_root
@pytest.mark.long
def test_a_full_disk_is_said_on_the_screen(machine: MachineFactory, disk: Path) -> None:
    here = machine("h200x8")
    with suppress(OSError):
        (disk / "ballast").write_bytes(bytes(1 << 20))
    env = {**here.env, "XDG_CONFIG_HOME": str(disk)}
    with Terminal(GPUTOP, cols=120, rows=40, env=env) as terminal:
        terminal.wait_for("train.py")
        terminal.wait_for("? help")
        terminal.send(b"T")
        terminal.wait_for("not saved: No space left on device")


@pytest.mark.system
def test_a_limit_of_file_sizes(folder: Path) -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
        keep_settings(folder / "config.toml", {"keys.x": "y" * 1000})

    assert "File too large" in in_child(limited, os.getuid())
    assert (folder / "config.toml").read_text() == OLD
    assert [path.name for path in folder.iterdir()] == ["config.toml"]


@pytest.mark.system
@needs_root
@pytest.mark.parametrize("manner", ["mode", "mount", "immutable"])
def test_what_may_not_change_does_not(manner: str, disk: Path, folder: Path) -> None:
    path = folder / "config.toml" if manner == "immutable" else disk / "config.toml"
    path.write_text(OLD)
    if manner == "mode":
        path.chmod(0o444)
    elif manner == "mount":
        _LIBC.mount(None, bytes(disk), None, 33, None)  # MS_REMOUNT | MS_RDONLY
    else:
        program = needed("chattr", "e2fsprogs")
        if subprocess.run([program, "+i", str(path)], capture_output=True, check=False).returncode:
            pytest.skip("a file system without immutable files")
    try:
        with pytest.raises(OSError, match=r"is read-only|Read-only|not permitted"):
            keep_settings(path, CHOSEN)
        assert path.read_text() == OLD
        assert [file.name for file in path.parent.iterdir()] == ["config.toml"]
    finally:
        if manner == "immutable":
            subprocess.run(["chattr", "-i", str(path)], check=True)


@pytest.mark.system
@rest_long("step", 5, 1)
def test_a_writer_that_is_killed(step: int, folder: Path) -> None:
    """At any time: the file is the old or the new one, and what it leaves goes in the end."""
    path = folder / "config.toml"
    code = (
        "import sys; from pathlib import Path; from gputop.settings import keep_settings\n"
        "number = 0\n"
        "while True:\n"
        "    number += 1\n"
        "    keep_settings(Path(sys.argv[1]), {'keys.x': str(number) * 4000})\n"
        "    print('.', end='', flush=True)\n"
    )
    for n in range(0, 15, step):
        with subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE) as writer:
            assert writer.stdout
            writer.stdout.read(1)
            time.sleep(0.003 * n)  # whenever that is
            writer.send_signal(signal.SIGKILL)
            writer.wait()
        assert len(from_file(path).keys["x"]) % 4000 == 0
    aside = folder / ".gputop.0123456789abcdef"
    aside.touch()
    for file in folder.glob(".gputop.*"):
        os.utime(file, (1, 1))
    (folder / ".gputop.mine").touch()
    os.utime(folder / ".gputop.mine", (1, 1))
    keep_settings(path, CHOSEN)
    assert sorted(path.name for path in folder.iterdir()) == [".gputop.mine", "config.toml"]


@pytest.mark.system
@pytest.mark.long
def test_two_writers_leave_a_whole_file(folder: Path) -> None:
    path = folder / "config.toml"
    code = (
        "import sys; from pathlib import Path; from gputop.settings import keep_settings\n"
        "for number in range(60):\n"
        "    keep_settings(Path(sys.argv[1]), {'keys.x': str(number % 10) * 4000})\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, path]) for _ in range(2)]
    while any(writer.poll() is None for writer in writers):
        assert from_file(path).theme == "light"
    assert [writer.wait() for writer in writers] == [0, 0]
    assert [path.name for path in folder.iterdir()] == ["config.toml"]


# Reading


@pytest.mark.system
@needs_root
@rest_long("manner", "fifo", "zero", "huge", "another's", "socket", "folder")
def test_nothing_is_read_that_is_no_settings_file(
    manner: str, machine: MachineFactory, folder: Path
) -> None:
    path = folder / "config.toml"
    path.unlink()
    if manner == "fifo":
        os.mkfifo(path)
    elif manner == "zero":
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    elif manner == "huge":
        with path.open("wb") as file:
            file.truncate(10 << 30)
    elif manner == "another's":
        path.write_text("readonly = true\n")
        os.chown(path, ALICE, ALICE)
    elif manner == "socket":
        os.mknod(path, 0o600 | stat.S_IFSOCK)
    else:
        path.mkdir()
    here = machine({"gpu": {"uuid": "GPU-0"}})
    here.env["XDG_CONFIG_HOME"] = str(folder.parent)
    done = here.run([*GPUTOP, "config"])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"gputop: {path} is not read: ")
    assert done.stderr.count("\n") == 1
    if manner in ("fifo", "another's"):  # one that could stop a screen, and one that could be read
        with Terminal(GPUTOP, cols=120, rows=30, env=here.env) as terminal:
            terminal.wait_for("? help")
            assert b"; the defaults are used" in bytes(terminal.raw)
            terminal.send(b"q")
            assert terminal.exit_code() == 0


@pytest.mark.system
@needs_root
@pytest.mark.long
def test_a_home_that_does_not_answer(machine: MachineFactory, tmp_path: Path) -> None:
    """A FUSE file system whose server never answers, as an NFS server that is gone."""
    dead = tmp_path / "dead"
    dead.mkdir()
    with Fuse(dead):
        here = machine("h200x8")
        env = {**here.env, "XDG_CONFIG_HOME": str(dead), "XDG_RUNTIME_DIR": str(dead)}
        with Terminal(GPUTOP, cols=120, rows=30, env=env) as terminal:
            terminal.wait_for("train.py", timeout=10)
            assert b"config.toml cannot be read: no answer for 2 s" in bytes(terminal.raw)
            terminal.send(b"q")
            assert terminal.exit_code() == 0
        deadline = Deadline(10)
        done = subprocess.run([*GPUTOP, "--once"], env=env, capture_output=True, check=False)
        assert done.returncode == 0
        assert deadline.left() > 0


@needs_root
def test_a_file_system_that_says_it_is_roots(public: Path) -> None:
    """FUSE tells owners as its daemon likes, which is a user's."""
    (public / "mount").mkdir()
    with Fuse(public / "mount", user=ALICE) as fuse:
        fuse.serve()
        assert os.stat(public / "mount").st_uid == 0
        with pytest.raises(UnsafeFileError, match=f"is a file system of uid {ALICE}'s own making"):
            open_folder(str(public / "mount"))
    with Fuse(public / "mount") as fuse:
        fuse.serve()
        open_folder(str(public / "mount")).close()


def test_paths_that_are_none(tmp_path: Path) -> None:
    for path in ("~/.config/gputop/config.toml", "relative/config.toml", ""):
        with pytest.raises(UnsafeFileError, match="does not begin with /"):
            open_parent(path)
    assert from_file(tmp_path / "none" / "config.toml") == Settings()


# What else is written


@pytest.mark.system
@needs_root
def test_the_archive_of_a_report(machine: MachineFactory, disk: Path, victim: Path) -> None:
    from gputop.commands.bug_report import write_archive

    path = disk / "bug.tar.gz"
    with pytest.raises(GputopError, match="No space left on device"):
        write_archive(str(path), {"noise": os.urandom(200 << 10).hex()})
    assert list(disk.iterdir()) == []
    path.symlink_to(victim)
    with pytest.raises(GputopError, match="exists: give another name"):
        write_archive(str(path), {"a": "b"})
    path.unlink()
    path.symlink_to(disk / "nothing")
    with pytest.raises(GputopError, match="exists: give another name"):
        write_archive(str(path), {"a": "b"})
    path.unlink()
    write_archive(str(path), {"a": "b"})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert victim.read_text() == "root:x:0:0\n"


@pytest.mark.system
@needs_root
def test_the_traceback_of_a_crash_is_not_left_with_another(home: Path) -> None:
    code = "from gputop.tui.terminal.app import report; print(report(ValueError('x')))"
    env = {**os.environ, "TMPDIR": str(home)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True,
                          check=True)  # fmt: skip
    path = Path(done.stdout.split()[-1])
    assert path.parent == Path("/tmp")
    path.unlink()


@pytest.mark.system
@needs_root
def test_root_of_a_user_namespace(home: Path) -> None:
    """As of `unshare -r` and many a container: / belongs to nobody who is there."""
    import tomlkit  # noqa: F401 - the child may not read it

    codecs.lookup("ascii")  # nor that
    path = home / ".config" / "gputop" / "config.toml"
    for file in (home, *home.rglob("*")):
        os.chown(file, 1000, 1000)

    def become_root() -> None:
        assert _LIBC.prctl(4, 1, 0, 0, 0) == 0  # PR_SET_DUMPABLE, for uid_map to be ours
        assert _LIBC.unshare(0x10000000) == 0  # CLONE_NEWUSER
        Path("/proc/self/uid_map").write_text("0 1000 1")
        assert (os.geteuid(), os.stat("/").st_uid) == (0, 65534)
        keep_settings(path, CHOSEN)

    assert in_child(become_root, 1000) == ""
    assert path.read_text() == 'theme = "dark"\n'
