"""Looks closely at the one process that somebody looks at, in threads of their own."""

from __future__ import annotations

import os
import queue
import re
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from gputop.agent.process.environ import read_whole_environ
from gputop.agent.process.processes import started
from gputop.agent.process.stack import dump_stack
from gputop.agent.process.walk import command_of, every_process, look
from gputop.model.detail import Child, ProcessDetail, ProcessStack, told
from gputop.model.frame import Frame
from gputop.model.protocol import Detail, Stack
from gputop.model.text import printable

Q = TypeVar("Q")
A = TypeVar("A")

_DEVICE = re.compile(r"/dev/(?:nvidia|dri/)")
_MOST_CHILDREN = 64
_MOST_DEVICES = 64


class _Answers(Generic[Q, A]):
    """Answers the newest question, in a thread that is started for the first."""

    def __init__(self, name: str, find: Callable[[Q], A], answered: Callable[[], None]) -> None:
        self._name, self._find, self._answered = name, find, answered
        self._asked: queue.SimpleQueue[Q] = queue.SimpleQueue()
        self._found: queue.SimpleQueue[A] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def ask(self, question: Q) -> None:
        """Without waiting. By one thread."""
        self._asked.put(question)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def newest(self) -> A | None:
        """What was found since the last call. By one thread."""
        return None if self._found.empty() else _last(self._found)

    def _run(self) -> None:
        while True:
            self._found.put(self._find(_last(self._asked)))
            self._answered()


def _last(waiting: queue.SimpleQueue[Q]) -> Q:
    """The last of a queue, which is empty then; waits for one."""
    one = waiting.get()
    while not waiting.empty():
        one = waiting.get()
    return one


class Details:
    """Tells more of processes; `answered` is called when a frame shall tell it."""

    def __init__(self, answered: Callable[[], None]) -> None:
        self._details = _Answers("detail", read_detail, answered)
        self._stacks = _Answers("stack", _stack, answered)

    def take(self, request: Detail | Stack) -> None:
        """Answer it, at once and without waiting."""
        if isinstance(request, Detail):
            self._details.ask(request)
        else:
            self._stacks.ask(request)

    def with_answers(self, frame: Frame) -> Frame:
        """The frame with what was found, each once."""
        detail, stack = self._details.newest(), self._stacks.newest()
        if detail is None and stack is None:
            return frame
        return msgspec.structs.replace(frame, detail=detail, stack=stack)


def read_detail(request: Detail) -> ProcessDetail:
    """Look at a process now; never raises."""
    pid, start_time = request.pid, request.start_time
    gone = ProcessDetail(pid, start_time, gone=True)
    if not _is_there(pid, start_time):
        return gone
    environ = read_whole_environ(pid)
    files = _open_files(pid)
    children = _children(pid)
    devices = None if files is None else sorted(set(filter(_DEVICE.match, files)))
    found = ProcessDetail(
        pid,
        start_time,
        variables=told(environ.variables, hidden=request.hidden) or None,
        missing=environ.missing,
        files=None if files is None else len(files),
        devices=None if devices is None else tuple(devices[:_MOST_DEVICES]),
        children=children[:_MOST_CHILDREN],
        children_count=len(children),
    )
    # Another process may have been given the number meanwhile.
    return found if _is_there(pid, start_time) else gone


def _stack(request: Stack) -> ProcessStack:
    pid, start_time = request.pid, request.start_time
    gone = ProcessStack(pid, start_time, problem="It has ended.")
    if not _is_there(pid, start_time):
        return gone
    lines, problem = dump_stack(pid)
    if not _is_there(pid, start_time):
        return gone
    return ProcessStack(pid, start_time, lines, problem)


def _is_there(pid: int, start_time: float) -> bool:
    """Whether a process still is the one; a zombie has nothing left to look at."""
    seen = look(pid)
    if seen is None or seen.state == "Z":
        return False
    return started(seen.start_ticks) == start_time


def _open_files(pid: int) -> list[str] | None:
    """What its open files are called; None where that may not be seen."""
    directory = f"/proc/{pid}/fd"
    try:
        return [_link(f"{directory}/{name}") for name in os.listdir(directory)]
    except OSError:
        return None


def _link(path: str) -> str:
    try:
        return printable(os.readlink(path), 256)
    except OSError:  # closed meanwhile
        return ""


def _children(pid: int) -> tuple[Child, ...]:
    """The oldest first."""
    found = [
        (seen.start_ticks, child, seen)
        for child, seen in every_process().items()
        if seen.parent == pid
    ]
    return tuple(
        Child(child, started(ticks), command_of(child, seen))
        for ticks, child, seen in sorted(found, key=lambda one: one[:2])
    )
