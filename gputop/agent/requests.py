"""Answers what the reader asks, each kind of request in a thread of its own: a driver or a file
system that hangs holds up the answers of its kind alone, and never a frame.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from gputop.agent.candidates import read_candidates
from gputop.agent.errors import log_once
from gputop.agent.gpu.memory_watch import MemoryWatch
from gputop.agent.probe import Prober
from gputop.agent.process.cuda_context import read_whole_context
from gputop.agent.process.detail import read_detail, read_liveness, read_stack
from gputop.agent.process.users import UserNames, uid_of
from gputop.agent.signals.sender import SignalSender
from gputop.errors import UsageError
from gputop.model.cuda.inventory import Inventory, frame_devices
from gputop.model.machine.frame import Frame
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

R = TypeVar("R", bound=Any)

_MAX_WAITING = 64
"""Requests of a kind; of more the oldest are refused."""


class Responder(Generic[R]):
    """Answers requests of one kind, in order, in a thread that the first one starts.

    A request that comes again while the same one waits is answered with it.
    """

    def __init__(
        self, name: str, answer: Callable[[R, Frame], Reply], send: Callable[[Reply], None]
    ) -> None:
        self._name, self._answer, self._send = name, answer, send
        self._waiting: list[tuple[R, Frame]] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def ask(self, request: R, frame: Frame) -> None:
        """Have a request answered, without waiting; `frame` is the last one. By one thread."""
        with self._changed:
            self._waiting.append((request, frame))
            refused = self._waiting[1:-_MAX_WAITING]
            del self._waiting[1 : 1 + len(refused)]
            self._changed.notify()
        for oldest, _ in refused:
            self._send(Reply(request=oldest.id, error="too many questions wait: ask again"))
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
            except Exception as error:  # noqa: BLE001 - who asked is told, and others wait
                reply = Reply(request=request.id, error=log_once(self._name, error))
            for id_ in self._alike(request):
                self._send(replace(reply, request=id_))

    def _alike(self, request: R) -> list[str]:
        def is_alike(entry: tuple[R, Frame]) -> bool:
            return bool(replace(entry[0], id=request.id) == request)

        with self._changed:
            waiting = self._waiting
            self._waiting = [entry for entry in waiting if not is_alike(entry)]
        return [entry[0].id for entry in waiting if is_alike(entry)]


class RequestDesk:
    """Hands each request to who answers it."""

    def __init__(
        self,
        send: Callable[[Reply], None],
        memory: MemoryWatch,
        frame: Frame,
        files: bool = True,
    ) -> None:
        """`send` is called from several threads. `frame` is the first one. Without `files` there
        is no audit log."""
        self._signals = SignalSender(send, memory, files)
        self.show(frame)
        self._responders: dict[type[AnsweredRequest], Responder[Any]] = {
            Probe: Responder("probe", partial(_probe, Prober()), send),
            Detail: Responder("detail", _detail, send),
            Stack: Responder("stack", _stack, send),
            Candidates: Responder("candidates", _candidates, send),
            Context: Responder("context", _context, send),
            Checks: Responder("checks", _checks, send),
            Liveness: Responder("liveness", partial(_liveness, UserNames()), send),
        }

    def show(self, frame: Frame) -> None:
        """Take another frame: requests are about the last one."""
        self._frame = frame
        self._signals.show(frame)

    def ask(self, request: AnsweredRequest) -> None:
        """Have a request answered, without waiting. By one thread."""
        if isinstance(request, Signal):
            self._signals.send(request)
        else:
            self._responders[type(request)].ask(request, self._frame)

    def finish(self) -> None:
        """Before the end: have the signals sent that were asked for, and noted."""
        self._signals.finish()


def _probe(prober: Prober, probe: Probe, frame: Frame) -> Reply:
    inventory = Inventory(frame_devices(frame), frame.driver_version)
    answers = (
        prober.ask(value, probe.order, inventory) for value in dict.fromkeys((probe.value, None))
    )
    return Reply(request=probe.id, probed=tuple(answers))


def _detail(detail: Detail, _: Frame) -> Reply:
    return Reply(request=detail.id, detail=read_detail(detail))


def _stack(stack: Stack, _: Frame) -> Reply:
    return Reply(request=stack.id, stack=read_stack(stack))


def _candidates(request: Candidates, frame: Frame) -> Reply:
    """UsageError for a user that this machine does not have."""
    uids = {name: uid_of(name) for name in request.users}
    candidates = read_candidates(frame, request.ancestors)
    return Reply(request=request.id, candidates=candidates, uids=uids)


def _context(request: Context, _: Frame) -> Reply:
    context = read_whole_context(request.pid)
    gone = context.environ.missing == "gone"
    return Reply(request=request.id, context=None if gone else context)


def _liveness(users: UserNames, request: Liveness, _: Frame) -> Reply:
    liveness = tuple(read_liveness(process, users) for process in request.processes)
    return Reply(request=request.id, liveness=liveness)


def _checks(request: Checks, frame: Frame) -> Reply:
    """UsageError where there is no such Python."""
    from gputop.agent.doctor.installation import installation_checks
    from gputop.agent.doctor.python_env import find_interpreter, python_checks
    from gputop.agent.doctor.toolkits import toolkit_checks

    interpreter = request.python and find_interpreter(request.python)
    checks = [*installation_checks(frame), *toolkit_checks(request.cuda_version)]
    if interpreter:
        checks += python_checks(interpreter, request.cuda_version, request.capabilities)
    return Reply(request=request.id, checks=tuple(checks))
