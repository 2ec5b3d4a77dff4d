"""A process names a socket in TMUX; nobody connects to it, whoever made it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.agent.driving import Agent, Json
from tests.conftest import MachineFactory, require_root
from tests.driver import Machine, build
from tests.patience import until

pytestmark = pytest.mark.system

LISTENS = """
import os, socket, sys
path, told = sys.argv[1:]
server = socket.socket(socket.AF_UNIX)
server.bind(path)
server.listen()
print(end='.', flush=True)
while True:
    client, _ = server.accept()
    with open(told, 'a') as file:
        file.write('connected\\n')
    client.sendall(b'\\0' * 64)
    client.close()
"""
BARE = os.path.realpath(sys.executable)
CONTAINER = ("unshare", "--mount", "--pid", "--net", "--fork", "--kill-child",
             "setpriv", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs")  # fmt: skip


@pytest.fixture
def here(machine: MachineFactory) -> Machine:
    return machine({"gpu": {"uuid": "GPU-0"}})


class Server:
    """A process on GPU 0 that listens at the socket which its own TMUX names."""

    def __init__(self, here: Machine, folder: Path, prefix: tuple[str, ...]) -> None:
        self.told, path = folder / "told", folder / "default"
        env = {"PATH": os.environ["PATH"], **build.loading_cuda(), "TMUX": f"{path},1,0"}
        command = [*prefix, BARE, "-c", LISTENS, str(path), str(self.told)]
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE)
        assert self.process.stdout
        assert self.process.stdout.read(1) == b"."
        inside = psutil.Process(self.process.pid).children(recursive=True)
        pid = inside[-1].pid if inside else self.process.pid
        here.change(gpu=0, compute=[{"pid": pid, "used": 1}])

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tmux-0").mkdir(mode=0o700)
    return tmp_path / "tmux-0"


@pytest.fixture(params=["container", "own"])
def server(request: pytest.FixtureRequest, here: Machine, folder: Path) -> Iterator[Server]:
    """A container's uid 0 without capabilities, and a process of our own."""
    if request.param == "container":
        require_root()
    server = Server(here, folder, CONTAINER if request.param == "container" else ())
    yield server
    server.end()


def session(process: Json) -> str:
    told = process["origin"]["session"]
    assert isinstance(told, str)
    return told


def test_nobody_connects(server: Server, here: Machine, tmux: str) -> None:
    """Neither a look, nor an agent, nor a program that either starts."""
    for words in (["--json"], ["--once"]):
        done = here.run([sys.executable, "-m", "gputop", *words])
        assert (done.returncode, done.stderr) == (0, "")
        if words == ["--json"]:
            [process] = json.loads(done.stdout)["processes"]
            assert session(process) == "tmux default:$0"
    with Agent(here) as agent:
        agent.line()
        until(lambda: agent.refresh()["processes"][0].get("origin"))
    assert not server.told.exists()


def test_a_real_tmux(here: Machine, tmux: str, tmp_path: Path) -> None:
    """It is told by the variable and by the parents; its server is not asked for a name."""

    def run(*words: str) -> str:
        command = [tmux, "-S", str(tmp_path / "work"), "-f/dev/null", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    run("new-session", "-d", "-s", "secret name", "sh -c 'sleep 1000; :'")
    try:
        shell = psutil.Process(int(run("list-panes", "-F", "#{pane_pid}")))
        until(shell.children)
        here.change(gpu=0, compute=[{"pid": shell.children()[0].pid, "used": 1}])
        done = here.run([sys.executable, "-m", "gputop", "--json"])
        [process] = json.loads(done.stdout)["processes"]
        assert session(process) == "tmux work:$0"
        assert process["origin"]["ancestors"][0] == [shell.pid, "sh"]
        assert process["origin"]["ancestors"][-1][1] == "tmux: server"
        assert "secret name" not in done.stdout
    finally:
        run("kill-server")


@pytest.mark.parametrize(
    ("variable", "told"),
    [
        *((nothing, None) for nothing in ("", ",", ",,", "/,1,0", "/work", "/\udcff,1,$(id)")),
        ("work,1,0", "tmux work:$0"),
        ("/tmp/\udcff\n,1,7", "tmux ��:$7"),
    ],
)
def test_a_variable_that_says_little(variable: str, told: str | None, here: Machine) -> None:
    pid = here.spawn("job", ["job"], used=1, env={"TMUX": variable})
    done = here.run([sys.executable, "-m", "gputop", "--json"])
    assert (done.returncode, done.stderr) == (0, "")
    [process] = json.loads(done.stdout)["processes"]
    assert process["pid"] == pid
    assert process["origin"].get("session") == told
