"""The keeper of the workers in which processes are read, and what runs in a worker (reader.py).

The keeper makes the workers, kills them and reaps them. All end with the agent.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import socket
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NoReturn

_MOST_DYING = 16
"""Workers that were killed and that the kernel still holds; then there are no new ones."""
_MOST_AHEAD = 1 << 16
"""Bytes of the answers about one process that are read ahead."""
LENGTH = struct.Struct("<q")
"""Stands before each message between an agent and a worker."""


def packed(value: object) -> bytes:
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(data)) + data


def run_keeper(control: socket.socket, marks: memoryview) -> NoReturn:
    """Make a worker for each message, which is its number and that of the request; end with the
    agent. An answer has the request's number, and the worker's PID or 0."""
    workers: dict[int, int] = {}
    dying: set[int] = set()
    with suppress(BaseException):
        for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(ignored, signal.SIG_IGN)
        nothing, closed = os.pipe()  # a container may have no /dev/null
        os.close(closed)
        for stream in range(3):  # else the agent's reader waits for us when it ends
            os.dup2(nothing, stream)
        gc.freeze()
        while message := control.recv(32):
            number, request = map(int, message.split())
            if (before := workers.pop(number, None)) is not None:
                os.kill(before, signal.SIGKILL)  # it is not reaped yet
                dying.add(before)
            dying = {pid for pid in dying if os.waitpid(pid, os.WNOHANG)[0] == 0}
            made = None if len(dying) >= _MOST_DYING else _fork(control, marks, number)
            if made is None:
                control.send(b"%d 0" % request)
                continue
            ours, workers[number] = made
            with ours:
                answer = b"%d %d" % (request, workers[number])
                socket.send_fds(control, [answer], [ours.fileno()])
    for pid in workers.values():  # also where the agent closed its end before we answered
        os.kill(pid, signal.SIGKILL)
    for pid in (*workers.values(), *dying):
        os.waitpid(pid, 0)
    os._exit(0)


def _fork(
    control: socket.socket, marks: memoryview, number: int
) -> tuple[socket.socket, int] | None:
    """Return a worker's socket and PID; None without room for one."""
    try:
        ours, theirs = socket.socketpair()
        pid = os.fork()
    except OSError:
        return None
    if pid == 0:
        with suppress(BaseException):
            control.close()
            ours.close()
            _work(theirs, marks, number)
        os._exit(0)
    theirs.close()
    return ours, pid


# In a worker


def _work(end: socket.socket, marks: memoryview, number: int) -> None:
    """Answer calls until the agent has gone."""
    gc.enable()
    with end.makefile("rb") as stream:
        while header := stream.read(LENGTH.size):
            function, pids, args = pickle.loads(stream.read(*LENGTH.unpack(header)))
            answers = []
            for pid in pids:
                marks[number] = pid
                answers.append(_answer(function, pid, args))
            end.sendall(packed(answers))


def answer_questions(pid: int, *questions: tuple[Any, ...]) -> bytes:
    """Answer several questions about a process; those of one with much to tell are left to be asked
    for one by one, as many of these would fill the memory."""
    answers = [_answer(function, pid, args) for function, *args in questions]
    data = pickle.dumps(answers, pickle.HIGHEST_PROTOCOL)
    return data if len(data) <= _MOST_AHEAD else pickle.dumps([])


def _answer(
    function: Callable[..., object], pid: int, args: Iterable[object]
) -> tuple[bool, object]:
    try:
        return True, function(pid, *args)
    except (OSError, ValueError, MemoryError) as error:
        return False, error
