"""A PID namespace of its own below ours, as a container has, with real processes in it.

with Container(nodes=2) as inside:
    job = inside.start(gpu=0)
    here.change(gpu=0, compute=[{"pid": job.pid, "host_pid": job.host_pid, "used": 2**30}])
    with Agent(here, prefix=inside.prefix) as agent:
        ...
"""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.agent.driving import has_cuda
from tests.conftest import needed_namespaces
from tests.driver import build
from tests.patience import until

_NODES = """
folder="$2"
mount -t tmpfs dev "$folder"
cd "$folder"
for name in null zero urandom; do touch $name; mount --bind /dev/$name $name; done
touch nvidiactl
while [ $1 -gt 0 ]; do set -- $(($1 - 1)); touch nvidia$1; done
mount --bind "$folder" /dev
"""
_HOLD = 'test -z "$1" || exec 3</dev/nvidia$1; echo .; exec sleep 1000'


class Inner(NamedTuple):
    """A process in the container: its number there, and here."""

    pid: int
    host_pid: int


class Container:
    """A context manager: all that is in it ends with it."""

    def __init__(self, nodes: int = 0) -> None:
        """nodes: how many /dev/nvidiaN it has; with none its /dev is ours."""
        self._options, self._nodes = needed_namespaces(), nodes
        self._stack = ExitStack()

    def __enter__(self) -> Container:
        setup = _NODES if self._nodes else ""
        folder = self._stack.enter_context(TemporaryDirectory())
        first = subprocess.Popen(
            ["unshare", *self._options, "--mount", "--pid", "--fork", "--kill-child",
             "--mount-proc", "sh", "-ec", f"{setup}\necho .; exec sleep 1000", "sh",
             str(self._nodes), folder],
            stdout=subprocess.PIPE,
        )  # fmt: skip
        self._stack.callback(_end, first)
        assert first.stdout
        assert first.stdout.read(2) == b".\n"
        target = ["--target", str(_child(first.pid)), "--mount", "--pid"]
        user = ["--user", "--preserve-credentials"] if "--user" in self._options else []
        self.prefix = ("nsenter", *target, *user, "--")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, gpu: int | None = None, user: int | None = None, cuda: bool = True) -> Inner:
        """A process in it; it has /dev/nvidiaN of that GPU open, if one is given, and with `cuda`
        the driver's libcuda loaded, as CUDA programs have."""
        became = [] if user is None else ["setpriv", f"--reuid={user}", "--clear-groups"]
        hold = ["sh", "-c", _HOLD, "sh", "" if gpu is None else str(gpu)]
        env = {**os.environ, "LD_PRELOAD": str(build.cuda()) if cuda else ""}
        outer = subprocess.Popen([*self.prefix, *became, *hold], stdout=subprocess.PIPE, env=env)
        self._stack.callback(_end, outer)
        assert outer.stdout
        assert outer.stdout.read(2) == b".\n"
        host_pid = _child(outer.pid)
        until(lambda: _sleeps(host_pid, cuda))
        return Inner(_number_inside(host_pid), host_pid)

    def launch(self) -> tuple[Inner, Inner]:
        """A process without libcuda, and one that it started with it."""
        script = 'LD_PRELOAD="$1" sleep 1000 & echo .; wait'
        command = [*self.prefix, "sh", "-c", script, "sh", str(build.cuda())]
        env = {**os.environ, "LD_PRELOAD": ""}
        outer = subprocess.Popen(command, stdout=subprocess.PIPE, env=env)
        self._stack.callback(_end, outer)
        assert outer.stdout
        assert outer.stdout.read(2) == b".\n"
        launcher = _child(outer.pid)
        child = _child(launcher)
        until(lambda: _sleeps(child, cuda=True))
        return (
            Inner(_number_inside(launcher), launcher),
            Inner(_number_inside(child), child),
        )


def _sleeps(pid: int, cuda: bool) -> bool:
    """Whether a process has become what it was started for, and loaded what it loads."""
    name = Path(f"/proc/{pid}/comm").read_text()
    return name == "sleep\n" and (not cuda or has_cuda(pid))


def _child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def _number_inside(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("NSpid:")).split()[-1])


def _end(program: subprocess.Popen[bytes]) -> None:
    """What it started may go on, and hold the pipe, until the first process ends."""
    assert program.stdout
    program.stdout.close()
    program.kill()
    program.wait()
