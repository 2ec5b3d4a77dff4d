"""A real sshd on a free port of 127.0.0.1, and machines that are names in a configuration of ssh.

    with Sshd(folder) as sshd:
        sshd.host("node1", machine.env)             gputop is installed there
        os.environ["GPUTOP_SSH_CONFIG"] = str(sshd.config)

Every machine is this sshd with an environment, a home and a folder for temporary files of its own:
the session's environment is what `host` was given, and nothing of the tests' own. No login script
of whoever runs the tests takes part.
"""

from __future__ import annotations

import os
import pwd
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from gputop.sources.ssh.names import HostName
from tests.conftest import needed
from tests.patience import until

INSTALLED = str(Path(sys.executable).parent)
"""The folder in PATH where gputop is."""
SYSTEM = "/usr/local/bin:/usr/bin:/bin"
_DRIVER = "LD_LIBRARY_PATH", "PYTHONPATH", "GPUTOP_TEST_DRIVER", "GPUTOP_TEST_DRIVER_LOG"
_SERVER = """\
ListenAddress 127.0.0.1:{port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
StrictModes no
UsePAM {pam}
PasswordAuthentication yes
KbdInteractiveAuthentication no
PermitRootLogin yes
AcceptEnv GPUTOP_TEST_HOST
SetEnv HOME={folder}
Banner {folder}/banner
ForceCommand {folder}/login
"""
_LOGIN = """\
#!/bin/sh
cd {folder}/hosts/$GPUTOP_TEST_HOST/home || exit 1
[ ! -e ../script ] || exec env -i $(cat ../env) /bin/sh ../script
exec env -i $(cat ../env) /bin/sh -c "$SSH_ORIGINAL_COMMAND"
"""
_HOST = """\
Host {name}
    HostName 127.0.0.1
    Port {port}
    User {user}
    IdentityFile {folder}/{key}
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile none
    SetEnv GPUTOP_TEST_HOST={name}
"""


class Sshd:
    """A context manager; `config` is what ssh is to read with -F."""

    def __init__(self, folder: Path, more: str = "MaxStartups 100\n") -> None:
        """folder: for its files; more: lines of sshd_config."""
        self.folder = folder
        self.config = folder / "ssh_config"
        self._more = more
        self.port = 0

    def __enter__(self) -> Sshd:
        if Path(pwd.getpwuid(os.getuid()).pw_shell).name in ("nologin", "false"):
            pytest.skip("who runs the tests may not log in")
        program = needed("/usr/sbin/sshd", "openssh-server")
        for name in ("host_key", "key"):
            make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)]
            subprocess.run(make, check=True)
        (self.folder / "authorized_keys").write_text((self.folder / "key.pub").read_text())
        (self.folder / "login").write_text(_LOGIN.format(folder=self.folder))
        (self.folder / "login").chmod(0o755)
        (self.folder / "banner").write_text("Permission denied (publickey): for members only\n")
        self.config.touch()
        if os.geteuid() == 0:  # where Debian's own service puts it, too
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        # A port that is free may be somebody else's by the time that sshd asks for it.
        assert any(self._starts(program) for _ in range(5)), self.log.read_text()
        return self

    def _starts(self, program: str) -> bool:
        """Start it with a port that is free now; return whether it listens."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        key = (self.folder / "host_key.pub").read_text()
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {key}")
        # Without PAM sshd lets nobody in whose account is locked, as root's often is.
        pam = "no" if os.geteuid() else "yes"
        server = _SERVER.format(folder=self.folder, port=self.port, pam=pam)
        (self.folder / "sshd_config").write_text(server + self._more)
        self.log = self.folder / "log"
        command = [program, "-D", "-e", "-f", str(self.folder / "sshd_config")]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log)
        while b"Server listening" not in self.log.read_bytes():
            if self.process.poll() is not None:
                return False
        return True

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    def host(
        self,
        name: str,
        environ: Mapping[str, str] = os.environ,
        path: str = f"{INSTALLED}:{SYSTEM}",
        more: str = "",
        script: str = "",
        key: str = "key",
        **variables: str,
    ) -> HostName:
        """Add a machine, and return its name.

        environ: the simulated driver's variables are taken from it, `Machine.env`; path: PATH
        there; more: lines of ssh_config for it, which count before the usual ones; script: of sh,
        is run there whatever ssh asks for; key: the file of the one that ssh shows.
        """
        home, temporary = (self.folder / "hosts" / name / part for part in ("home", "tmp"))
        home.mkdir(parents=True)
        temporary.mkdir()
        own = {"HOME": str(home), "TMPDIR": str(temporary), "PATH": path, "LANG": "C.UTF-8"}
        driver = {name: environ[name] for name in _DRIVER if name in environ}
        every = {**own, **driver, **variables}
        words = [f"{name}={value}" for name, value in every.items()]
        assert words == [shlex.split(word)[0] for word in words], "values of one plain word"
        (self.folder / "hosts" / name / "env").write_text("\n".join(words))
        if script:
            (self.folder / "hosts" / name / "script").write_text(script)
        user = pwd.getpwuid(os.getuid()).pw_name
        usual = _HOST.format(name=name, folder=self.folder, port=self.port, user=user, key=key)
        first, rest = usual.split("\n", 1)
        with self.config.open("a") as config:
            config.write(f"{first}\n{more}\n{rest}")
        return HostName(name, name, None)

    def files(self, host: HostName) -> dict[Path, int]:
        """Return what is in a machine's home and temporary files, and when it was changed."""
        folder = self.folder / "hosts" / host.target
        return {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}

    def processes(self, host: HostName) -> dict[int, list[str]]:
        """Return the processes that run on a machine, and their command lines."""
        mark = f"HOME={self.folder}/hosts/{host.target}/home".encode()
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in _start_of(process / "environ").split(b"\0"):
                    words = _start_of(process / "cmdline").decode("utf-8", "replace").split("\0")
                    found[int(process.name)] = words
        return found

    def agent(self, host: HostName, word: str = "agent") -> int:
        """Return the agent on a machine, which has this word in its command line, as have the
        processes that it makes of itself: once what the agent before it has left there is gone."""

        def first() -> list[int]:
            pids = [pid for pid, words in self.processes(host).items() if word in words]
            with suppress(OSError):
                return [pid for pid in pids if _parent(pid) not in pids]
            return []

        until(lambda: len(first()) == 1, seen=lambda: self.processes(host))
        return first()[0]

    def sessions(self) -> list[int]:
        """Return the processes of sshd that have somebody logged in, the newest last."""
        children = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        return [int(pid) for pid in Path(children).read_text().split()]


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """One for all tests of a file, which ssh is pointed at."""
    with (
        Sshd(tmp_path_factory.mktemp("sshd")) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("GPUTOP_SSH_CONFIG", str(server.config))
        yield server


def _start_of(path: Path) -> bytes:
    """Return what a file of /proc begins with: another test's process may have gigabytes there."""
    with path.open("rb", buffering=0) as file:
        return file.read(1 << 16)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
