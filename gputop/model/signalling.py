"""A signal from the key to the verdicts: whom it is for, what stands against it, what became of it.

The processes are copied when the key is pressed. Frames tell later how they are; they never add
one, take one away or change the order.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence

from gputop.model.frame import Frame, ProcessKey
from gputop.model.meant import Identity, Meant, meant
from gputop.model.protocol import Signal
from gputop.model.signals import MOST_TARGETS, Target, Verdict, ends_processes, signal_name

GRACE = 10.0
"""Seconds in which a process may end before SIGKILL is offered."""
WORD = "kill"
"""What has to be typed for processes that want a confirmation."""
UNKNOWN = "the agent ended: what became of these is not known"

Saying = tuple[str, str]
"""Words, and their role on the screen."""
_LIVES_ON = ("ignored", "uninterruptible")


class Signalling:
    """One use of the key: a check order, the order, and perhaps SIGKILL after it.

    Order ids are the asker's; none is given out twice, and after `lose` none at all.
    """

    def __init__(self, processes: Sequence[Meant], obstacle: str = "") -> None:
        """`obstacle`: why nothing can be sent, where that is known before."""
        self.number: int = signal.SIGTERM
        self.with_started = False
        """Whether it is for what the processes have started, too."""
        self.lost = False
        """The agent that was asked has ended."""
        self.checked = False
        self._processes = tuple(processes)
        self._started: tuple[Meant, ...] = ()
        self._orders: list[Signal] = []
        """The check, then what was sent."""
        self._checks: dict[Identity, Verdict] = {}
        self._became: dict[Identity, Verdict] = {}
        self._missing: set[Identity] = set()
        self._below: Mapping[int, int] = {}
        self._obstacle = obstacle
        if len(self._processes) >= MOST_TARGETS:
            self._obstacle = _too_many(len(self._processes))

    @property
    def processes(self) -> tuple[Meant, ...]:
        """Whom it is for."""
        return self._processes + (self._started if self.with_started else ())

    @property
    def name(self) -> str:
        """Of the signal of now."""
        return signal_name(self._orders[-1].number if self.sent else self.number)

    @property
    def sent(self) -> bool:
        """Whether a signal was sent."""
        return len(self._orders) > 1

    @property
    def cautious(self) -> bool:
        """Whether one of them wants the typed word."""
        checks = (self._checks.get(one.identity) for one in self.processes)
        return any(check is not None and _wants_word(check) for check in checks)

    @property
    def ready(self) -> bool:
        """Whether it can be sent."""
        there = (self._checks.get(one.identity) for one in self.processes)
        some = any(check is not None and check.outcome == "alive" for check in there)
        return some and not (self.sent or self.lost or self.obstacle)

    @property
    def obstacle(self) -> str:
        """Why it cannot be sent, besides what is said of each process."""
        many = len(self.processes) >= MOST_TARGETS
        return self._obstacle or (_too_many(len(self.processes)) if many else "")

    @property
    def waiting(self) -> int:
        """How many processes the last order awaits."""
        if not self.sent or self.lost:
            return 0
        order = self._orders[-1]
        return sum(self._of(order, target) in (None, "waiting") for target in order.targets)

    @property
    def living(self) -> tuple[Meant, ...]:
        """Those that SIGKILL can be offered for."""
        if not self.sent or self.waiting or self.lost:
            return ()
        order = self._orders[-1]
        if order.number == signal.SIGKILL or not ends_processes(order.number):
            return ()
        outcomes = {one.identity: self._became.get(one.identity) for one in self.processes}
        return tuple(
            one for one in self.processes
            if (verdict := outcomes[one.identity]) and verdict.outcome in _LIVES_ON
        )  # fmt: skip

    def check(self, order_id: str) -> Signal | None:
        """The order that sends nothing; None where there is nobody to ask about."""
        if self._obstacle or not self._processes or self._orders:
            return None
        targets = tuple(Target(*one.identity) for one in self._processes)
        return self._ordered(Signal(order_id, targets, 0, 0.0, descendants=True))

    def send(self, order_id: str, word: str) -> Signal | None:
        """The order that sends; None while it cannot be sent, or the typed word is missing."""
        confirmed = word.strip().lower() == WORD
        if not self.ready or (self.cautious and not confirmed):
            return None
        targets = tuple(self._target(one) for one in self.processes)
        return self._ordered(Signal(order_id, targets, self.number, GRACE))

    def kill(self, order_id: str) -> Signal | None:
        """SIGKILL to those that live on; what was confirmed is still."""
        targets = tuple(self._target(one) for one in self.living)
        return self._ordered(Signal(order_id, targets, signal.SIGKILL, GRACE)) if targets else None

    def take(self, frame: Frame) -> None:
        """What a frame tells of them."""
        if self.lost or not self._orders:
            return
        check = [one for one in frame.verdicts if one.order == self._orders[0].order]
        if check and not self.checked:
            self._take_check(frame, check)
        for order in self._orders[1:]:  # what became of the later one counts
            of = (one for one in frame.verdicts if one.order == order.order)
            self._became.update({(one.pid, one.start_time): one for one in of})
        there = {(one.pid, one.start_time) for one in frame.processes}
        self._missing = {one.identity for one in self.processes if one.held} - there

    def lose(self) -> bool:
        """The agent has ended; whether that is new."""
        is_new, self.lost = not self.lost and bool(self._orders), True
        return is_new

    def started(self, one: Meant) -> int:
        """How many processes it has started, and those in turn."""
        return self._below.get(one.pid, 0)

    def says(self, one: Meant) -> Saying:
        """What there is to say of one."""
        check = self._checks.get(one.identity)
        if self.sent:
            return self._became_of(one)
        if check is not None and (check.outcome != "alive" or check.caution):
            wants = f"; type {WORD} to go on" if check.outcome == "alive" else ""
            return f"{check.words}{wants}", "alarm"
        if one.identity in self._missing:
            return "it has ended meanwhile, or left the GPUs", "notice"
        if one.state == "D":
            return "it waits in the kernel (state D), and takes a signal only afterwards", "notice"
        return "", "text"

    def note(self, left: float = 0.0) -> Saying:
        """What there is to say of all; `left`: seconds of the time that they may take."""
        count, name = len(self.processes), self.name
        if self.lost and self.sent:
            settled = all(self._settled(one) for one in self.processes)
            return (UNKNOWN, "alarm") if not settled else ("that is all", "text")
        if self.lost:
            return "the agent ended, and nothing was sent: close this, and begin again", "alarm"
        if self.sent:
            return self._note_of_sent(left)
        if self.obstacle or not count:
            return self.obstacle or "no process is meant", "notice"
        if not self.checked:
            return "asking whether they may be signalled", "quiet"
        if not self.ready:
            return f"nothing here takes {name}", "notice"
        if self.cautious:
            return f"some want a confirmation: Tab, type {WORD}, then Tab goes to Send", "notice"
        many = len(self._started) if self.with_started else None
        started = "" if many is None else f"with {_count(many)} that they started; "
        return f"{started}Tab goes to Send", "quiet"

    def _note_of_sent(self, left: float) -> Saying:
        if self.waiting:
            return (
                f"{self.name} was sent; {_count(self.waiting)} may take {left:.0f} s to end",
                "text",
            )
        if self.living:
            lives = "lives" if len(self.living) == 1 else "live"
            return f"{_count(len(self.living))} {lives} on: SIGKILL leaves no time to save", "alarm"
        return "that is all", "text"

    def _became_of(self, one: Meant) -> Saying:
        verdict = self._became.get(one.identity)
        if self.lost and not self._settled(one):
            return "what became of it is not known", "alarm"
        if verdict is None:
            return "its signal is on the way", "quiet"
        roles = {"exited": "good", "gone": "good", "waiting": "text", "alive": "text"}
        return verdict.words, roles.get(verdict.outcome, "alarm")

    def _settled(self, one: Meant) -> bool:
        verdict = self._became.get(one.identity)
        if verdict is None or verdict.outcome == "waiting":
            return False
        last = self._orders[-1]
        of_last = {(target.pid, target.start_time) for target in last.targets}
        return verdict.order == last.order or one.identity not in of_last

    def _of(self, order: Signal, target: Target) -> str | None:
        verdict = self._became.get((target.pid, target.start_time))
        return verdict.outcome if verdict is not None and verdict.order == order.order else None

    def _ordered(self, order: Signal) -> Signal:
        self._orders.append(order)
        return order

    def _target(self, one: Meant) -> Target:
        check = self._checks.get(one.identity)
        return Target(*one.identity, forced=check is not None and _wants_word(check))

    def _take_check(self, frame: Frame, check: Sequence[Verdict]) -> None:
        self.checked = True
        self._checks = {(one.pid, one.start_time): one for one in check}
        known = {one.identity for one in self._processes}
        keys = [ProcessKey(frame.host.boot_id, one.pid, one.start_time) for one in check]
        on_gpus = {one.identity: one for one in meant(frame, keys)}
        self._started = tuple(
            on_gpus.get(identity) or _plain(one, frame.time)
            for identity, one in self._checks.items() if identity not in known
        )  # fmt: skip
        self._below = _below({one.pid: one.parent for one in check})


def _plain(verdict: Verdict, now: float) -> Meant:
    """A process that holds no GPU."""
    start = verdict.start_time
    age = None if start is None else max(0.0, now - start)
    return Meant(verdict.pid, start, verdict.user, verdict.command, age)


def _wants_word(check: Verdict) -> bool:
    return check.outcome == "alive" and check.caution is not None


def _below(parents: Mapping[int, int | None]) -> dict[int, int]:
    """How many processes stand under each."""
    below = dict.fromkeys(parents, 0)
    for pid in parents:
        above, seen = parents[pid], {pid}
        while above is not None and above in parents and above not in seen:
            below[above] += 1
            seen.add(above)
            above = parents[above]
    return below


def _count(number: int) -> str:
    return f"{number} process{'es' * (number != 1)}"


def _too_many(number: int) -> str:
    return f"these are {number} processes: choose fewer than {MOST_TARGETS} at a time"
