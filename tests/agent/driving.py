"""An agent driven by hand over its pipe, as gputop's reader drives it."""

from __future__ import annotations

import errno
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import asdict

from gputop.model.machine.frame import Frame
from gputop.protocol.assemble import Assembler
from tests.driver import Machine, build
from tests.driver.forked import Program, server_for
from tests.driver.machine import REPOSITORY
from tests.driver.scenario import enlist
from tests.patience import Deadline, until

COMMAND = [sys.executable, str(REPOSITORY / "gputop" / "__main__.py"), "agent"]

Json = dict[str, Any]


class Agent:
    """`gputop agent` on a machine; a context manager: it is killed at the end.

    With the interval left at its largest, it makes a frame at its start and then only when asked.
    A short one begins after the first frame: from the start on, driver, GPUs and processes would
    have a quarter of a second for that.
    """

    def __init__(
        self,
        machine: Machine,
        interval: float = 60.0,
        env: dict[str, str] | None = None,
        prefix: Sequence[str] = (),
        options: Sequence[str] = (),
    ) -> None:
        """env: over the machine's. prefix: a command that runs the one after it."""
        is_short = interval < 1
        self._then = interval if is_short else None
        first = 60.0 if is_short else interval
        self.process = _started(
            prefix, ["--interval", str(first), *options], {**machine.env, **(env or {})}
        )
        assert self.process.stdin
        assert self.process.stdout
        self._stdin = self.process.stdin
        self._stdout = self.process.stdout.fileno()
        self._rest = b""
        self._assembler = Assembler()
        self._replies: list[Json] = []

    def __enter__(self) -> Agent:
        self._assembler.read(self._line(Deadline(10)))
        self.hello = _json(self._assembler.hello)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with suppress(BrokenPipeError):
                if pipe:
                    pipe.close()

    def line(self, within: float = 10.0) -> Json:
        """The next frame, as `gputop --json` has it; replies that come before are for `reply`.

        EOFError at the end of the stream, TimeoutError if none comes in time."""
        deadline = Deadline(within)
        while not isinstance(message := self._message(deadline), Frame):
            self._replies.append(message)
        if self._then is not None:
            self.ask("interval", seconds=self._then)
            self._then = None
        return _json(message)

    def reply(self, request: str | None = None, within: float = 30.0) -> Json:
        """The next reply, to a request of that id; frames that come before are passed over."""
        deadline = Deadline(within)
        while True:
            for reply in self._replies:
                if request in (None, reply["request"]):
                    self._replies.remove(reply)
                    return reply
            message = self._message(deadline)
            if not isinstance(message, Frame):
                self._replies.append(message)

    def done(self, request: str) -> Json:
        """The reply after which the asker need not wait any more."""
        while not (reply := self.reply(request))["done"]:
            pass
        return reply

    def _message(self, deadline: Deadline) -> Frame | Json:
        """The next frame; a reply as JSON, with all fields."""
        while (message := self._assembler.read(self._line(deadline))) is None:
            pass
        if isinstance(message, Frame):
            return message
        return _json(asdict(message))

    def _line(self, deadline: Deadline) -> bytes:
        while b"\n" not in self._rest:
            left = deadline.left()
            if not select.select([self._stdout], [], [], max(0.0, left))[0]:
                if left > 0:
                    continue
                raise TimeoutError
            if not (piece := os.read(self._stdout, 1 << 20)):
                raise EOFError
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line + b"\n"

    def send(self, line: bytes) -> None:
        """A line to its standard input, as it is."""
        self._stdin.write(line + b"\n")
        self._stdin.flush()

    def ask(self, request: str, **values: object) -> None:
        """A request."""
        self.send(json.dumps({"request": request, **values}).encode())

    def refresh(self, within: float = 10.0) -> Json:
        """The frame that comes when asked for one."""
        self.ask("refresh")
        return self.line(within)

    def close_stdin(self) -> None:
        """The end of its standard input."""
        self._stdin.close()


def _started(
    prefix: Sequence[str], options: Sequence[str], env: dict[str, str]
) -> subprocess.Popen[bytes] | Program:
    if not prefix and (server := server_for(env)):
        return server.pipe(["agent", *options], env)
    pipe = subprocess.PIPE
    command = [*prefix, *COMMAND, *options]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=env)


def _json(value: object) -> Json:
    message: Json = json.loads(msgspec.json.encode(value))
    return message


def sleeping(user: int | None = None) -> subprocess.Popen[bytes]:
    """A process that does nothing and has loaded libcuda: so it may be on a GPU in a container."""
    env = {**os.environ, **build.loading_cuda()}
    program = subprocess.Popen(["sleep", "1000"], env=env, user=user)
    until(lambda: has_cuda(program.pid))
    return program


@contextmanager
def python_on_gpu(machine: Machine, code: str) -> Iterator[tuple[subprocess.Popen[bytes], bytes]]:
    """A Python program on GPU 0, with 1 GiB, and the line that it writes first."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as program:
        assert program.stdout
        line = program.stdout.readline()
        entry = {"pid": program.pid, "used": 2**30}
        machine.update(lambda scenario: enlist(scenario["gpus"][0], "compute", entry))
        yield program, line
        program.kill()


def has_cuda(pid: int) -> bool:
    """Whether a process has loaded libcuda, which comes some time after its exec."""
    return b"/libcuda.so" in Path(f"/proc/{pid}/maps").read_bytes()


def executes(pid: int, name: str) -> bool:
    """Whether a process runs the program of that name by now, and has loaded what ours load."""
    runs = Path(f"/proc/{pid}/comm").read_text() == f"{name}\n"
    return runs and ("LD_PRELOAD" not in os.environ or has_cuda(pid))


def gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not; while it is reaped its state is X."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in b"ZX"
    except OSError:
        return True


def children_of(pid: int) -> list[int]:
    """Those that any thread of a process has started."""
    children: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread that has just ended
            children += map(int, path.read_text().split())
    return children


def start_as(pid: int, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """A process of that number, which is free or is about to be, in its program already."""
    return started_as(pid, starter(pid, command, **options))


def starter(pid: int, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """What starts a process of that number, for `started_as`, as soon as it is free.

    The kernel's counter stays where it is: if it went back, the processes that other tests start
    would get the numbers of some that these have just seen end.
    """
    return subprocess.Popen([sys.executable, "-SEc", _START_AS, str(pid), *command], **options)


def started_as(pid: int, process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    """The process that a starter has started."""
    failed = process.wait()
    if failed in (errno.EPERM, errno.ENOSYS):
        pytest.skip("process numbers cannot be chosen here")
    assert failed == 0, os.strerror(failed)
    process.pid, process.returncode = pid, None  # CLONE_PARENT: it is a child of this process
    return process


_START_AS = """
import ctypes, errno, os, sys, time
pid = (ctypes.c_int * 1)(int(sys.argv[1]))
args = (ctypes.c_uint64 * 11)()  # struct clone_args; it goes on when the child is in its program
CLONE_VFORK, CLONE_PARENT, SET_TID, SET_TID_SIZE = 0x4000, 0x8000, 8, 9
args[0], args[SET_TID], args[SET_TID_SIZE] = CLONE_VFORK | CLONE_PARENT, ctypes.addressof(pid), 1
libc = ctypes.CDLL(None, use_errno=True)
clone3 = ctypes.c_long(435)
given_up = time.monotonic() + 30
while (child := libc.syscall(clone3, args, ctypes.c_size_t(ctypes.sizeof(args)))) < 0:
    if ctypes.get_errno() != errno.EEXIST or time.monotonic() > given_up:
        break
    time.sleep(0.0005)
if child == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
sys.exit(ctypes.get_errno() if child < 0 else 0)
"""


SECTIONS = (
    "identity", "bar1", "engines", "clocks", "power_more", "thermal", "throttle", "pcie", "nvlink",
    "ecc", "health", "activity",
)  # fmt: skip
"""The fields of `model.machine.sections`."""


def plain(gpu: Json) -> Json:
    """A GPU, and its MIG devices, without what has tests of its own: sections, memory of parts,
    whether it is free, and reserved."""
    apart = (*SECTIONS, "free", "not_free", "reservation")
    kept = {field: value for field, value in gpu.items() if field not in apart}
    parts = ("memory_total", "memory_used", "activity", "reservation")
    if kept["mig"] is not None:
        kept["mig"] = [
            {field: value for field, value in device.items() if field not in parts}
            for device in kept["mig"]
        ]
    return kept
