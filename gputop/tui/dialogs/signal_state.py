"""A signal from the key to the verdicts, in states and in words.

The processes are copied when the key is pressed. Later frames say how these processes are, and
never add, remove or reorder any.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from gputop.model.machine.frame import Frame, ProcessKey
from gputop.model.machine.process_id import ProcessId
from gputop.model.machine.signals import (
    MOST_TARGETS,
    Target,
    Verdict,
    ends_processes,
    signal_name,
    signal_number,
)
from gputop.model.machine.text import counted
from gputop.model.processes.target import SignalTarget, signal_targets
from gputop.model.processes.views import ViewRow
from gputop.protocol.messages import Reply, Signal
from gputop.sources.source import Moment

GRACE = 10.0
"""Seconds in which a process may end before SIGKILL is offered."""
WORD = "kill"
"""The word to type for several processes, or for one that needs a confirmation."""
UNKNOWN = "the agent ended: the outcome of these is unknown"
NO_TARGET = "no process is selected: use the arrow keys, or tag some with Space"
ALL_ENDED = "the tagged processes have ended; Esc clears the tags"
TARGET_GONE = "it has ended, or left the GPUs"
NO_PROCESS = "this line is memory that no visible process holds: there is nothing to signal"
READ_ONLY = "read only: F9 sends no signal"
NOT_NOW: dict[Moment, str] = {
    "past": "this is the past: return to now first (Esc on the main screen)",
    "replay": "a replay shows the past: there is nothing to signal",
}

StyledText = tuple[str, str]
"""Words, and their role on the screen."""
_LIVES_ON = {"ignored": "ignored", "uninterruptible": "not taken, it waited in the kernel"}
"""Outcomes after which SIGKILL is offered, and what is said of the first signal after SIGKILL."""
_NOT_SENT = ("not_permitted", "identity_changed", "gone", "unknown", "other_namespace", "refused")


def why_none(row: ViewRow | None) -> str:
    """Return why there is no process to signal, by the row under the cursor."""
    if row is None:
        return NO_TARGET
    if row.kind == "ended":
        return f"PID {row.row.process.pid} has ended: there is nothing to signal"
    return NO_PROCESS if row.kind == "unaccounted" else ALL_ENDED


class SignalDialogState:
    """One use of the key: a check, the request, and perhaps SIGKILL after it.

    The caller gives the ids. No request is returned twice, and none is sent after `lose`.
    """

    def __init__(
        self, processes: Sequence[SignalTarget], obstacle: str = "", frame: Frame | None = None
    ) -> None:
        """`obstacle`: why nothing can be sent, if that is known now; `frame`: the newest frame."""
        self.number: int = signal.SIGTERM
        self.with_started = False
        """Whether the signal is for the descendants of the processes, too."""
        self.is_aimed = True
        """Whether Enter sends to a single process: it was named itself, not by its GPU or by the
        beginning of a PID."""
        self.lost = False
        """Whether the agent that was asked has ended."""
        self._processes = tuple(processes)
        self._frame = frame
        self._boot_id = frame and frame.host.boot_id
        self._started: tuple[SignalTarget, ...] = ()
        self._requests: list[Signal] = []
        """The check, then the requests that were sent."""
        self._sent: dict[ProcessId, list[Signal]] = {}
        """The requests that were sent to each process."""
        self._typed = ""
        """Digits of the signal's number."""
        self._checks: dict[ProcessId, Verdict] = {}
        self._verdicts: dict[tuple[str, ProcessId], Verdict] = {}
        """What became of the processes, by the id of the request and the process."""
        self._error = obstacle
        """Why nothing can be sent; once something was, why the last request has no verdicts."""
        self._missing: set[ProcessId] = set()
        self._below: Mapping[int, int] = {}

    @property
    def processes(self) -> tuple[SignalTarget, ...]:
        return self._processes + (self._started if self.with_started else ())

    @property
    def host(self) -> str | None:
        """The name given with -H of the machine that they are on; None for this machine."""
        return None if self._frame is None else self._frame.host.requested_name

    @property
    def name(self) -> str:
        """The name of the signal that is chosen, or was sent last."""
        return signal_name(self._requests[-1].number if self.sent else self.number)

    @property
    def sent(self) -> bool:
        return len(self._requests) > 1

    @property
    def wants_word(self) -> bool:
        """Whether the word must be typed: for several processes, or for one with a caution."""
        checks = (self._checks.get(process.id) for process in self.processes)
        cautious = any(check is not None and _needs_word(check) for check in checks)
        return cautious or len(self.processes) > 1

    @property
    def ready(self) -> bool:
        checks = (self._checks.get(process.id) for process in self.processes)
        some_live = any(check is not None and check.outcome == "alive" for check in checks)
        return some_live and not (self.sent or self.lost or self.obstacle)

    @property
    def obstacle(self) -> str:
        """Why the signal cannot be sent to any of the processes; empty if it can."""
        count = len(self.processes)
        too_many = f"these are {count} processes: choose fewer than {MOST_TARGETS} at a time"
        return self._error or (too_many if count >= MOST_TARGETS else "")

    @property
    def waiting(self) -> int:
        """How many processes of the last request may still end."""
        if not self.sent or self.lost or self._error:
            return 0
        last = self._requests[-1]
        verdicts = (self._of(last, target.process) for target in last.targets)
        return sum(verdict is None or verdict.outcome == "waiting" for verdict in verdicts)

    @property
    def living(self) -> tuple[SignalTarget, ...]:
        """The processes that SIGKILL can be offered for."""
        if not self.sent or self.waiting or self.lost:
            return ()
        request = self._requests[-1]
        if request.number == signal.SIGKILL or not ends_processes(request.number):
            return ()
        return tuple(
            process for process in self.processes
            if (verdict := self._latest(process)) and verdict.outcome in _LIVES_ON
            and not verdict.ended
        )  # fmt: skip

    def choose(self, number: int) -> None:
        if not self.sent:
            self.number, self._typed = number, ""

    def type_digit(self, digit: str) -> None:
        """Choose a signal by its number, digit by digit: 9, or 1 and 5."""
        for typed in (self._typed + digit, digit):
            if (number := signal_number(typed)) is not None:
                self.choose(number)
                self._typed = typed
                return

    def check(self, request_id: str) -> Signal | None:
        """Return the check, a request that sends nothing; None if there is nothing to check."""
        if self.obstacle or not self._processes or self._requests:
            return None
        targets = tuple(Target(process.id) for process in self._processes)
        return self._recorded(Signal(request_id, targets, 0, 0.0, descendants=True))

    def send(self, request_id: str, word: str) -> Signal | None:
        """Return the request that sends; None while it cannot be sent or the word is missing."""
        confirmed = word.strip().lower() == WORD
        if not self.ready or (self.wants_word and not confirmed):
            return None
        targets = tuple(self._target(process) for process in self.processes)
        return self._recorded(Signal(request_id, targets, self.number, GRACE))

    def kill(self, request_id: str) -> Signal | None:
        """Return the SIGKILL request for those that live on; it needs no second confirmation."""
        targets = tuple(self._target(process) for process in self.living)
        request = Signal(request_id, targets, signal.SIGKILL, GRACE)
        return self._recorded(request) if targets else None

    def handle(self, frame: Frame) -> None:
        """Take in which of the processes are still on a GPU."""
        self._frame = frame
        if self.lost or not self._requests:
            return
        listed = {process.id for process in frame.processes}
        self._missing = {target.id for target in self.processes if target.held} - listed

    def handle_reply(self, reply: Reply) -> None:
        """Take in a reply to one of the requests."""
        first, last = self._requests[0].id, self._requests[-1].id
        if self.lost:
            return
        if reply.error is not None and reply.request == last:
            self._error = reply.error
        elif reply.request != first:
            for verdict in reply.verdicts:
                self._verdicts[reply.request, verdict.process] = verdict
        elif reply.verdicts and not self._checks:
            self._handle_check(reply.verdicts)

    def lose(self) -> bool:
        """Take in that the agent ended; return whether that is new."""
        is_new, self.lost = not self.lost and bool(self._requests), True
        return is_new

    def descendants(self, process: SignalTarget) -> int:
        """Return how many descendants a process has."""
        return self._below.get(process.id.pid, 0)

    def status_of(self, process: SignalTarget) -> Iterator[StyledText]:
        """Yield what is said of a process."""
        check = self._checks.get(process.id)
        if self.sent:
            yield from self._past(process)
            yield self._outcome(process)
        elif check is not None and (check.outcome != "alive" or check.caution):
            yield check.words, "alarm"
        elif process.id in self._missing:
            yield "it has ended meanwhile, or left the GPUs", "notice"
        elif process.state == "D":
            yield (
                "waiting in the kernel (state D): the signal takes effect when that call returns",
                "notice",
            )
        if not self.sent and check is not None and self.number in check.ignored:
            yield f"it ignores {self.name}: 9 chooses SIGKILL", "alarm"

    def note(self, left: float = 0.0, *, aimed: bool = False) -> StyledText:
        """Return what is said of all processes. `left`: the seconds in which they may still end;
        `aimed`: whether Enter sends."""
        count, name = len(self.processes), self.name
        if self.lost and self.sent:
            settled = all(self._settled(process) for process in self.processes)
            return (UNKNOWN, "alarm") if not settled else ("Done", "text")
        if self.lost:
            return "the agent ended, and nothing was sent: close this and start again", "alarm"
        if self.sent:
            return self._note_of_sent(left)
        if self.obstacle or not count:
            return self.obstacle or NO_TARGET, "notice"
        if not self._checks:
            return "checking whether they may be signalled", "quiet"
        if not self.ready:
            return f"none of these can be sent {name}", "notice"
        started = counted(len(self._started), "process")
        more = f"with {started} that they started; " if self.with_started else ""
        if self.wants_word:
            return f"{more}to confirm, type {WORD}: then Enter sends {name}", "notice"
        way = f"Enter sends {name}" if aimed else "Tab goes to Send"
        if self.number == signal.SIGKILL:
            return f"{way}: it leaves no time to save", "notice"
        return f"{way}; 9 chooses SIGKILL", "quiet"

    @property
    def audit_error(self) -> str:
        """Why a signal is not in the audit log; empty if all are."""
        return next(filter(None, (v.audit_error for v in self._verdicts.values())), "")

    def _note_of_sent(self, left: float) -> StyledText:
        if self._error:
            return self._error, "alarm"
        latest = [verdict for process in self.processes if (verdict := self._latest(process))]
        ending = sum(verdict.ended and verdict.outcome == "waiting" for verdict in latest)
        if self.waiting > ending:
            waiting = counted(self.waiting - ending, "process")
            return f"{self.name} was sent; {waiting} may take {left:.0f} s to end", "text"
        if ending:
            return "waiting for GPU memory to come back", "text"
        if self.living:
            are = "is" if len(self.living) == 1 else "are"
            count = counted(len(self.living), "process")
            return f"{count} {are} still running: SIGKILL leaves no time to save", "alarm"
        if all(verdict.outcome in _NOT_SENT for verdict in latest):
            return "nothing was sent", "notice"
        left_over = sum(map(_should_have_ended, latest))
        if left_over:
            have = "has" if left_over == 1 else "have"
            return f"{counted(left_over, 'process')} {have} not ended", "alarm"
        return "Done", "text"

    def _past(self, process: SignalTarget) -> Iterator[StyledText]:
        for request in self._sent.get(process.id, [])[:-1]:
            verdict = self._of(request, process.id)
            if verdict is not None and verdict.outcome in _LIVES_ON:
                yield f"{signal_name(request.number)}: {_LIVES_ON[verdict.outcome]}", "quiet"

    def _outcome(self, process: SignalTarget) -> StyledText:
        verdict = self._latest(process)
        if (self.lost or self._error) and not self._settled(process):
            return "its outcome is unknown", "alarm"
        if verdict is None:
            return "its signal is being sent", "quiet"
        roles = {"exited": "good", "gone": "good", "waiting": "text", "alive": "text"}
        ended = verdict.ended and verdict.outcome in _LIVES_ON
        return verdict.words, "good" if ended else roles.get(verdict.outcome, "alarm")

    def _settled(self, process: SignalTarget) -> bool:
        verdict = self._latest(process)
        return verdict is not None and verdict.outcome != "waiting"

    def _latest(self, process: SignalTarget) -> Verdict | None:
        requests = self._sent.get(process.id)
        return self._of(requests[-1], process.id) if requests else None

    def _of(self, request: Signal, process: ProcessId) -> Verdict | None:
        return self._verdicts.get((request.id, process))

    def _recorded(self, request: Signal) -> Signal:
        """Record a request, and return it for the boot that the machine was in at the key press."""
        request = replace(request, boot_id=self._boot_id)
        self._requests.append(request)
        for target in request.targets if self.sent else ():
            self._sent.setdefault(target.process, []).append(request)
        return request

    def _target(self, process: SignalTarget) -> Target:
        check = self._checks.get(process.id)
        return Target(process.id, forced=check is not None and _needs_word(check))

    def _handle_check(self, check: Sequence[Verdict]) -> None:
        self._checks = {verdict.process: verdict for verdict in check}
        chosen = {process.id for process in self._processes}
        frame, on_gpus = self._frame, {}
        if frame is not None:
            keys = [ProcessKey(frame.host.boot_id, process) for process in self._checks]
            on_gpus = {target.id: target for target in signal_targets(frame, keys)}
        self._started = tuple(
            on_gpus.get(id_) or _without_gpu(verdict, None if frame is None else frame.time)
            for id_, verdict in self._checks.items() if id_ not in chosen
        )  # fmt: skip
        self._below = _below({verdict.process.pid: verdict.parent for verdict in check})


def _without_gpu(verdict: Verdict, now: float | None) -> SignalTarget:
    start = verdict.start_time
    age = None if start is None or now is None else max(0.0, now - start)
    return SignalTarget(verdict.process, verdict.user, verdict.command, age)


def _should_have_ended(verdict: Verdict) -> bool:
    lives = verdict.outcome in ("alive", *_LIVES_ON) and not verdict.ended
    return lives and ends_processes(verdict.signal)


def _needs_word(check: Verdict) -> bool:
    return check.outcome == "alive" and check.caution is not None


def _below(parents: Mapping[int, int | None]) -> dict[int, int]:
    below = dict.fromkeys(parents, 0)
    for pid in parents:
        above, visited = parents[pid], {pid}
        while above is not None and above in parents and above not in visited:
            below[above] += 1
            visited.add(above)
            above = parents[above]
    return below
