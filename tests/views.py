"""Programs that see other files than the test: another /dev, another root.

Both are real: mount namespaces, tmpfs, device nodes of NVIDIA's major number, chroot.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import require_root
from tests.driver import build
from tests.patience import until

_PLAIN = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9),
          "tty": (5, 0)}  # fmt: skip
_NVIDIA = 195
_CONTROL = 255
_ROOT = "bin etc home lib lib64 opt proc root run sbin srv sys tmp usr var"


def nodes(*minors: int, folder: str = "/dev", others: Sequence[str] = ()) -> str:
    """Shell that puts a /dev with the nodes of these GPUs over a folder."""
    made = [(name, *numbers) for name, numbers in _PLAIN.items()]
    made += [(f"nvidia{minor}", _NVIDIA, minor) for minor in minors]
    made += [("nvidiactl", _NVIDIA, _CONTROL)] if minors else []
    made += [(name, 10, 100) for name in others]
    lines = [f"mknod -m 666 {folder}/{name} c {major} {minor}" for name, major, minor in made]
    return " && ".join([f"mount -t tmpfs tmpfs {folder}", *lines])


def sees(*minors: int, others: Sequence[str] = ()) -> list[str]:
    """What a command is prefixed with that is to see these GPUs' nodes, and no other."""
    return _own(f'{nodes(*minors, others=others)} && exec "$@"')


def contained(
    root: Path, *minors: int, dev: bool = True, pid: bool = False, others: Sequence[str] = ()
) -> list[str]:
    """What a command is prefixed with that is to have another root, as in a container, with these
    GPUs' nodes; without `dev` with no /dev at all, with `pid` in a PID namespace of its own."""
    root.mkdir(exist_ok=True)
    ours = {Path(path).parts[1] for path in (__file__, sys.executable)}
    names = sorted(name for name in {*_ROOT.split(), *ours} if os.path.isdir(f"/{name}"))
    lines = [f"mount -t tmpfs tmpfs {root} && cd {root}", f"mkdir {' '.join(names)}"]
    lines += [f"mount --rbind /{name} {name}" for name in names]
    if dev:
        lines += ["mkdir dev", nodes(*minors, folder="dev", others=others)]
    inner = 'mount -t proc proc /proc && exec "$@"' if pid else 'exec "$@"'
    lines.append(f"exec chroot {root} sh -c '{inner}' sh \"$@\"")
    return _own(" && ".join(lines), *(("--pid", "--fork") if pid else ()))


def _own(script: str, *options: str) -> list[str]:
    require_root()
    return ["unshare", "--mount", *options, "sh", "-c", script, "sh"]


@contextmanager
def living(
    prefix: Sequence[str],
    variables: Mapping[str, str],
    *children: Mapping[str, str],
    script: Sequence[str] = (),
    programs: Sequence[str] = (),
) -> Iterator[int]:
    """A process that lives with these variables and libcuda, and has started others; its pid.

    `script` are lines of shell that start more, `programs` the names of what they execute.
    """
    env = {"PATH": os.environ["PATH"]}
    script = ["exec 3<&0", *script]
    for child in children:
        script += [f"env {' '.join(words(child))} cat <&3 >/dev/null &"]
    script += ["echo $$", "read line <&3"]
    variables = {**build.loading_cuda(), **variables}  # as one that is on a GPU
    command = [*prefix, "env", "-i", *words(variables), "/bin/sh", "-c", "\n".join(script)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        pid = pid if "--pid" not in prefix else _below(process.pid)
        try:
            _executed(pid, ["cat"] * len(children) + list(programs))
            yield pid
        finally:
            process.communicate()


def words(variables: Mapping[str, str]) -> list[str]:
    """For env(1)."""
    return [f"{name}={value}" for name, value in variables.items()]


def _executed(pid: int, programs: Sequence[str]) -> None:
    """Wait until the children run the programs that they were started for."""

    def running() -> list[str]:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [Path(f"/proc/{word}/comm").read_text().strip() for word in file.read().split()]

    until(lambda: not programs or running() == programs, 10, running)


def _below(pid: int) -> int:
    """The last of a chain of children."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        children = file.read().split()
    return _below(int(children[0])) if children else pid
