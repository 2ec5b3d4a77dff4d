"""What root runs, connects to and opens, where another user wants it to be his.

The attacks are real: files of another user's, first on the PATH, in the environment, in the folder.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gputop import trust
from gputop.agent.doctor.python_env import find_interpreter, python_checks
from tests.agent.driving import Agent, Json, sleeping
from tests.agent.test_detail import answer, start_ticks
from tests.conftest import MachineFactory, needs_root, rest_long
from tests.driver import Machine, build
from tests.driver.machine import REPOSITORY
from tests.fuse import Fuse

pytestmark = needs_root

EVE = 4242
"""Who attacks."""
PROGRAMS = ("docker", "podman", "crictl", "nerdctl", "py-spy", "nvcc", "nvidia-ctk", "ldconfig",
            "nvidia-smi", "tmux", "python3", "sudo", "getent", "sh", "uname")  # fmt: skip
ID = "9ec39b91f3d70e1beff50a308f77067065ea6be0d91a3378375056cd4422cf3d"


@pytest.fixture
def here(machine: MachineFactory) -> Machine:
    return machine({"gpu": {"uuid": "GPU-0"}})


@pytest.fixture
def eve(tmp_path: Path) -> Path:
    """A folder of another user's, in one that she may come to."""
    folder = tmp_path / "eve"
    folder.mkdir()
    os.chown(folder, EVE, EVE)
    return folder


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """A file that is there when something of hers ran."""
    return tmp_path / "ran"


def plant(path: Path, ran: Path, owner: int = EVE) -> Path:
    """A program that says that it ran, as whom."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\necho "$0 $@ as $(/usr/bin/id -u)" >> {ran}\n')
    path.chmod(0o755)
    os.chown(path, owner, owner)
    return path


def chown_tree(folder: Path, owner: int = EVE) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, owner, owner, follow_symlinks=False)


def hers(eve: Path, ran: Path) -> Path:
    return eve


def open_to_all(eve: Path, ran: Path) -> Path:
    folder = eve.parent / "open"
    folder.mkdir()
    for name in PROGRAMS:
        plant(folder / name, ran, owner=0)
    folder.chmod(0o777)
    return folder


def of_a_group(eve: Path, ran: Path) -> Path:
    folder = open_to_all(eve, ran)
    folder.chmod(0o775)
    os.chown(folder, 0, EVE)
    return folder


def sticky(eve: Path, ran: Path) -> Path:
    folder = open_to_all(eve, ran)
    folder.chmod(0o1777)
    return folder


def below_hers(eve: Path, ran: Path) -> Path:
    for name in PROGRAMS:
        plant(eve / "bin" / name, ran, owner=0)
    return eve / "bin"


def writable_programs(eve: Path, ran: Path) -> Path:
    folder = eve.parent / "bin"
    for name in PROGRAMS:
        plant(folder / name, ran, owner=0).chmod(0o775)
    return folder


def links_to_hers(eve: Path, ran: Path) -> Path:
    folder = eve.parent / "links"
    folder.mkdir()
    for name in PROGRAMS:
        (folder / name).symlink_to(eve / name)
    return folder


def a_link_to_hers(eve: Path, ran: Path) -> Path:
    (eve.parent / "link").symlink_to("../" + eve.parent.name + "/eve")
    return eve.parent / "link"


def through_a_process(eve: Path, ran: Path) -> Path:
    return Path(f"/proc/{os.getpid()}/root{eve}")


def here_and_now(eve: Path, ran: Path) -> Path:
    return Path()


FOLDERS = (hers, open_to_all, of_a_group, sticky, below_hers, writable_programs, links_to_hers,
           a_link_to_hers, through_a_process, here_and_now)  # fmt: skip


@pytest.fixture
def search(eve: Path, ran: Path, tmp_path: Path) -> str:
    """A PATH of all of these, before the system's: if one is believed, something in it runs."""
    folders = []
    for folder in FOLDERS:
        own = eve if folder is here_and_now else tmp_path / folder.__name__ / "eve"
        own.mkdir(parents=True, exist_ok=True)
        os.chown(own, EVE, EVE)
        for name in PROGRAMS:
            plant(own / name, ran)
        folders.append(str(folder(own, ran)))
    assert len(set(folders)) == len(FOLDERS)
    return ":".join([*folders, "/usr/sbin", "/usr/bin", "/sbin", "/bin"])


@pytest.fixture
def contained(here: Machine, tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """A process on GPU 0 of each runtime's container, as whoever has this prefix sees it."""
    process = sleeping()
    here.change(gpu=0, compute=[{"pid": process.pid, "used": 1}])
    (tmp_path / "cgroup").write_text(f"0::/system.slice/docker-{ID}.scope\n")
    script = f'/bin/mount --bind {tmp_path}/cgroup /proc/{process.pid}/cgroup && exec "$@"'
    yield ("/usr/bin/unshare", "--mount", "/bin/sh", "-c", script, "sh")
    process.kill()
    process.wait()


@pytest.mark.system
@rest_long("cgroup", "docker", "libpod", "cri-containerd", "crio")
def test_no_runtime_of_hers_is_asked(
    cgroup: str, here: Machine, eve: Path, ran: Path, search: str, contained: tuple[str, ...],
    tmp_path: Path,
) -> None:  # fmt: skip
    here.env["PATH"] = search
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(tmp_path / "socket"))  # this one is root's: it may be asked
        here.env.update(DOCKER_HOST=f"unix://{tmp_path}/socket",
                        CONTAINERD_ADDRESS=f"{tmp_path}/socket")  # fmt: skip
        (tmp_path / "cgroup").write_text(f"0::/system.slice/{cgroup}-{ID}.scope\n")
        command = [*contained, sys.executable, "-m", "gputop", "--json"]
        done = subprocess.run(command, env=here.env, cwd=eve, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    [process] = json.loads(done.stdout)["processes"]
    assert process["origin"]["container"]["id"] == ID
    assert not ran.exists(), ran.read_text()


@pytest.mark.system
def test_doctor_runs_nothing_of_hers(here: Machine, eve: Path, ran: Path, search: str) -> None:
    here.env["PATH"] = search
    command = [sys.executable, "-m", "gputop", "doctor"]
    done = subprocess.run(command, env=here.env, cwd=eve, capture_output=True, text=True)
    assert (done.stderr, done.returncode in (0, 1)) == ("", True)
    assert not ran.exists(), ran.read_text()


@pytest.mark.system
def test_no_py_spy_of_hers_is_run(here: Machine, ran: Path, search: str) -> None:
    pid = here.spawn("train", ["train"])
    with Agent(here, env={"PATH": search}) as agent:
        agent.line()
        told = answer(agent, "stack", "stack", pid, start_ticks=start_ticks(pid))
    assert not ran.exists(), ran.read_text()
    assert told  # that beside gputop's own interpreter was asked


def test_it_is_said_why_a_program_is_not_run(
    eve: Path, ran: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(eve))
    program = plant(eve / "nothing-else-is-called-so", ran)
    reason = f"{program} is not run as root: {eve} belongs to uid {EVE}"
    assert trust.find_program("nothing-else-is-called-so") == (None, reason)
    assert trust.find_program("nobody-has-this") == (None, None)


@pytest.mark.system
def test_programs_get_no_variables_of_hers(
    here: Machine, contained: tuple[str, ...], tmp_path: Path
) -> None:
    """Nor her folder, nor gputop's descriptors."""
    program = plant(tmp_path / "bin/docker", tmp_path / "calls", owner=0)
    program.write_text(f"#!/bin/sh\n(env; pwd; ls /proc/self/fd) > {tmp_path}/told\n")
    here.env.update(PATH=f"{program.parent}:/usr/bin:/bin", HOME="/home/eve", EVIL="1",
                    DOCKER_CONFIG="/home/eve", BASH_ENV="/home/eve/x")  # fmt: skip
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(tmp_path / "socket"))
        here.env["DOCKER_HOST"] = f"unix://{tmp_path}/socket"
        here.run([*contained, sys.executable, "-m", "gputop", "--json"])
    told = (tmp_path / "told").read_text().splitlines()
    assert not [line for line in told if "eve" in line or "EVIL" in line]
    assert "HOME=/root" in told
    assert "/" in told
    assert set(told[told.index("/") + 1 :]) <= {"0", "1", "2", "3"}


@pytest.mark.system
@rest_long("variable", "DOCKER_HOST", "CONTAINERD_ADDRESS")
@rest_long("how", "hers", "folder", "link", "tcp", "ssh", "file")
def test_no_socket_of_hers_is_connected_to(
    variable: str, how: str, here: Machine, eve: Path, contained: tuple[str, ...], tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    for name in ("docker", "nerdctl", "crictl"):
        plant(tmp_path / "bin" / name, calls, owner=0)
    runtime = "docker" if variable == "DOCKER_HOST" else "cri-containerd"
    (tmp_path / "cgroup").write_text(f"0::/system.slice/{runtime}-{ID}.scope\n")
    with closing(socket.socket(socket.AF_UNIX)) as server:
        path = (tmp_path if how in ("hers", "link") else eve) / "socket"
        server.bind(str(path))
        if how in ("hers", "link"):
            os.chown(path, EVE, EVE)
        if how == "link":
            (tmp_path / "link").symlink_to(path)
            path = tmp_path / "link"
        if how == "file":
            path = tmp_path / "plain"
            path.touch()
        address = {"tcp": "tcp://127.0.0.1:2375", "ssh": "ssh://eve@127.0.0.1"}.get(how, str(path))
        unix = how not in ("tcp", "ssh") and variable == "DOCKER_HOST"
        here.env[variable] = f"unix://{address}" if unix else address
        here.env["PATH"] = f"{tmp_path}/bin:/usr/bin:/bin"
        done = here.run([*contained, sys.executable, "-m", "gputop", "--json"])
    assert (done.returncode, done.stderr) == (0, "")
    assert not calls.exists(), calls.read_text()


# Python environments


def make_env(place: Path) -> Path:
    """A virtual environment; its site-packages."""
    venv.create(place, symlinks=True)
    [site] = place.glob("lib/python*/site-packages")
    return site


def evil(ran: Path) -> str:
    return f"import os; open({str(ran)!r}, 'a').write(f'{{os.getuid()}} {{__name__}}\\n')\n"


def pth(place: Path, ran: Path) -> None:
    (make_env(place) / "evil.pth").write_text(evil(ran))
    chown_tree(place)


def sitecustomize(place: Path, ran: Path) -> None:
    (make_env(place) / "sitecustomize.py").write_text(evil(ran))
    chown_tree(place)


def interpreter(place: Path, ran: Path) -> None:
    plant(place / "bin/python", ran)
    chown_tree(place)


def linked_interpreter(place: Path, ran: Path) -> None:
    make_env(place)
    (place / "bin/python").unlink()
    (place / "bin/python").symlink_to(plant(place.parent / "eve/python", ran))


def one_writable_file(place: Path, ran: Path) -> None:
    file = make_env(place) / "later.pth"
    file.write_text(evil(ran))
    file.chmod(0o666)


def a_writable_folder(place: Path, ran: Path) -> None:
    site = make_env(place)
    (site / "sitecustomize.py").write_text(evil(ran))
    site.chmod(0o777)


def a_path_of_hers(place: Path, ran: Path) -> None:
    """As `pip install -e` writes it."""
    (make_env(place) / "editable.pth").write_text(f"{place.parent}/eve\n")
    (place.parent / "eve/sitecustomize.py").write_text(evil(ran))


def another_home(place: Path, ran: Path) -> None:
    """pyvenv.cfg says where the standard library is."""
    site, eve = make_env(place), place.parent / "eve"
    (eve / "bin").mkdir()
    (eve / "lib" / site.parent.name).mkdir(parents=True)
    (eve / "lib" / site.parent.name / "site.py").write_text(evil(ran))
    chown_tree(eve)
    (place / "pyvenv.cfg").write_text(f"home = {eve}/bin\n")


def a_linked_package(place: Path, ran: Path) -> None:
    (place.parent / "eve/sitecustomize").mkdir()
    (place.parent / "eve/sitecustomize/__init__.py").write_text(evil(ran))
    (make_env(place) / "sitecustomize").symlink_to(place.parent / "eve/sitecustomize")


def a_fifo(place: Path, ran: Path) -> None:
    make_env(place)
    (place / "pyvenv.cfg").unlink()
    os.mkfifo(place / "pyvenv.cfg")
    os.chown(place / "pyvenv.cfg", EVE, EVE)


def a_library(place: Path, ran: Path) -> None:
    """Of a wheel, which is loaded to see whether it can be."""
    site = make_env(place)
    (site / "torch-2.5.1+cu124.dist-info").mkdir()
    (site / "torch/lib").mkdir(parents=True)
    code = place.parent / "evil.c"
    code.write_text(f'#include <stdlib.h>\n__attribute__((constructor)) void f(void)'
                    f'{{ system("/usr/bin/touch {ran}"); }}\n')  # fmt: skip
    library = site / "torch/lib/libcudart-1.so.12"
    build.shared(code, library)
    os.chown(library, EVE, EVE)


ENVIRONMENTS = (pth, sitecustomize, interpreter, linked_interpreter, one_writable_file,
                a_writable_folder, a_path_of_hers, another_home, a_linked_package, a_fifo,
                a_library)  # fmt: skip


@pytest.mark.system
@rest_long("attack", *ENVIRONMENTS)
def test_no_environment_of_hers_is_run(
    attack: Callable[[Path, Path], None], eve: Path, ran: Path, tmp_path: Path
) -> None:
    """Nor one of root's below a folder of hers, which the next test has through the program."""
    place = tmp_path / "env"
    attack(place, ran)
    [check] = python_checks(find_interpreter(str(place)), None)
    assert not ran.exists(), ran.read_text()
    assert (check.code, check.level) == ("Python", "error")
    assert "is not run as root, since others can change what it runs: " in check.text
    assert "gputop doctor --python " in (check.advice or "")


@pytest.mark.system
def test_an_environment_below_a_folder_of_hers(here: Machine, eve: Path, ran: Path) -> None:
    site = make_env(eve / "env")
    (site / "evil.pth").write_text(evil(ran))
    done = here.run([sys.executable, "-m", "gputop", "doctor", "--python", str(eve / "env")])
    assert not ran.exists(), ran.read_text()
    assert done.returncode == 1
    assert f"{eve} belongs to uid {EVE}" in " ".join(done.stdout.split())


@pytest.mark.system
def test_an_environment_of_roots_is_run(here: Machine, tmp_path: Path) -> None:
    make_env(tmp_path / "env")
    done = here.run([sys.executable, "-m", "gputop", "doctor", "--python", str(tmp_path / "env")])
    assert f"({tmp_path}/env/bin/python)" in done.stdout
    assert "not run as root" not in done.stdout


# What gputop itself loads


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That touches the file which GPUTOP_EVIL names, when it is loaded."""
    folder = tmp_path_factory.mktemp("evil")
    (folder / "evil.c").write_text(
        "#include <stdlib.h>\n#include <fcntl.h>\n__attribute__((constructor)) void f(void)"
        '{ char *p = getenv("GPUTOP_EVIL"); if (p) open(p, O_CREAT | O_WRONLY, 0600); }\n'
    )
    build.shared(folder / "evil.c", folder / "evil.so")
    return folder / "evil.so"


@pytest.mark.system
@rest_long("words", ["--json"], ["--once"], ["doctor"], ["map", "--verify", "0"])
def test_no_library_of_hers_is_loaded(
    words: list[str], here: Machine, eve: Path, ran: Path, library: Path
) -> None:
    for name in ("libnvidia-ml.so.1", "libcuda.so.1"):
        (eve / name).write_bytes(library.read_bytes())
    here.env["GPUTOP_EVIL"] = str(ran)
    here.env["LD_LIBRARY_PATH"] = f"{eve}:/tmp:.:{here.env['LD_LIBRARY_PATH']}"
    here.run([sys.executable, "-m", "gputop", *words])
    assert not ran.exists()


@pytest.mark.system
@rest_long("words", ["--json"], ["--demo", "--once"], ["doctor"], ["map", "0"])
def test_no_module_of_hers_is_imported(
    words: list[str], here: Machine, eve: Path, ran: Path
) -> None:
    """On the path or where one is. Those that are imported once gputop runs: before, it is Python's
    to be told (-I)."""
    for name in ("msgspec", "psutil", "pynvml", "argparse", "json", "textwrap", "tomlkit", "rich"):
        (eve / f"{name}.py").write_text(evil(ran))
    here.env["PYTHONPATH"] = f"{eve}:{here.env['PYTHONPATH']}"
    command = [sys.executable, "-m", "gputop", *words]
    done = subprocess.run(command, env=here.env, capture_output=True, text=True, cwd=eve)
    assert "Traceback" not in done.stderr
    assert not ran.exists(), ran.read_text()


@pytest.mark.system
def test_no_child_has_modules_of_hers_before_it_begins(here: Machine, eve: Path, ran: Path) -> None:
    """What Python itself imports at the start of an agent."""
    (eve / "sitecustomize.py").write_text(
        f"import os, sys; open({str(ran)!r}, 'a').write(' '.join(sys.orig_argv) + chr(10))\n"
    )
    here.env["PYTHONPATH"] = f"{eve}:{here.env['PYTHONPATH']}"
    done = here.run([sys.executable, "-m", "gputop", "--json"])
    assert done.returncode == 0
    [line] = ran.read_text().splitlines()  # by the one that was started so
    assert "agent" not in line


ENVIRON = """
import json, os, sys
from gputop.trust import probe_environment
from gputop.variables import drop_untrusted
drop_untrusted(os.environ)
print(json.dumps([dict(os.environ), probe_environment(), sys.path]))
"""


def environments(**variables: str) -> tuple[Json, Json, list[str]]:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), **variables}
    done = subprocess.run(
        [sys.executable, "-c", ENVIRON], env=env, capture_output=True, text=True, check=True
    )
    own, probe, path = json.loads(done.stdout)
    return own, probe, path


@pytest.mark.system
@pytest.mark.parametrize(
    "name",
    ["LD_PRELOAD_NOT", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "CUDA_LOG_FILE",
     "CUDA_COREDUMP_FILE", "CUDA_CACHE_PATH", "TEXTUAL_LOG", "TEXTUAL_DRIVER", "PYTHONWARNINGS",
     "PYTHONPYCACHEPREFIX", "PYTHONINSPECT_", "GCONV_PATH", "COMPUTE_PROFILE_LOG"],
)  # fmt: skip
def test_variables_that_load_code_or_write_files(name: str, eve: Path) -> None:
    own, probe, _ = environments(**{name: str(eve)})
    assert name not in own
    assert name not in probe


@pytest.mark.system
def test_mps_of_hers_is_not_asked(eve: Path, tmp_path: Path) -> None:
    """The folder of its sockets stands in /tmp, where anybody may make it."""
    assert environments(CUDA_MPS_PIPE_DIRECTORY=str(eve))[1]["CUDA_MPS_PIPE_DIRECTORY"] == (
        "/dev/null"
    )
    kept = environments(CUDA_MPS_PIPE_DIRECTORY=str(tmp_path))[1]
    assert kept["CUDA_MPS_PIPE_DIRECTORY"] == str(tmp_path)


@pytest.mark.system
def test_a_home_that_is_hers(eve: Path) -> None:
    """`sudo -E`: her ~/.local/lib is on Python's path, with what it imports by itself."""
    python = Path(os.path.realpath(sys.executable))
    code = "import site; print(site.getusersitepackages())"
    env: Json = {"HOME": str(eve), "PATH": os.environ["PATH"]}
    told = subprocess.run([python, "-c", code], env=env, capture_output=True, text=True, check=True)
    user_site = Path(told.stdout.strip())
    assert user_site.is_relative_to(eve)
    user_site.mkdir(parents=True)
    chown_tree(eve)
    env["PYTHONPATH"] = str(REPOSITORY)
    done = subprocess.run([python, "-c", ENVIRON], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    own, _, path = json.loads(done.stdout)
    assert str(user_site) not in path
    assert own["PYTHONNOUSERSITE"] == "1"


# The rule itself


def test_whose_a_path_is(eve: Path, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "up").symlink_to("eve/../eve")
    for good in ("/usr/bin/env", "/usr/bin/../bin/env", "/", str(tmp_path)):
        assert trust.is_roots(good), good
    for path in (eve, tmp_path / "loop", tmp_path / "up", "/tmp", "", ".", "usr", tmp_path / "no",
                 f"{eve}/../..", "/proc/self/cwd/x", "\0"):  # fmt: skip
        assert not trust.is_roots(str(path)), path


@pytest.mark.system
def test_a_link_of_proc_that_leads_elsewhere() -> None:
    """Into the mounts of whose it is: its text is the path that the folder has there."""
    code = "mount -t tmpfs tmpfs /usr/share && cd /usr/share && echo . && read -r line"
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdout
        assert program.stdout.read(1) == b"."
        link = f"/proc/{program.pid}/cwd"
        assert os.readlink(link) == "/usr/share"
        assert trust.reason_untrusted(link) == f"{link} leads elsewhere than it says"
        assert program.stdin
        program.stdin.close()
    assert trust.is_roots("/proc/self/exe") is trust.is_roots(os.readlink("/proc/self/exe"))


def test_a_file_system_that_says_it_is_roots(tmp_path: Path) -> None:
    """FUSE tells owners as its daemon likes, which is a user's."""
    (tmp_path / "mount").mkdir()
    with Fuse(tmp_path / "mount", user=EVE) as fuse:
        fuse.serve()
        assert os.stat(tmp_path / "mount").st_uid == 0
        assert "of uid 4242's own making" in str(trust.reason_untrusted(str(tmp_path / "mount")))
    with Fuse(tmp_path / "mount", user=0) as fuse:
        fuse.serve()
        assert trust.is_roots(str(tmp_path / "mount"))


@pytest.mark.parametrize(
    ("name", "source"),
    [("mount", "user_id=0"), ("mount", "user_id=0,x"), ("mount", "a - fuse b user_id=0"),
     ("a\rb", "dead"), ("\r", "dead")],
)  # fmt: skip
def test_a_file_system_that_hides_whose_it_is(name: str, source: str, tmp_path: Path) -> None:
    """fusermount lets a user choose where it is mounted and what it is called (fsname)."""
    folder = tmp_path / name
    folder.mkdir()
    with Fuse(folder, user=EVE, source=source) as fuse:
        fuse.serve()
        assert (
            trust.reason_untrusted(str(folder))
            == f"{folder} is a file system of uid {EVE}'s own making"
        )


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("text")
    (tmp_path / "link").symlink_to("plain")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "fifo")
    os.mknod(tmp_path / "device", 0o20600, os.makedev(1, 9))
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(tmp_path / "socket"))
    assert trust.read_text(tmp_path / "plain") == "text"
    (tmp_path / "plain").write_text("text" * (1 << 20))
    assert trust.read_text(tmp_path / "link") == "text" * (1 << 18)
    for name in ("loop", "fifo", "device", "socket", ".", "absent", "a\0b"):
        assert trust.read_text(tmp_path / name) == ""


ELEVATED = "from gputop import trust; print(trust.is_elevated())"


@pytest.mark.system
@pytest.mark.parametrize(
    ("prefix", "elevated"),
    [
        ([], True),
        (["setpriv", "--reuid=4242", "--regid=4242", "--clear-groups"], False),
        (["setpriv", "--reuid=4242", "--regid=4242", "--clear-groups", "--inh-caps=+sys_ptrace",
          "--ambient-caps=+sys_ptrace"], True),
        (["setpriv", "--reuid=4242", "--regid=4242", "--clear-groups", "unshare",
          "--map-root-user"], False),
        (["unshare", "--map-root-user"], True),
        (["unshare", "--pid", "--fork"], True),
    ],
)  # fmt: skip
def test_who_has_more_rights_than_a_user(prefix: list[str], elevated: bool) -> None:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)}
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
    command = [*prefix, python, "-c", ELEVATED]
    done = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{elevated}\n", "")


@pytest.mark.system
def test_a_user_runs_her_own(ran: Path) -> None:
    """What she has on her PATH is hers to run."""
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
    with TemporaryDirectory() as folder:
        program = plant(Path(folder) / "py-spy", ran)
        os.chown(folder, EVE, EVE)
        code = "from gputop import trust; print(trust.find_program('py-spy')[0])"
        env = {"PATH": f"{folder}:/usr/bin", "PYTHONPATH": str(REPOSITORY)}
        command = ["setpriv", f"--reuid={EVE}", f"--regid={EVE}", "--clear-groups", python]
        done = subprocess.run(
            [*command, "-c", code], env=env, cwd="/", capture_output=True, text=True
        )
    assert done.stdout == f"{program}\n", done.stderr


@pytest.mark.system
def test_a_path_that_changes_while_it_is_looked_at(eve: Path, tmp_path: Path) -> None:
    """She swaps her link to root's folder and hers as fast as she can: it is never root's."""
    code = """
import os, sys
os.chdir(sys.argv[1])
print(flush=True)
while True:
    for target in ('/usr/bin', sys.argv[1]):
        os.symlink(target, 'next')
        os.replace('next', 'bin')
"""
    command = [sys.executable, "-c", code, str(eve)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as swapper:
        try:
            assert swapper.stdout
            swapper.stdout.readline()
            assert not any(trust.is_roots(f"{eve}/bin/env") for _ in range(3000))
        finally:
            swapper.kill()


@pytest.mark.system
def test_the_loader_agrees_on_what_is_loaded(library: Path, ran: Path) -> None:
    """The evil library does what the tests above rely on."""
    os.environ["GPUTOP_EVIL"] = str(ran)
    try:
        ctypes.CDLL(str(library))
    finally:
        del os.environ["GPUTOP_EVIL"]
    assert ran.exists()
