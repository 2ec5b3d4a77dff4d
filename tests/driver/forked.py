"""gputop as a copy of a program that has it imported: a third of the CPU of a true start.

    run([sys.executable, "-m", "gputop", "--json"], env)

A copy is what `python -m gputop ARGUMENTS` is from `gputop.__main__.run` on, and ends as Python
does. The driver is loaded after the fork.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import BinaryIO

_AT_A_START = ("LD_", "PYTHON", "LANG", "LC_", "TZ")
"""Beginnings of the names of variables that are read before gputop is."""
_WORTH_IT = 3
"""So many programs with the same of those, and a server takes less than it saves."""
_MODULES = ("cli", "commands.snapshot", "commands.map", "commands.free", "commands.kill",
            "agent.serve", "sources.local", "export.json", "export.table")  # fmt: skip
_posix_spawn = os.posix_spawn
_SERVER = "import sys; from tests.driver import forked; forked.main(int(sys.argv[1]))"
_MOST = 1 << 20


class Program:
    """A copy that runs, by the methods of Popen; a context manager, which kills it at the end."""

    def __init__(self, answers: socket.socket) -> None:
        self._answers = answers
        self.pid: int = json.loads(answers.recv(64))
        self.returncode: int | None = None
        self.stdin: BinaryIO | None = None
        self.stdout: BinaryIO | None = None
        self.stderr: BinaryIO | None = None

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait()
        self._answers.close()

    def poll(self) -> int | None:
        """Its exit status, negative after a signal; None while it runs."""
        if self.returncode is None and select.select([self._answers], [], [], 0)[0]:
            self.returncode = json.loads(self._answers.recv(64))
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The same at its end. subprocess.TimeoutExpired after `timeout` seconds."""
        if self.poll() is None:
            if not select.select([self._answers], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("gputop", timeout or 0.0)
            self.returncode = json.loads(self._answers.recv(64))
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        """SIGKILL, if it runs."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM, if it runs."""
        self.send_signal(signal.SIGTERM)

    def send_signal(self, number: int) -> None:
        """A signal, if it runs."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it ends just now
                os.kill(self.pid, number)


class Server:
    """The program that is copied; it ends with us."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVER, str(theirs.fileno())],
                env=dict(env), pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def start(
        self, arguments: Sequence[str], env: Mapping[str, str], streams: Sequence[int]
    ) -> Program:
        """Run gputop with these arguments, environment and standard streams, in our folder."""
        sys.audit("tests.fork")
        answers, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = json.dumps([[*arguments], dict(env), os.getcwd()]).encode()
        with theirs:
            socket.send_fds(self._requests, [request], [theirs.fileno(), *streams])
        return Program(answers)

    def pipe(self, arguments: Sequence[str], env: Mapping[str, str]) -> Program:
        """The same with a pipe at each standard stream."""
        (taken, stdin), (stdout, output), (stderr, errors) = (os.pipe() for _ in range(3))
        program = self.start(arguments, env, (taken, output, errors))
        for theirs in (taken, output, errors):
            os.close(theirs)
        program.stdin = os.fdopen(stdin, "wb")
        program.stdout, program.stderr = os.fdopen(stdout, "rb"), os.fdopen(stderr, "rb")
        return program


_servers: dict[tuple[tuple[str, str], ...], Server] = {}
_asked: Counter[tuple[tuple[str, str], ...]] = Counter()


def server_for(env: Mapping[str, str]) -> Server | None:
    """The server for programs with such an environment; None while a true start costs less."""
    kind = tuple(sorted(item for item in env.items() if item[0].startswith(_AT_A_START)))
    _asked[kind] += 1
    if kind not in _servers and _asked[kind] >= _WORTH_IT:
        _servers[kind] = Server(env)
    return _servers.get(kind)


def run(
    command: Sequence[str], env: Mapping[str, str] = os.environ, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """A program to its end, with no input, and its output as text.

    gputop is a copy if the command is as above, at most with `env` and its options before it: who
    tests how gputop starts runs it himself. subprocess.TimeoutExpired.
    """
    words, changed = _without_env(command, env)
    server = server_for(changed) if words[:3] == [sys.executable, "-m", "gputop"] else None
    if server is None:
        return subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=timeout, check=False,
        )  # fmt: skip
    with (
        open(os.devnull) as nothing,
        tempfile.TemporaryFile("w+") as output,
        tempfile.TemporaryFile("w+") as errors,
        server.start(
            words[3:], changed, [f.fileno() for f in (nothing, output, errors)]
        ) as program,
    ):
        status = program.wait(timeout)
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(command, status, output.read(), errors.read())


def _without_env(
    command: Sequence[str], env: Mapping[str, str]
) -> tuple[list[str], Mapping[str, str]]:
    """A command without `env [-u NAME] [NAME=VALUE]` before it, and the environment it makes."""
    words, changed = [*command], dict(env)
    if words[:1] != ["env"]:
        return words, env
    del words[0]
    while words[0] == "-u" or "=" in words[0]:
        word = words.pop(0)
        if word == "-u":
            changed.pop(words.pop(0), None)
        else:
            name, _, value = word.partition("=")
            changed[name] = value
    return words, changed


def _serve(requests: socket.socket) -> tuple[list[str], dict[str, str], str, list[int]] | None:
    """Copy this program for each request, and tell how each copy ends. In a copy return what it is
    to be; None when there is nobody left to ask."""
    copies: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for ready in select.select([requests.fileno(), *copies], [], [])[0]:
            if ready != requests.fileno():
                pid, answers = copies.pop(ready)
                os.close(ready)
                _tell(answers, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                answers.close()
                continue
            request, descriptors, _, _ = socket.recv_fds(requests, _MOST, 4)
            if not request:
                return None
            if (pid := os.fork()) == 0:
                for _, answers in copies.values():
                    answers.detach()
                requests.detach()
                return (*json.loads(request), descriptors[1:])
            answers = socket.socket(fileno=descriptors[0])
            copies[os.pidfd_open(pid)] = pid, answers
            for stream in descriptors[1:]:
                os.close(stream)
            _tell(answers, pid)


def _tell(answers: socket.socket, number: int) -> None:
    try:
        answers.send(json.dumps(number).encode())
    except BrokenPipeError:
        return  # whoever asked has gone


def _become(
    arguments: Sequence[str], env: Mapping[str, str], folder: str, streams: Sequence[int]
) -> None:
    """Be gputop from now on."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, 1024)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    os.posix_spawn = _spawned  # type: ignore[assignment]
    _run(arguments)


def _run(arguments: Sequence[str]) -> None:
    main = import_module("gputop.__main__")
    sys.argv = [str(main.__file__), *arguments]
    main.run()


def _spawned(
    path: str, argv: Sequence[str], env: Mapping[str, str], *,
    file_actions: Sequence[tuple[int, int, int]] = (), setsid: bool = False,
) -> int:  # fmt: skip
    """As os.posix_spawn; an agent of gputop's own is one more copy."""
    if [*argv[:3]] != [sys.executable, import_module("gputop.__main__").__file__, "agent"]:
        return _posix_spawn(path, [*argv], env, file_actions=file_actions, setsid=setsid)
    variables = dict(env)  # they may be os.environ itself
    if (pid := os.fork()) != 0:
        return pid
    status: int = 1
    try:
        if setsid:
            os.setsid()
        for handled in signal.valid_signals():
            if callable(signal.getsignal(handled)):
                signal.signal(handled, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for _, stream, number in file_actions:
            os.dup2(stream, number)
        os.closerange(3, 1024)
        os.environ.clear()
        os.environ.update(variables)
        _run(argv[2:])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        os._exit(status)  # not through what gputop has on its stack


def main(requests: int) -> None:
    """Be the server, for whoever has the other end of a socket; or a copy of it."""
    for module in ("__main__", *_MODULES):
        import_module(f"gputop.{module}")
    gc.freeze()  # else each copy touches, and so copies, what it shares with us
    try:
        copy = _serve(socket.socket(fileno=requests))
    except KeyboardInterrupt:  # for pytest, and so for us
        copy = None
    if copy is not None:
        _become(*copy)
