"""Sends the requested signals, and watches what becomes of the processes.

One thread does all of it: it waits for processes to end through their pidfds, asks GPUs whether
memory has come back, and replies at once. It does not wait for frames, nor frames for it.
"""

from __future__ import annotations

import math
import os
import queue
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec

from gputop.agent.gpu.memory_watch import GpuMemory, MemoryWatch
from gputop.agent.process.holding import has_nodes, holds_gpu
from gputop.agent.process.stat import every_process
from gputop.agent.process.users import UserNames
from gputop.agent.signals.attempt import KEPT, Attempt, freed_memory, held_by
from gputop.agent.signals.audit import TIMEOUT as AUDIT_TIMEOUT
from gputop.agent.signals.audit import Audit
from gputop.agent.signals.confirmations import caution_of, cautious
from gputop.agent.signals.handle import NotSentError, ProcessHandle, process_of
from gputop.model.machine.frame import Frame
from gputop.model.machine.grouped import grouped
from gputop.model.machine.process_id import ProcessId
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
"""Seconds after which an ended process that its parent has not reaped is called a zombie."""
_LOOK_SECONDS = 0.2
"""Seconds to search the open files of one process."""
_REMEMBERED = 1000
"""Ids of requests that are remembered, so that none is carried out twice."""


class SignalSender:
    """Carries out requests one after the other; each new verdict sends a Reply with all verdicts of
    its request."""

    def __init__(
        self, reply: Callable[[Reply], None], memory: MemoryWatch, frame: Frame, logs: bool = True
    ) -> None:
        """`reply` is called in the thread. `frame`: the first. `logs`: whether there is an audit
        log."""
        self._reply, self._memory, self._frame = reply, memory, frame
        self._requests: queue.SimpleQueue[Signal | threading.Event] = queue.SimpleQueue()
        self._known: deque[str] = deque(maxlen=_REMEMBERED)
        self._attempts: list[Attempt] = []
        self._verdicts: set[Verdict] = set()
        """Verdicts that have been sent."""
        self._vouched: set[ProcessId] = set()
        self._audit = Audit(logs)
        self._to_note: list[tuple[Attempt, Verdict]] = []
        self._users = UserNames()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread: threading.Thread | None = None

    def show(self, frame: Frame) -> None:
        """Take the last frame: it has the processes on GPUs and the memory that they hold."""
        self._frame = frame
        if self._thread is not None:
            self._wake_up()

    def send(self, request: Signal) -> None:
        """Start a request without waiting, unless it came before. Call it from one thread."""
        self._requests.put(request)
        self._wake_up()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="signals", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Send what was requested before the agent ends, and log it if that does not take long."""
        if self._thread not in (None, threading.current_thread()):
            done = threading.Event()
            self._requests.put(done)
            self._wake_up()
            done.wait(AUDIT_TIMEOUT)

    def _wake_up(self) -> None:
        os.eventfd_write(self._wake, 1)

    # In the thread

    def _run(self) -> None:
        while True:
            self._wait()
            done = []
            while not self._requests.empty():
                entry = self._requests.get()
                if isinstance(entry, Signal):
                    self._begin(entry)
                else:
                    done.append(entry)
            self._note()  # that it was sent, however soon it ends
            memory = self._memory_of_the_ended()
            for attempt in self._attempts:
                self._update(attempt, memory)
            self._note()
            self._write_notes()
            for event in done:
                event.set()
            self._tell()
            self._drop_settled()

    def _wait(self) -> None:
        poll, now = select.poll(), time.monotonic()
        poll.register(self._wake, select.POLLIN)
        due = []
        for attempt in self._attempts:
            if attempt.ended is None and attempt.process is not None:
                poll.register(attempt.process.fd, select.POLLIN)
            due.append(attempt.due(now))
        wait = min(due, default=math.inf) - now
        poll.poll(None if not due else max(0.0, min(wait, 3600.0)) * 1000 + 1)
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)

    def _begin(self, request: Signal) -> None:
        """Hold all processes before signalling the first: its effect on the others is then seen."""
        if request.id in self._known:
            return
        self._known.append(request.id)
        targets = {target.process: target for target in request.targets[:MOST_TARGETS]}
        attempts = [self._attempt(request, target) for target in targets.values()]
        if request.descendants:
            attempts += self._below(request, attempts)
        for attempt in attempts:
            if attempt.process is not None:
                self._send(attempt, attempt.process)
        self._attempts += attempts
        if not attempts:
            self._reply(Reply(request=request.id))

    def _attempt(self, request: Signal, target: Target) -> Attempt:
        rows, boot_id = self._frame.processes, self._frame.host.boot_id
        id_ = target.process
        listed = next((row for row in rows if row.id == id_), None)
        attempt = Attempt(request, target, None if listed is None else listed.command)
        attempt.listed = listed is not None
        is_known = id_.start_ticks is not None
        if request.descendants and is_known and all(row.pid != id_.pid for row in rows):
            self._vouched.add(id_)  # a launcher: its PID is from the user, not the driver
        try:
            if None not in (request.boot_id, boot_id) and request.boot_id != boot_id:
                raise NotSentError("identity_changed", _REBOOTED)
            if request.number not in (0, *signal.valid_signals()):
                raise NotSentError("refused", f"{request.number} is not a signal")
            attempt.process = process = ProcessHandle(id_, self._vouched)
        except NotSentError as reason:
            attempt.say(reason.outcome, str(reason))
            return attempt
        attempt.held = held_by(id_, self._frame)
        attempt.verdict = msgspec.structs.replace(
            attempt.verdict,
            command=attempt.verdict.command or process.command,
            user=self._users.name_now(process.uid),
            parent=process.parent,
            caution=caution_of(process),
        )
        return attempt

    def _below(self, request: Signal, roots: list[Attempt]) -> list[Attempt]:
        """Return the descendants, parents first: a launcher signalled first does not replace
        children that end. Each is held, and its parent is checked after that. Process 1 and the
        ancestors of gputop are left alone: they may have started everything here."""
        table = every_process()
        children = grouped(table, lambda pid: table[pid].parent)
        attempts, pids = list(roots), {attempt.target.process.pid for attempt in roots}
        for above in attempts:
            whole = above.process is None or above.verdict.caution in ("first", "ancestor")
            for pid in () if whole else children.get(above.target.process.pid, ()):
                child = process_of(pid)
                if child is None or pid in pids or len(attempts) >= MOST_TARGETS:
                    continue
                pids.add(pid)
                attempt = self._child(request, child, above)
                if attempt is not None:
                    attempts.append(attempt)
        return attempts[len(roots) :]

    def _child(self, request: Signal, child: ProcessId, above: Attempt) -> Attempt | None:
        """Return an attempt at a child of a held process; the child need not hold a GPU."""
        assert above.process is not None
        self._vouched.add(child)
        attempt = self._attempt(request, Target(child, above.target.forced))
        parent = attempt.process and attempt.process.parent
        if parent == above.target.process.pid and not above.process.ended:
            return attempt
        self._vouched.discard(child)
        attempt.close()
        return None

    def _send(self, attempt: Attempt, process: ProcessHandle) -> None:
        caution, has_device = _caution(attempt, process)  # it may have entered a container since
        attempt.verdict = verdict = msgspec.structs.replace(attempt.verdict, caution=caution)
        number, name = verdict.signal, signal_name(verdict.signal)
        try:
            if process.ended:
                raise process.already_ended_error()
            process.send(0)
            if has_device is False:
                raise NotSentError("refused", _WITHOUT_DEVICE)
            if verdict.caution is not None and not attempt.target.forced and number != 0:
                raise NotSentError("refused", f"{cautious(verdict)}: this needs a confirmation")
            discarded = number != 0 and process.discards(number)
            process.send(number)
            discarded = discarded and process.discards(number)
        except NotSentError as reason:
            attempt.say(reason.outcome, str(reason))
            attempt.close()
            return
        if number == 0:
            words = cautious(verdict) or "it is running"
            attempt.say("alive", words, ignored=process.ignored)
            attempt.close()
            return
        attempt.sent = time.monotonic()
        attempt.may_end = ends_processes(number) and not discarded
        if attempt.may_end:
            self._supersede(attempt)
        if not ends_processes(number):
            attempt.say("alive", f"{name} was sent, which does not end a process")
        elif discarded:
            attempt.say("ignored", f"it ignores {name}; SIGKILL ends it")
        elif attempt.grace == 0:
            attempt.say("alive", f"{name} was sent, and gputop does not wait for its end")
        else:
            attempt.say("waiting", f"{name} was sent")

    def _supersede(self, later: Attempt) -> None:
        """Give up earlier attempts at a process: its end counts for the last one."""
        for attempt in self._attempts:
            is_same = attempt.target.process == later.target.process
            if attempt.process is not None and is_same:
                attempt.give_up(later.verdict.signal)

    def _memory_of_the_ended(self) -> dict[str, GpuMemory]:
        """Notice the processes that have ended; return the memory of the GPUs that they used."""
        for attempt in self._attempts:
            is_watched = attempt.sent is not None and attempt.ended is None
            if is_watched and attempt.process is not None and attempt.process.ended:
                attempt.end()
        ended = [attempt for attempt in self._attempts if attempt.ended is not None]
        waiting = [attempt for attempt in ended if attempt.verdict.outcome == "waiting"]
        uuids = {held.uuid for attempt in waiting for held in attempt.held}
        return self._memory.read(uuids) if uuids else {}

    def _update(self, attempt: Attempt, memory: Mapping[str, GpuMemory]) -> None:
        process, now = attempt.process, time.monotonic()
        if process is None or attempt.sent is None:
            return
        if attempt.ended is not None:
            if attempt.verdict.outcome == "waiting":
                fresh = {
                    uuid: sample for uuid, sample in memory.items() if sample.asked >= attempt.ended
                }
                attempt.freed = freed_memory(attempt.held, attempt.target.process.pid, fresh)
            self._settle(attempt, process, now - attempt.ended)
        elif attempt.verdict.outcome == "waiting" and now >= attempt.sent + attempt.grace:
            attempt.say(*process.why_alive(attempt.verdict.signal))

    def _settle(self, attempt: Attempt, process: ProcessHandle, since: float) -> None:
        """Settle an ended process once its memory is back and it is reaped, or after a timeout."""
        (back, freed, words), reaped = attempt.freed, process.reaped
        if (not back and since < _MEMORY_TIMEOUT) or (not reaped and since < _PARENT_TIMEOUT):
            return
        if reaped:
            name, seconds = signal_name(attempt.verdict.signal), attempt.verdict.seconds or 0.0
            after = f"{seconds:.1f} s after" if seconds >= 0.1 else "at once after"
            attempt.say("exited", f"ended {after} {name}{words}", freed=freed)
            attempt.close()
        elif attempt.verdict.outcome != "zombie":
            attempt.say("zombie", str(process.already_ended_error()) + words, freed=freed)

    def _note(self) -> None:
        for attempt in self._attempts:
            verdict = attempt.verdict
            if verdict.signal != 0 and attempt.noted != verdict.outcome:
                attempt.noted = verdict.outcome
                self._to_note.append((attempt, verdict))

    def _write_notes(self) -> None:
        """Write to the audit log what was noted, and say in the verdicts if that fails."""
        if not self._to_note:
            return
        trouble = self._audit.note(verdict for _, verdict in self._to_note)
        for attempt, _ in self._to_note if trouble else ():
            attempt.verdict = msgspec.structs.replace(attempt.verdict, audit_error=trouble)
        self._to_note.clear()

    def _drop_settled(self) -> None:
        verdicts = [attempt.verdict for attempt in self._attempts]
        open_ = {verdict.request_id for verdict in verdicts if verdict.outcome == "waiting"}
        settled = [attempt for attempt in self._attempts if attempt.verdict.request_id not in open_]
        end = time.monotonic() - KEPT
        old = {attempt for attempt in settled if attempt.changed < end}
        old |= set(settled[:-MOST_TARGETS])
        for attempt in old:
            attempt.close()
        self._attempts = [attempt for attempt in self._attempts if attempt not in old]

    def _tell(self) -> None:
        verdicts = [attempt.verdict for attempt in self._attempts]
        new = (verdict for verdict in verdicts if verdict not in self._verdicts)
        changed = dict.fromkeys(verdict.request_id for verdict in new)
        self._verdicts = set(verdicts)
        for request_id in changed:
            current = tuple(verdict for verdict in verdicts if verdict.request_id == request_id)
            is_done = all(verdict.outcome != "waiting" for verdict in current)
            self._reply(Reply(request=request_id, done=is_done, verdicts=current))


def _caution(attempt: Attempt, process: ProcessHandle) -> tuple[Caution | None, bool | None]:
    """Return what needs a confirmation, and whether a listed process has a GPU open, if known: the
    driver may list a process that has ended, and its PID may have been reused."""
    caution = caution_of(process)
    if not attempt.listed or not has_nodes():
        return caution, None
    has_device = holds_gpu(process.pid, _LOOK_SECONDS)
    return caution or ("unreadable" if has_device is None else None), has_device


_REBOOTED = "the machine has been restarted since the process was seen; nothing was sent"
_WITHOUT_DEVICE = (
    "a GPU lists this PID, but the process that has it now has no GPU open (/dev/nvidiaN): it is "
    "another one; nothing was sent"
)
