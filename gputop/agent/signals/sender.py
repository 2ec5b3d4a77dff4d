"""Sends the signals that are asked for, and watches what becomes of the processes.

All of it is done in one thread, which waits for the ends of processes through their pidfds, asks
GPUs whether memory has come back, and replies at once: no frame waits for it, and it for none.
"""

from __future__ import annotations

import math
import os
import queue
import select
import signal
import threading
import time
from collections.abc import Callable, Mapping

import msgspec

from gputop.agent.gpu.memory_watch import GpuMemory, MemoryWatch
from gputop.agent.host import read_file
from gputop.agent.process.holding import holds_gpu
from gputop.agent.process.stat import every_process
from gputop.agent.process.users import UserNames
from gputop.agent.signals.attempt import KEPT, Attempt
from gputop.agent.signals.audit import TIMEOUT as AUDIT_TIMEOUT
from gputop.agent.signals.audit import Audit
from gputop.agent.signals.confirmations import caution_of, cautious
from gputop.agent.signals.freed_memory import freed_memory, held_by
from gputop.agent.signals.handle import NotSentError, ProcessHandle, target_of
from gputop.agent.signals.ownership import has_devices
from gputop.model.machine.frame import Frame
from gputop.model.machine.signals import (
    MOST_TARGETS,
    Caution,
    Target,
    Verdict,
    ends_processes,
    signal_name,
)
from gputop.protocol.messages import Reply, Signal

_MEMORY_TIMEOUT = 3.0
_PARENT_TIMEOUT = 1.0
"""Seconds after which a process that nobody waits for is called a zombie."""
_LOOK_SECONDS = 0.2
"""For what one process has open."""
_REMEMBERED = 1000
"""Orders whose ids are known."""


class SignalSender:
    """Does orders, one after the other; a Reply tells all verdicts of an order when one is new."""

    def __init__(
        self, reply: Callable[[Reply], None], memory: MemoryWatch, logs: bool = True
    ) -> None:
        """`reply` is called in the thread. `logs`: whether there is an audit log."""
        self._reply, self._memory = reply, memory
        self._frame: Frame | None = None
        self._orders: queue.SimpleQueue[Signal | threading.Event] = queue.SimpleQueue()
        self._known: dict[str, None] = {}
        self._cases: list[Attempt] = []
        self._verdicts: set[Verdict] = set()
        """Those that were told."""
        self._vouched: set[tuple[int, float | None]] = set()
        self._audit = Audit(self._wake_up, logs)
        self._users = UserNames()
        self._boot_id = read_file("/proc/sys/kernel/random/boot_id")
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread: threading.Thread | None = None

    def show(self, frame: Frame) -> None:
        """Take the last frame: it names who is on a GPU, and how much of it they hold."""
        self._frame = frame
        if self._thread is not None:
            self._wake_up()

    def send(self, order: Signal) -> None:
        """Do it, at once and without waiting; nothing if it was taken before. By one thread."""
        self._orders.put(order)
        self._wake_up()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="signals", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Before the end: what was ordered is sent, and noted if that does not take long."""
        if self._thread not in (None, threading.current_thread()):
            done = threading.Event()
            self._orders.put(done)
            self._wake_up()
            done.wait(AUDIT_TIMEOUT)
            self._audit.flush()

    def _wake_up(self) -> None:
        os.eventfd_write(self._wake, 1)

    # In the thread

    def _run(self) -> None:
        while True:
            self._wait()
            done = []
            while not self._orders.empty():
                order = self._orders.get()
                if isinstance(order, Signal):
                    self._begin(order)
                else:
                    done.append(order)
            self._note()  # that it was sent, however soon it ends
            memory = self._memory_of_the_ended()
            for case in self._cases:
                self._look(case, memory)
            self._note()
            for event in done:
                event.set()
            self._tell()
            self._forget()

    def _wait(self) -> None:
        """Wait for an order, a frame, the end of a process, or the time to look."""
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
        if order.id in self._known:
            return
        self._known[order.id] = None
        for oldest in list(self._known)[:-_REMEMBERED]:
            del self._known[oldest]
        targets = {
            (target.pid, target.start_time): target for target in order.targets[:MOST_TARGETS]
        }
        cases = [self._case(order, target) for target in targets.values()]
        if order.descendants:
            cases += self._below(order, cases)
        for case in cases:
            if case.process is not None:
                self._send(case, case.process)
        self._cases += cases
        if not cases:
            self._reply(Reply(request=order.id))

    def _case(self, order: Signal, target: Target) -> Attempt:
        """Hold a process, if it is the one."""
        rows = self._frame.processes if self._frame else ()
        key = (target.pid, target.start_time)
        commands = (row.command for row in rows if (row.pid, row.start_time) == key)
        case = Attempt(order, target, next(commands, None))
        if order.descendants and None not in key and all(row.pid != target.pid for row in rows):
            self._vouched.add(key)  # a launcher: its number is its user's, and not the driver's
        try:
            if order.number not in (0, *signal.valid_signals()):
                raise NotSentError("refused", f"{order.number} is not a signal")
            if order.boot_id not in (None, self._boot_id):
                raise NotSentError("gone", "the machine has been restarted since; nothing was sent")
            case.process = process = ProcessHandle(target, self._vouched)
            case.listed = any(key == (row.pid, row.start_time) for row in rows)
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
            user=self._users.name(uid),
            parent=process.parent,
            caution=_caution(case, process),
        )
        return case

    def _below(self, order: Signal, roots: list[Attempt]) -> list[Attempt]:
        """The descendants, a parent before its children: a launcher that is told first starts no
        new ones for those that end. Each is held, and then its parent is still what it was. What
        started gputop itself is alone: it may have started all that is here."""
        children: dict[int, list[int]] = {}
        for pid, stat in every_process().items():
            children.setdefault(stat.parent, []).append(pid)
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

    def _child(self, order: Signal, target: Target, above: Attempt) -> Attempt | None:
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

    def _send(self, case: Attempt, process: ProcessHandle) -> None:
        caution = _caution(case, process)  # it may have entered a container since
        case.verdict = verdict = msgspec.structs.replace(case.verdict, caution=caution)
        number, name = verdict.signal, signal_name(verdict.signal)
        try:
            if process.ended:
                raise process.not_sent_to_the_dead()
            process.send(0)
            if case.device is False:
                raise NotSentError("refused", _WITHOUT_DEVICE)
            if verdict.caution is not None and not case.target.forced and number != 0:
                raise NotSentError("refused", f"{cautious(verdict)}: not without a confirmation")
            discarded = number != 0 and process.discards(number)
            process.send(number)
            discarded = discarded and process.discards(number)
        except NotSentError as reason:
            case.say(reason.outcome, str(reason))
            case.close()
            return
        if number == 0:
            words = cautious(verdict) or "it is there"
            case.say("alive", words, ignored=process.ignored)
            case.close()
            return
        case.sent = time.monotonic()
        case.counts = ends_processes(number) and not discarded
        if case.counts:
            self._supersede(case)
        if not ends_processes(number):
            case.say("alive", f"{name} was sent, which does not end a process")
        elif discarded:
            case.say("ignored", f"it ignores {name}; SIGKILL ends it")
        elif case.grace == 0:
            case.say("alive", f"{name} was sent, and its end is not awaited")
        else:
            case.say("waiting", f"{name} was sent")

    def _supersede(self, later: Attempt) -> None:
        """Let go of earlier attempts at a process: its end is that of the last one."""
        who = later.target.pid, later.target.start_time
        for case in self._cases:
            if case.process is not None and (case.target.pid, case.target.start_time) == who:
                case.yield_to(later.verdict.signal)

    def _memory_of_the_ended(self) -> dict[str, GpuMemory]:
        """Notice who has ended, and ask the GPUs that they have held memory of."""
        for case in self._cases:
            if case.process is None or case.sent is None or case.ended is not None:
                continue
            if case.process.ended:
                case.end()
        waiting = [case for case in self._cases if case.verdict.outcome == "waiting"]
        uuids = {held.uuid for case in waiting if case.ended is not None for held in case.held}
        return self._memory.look(uuids) if uuids else {}

    def _look(self, case: Attempt, memory: Mapping[str, GpuMemory]) -> None:
        process, now = case.process, time.monotonic()
        if process is None or case.sent is None:
            return
        if case.ended is not None:
            if case.verdict.outcome == "waiting":
                fresh = {uuid: told for uuid, told in memory.items() if told.asked >= case.ended}
                case.freed = freed_memory(case.held, case.target, fresh)
            self._settle(case, process, now - case.ended)
        elif case.verdict.outcome == "waiting" and now >= case.sent + case.grace:
            case.say(*process.why_alive(case.verdict.signal))

    def _settle(self, case: Attempt, process: ProcessHandle, since: float) -> None:
        """It has ended: has its memory come back, and has its parent taken notice?"""
        (back, freed, words), reaped = case.freed, process.reaped
        if (not back and since < _MEMORY_TIMEOUT) or (not reaped and since < _PARENT_TIMEOUT):
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
            if verdict.signal != 0 and case.noted != verdict.outcome:
                case.noted = verdict.outcome
                case.notes.append(self._audit.note(verdict))
            case.look_at_notes()

    def _forget(self) -> None:
        """Those of an order that is done."""
        open_ = {case.verdict.order for case in self._cases if _is_open(case.verdict)}
        settled = [case for case in self._cases if case.verdict.order not in open_]
        end = time.monotonic() - KEPT
        old = {case for case in settled if case.changed < end} | set(settled[:-MOST_TARGETS])
        for case in old:
            case.close()
        self._cases = [case for case in self._cases if case not in old]

    def _tell(self) -> None:
        """Reply to each order of which a verdict is new."""
        verdicts = [case.verdict for case in self._cases]
        changed = {verdict.order: None for verdict in verdicts if verdict not in self._verdicts}
        self._verdicts = set(verdicts)
        for order in changed:
            told = tuple(verdict for verdict in verdicts if verdict.order == order)
            self._reply(Reply(request=order, done=not any(map(_is_open, told)), verdicts=told))


def _is_open(verdict: Verdict) -> bool:
    """Whether there is more to come; the audit log has a second at the most."""
    return verdict.outcome == "waiting" or verdict.noting


def _caution(case: Attempt, process: ProcessHandle) -> Caution | None:
    """What has to be confirmed, and whether one that a GPU names has a GPU open: its driver may
    name one that has ended, whose number is another's by now."""
    caution = caution_of(process)
    if not case.listed or not has_devices():
        return caution
    case.device = holds_gpu(process.pid, _LOOK_SECONDS)
    return caution or ("unreadable" if case.device is None else None)


_WITHOUT_DEVICE = (
    "a GPU lists this PID, but the process that has it now has no GPU open (/dev/nvidiaN): it is "
    "another one; nothing was sent"
)
