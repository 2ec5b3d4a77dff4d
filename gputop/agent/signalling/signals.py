"""Sends the signals that are asked for, and watches what becomes of the processes.

All of it is done in one thread, which waits for the ends of processes through their pidfds: the
frames never wait for it. They carry the verdicts, and are what shows that memory came back.
"""

from __future__ import annotations

import math
import os
import queue
import select
import signal
import threading
import time
from collections.abc import Callable

import msgspec

from gputop.agent.process.processes import UserNames
from gputop.agent.process.walk import every_process
from gputop.agent.signalling.audit import Audit
from gputop.agent.signalling.case import KEPT, LOOK, Case
from gputop.agent.signalling.cautions import caution_of, cautious
from gputop.agent.signalling.pinned import NotSentError, Pinned, target_of
from gputop.agent.signalling.returned import held_by, returned
from gputop.model.frame import Frame
from gputop.model.protocol import Signal
from gputop.model.signals import (
    MOST_TARGETS,
    Target,
    Verdict,
    ends_processes,
    signal_name,
)
from gputop.model.text import printable

_MEMORY_PATIENCE = 3.0
_PARENT_PATIENCE = 1.0
"""Seconds after which a process that nobody waits for is called a zombie."""
_REMEMBERED = 1000
"""Orders whose ids are known."""


class Signals:
    """Does orders, one after the other; `changed` is called when a frame shall tell more."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._frame: Frame | None = None
        self._orders: queue.SimpleQueue[Signal] = queue.SimpleQueue()
        self._known: dict[str, None] = {}
        self._cases: list[Case] = []
        self._verdicts: tuple[Verdict, ...] = ()
        self._vouched: set[tuple[int, float | None]] = set()
        self._next_frame = 0.0
        self._audit = Audit()
        self._users = UserNames()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread: threading.Thread | None = None

    def with_verdicts(self, frame: Frame) -> Frame:
        """The frame with what became of the signals."""
        self._frame = frame
        if self._thread is None:
            return frame
        os.eventfd_write(self._wake, 1)
        return msgspec.structs.replace(frame, verdicts=self._verdicts)

    def take(self, order: Signal) -> None:
        """Do it, at once and without waiting; nothing if it was taken before. By one thread."""
        self._orders.put(order)
        os.eventfd_write(self._wake, 1)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="signals", daemon=True)
            self._thread.start()

    # In the thread

    def _run(self) -> None:
        while True:
            self._wait()
            while not self._orders.empty():
                self._begin(self._orders.get())
            for case in self._cases:
                self._look(case)
            self._note()
            self._forget()
            self._tell()

    def _wait(self) -> None:
        """Until an order, a frame, the end of a process, or that it is time to look."""
        poll, now = select.poll(), time.monotonic()
        poll.register(self._wake, select.POLLIN)
        due = []
        for case in self._cases:
            if case.ended is None and case.process is not None:
                poll.register(case.process.fd, select.POLLIN)
            due.append(case.due(now))
        wait = min(due, default=math.inf) - now
        poll.poll(None if not due else max(0.0, min(wait, 3600.0)) * 1000 + 1)
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            return

    def _begin(self, order: Signal) -> None:
        """Everybody is held before the first is signalled: what that does to the others is seen."""
        if order.order in self._known:
            return
        self._known[order.order] = None
        for oldest in list(self._known)[:-_REMEMBERED]:
            del self._known[oldest]
        targets = {(one.pid, one.start_time): one for one in order.targets[:MOST_TARGETS]}
        cases = [self._case(order, target) for target in targets.values()]
        if order.descendants:
            cases += self._below(order, cases)
        for case in cases:
            if case.process is not None:
                self._send(case, case.process)
        self._cases += cases

    def _case(self, order: Signal, target: Target) -> Case:
        """Hold a process, if it is the one."""
        rows = self._frame.processes if self._frame else ()
        key = (target.pid, target.start_time)
        commands = (row.command for row in rows if (row.pid, row.start_time) == key)
        case = Case(order, target, next(commands, None))
        try:
            if order.number not in (0, *signal.valid_signals()):
                raise NotSentError("refused", f"{order.number} is no signal")
            case.process = process = Pinned(target, self._vouched)
        except NotSentError as reason:
            case.say(reason.outcome, str(reason))
            return case
        uid = process.uid
        if uid is not None:
            self._users.prepare([uid])
        case.held = held_by(target, self._frame)
        case.verdict = msgspec.structs.replace(
            case.verdict,
            command=case.verdict.command or process.command,
            user=None if uid is None else self._users.name(uid),
            parent=process.parent,
            caution=caution_of(process),
        )
        return case

    def _below(self, order: Signal, roots: list[Case]) -> list[Case]:
        """The descendants, a parent before its children: a launcher that is told first starts no
        new ones for those that end. Each is held, and then its parent is still what it was. What
        started gputop itself is alone: it may have started all that is here."""
        children: dict[int, list[int]] = {}
        for pid, one in every_process().items():
            children.setdefault(one.parent, []).append(pid)
        found, seen = list(roots), {case.target.pid for case in roots}
        for above in found:
            whole = above.process is None or above.verdict.caution in ("first", "ancestor")
            for pid in () if whole else children.get(above.target.pid, ()):
                target = target_of(pid)
                if target is None or pid in seen or len(found) >= MOST_TARGETS:
                    continue
                seen.add(pid)
                case = self._child(order, target, above)
                if case is not None:
                    found.append(case)
        return found[len(roots) :]

    def _child(self, order: Signal, target: Target, above: Case) -> Case | None:
        """A child of a process that is held; it need not hold a GPU itself."""
        assert above.process is not None
        key = (target.pid, target.start_time)
        self._vouched.add(key)
        case = self._case(order, msgspec.structs.replace(target, forced=above.target.forced))
        if case.process and case.process.parent == above.target.pid and not above.process.ended:
            return case
        self._vouched.discard(key)
        case.close()
        return None

    def _send(self, case: Case, process: Pinned) -> None:
        verdict = case.verdict
        number, name = verdict.signal, signal_name(verdict.signal)
        try:
            if process.ended:
                raise process.not_sent_to_the_dead()
            process.send(0)
            if verdict.caution is not None and not case.target.forced and number != 0:
                raise NotSentError("refused", f"{cautious(verdict)}: not without a confirmation")
            process.send(number)
        except NotSentError as reason:
            case.say(reason.outcome, str(reason))
            case.close()
            return
        if number == 0:
            case.say("alive", cautious(verdict) or "it is there")
            case.close()
            return
        case.sent = time.monotonic()
        if not ends_processes(number):
            case.say("alive", f"{name} was sent, which does not end a process")
        elif case.grace == 0:
            case.say("alive", f"{name} was sent, and its end is not awaited")
        else:
            case.say("waiting", f"{name} was sent")

    def _look(self, case: Case) -> None:
        process, now = case.process, time.monotonic()
        if process is None or case.sent is None:
            return
        if case.ended is None and process.ended:
            case.ended = now
            case.say("waiting", "it has ended; its memory is awaited")
        if case.ended is not None:
            self._settle(case, process, now - case.ended)
        elif case.verdict.outcome == "waiting" and now >= case.sent + case.grace:
            case.say(*process.why_alive(case.verdict.signal))

    def _settle(self, case: Case, process: Pinned, since: float) -> None:
        """It has ended: has its memory come back, and has its parent taken notice?"""
        back, freed, words = returned(case.held, case.target, self._frame)
        reaped = process.reaped
        if (not back and since < _MEMORY_PATIENCE) or (not reaped and since < _PARENT_PATIENCE):
            return
        if reaped:
            name, seconds = signal_name(case.verdict.signal), case.verdict.seconds or 0.0
            after = f"{seconds:.1f} s after" if seconds >= 0.1 else "at once after"
            case.say("exited", f"ended {after} {name}{words}", freed=freed)
            case.close()
        elif case.verdict.outcome != "zombie":
            case.say("zombie", str(process.not_sent_to_the_dead()) + words, freed=freed)

    def _note(self) -> None:
        """In the audit log, every outcome that is new."""
        for case in self._cases:
            verdict = case.verdict
            if verdict.signal == 0 or case.noted == verdict.outcome:
                continue
            case.noted = verdict.outcome
            trouble = self._audit.write(verdict)
            if trouble is not None:
                case.say(verdict.outcome, f"{verdict.words} ({printable(trouble, 200)})")

    def _forget(self) -> None:
        settled = [case for case in self._cases if case.verdict.outcome != "waiting"]
        end = time.monotonic() - KEPT
        old = {case for case in settled if case.changed < end} | set(settled[:-MOST_TARGETS])
        for case in old:
            case.close()
        self._cases = [case for case in self._cases if case not in old]

    def _tell(self) -> None:
        """Have a frame made where there is news, or where one is needed to see memory."""
        before, self._verdicts = self._verdicts, tuple(case.verdict for case in self._cases)
        now = time.monotonic()
        waiting = (case for case in self._cases if case.verdict.outcome == "waiting")
        settling = any(case.ended is not None for case in waiting)
        news = set(self._verdicts) - set(before)
        if news or (settling and now >= self._next_frame):
            self._next_frame = now + LOOK
            self._changed()
