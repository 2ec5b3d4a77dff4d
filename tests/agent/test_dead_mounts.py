"""What processes name lies on a file system that does not answer, or that would be mounted for it.

The file systems are real: FUSE without a daemon, or with one that stops; autofs.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gputop.agent.process.mounts import Mounts
from tests.agent.driving import Agent, Json
from tests.conftest import MachineFactory, needs_root
from tests.driver import Machine, build
from tests.fuse import Fuse
from tests.patience import Deadline, until

LOOK = 2.5
"""Seconds of a look at most; one that waits takes five and more."""
LIBC = ctypes.CDLL(None, use_errno=True)
CAT = "/bin/cat"
"""What runs, under whatever name: Python itself looks at the folder that it is called from."""
Start = Callable[..., int]


@pytest.fixture
def here(machine: MachineFactory) -> Machine:
    return machine({"gpu": {"uuid": "GPU-0"}})


@pytest.fixture
def start(here: Machine) -> Iterator[Start]:
    """Start a program on GPU 0 beside those that are there, called as one likes; its pid."""
    started: list[subprocess.Popen[Any]] = []

    def popen(called: str, prefix: Sequence[str] = (), cwd: Path | None = None, **env: str) -> int:
        options: Json = {} if prefix else {"executable": CAT}
        variables = {"PATH": os.environ["PATH"], **build.loading_cuda(), **env}
        pipe = subprocess.PIPE
        options.update(stdin=pipe, stdout=pipe, env=variables)
        if cwd is not None:  # after vfork() the thread that answers for a folder could not run
            options.update(preexec_fn=lambda: os.chdir(cwd))
        started.append(subprocess.Popen([*prefix, CAT] if prefix else [called], **options))
        assert started[-1].stdin
        assert started[-1].stdout
        started[-1].stdin.write(b".")
        started[-1].stdin.flush()
        assert started[-1].stdout.read(1) == b"."
        here.change(gpu=0, compute=[{"pid": pid.pid, "used": 1} for pid in started])
        return started[-1].pid

    yield popen
    for pid in started:
        pid.kill()
        pid.communicate()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "dead").mkdir()
    return tmp_path / "dead"


@pytest.fixture
def good(start: Start, tmp_path: Path) -> int:
    """A process of a virtual environment on a file system that answers."""
    venv.create(tmp_path / "env", symlinks=True)
    return start(f"{tmp_path}/env/bin/python")


def look(here: Machine) -> dict[int, Json]:
    """The processes by pid, of a look that waits for nothing."""
    deadline = Deadline(LOOK)
    done = here.run([sys.executable, "-m", "gputop", "--json"])
    assert deadline.left() > 0
    assert (done.returncode, done.stderr) == (0, "")
    return {process["pid"]: process for process in json.loads(done.stdout)["processes"]}


@pytest.mark.system
@needs_root
@pytest.mark.parametrize("serves", [False, True])
def test_an_environment_that_does_not_answer(
    serves: bool,
    here: Machine,
    start: Start,
    good: int,
    folder: Path,
    tmp_path: Path,
) -> None:
    with Fuse(folder) as fuse:
        if serves:
            fuse.serve()
            assert list(folder.iterdir()) == []
            fuse.stop()
        (tmp_path / "link").symlink_to(folder / "env")
        bad = (
            start(f"{folder}/env/bin/python"),
            start("dead/env/bin/python", cwd=tmp_path),
            start("python", PATH=f"{folder}/bin:{os.environ['PATH']}"),
            start(f"{tmp_path}/link/bin/python"),
        )
        found = look(here)
        assert found[good]["origin"]["venv"] == f"{tmp_path}/env"
        envs = [f"{folder}/env", f"{folder}/env", None, f"{tmp_path}/link"]
        assert [found[pid]["origin"].get("venv") for pid in bad] == envs  # texts, not looked up
        for pid in bad:
            assert found[pid]["origin"]["cwd"]
            assert found[pid]["cuda_context"] is not None
        with Agent(here, interval=0.2) as agent:
            deadline = Deadline(LOOK)
            until(lambda: all(process["origin"] for process in agent.line()["processes"]))
            assert deadline.left() > 0
        assert not fuse.wait_until_asked(0)


@pytest.mark.system
@needs_root
def test_a_folder_of_devices_that_does_not_answer(
    here: Machine, start: Start, good: int, tmp_path: Path
) -> None:
    """In a mount namespace of its own, with the file system's own idea of /dev."""
    (tmp_path / "dead").mkdir()
    with Fuse(tmp_path / "dead") as fuse:
        fuse.serve()
        script = f'mount --bind {tmp_path}/dead /dev && exec "$@"'
        bad = start("", ("unshare", "--mount", "sh", "-c", script, "sh"))
        fuse.stop()
        found = look(here)
        assert not fuse.wait_until_asked(0)
    assert found[good]["origin"]["venv"] == f"{tmp_path}/env"
    assert found[bad]["origin"]["cwd"]
    assert found[bad]["cuda_context"].get("minors") is None


@pytest.mark.system
@needs_root
def test_a_working_directory_that_does_not_answer(
    here: Machine, start: Start, good: int, folder: Path, tmp_path: Path
) -> None:
    with Fuse(folder) as fuse:
        fuse.serve()
        bad = start("bin/python", cwd=folder)
        fuse.stop()
        found = look(here)
    assert found[bad]["origin"]["cwd"] == str(folder)
    assert found[good]["origin"]["venv"] == f"{tmp_path}/env"


AUTOFS = "fd={},pgrp={},minproto=5,maxproto=5,{}"


class Automount:
    """A folder where things would be mounted on demand: by a daemon, which only notes it."""

    def __init__(self, folder: Path, kind: str = "indirect") -> None:
        self.folder = folder
        self._daemon = subprocess.Popen(["sleep", "1000"], preexec_fn=os.setpgrp)
        self._requests, self._pipe = os.pipe()
        os.set_blocking(self._requests, False)
        self._asked = self._mounted = False
        options = AUTOFS.format(self._pipe, self._daemon.pid, kind).encode()
        if LIBC.mount(b"auto", bytes(folder), b"autofs", 0, options):
            self.end()
            pytest.skip(f"autofs cannot be mounted here: {os.strerror(ctypes.get_errno())}")
        self._mounted = True

    def was_asked(self) -> bool:
        """Whether anybody came to a place where something would be mounted."""
        with suppress(BlockingIOError):
            self._asked |= bool(os.read(self._requests, 4096))
        return self._asked

    def mount(self, name: str) -> None:
        """Mount something there, as the daemon does."""
        command = f"mkdir {self.folder}/{name} && mount -t tmpfs t {self.folder}/{name}"
        group = self._daemon.pid
        subprocess.run(["sh", "-c", command], check=True, preexec_fn=lambda: os.setpgid(0, group))

    def end(self) -> None:
        for end in (self._requests, self._pipe):
            os.close(end)
        if self._mounted:
            LIBC.umount2(bytes(self.folder), 2)
        self._daemon.kill()
        self._daemon.wait()


@pytest.fixture
def automount(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Automount]:
    (tmp_path / "auto").mkdir()
    automount = Automount(tmp_path / "auto", getattr(request, "param", "indirect"))
    yield automount
    automount.end()


@pytest.mark.system
@needs_root
@pytest.mark.parametrize("automount", ["indirect", "direct"], indirect=True)
def test_nothing_is_mounted_for_it(
    here: Machine, start: Start, good: int, tmp_path: Path, automount: Automount
) -> None:
    """By whatever way a process names it: nothing is looked up."""
    auto = automount.folder
    (tmp_path / "link").symlink_to(auto / "alice/env")
    bad = [
        start(f"{auto}/alice/env/bin/python"),
        start(f"{auto}/bin/python"),
        start("auto/alice/env/bin/python", cwd=tmp_path),
        start("python", PATH=f"{auto}/alice/bin:{os.environ['PATH']}"),
        start(f"{tmp_path}/link/bin/python"),
        start("python", VIRTUAL_ENV=f"{auto}/alice/env"),
        start(f"{tmp_path}/env/../auto/alice/../bob/env/bin/python"),
    ]
    found = look(here)
    assert not automount.was_asked()
    assert found[good]["origin"]["venv"] == f"{tmp_path}/env"
    assert set(bad) < found.keys()


@pytest.mark.system
@needs_root
def test_a_folder_of_devices_that_would_be_mounted(
    here: Machine, start: Start, automount: Automount
) -> None:
    script = f'mount --rbind {automount.folder} /dev && exec "$@"'
    start("", ("unshare", "--mount", "sh", "-c", script, "sh"))
    look(here)
    assert not automount.was_asked()


ROOT = """
mount -t tmpfs root {root} && cd {root} && mkdir proc && mount --rbind /proc proc &&
for name in bin lib lib64 usr; do
    if [ -L /$name ]; then cp -P /$name .; elif [ -d /$name ]; then
        mkdir $name && mount --bind /$name $name || exit
    fi
done
{dev} && exec chroot . "$@"
"""
"""Another root, with another /dev."""


@pytest.mark.system
@needs_root
@pytest.mark.parametrize("dev", ["ln -s {auto}/alice dev", "ln -s / dev", "touch dev"])
def test_a_folder_of_devices_that_is_none(
    dev: str, here: Machine, start: Start, tmp_path: Path, automount: Automount
) -> None:
    """A link in a container would lead into our own files."""
    (tmp_path / "root").mkdir()
    script = ROOT.format(root=tmp_path / "root", dev=dev.format(auto=automount.folder))
    pid = start("", ("unshare", "--mount", "sh", "-c", script, "sh"))
    context = look(here)[pid]["cuda_context"]
    assert context["in_container"] is True
    assert context.get("minors") is None
    assert not automount.was_asked()


@pytest.mark.system
@needs_root
@pytest.mark.parametrize(
    ("dev", "minors"),
    [
        ("true", []),
        ("mkdir dev && touch dev/nvidia4 dev/nvidiactl", [4]),
        ("mkdir dev && mount -t tmpfs t dev && touch dev/nvidia2 && mount --bind dev dev", [2]),
    ],
)
def test_the_devices_of_another_root(
    dev: str, minors: list[int], here: Machine, start: Start, tmp_path: Path
) -> None:
    (tmp_path / "root").mkdir()
    script = ROOT.format(root=tmp_path / "root", dev=dev)
    pid = start("", ("unshare", "--mount", "sh", "-c", script, "sh"))
    assert look(here)[pid]["cuda_context"]["minors"] == minors


@pytest.mark.system
@needs_root
def test_in_another_user_namespace_devices_are_mounts(
    here: Machine, start: Start, tmp_path: Path
) -> None:
    """A rootless container can make none: a file of that name is no device, and who is root there
    may mount what never answers, so nothing is looked up."""
    (tmp_path / "node").touch()
    script = (
        "mount -t tmpfs t /dev && touch /dev/nvidia1 /dev/nvidia6 &&"
        f' mount --bind {tmp_path}/node /dev/nvidia6 && exec "$@"'
    )
    unshare = ("unshare", "--user", "--map-root-user", "--mount")
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces here")
    pid = start("", (*unshare, "sh", "-c", script, "sh"))
    context = look(here)[pid]["cuda_context"]
    assert context["minors"] == [6]


@pytest.mark.system
@needs_root
def test_the_automounter_of_these_tests_is_asked(
    automount: Automount,
) -> None:
    """Else the tests above would say nothing."""
    auto = automount.folder
    asking = subprocess.Popen(["ls", f"{auto}/alice"], stderr=subprocess.DEVNULL)
    until(automount.was_asked)
    asking.kill()


@pytest.mark.system
@needs_root
def test_a_working_directory_that_was_removed_below_an_automounter(
    here: Machine, start: Start, tmp_path: Path
) -> None:
    """Its name ends in ` (deleted)`, and may be that of another folder: nobody looks."""
    folder = tmp_path / "late/gone"
    folder.mkdir(parents=True)
    pid = start("python", cwd=folder)
    folder.rmdir()
    automount = Automount(folder.parent)
    found = look(here)
    asked = automount.was_asked()
    automount.end()
    assert found[pid]["origin"]["cwd"] == f"{folder} (deleted)"
    assert not asked


@pytest.mark.system
@needs_root
def test_what_is_mounted_below_an_automounter_is_looked_at(
    here: Machine, start: Start, automount: Automount
) -> None:
    """As homes are, where there are many: alice's is mounted, bob's would be."""
    automount.mount("alice")
    venv.create(automount.folder / "alice/env", symlinks=True)
    (automount.folder / "alice/bob").symlink_to(automount.folder / "bob/env")
    alice = start(f"{automount.folder}/alice/env/bin/python")
    start(f"{automount.folder}/alice/bob/bin/python")
    found = look(here)
    assert found[alice]["origin"]["venv"] == f"{automount.folder}/alice/env"
    assert not automount.was_asked()


@pytest.mark.system
@needs_root
def test_a_process_that_is_asked_for_by_name(
    here: Machine, start: Start, folder: Path, tmp_path: Path
) -> None:
    """`map --pid` looks itself."""
    with Fuse(folder):
        script = f'mount --bind {folder} /dev && exec "$@"'
        pid = start("", ("unshare", "--mount", "sh", "-c", script, "sh"))
        deadline = Deadline(5)
        done = here.run([sys.executable, "-m", "gputop", "map", "--pid", str(pid)])
        assert (done.returncode, done.stderr) == (0, "")
        assert deadline.left() > 0


def test_a_mount_point_with_a_carriage_return_in_its_name() -> None:
    """The kernel escapes blanks, newlines and backslashes in it."""
    lines = (
        b"25 1 8:1 / / rw - ext4 d rw\n",
        b"36 25 0:53 /of /mnt/a\rb\\040c rw shared:1 - autofs auto rw,fd=5\n",
    )
    mounts = Mounts(lines)
    assert mounts.root is not None
    assert (mounts.root.id, mounts.root.device, mounts.root.kind) == (25, "8:1", "ext4")
    over = mounts.over(mounts.root, b"/mnt/a\rb c")
    assert over is not None
    assert (over.id, over.device, over.root, over.kind) == (36, "0:53", b"/of", "autofs")
    assert over.options == [b"rw", b"fd=5"]
    assert mounts.below(mounts.root, b"/mnt") == ["a\rb c"]


@pytest.mark.parametrize(
    "line", [b"", b"25 1 8:1 / /", b"25 x 8:1 / / rw - ext4 d rw", b"25 1 8:1 / /\\09 rw - a b c"]
)
def test_a_line_that_is_no_mount_is_an_error(line: bytes) -> None:
    """What is mounted there might be what another user has mounted."""
    with pytest.raises(OSError, match="not as usual"):
        Mounts([b"25 1 8:1 / / rw - ext4 d rw\n", line])
