"""`python -m bench.fleet [HOSTS [SECONDS]]`: many machines on one screen, over a real sshd.

Every host is a name of one sshd on 127.0.0.1. Its agent is a replay: messages recorded once, of 8
GPUs with 20 processes (real ones, on the simulated driver), sent again each second, with answers to
pings. A hundred real agents on this machine would distort the result. What sshd and the replays use
is not counted; gputop and all its ssh processes are.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from bench.machines import Shape, machine
from bench.tree import cpu_seconds, memory_mib, tree
from bench.tty import Recorder
from gputop.protocol.versions import SPOKEN
from tests.sshd import Sshd

_SHAPE = Shape(8, 20)
_RECORDED = 12
"""Lines recorded: Hello, InventoryUpdates and the Samples of some seconds."""
_SERVER = "MaxStartups 1000\nLoginGraceTime 120\n"
_SETTLES = 5.0
_AGENT = f"""\
echo gputop-start; echo gputop {SPOKEN} gputop; echo gputop-ready
read -r choice
exec {sys.executable} -I -S {{replay}} {{lines}}
"""
_REPLAY = """\
import json, os, select, sys, time

text = open(sys.argv[1]).read()
boot_id = json.loads(text.splitlines()[0])[1]["boot_id"]
text = text.replace(boot_id, os.environ["NAME"])  # or it would be one machine by many names
lines = [json.loads(line)[1] for line in text.splitlines()]
samples = [line for line in lines if line["kind"] == "sample"][-5:]
number, turn, interval = 0, 0, 1


def say(message):
    global number
    sys.stdout.write(json.dumps([number, message], separators=(",", ":")) + "\\n")
    sys.stdout.flush()
    number += 1


for line in lines:
    say(line)
due = time.monotonic() + 1
while True:
    ready, _, _ = select.select([sys.stdin], [], [], max(0, due - time.monotonic()))
    if ready:
        if not (request := sys.stdin.readline()):
            break
        request = json.loads(request)
        if request.get("request") == "ping":
            say({"kind": "reply", "request": request["id"]})
        if request.get("request") == "interval":
            due += request["seconds"] - interval
            interval = request["seconds"]
        continue
    due += interval
    turn += 1
    say(samples[turn % len(samples)])
"""


def main() -> int:
    """Measure a fleet, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description="many machines")
    parser.add_argument("hosts", nargs="?", type=int, default=100)
    parser.add_argument("seconds", nargs="?", type=float, default=30.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        script = _prepare(folder)
        with Sshd(folder, _SERVER) as sshd:
            for number in range(1, options.hosts + 1):
                host = f"n{number:03}"
                sshd.host(host, {}, script=script, NAME=host)
            for row in _measure(sshd, options.hosts, options.seconds):
                print(row, flush=True)
    return 0


def _prepare(folder: Path) -> str:
    """Record an agent, and return the shell script that replays it on every host."""
    with machine(_SHAPE) as here:
        command = [sys.executable, "-m", "gputop", "agent", "--protocol", str(SPOKEN)]
        with subprocess.Popen(
            command, env=here.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as agent:
            assert agent.stdout is not None
            (folder / "lines").write_bytes(b"".join(islice(agent.stdout, _RECORDED)))
            agent.kill()
    (folder / "replay.py").write_text(_REPLAY)
    return _AGENT.format(replay=folder / "replay.py", lines=folder / "lines")


def _measure(sshd: Sshd, hosts: int, seconds: float) -> list[str]:
    env = {"GPUTOP_SSH_CONFIG": str(sshd.config), "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    argv = [sys.executable, "-m", "gputop", "-H", f"n[001-{hosts:03}]"]
    started = time.monotonic()
    terminal = Recorder(argv, cols=200, rows=50, env=env)
    with terminal:
        first = every = None
        while every is None and time.monotonic() < started + 120:
            terminal.listen(1.0)
            for at in terminal.replay():
                text = terminal.text
                if first is None and f"{_SHAPE.gpus} GPUs" in text:
                    first = at - started
                if f"{hosts * _SHAPE.gpus} GPUs" in text:
                    every = at - started
        terminal.listen(_SETTLES)
        root = terminal.process.pid
        own, whole, read = _used(root)
        written = len(terminal.raw)
        begun = time.monotonic()
        terminal.listen(seconds)
        took = time.monotonic() - begun
        own_then, whole_then, read_then = _used(root)
        _, pss = memory_mib(root)
        own_rss = _pss_of(root)
        processes = len(tree(root)) - 1
        terminal.send(b"q")
        terminal.listen(2.0)
    own, whole = (own_then - own) / took, (whole_then - whole) / took
    return [
        f"{hosts} hosts of {_SHAPE}, {took:.0f} s, {processes} ssh",
        f"first host after        {_seconds(first)}",
        f"all hosts after         {_seconds(every)}",
        f"CPU, gputop             {own:.1%} of a core",
        f"CPU, all ssh            {whole - own:.1%} of a core",
        f"memory (PSS), gputop    {own_rss:.0f} MiB",
        f"memory (PSS), all ssh   {pss - own_rss:.0f} MiB",
        f"read of each host       {(read_then - read) / took / hosts:.0f} B/s",
        f"written to the terminal {(len(terminal.raw) - written) / took:.0f} B/s",
    ]


def _seconds(moment: float | None) -> str:
    return "never" if moment is None else f"{moment:.2f} s"


def _used(root: int) -> tuple[float, float, int]:
    """Return CPU seconds of gputop alone and with all ssh, and the bytes that gputop has read."""
    whole = cpu_seconds(root)
    own = time.clock_gettime((~root) << 3 | 2)
    fields = Path(f"/proc/{root}/io").read_text().split()
    return own, whole, int(fields[1])


def _pss_of(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    sys.exit(main())
