"""Answers the reader's requests, each kind in a thread of its own: a driver or file system that
hangs delays the answers of one kind only, and never a frame."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from gputop.agent.errors import log_once
from gputop.agent.gpu.memory_watch import MemoryWatch
from gputop.agent.idle import with_idle_times
from gputop.agent.probe import Prober
from gputop.agent.process.cuda_context import read_whole_context
from gputop.agent.process.detail import is_free, read_detail, read_liveness, read_stack
from gputop.agent.process.stat import ancestors, every_process, read_stat
from gputop.agent.process.users import UserNames, real_uid, uid_of
from gputop.agent.signals.sender import SignalSender
from gputop.errors import UsageError
from gputop.model.cuda.inventory import Inventory, frame_devices
from gputop.model.machine.frame import Frame, Process
from gputop.model.machine.proc_stat import ProcStat
from gputop.model.machine.process_id import ProcessId
from gputop.model.machine.signals import Candidate
from gputop.protocol.messages import (
    AnsweredRequest,
    Candidates,
    Checks,
    Context,
    Detail,
    Liveness,
    Probe,
    Reply,
    Signal,
    Stack,
)

_MAX_WAITING = 64
"""Requests of one kind that may wait; beyond that the oldest are refused."""


class Responder:
    """Answers requests of one kind, in order, in a thread that the first request starts.

    Equal requests that wait at the same time share one answer.
    """

    def __init__(
        self, name: str, answer: Callable[[Any, Frame], Reply], send: Callable[[Reply], None]
    ) -> None:
        self._name, self._answer, self._send = name, answer, send
        self._waiting: list[tuple[AnsweredRequest, Frame]] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def ask(self, request: AnsweredRequest, frame: Frame) -> None:
        """Have a request answered later; `frame` is the newest. Call it from one thread."""
        with self._changed:
            self._waiting.append((request, frame))
            refused = self._waiting[1:-_MAX_WAITING]
            del self._waiting[1 : 1 + len(refused)]
            self._changed.notify()
        for oldest, _ in refused:
            self._send(Reply(request=oldest.id, error="too many requests are pending: try again"))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                request, frame = self._waiting[0]
            try:
                reply = self._answer(request, frame)
            except UsageError as error:
                reply = Reply(request=request.id, error=str(error), invalid=True)
            except Exception as error:  # noqa: BLE001 - the reader gets it, and others wait
                reply = Reply(request=request.id, error=log_once(self._name, error))
            for id_ in self._alike(request):
                self._send(replace(reply, request=id_))

    def _alike(self, request: AnsweredRequest) -> list[str]:
        """Remove the waiting requests equal to this one, and return their ids."""
        question = replace(request, id="")
        with self._changed:
            alike = [entry for entry in self._waiting if replace(entry[0], id="") == question]
            self._waiting = [entry for entry in self._waiting if entry not in alike]
        return [asked.id for asked, _ in alike]


class RequestHandler:
    """Hands each request to its responder."""

    def __init__(
        self, send: Callable[[Reply], None], memory: MemoryWatch, frame: Frame, files: bool
    ) -> None:
        """`send` is called from several threads. `frame` is the first one. Without `files` there
        is no audit log."""
        self._signals, self._frame = SignalSender(send, memory, frame, files), frame
        answers: dict[type[AnsweredRequest], Callable[[Any, Frame], Reply]] = {
            Probe: partial(_probe, Prober()),
            Detail: lambda detail, _: Reply(request=detail.id, detail=read_detail(detail)),
            Stack: lambda stack, _: Reply(request=stack.id, stack=read_stack(stack)),
            Candidates: _candidates,
            Context: _context,
            Checks: _checks,
            Liveness: partial(_liveness, UserNames()),
        }
        self._responders = {
            kind: Responder(kind.__name__.lower(), answer, send) for kind, answer in answers.items()
        }

    def show(self, frame: Frame) -> None:
        """Take a new frame: requests are about the newest one."""
        self._frame = frame
        self._signals.show(frame)

    def ask(self, request: AnsweredRequest) -> None:
        """Have a request answered, without waiting. Call it from one thread."""
        if isinstance(request, Signal):
            self._signals.send(request)
        else:
            self._responders[type(request)].ask(request, self._frame)

    def finish(self) -> None:
        """Send and log the signals that were requested, before the agent ends."""
        self._signals.finish()


def _probe(prober: Prober, probe: Probe, frame: Frame) -> Reply:
    inventory = Inventory(frame_devices(frame), frame.driver_version)
    values = dict.fromkeys((probe.value, None))
    answers = tuple(prober.ask(value, probe.order, inventory) for value in values)
    return Reply(request=probe.id, probed=answers)


def _candidates(request: Candidates, frame: Frame) -> Reply:
    """Reply with the candidates. UsageError for a user that this machine does not have."""
    uids = {name: uid_of(name) for name in request.users}
    candidates = read_candidates(frame, request.ancestors)
    return Reply(request=request.id, candidates=candidates, uids=uids)


def read_candidates(frame: Frame, ancestors: bool) -> tuple[Candidate, ...]:
    """Return a candidate for each process row of a frame, with its ancestors if wanted."""
    processes = every_process() if ancestors else {}
    return tuple(
        Candidate(
            row.id,
            row.gpu_uuid,
            None if row.start_ticks is None else real_uid(row.pid),
            row.idle_for,
            tuple(_ancestors(row, processes)),
        )
        for row in with_idle_times(frame).processes
    )


def _ancestors(process: Process, table: Mapping[int, ProcStat]) -> Iterator[ProcessId]:
    pids = () if process.start_ticks is None else ancestors(process.pid, table.get)
    return (ProcessId(pid, table[pid].start_ticks) for pid in pids if pid in table)


def _context(request: Context, _: Frame) -> Reply:
    """Reply with the context. UsageError for a process that /proc hides."""
    context = read_whole_context(request.pid)
    if context.environ.missing != "gone":
        return Reply(request=request.id, context=context)
    if request.pid > 0 and read_stat(request.pid) is None and not is_free(request.pid):
        raise UsageError(
            f"/proc hides process {request.pid}, which is another user's (hidepid): ask as root or"
            " as its owner"
        )
    return Reply(request=request.id)


def _liveness(users: UserNames, request: Liveness, _: Frame) -> Reply:
    liveness = tuple(read_liveness(process, users) for process in request.processes)
    return Reply(request=request.id, liveness=liveness)


def _checks(request: Checks, frame: Frame) -> Reply:
    """Reply with the checks. UsageError if the requested Python does not exist."""
    from gputop.agent.doctor.installation import container, installation_checks
    from gputop.agent.doctor.python_env import find_interpreter, python_checks
    from gputop.agent.doctor.toolkits import toolkit_checks

    interpreter = request.python and find_interpreter(request.python)
    inside = container(frame)
    checks = [*installation_checks(frame, inside), *toolkit_checks(request.cuda_version, inside)]
    if interpreter:
        checks += python_checks(interpreter, request.cuda_version, request.capabilities)
    return Reply(request=request.id, checks=tuple(checks))
