"""Reads processes from a child process, which is killed when one of them does not answer.

Any user can make a process whose files in /proc block whoever reads them, for as long as he wants:

    what he does                             what blocks (Linux 6.18, tried)
    holds the lock of its memory: a page of  cmdline, environ, smaps, pagemap, mem; before
    his FUSE file never comes, and another   Linux 6.17 maps too
    thread maps memory
    executes a program in a process that     these, and maps, stat, io, wchan, stack, the links
    shares such a memory                     exe, cwd, root, fd/*, ns/*
    nothing blocks                           status, comm, cgroup, mountinfo, the list of fd

The reader waits in state D, and only SIGKILL ends that. A thread cannot be killed, so a thread that
reads it is lost. A function declared `killable` therefore runs in a worker, a child process; a
worker that makes no progress is killed and replaced, and the process is *silent*: it is not read
again for a while, which doubles each time. The others are read on, those that have answered first.

The workers are made by a keeper (keeper.py), which is forked before the agent has threads.
"""

from __future__ import annotations

import errno
import mmap
import os
import pickle
import random
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from gputop.agent.process.keeper import LENGTH, answer_questions, packed, run_keeper
from gputop.model.machine.proc_stat import parse_stat

if TYPE_CHECKING:
    from typing import Concatenate, ParamSpec

    P = ParamSpec("P")
T = TypeVar("T")

_MOST_WORKERS = 8
_STALL = 0.15
"""Seconds without progress after which a worker that waits in the kernel is killed."""
_STARVED = 3.0
"""Seconds without progress for one that has work to do: it may wait for a core."""
_SAMPLES = 0.01
"""Seconds between two readings of its state."""
_STALLS = 0.3
"""Seconds of a call for new processes that do not answer; the others have their turn next time."""
_NEW = 64
"""New processes that are read at once: those that come before a silent one are read again."""
_LEAST, _MOST = 2.0, 3600.0
"""Seconds for which a process is silent, the first time and at most."""
_END_TIMEOUT = 0.25
"""Seconds to wait for the end of the keeper."""
_REMEMBERED = 1 << 16
_BASIC = frozenset({"read_stat", "stat_of"})
"""Functions that read only `stat`, which is still read of a process that answers nothing else."""


class NoAnswerError(OSError):
    """A process does not answer."""

    def __init__(self) -> None:
        super().__init__(errno.ETIMEDOUT, "it does not answer")


class KeeperEndedError(BaseException):
    """The keeper has ended: without it no process can be read. No thread goes on after it, as it
    would after an Exception: the agent ends, to be started again."""


class _Silence(NamedTuple):
    """When a process is read again, and what /proc/PID was: a PID is reused, an inode is not."""

    inode: int
    until: float
    seconds: float


class ProcessReader:
    """Calls functions about processes, each with its PID first; for any thread.

    Before `start` it calls them in place.
    """

    def __init__(self) -> None:
        self._control: socket.socket | None = None
        self._keeper: int | None = None
        self._status: int | None = None
        """The exit status of the keeper, once it has ended by itself."""
        self._marks = memoryview(b"")
        self._changed = threading.Condition()
        self._idle: list[_ReaderChild] = []
        self._free = list(range(_MOST_WORKERS))
        """Numbers of workers that are not running."""
        self._requests = 0
        """How many workers the keeper was asked for."""
        self._silent: dict[tuple[int, bool], _Silence] = {}
        """By PID, and whether even `stat` is not answered."""
        self._answered: set[int] = set()
        self._ahead: dict[tuple[object, ...], tuple[bool, Any]] = {}
        """Answers that were read ahead, by function, PID and arguments."""

    def start(self) -> None:
        """Fork the keeper, while there is one thread. RuntimeError without room for it, as when a
        thread cannot be started: nothing is read unguarded."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # gputop's parent may have ignored it
        control, keepers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        marks = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("q")
        try:
            child = os.fork()
        except OSError:
            raise RuntimeError("can't start new thread") from None
        if child == 0:
            control.close()
            run_keeper(keepers, marks)
        keepers.close()
        control.settimeout(_STARVED)
        self._control, self._marks, self._keeper = control, marks, child

    def stop(self) -> None:
        """End the keeper and the workers, before the agent ends: a process 1 may not reap them."""
        keeper = self._keeper
        if self._control is None or keeper is None:
            return
        self._control.close()  # the end of the keeper is no error from now on
        end = time.monotonic() + _END_TIMEOUT
        with suppress(ChildProcessError):
            while os.waitpid(keeper, os.WNOHANG)[0] == 0 and time.monotonic() < end:
                time.sleep(0.001)
        self._keeper = None  # not before: another thread that ends the agent waits as well

    def is_silent(self, pid: int, basic: bool = False) -> bool:
        """Return whether a process has not answered lately; `basic`: not even of its `stat`."""
        return self._bars(pid, True) or (not basic and self._bars(pid, False))

    def ask(self, function: Callable[Concatenate[int, P], T], pid: int, *args: Any) -> T:
        """Return what a function returns for a process, or raise what it raises; NoAnswerError."""
        if self._control is None:
            return function(pid, *args)  # type: ignore[call-arg]
        ahead = self._ahead.get((function, pid, args))
        good, answer = ahead or self._ask(function, [pid], args).get(pid, (False, NoAnswerError()))
        if not good:
            raise answer
        kept: T = answer
        return kept

    def ask_all(
        self, function: Callable[Concatenate[int, P], T], pids: Iterable[int], *args: Any
    ) -> dict[int, T]:
        """Return what a function returns for each process, in their order, without those that do
        not answer or for which it raises an error."""
        if self._control is None:
            return {pid: function(pid, *args) for pid in pids}  # type: ignore[call-arg]
        asked = list(pids)
        answers = self._ask(function, asked, args)
        return {pid: answers[pid][1] for pid in asked if answers.get(pid, (False,))[0]}

    @contextmanager
    def reading_ahead(
        self, pids: Collection[int], *questions: tuple[Any, ...]
    ) -> Iterator[Collection[int]]:
        """Ask questions (function, arguments) about several processes in one exchange, and yield
        those that answer. Within the context `ask` has their answers: an exchange for each question
        would cost ten times as much."""
        if self._control is None:
            yield pids
            return
        answered = set()
        for pid, (good, data) in self._ask(answer_questions, list(pids), questions).items():
            answers = pickle.loads(data) if good else []
            for (function, *args), answer in zip(questions, answers, strict=False):
                answered.add(pid)
                self._ahead[function, pid, tuple(args)] = answer
        try:
            yield answered
        finally:
            self._ahead.clear()

    def _ask(
        self, function: Callable[..., object], pids: list[int], args: tuple[object, ...]
    ) -> dict[int, tuple[bool, Any]]:
        basic = function.__name__ in _BASIC
        if self._silent:
            pids = [pid for pid in pids if not self.is_silent(pid, basic)]
        answers: dict[int, tuple[bool, Any]] = {}
        old = [pid for pid in pids if pid in self._answered]
        new = [pid for pid in pids if pid not in self._answered]
        while old:
            old = self._batch(function, old, args, basic, answers)
        random.shuffle(new)
        end = time.monotonic() + _STALLS
        while new and time.monotonic() < end:
            new = self._batch(function, new[:_NEW], args, basic, answers) + new[_NEW:]
        return answers

    def _batch(
        self, function: Callable[..., object], pids: list[int], args: tuple[object, ...],
        basic: bool, answers: dict[int, tuple[bool, Any]],
    ) -> list[int]:  # fmt: skip
        """Add the answers of processes; return those to ask again, without one that was stuck."""
        worker = self._take()
        if worker is None:
            return []
        try:
            answers.update(worker.ask(function, pids, args))
        except OSError:  # it makes no progress, or has ended
            stuck = worker.marks[worker.number]
            self._end(worker)
            self._silence(stuck, basic)
            return [pid for pid in pids if pid != stuck] if stuck in pids else []
        except BaseException:
            self._end(worker)
            raise
        self._give(worker)
        self._note(pids, basic)
        return []

    # Who is silent

    def _bars(self, pid: int, basic: bool) -> bool:
        silence = self._silent.get((pid, basic))
        return (
            silence is not None
            and time.monotonic() < silence.until
            and _inode(pid) == silence.inode
        )

    def _silence(self, pid: int, basic: bool) -> None:
        before, inode = self._silent.get((pid, basic)), _inode(pid)
        seconds = min(_MOST, 2 * before.seconds) if before and before.inode == inode else _LEAST
        if len(self._silent) >= _REMEMBERED:
            self._silent.clear()
        self._silent[pid, basic] = _Silence(inode, time.monotonic() + seconds, seconds)
        self._answered.discard(pid)

    def _note(self, pids: list[int], basic: bool) -> None:
        """Note that processes have answered."""
        if self._silent:
            for pid in pids:
                self._silent.pop((pid, basic), None)
        if len(self._answered) >= _REMEMBERED:
            self._answered.clear()
        self._answered.update(pids)

    # Workers

    def _take(self) -> _ReaderChild | None:
        """Return an idle worker or a new one; None if there is none for a while."""
        with self._changed:
            self._changed.wait_for(lambda: self._idle or self._free, _STARVED)
            if self._idle:
                return self._idle.pop()
            if not self._free or self._control is None:
                return None
            number = self._free.pop()
            self._requests += 1
            worker = _new_child(self._control, number, self._requests, self._marks)
            if worker is None:
                self._free.append(number)
                self._check_keeper()
            return worker

    def _check_keeper(self) -> None:
        """Raise KeeperEndedError if the keeper has ended."""
        if (keeper := self._keeper) is None or (self._control and self._control.fileno() < 0):
            return
        with suppress(ChildProcessError):  # it was waited for
            pid, status = os.waitpid(keeper, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        if self._status is not None:
            words = f"the process that reads the others has ended (status {self._status})"
            raise KeeperEndedError(words)

    def _give(self, worker: _ReaderChild) -> None:
        with self._changed:
            self._idle.append(worker)
            self._changed.notify()

    def _end(self, worker: _ReaderChild) -> None:
        """Drop a worker; the keeper kills it when another gets its number."""
        worker.socket.close()
        with self._changed:
            self._free.append(worker.number)
            self._changed.notify()


READER = ProcessReader()


def killable(
    silent: Any,
) -> Callable[[Callable[Concatenate[int, P], T]], Callable[Concatenate[int, P], T]]:
    """Decorate a function of a module, about a process, so that READER calls it: it returns
    `silent` for a process that does not answer."""

    def decorate(function: Callable[Concatenate[int, P], T]) -> Callable[Concatenate[int, P], T]:
        @wraps(function)
        def ask(pid: int, /, *args: P.args, **kwargs: P.kwargs) -> T:
            if READER._control is None:
                return function(pid, *args, **kwargs)
            assert not kwargs
            answer: T = silent
            with suppress(NoAnswerError):
                answer = READER.ask(ask, pid, *args)
            return answer

        return ask

    return decorate


class _ReaderChild(NamedTuple):
    number: int
    pid: int
    socket: socket.socket
    marks: memoryview
    """The process that each worker is at, by its number: shared with it."""

    def ask(
        self, function: Callable[..., object], pids: list[int], args: tuple[object, ...]
    ) -> dict[int, tuple[bool, Any]]:
        """Return the answers. OSError if the worker makes no progress, or has ended."""
        self.marks[self.number] = pids[0]
        self.socket.sendall(packed((function, pids, args)))
        (length,) = LENGTH.unpack(self._read(LENGTH.size))
        answers: list[tuple[bool, Any]] = pickle.loads(self._read(length))
        return dict(zip(pids, answers, strict=True))

    def _read(self, length: int) -> bytearray:
        data = bytearray(length)
        left = memoryview(data)
        while left:
            self._wait()
            count = self.socket.recv_into(left)
            if not count:
                raise OSError("it has ended")
            left = left[count:]
        return data

    def _wait(self) -> None:
        """Wait for more of the answer; OSError if the worker makes no progress."""
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        begun, mark, waits = time.monotonic(), -1, 0
        while not poll.poll(1000 * (_SAMPLES if waits else _STALL)):
            now, at = time.monotonic(), self.marks[self.number]
            if at != mark:
                begun, mark, waits = now, at, 0
            waits = waits + 1 if _state(self.pid) == "D" else 0
            if waits >= 3 or now >= begun + _STARVED:
                raise OSError("it makes no progress")


def _new_child(
    control: socket.socket, number: int, request: int, marks: memoryview
) -> _ReaderChild | None:
    """Have the keeper make a worker in the place of the last one of this number."""
    try:
        control.send(b"%d %d" % (number, request))
        while True:
            message, descriptors, _, _ = socket.recv_fds(control, 32, 1)
            ends = [socket.socket(fileno=descriptor) for descriptor in descriptors]
            answered, pid = map(int, message.split())
            if answered == request:  # not one that did not come in time
                break
    except (OSError, ValueError):  # ValueError: nothing comes from a keeper that has ended
        return None
    for end in ends:
        end.settimeout(_STARVED)
        return _ReaderChild(number, pid, end, marks)
    return None


def _inode(pid: int) -> int:
    """Return what tells a process from a later one with its PID; it never blocks."""
    try:
        return os.stat(f"/proc/{pid}").st_ino
    except OSError:
        return 0


def _state(pid: int) -> str:
    """Return the state of a worker; `X` if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return parse_stat(file.read(4096)).state
    except (OSError, ValueError):
        return "X"
