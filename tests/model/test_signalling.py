"""What the signal dialog knows: whom it is for, when it sends, what it says."""

from __future__ import annotations

import random
import signal
from typing import Any

import pytest

from gputop.model.frame import Frame, ProcessKey
from gputop.model.meant import Meant, meant, own_on
from gputop.model.protocol import Signal
from gputop.model.signalling import UNKNOWN, Signalling
from gputop.model.signals import MOST_TARGETS, Verdict
from gputop.model.underway import UnderWay
from tests.builders import GIB, frame, gpu, process

ALICE = Meant(10, 1000.0, "alice", "python train.py", held=(("0", GIB),))
BOB = Meant(20, 1000.0, "bob", "python eval.py", held=(("1", GIB),))


def verdict(order: Signal | str, pid: int, outcome: Any = "alive", **more: Any) -> Verdict:
    id_ = order if isinstance(order, str) else order.order
    usual = {"start_time": 1000.0, "signal": 0, "words": f"{outcome} it is"}
    return Verdict(order=id_, pid=pid, outcome=outcome, **{**usual, **more})


def told(*verdicts: Verdict, pids: tuple[int, ...] = (10, 20)) -> Frame:
    there = frame((gpu(0), gpu(1)), [process(pid) for pid in pids])
    return Frame(host=there.host, time=2000.0, gpus=there.gpus, processes=there.processes,
                 verdicts=verdicts)  # fmt: skip


def checked(*processes: Meant, **more: Any) -> Signalling:
    state = Signalling(processes)
    state.check("check")
    state.take(told(*(verdict("check", one.pid, **more) for one in processes)))
    return state


def targets(order: Signal | None) -> list[int]:
    return [] if order is None else [one.pid for one in order.targets]


def test_meant_are_each_once_in_their_order_with_all_that_they_hold() -> None:
    here = frame(
        (gpu(0), gpu(1)),
        [process(20, 1, user="bob"), process(10, 0, gpu_memory=GIB), process(10, 1, gpu_memory=2)],
    )
    keys = [ProcessKey("boot", pid, 1000.0) for pid in (10, 20, 10, 99)]
    found = meant(here, keys)
    assert [one.pid for one in found] == [10, 20]
    assert found[0].holds() == "1.00G on GPU 0, 2 on GPU 1"
    assert found[0].age == 1000.0
    assert own_on(here, "GPU-1", "bob") == [ProcessKey("boot", 20, 1000.0)]
    assert own_on(here, "GPU-1", None) == own_on(here, "GPU-0", "bob") == []


def test_ones_own_on_a_mig_device() -> None:
    parts = [
        process(10 * gi + ci, gpu_instance=gi, compute_instance=ci)
        for gi in (1, 2)
        for ci in (0, 1)
    ]
    here = frame((gpu(0),), [*parts, process(30)])
    assert own_on(here, "GPU-0", "alice", (2, 1)) == [ProcessKey("boot", 21, 1000.0)]
    assert len(own_on(here, "GPU-0", "alice")) == 5


def test_nothing_is_sent_before_the_agent_was_asked_and_never_twice() -> None:
    state = Signalling((ALICE, BOB))
    assert state.send("early", "kill") is None
    check = state.check("check")
    assert check is not None
    assert (targets(check), check.number, check.descendants) == ([10, 20], 0, True)
    assert state.check("again") is None
    state.take(told(verdict("another", 10), verdict("another", 20)))
    assert state.send("early", "kill") is None
    state.take(told(verdict("check", 10), verdict("check", 20)))
    assert targets(state.send("order", "")) == [10, 20]
    assert state.send("twice", "kill") is None
    assert state.kill("twice") is None


@pytest.mark.parametrize("caution", ["foreign", "first", "ancestor"])
def test_cautions_want_the_word(caution: str) -> None:
    state = checked(ALICE, BOB, caution=caution)
    assert state.cautious
    assert "type kill to go on" in state.says(ALICE)[0]
    for word in ("", "y", "kil", "killl"):
        assert state.send("order", word) is None
    order = state.send("order", " KILL ")
    assert order is not None
    assert all(one.forced for one in order.targets)


def test_what_cannot_be_signalled_is_said_and_not_sent() -> None:
    state = checked(ALICE, outcome="other_namespace")
    assert (state.ready, state.send("order", "kill")) == (False, None)
    assert state.says(ALICE) == ("other_namespace it is", "alarm")
    many = Signalling([ALICE._replace(pid=pid) for pid in range(MOST_TARGETS)])
    assert many.check("check") is None
    assert "choose fewer" in many.note()[0]
    assert Signalling((ALICE,), "the demo").check("check") is None
    assert Signalling(()).check("check") is None


def test_descendants_come_after_a_key_and_go_with_it() -> None:
    state = Signalling((ALICE,))
    state.check("check")
    below = [verdict("check", 11, parent=10), verdict("check", 12, parent=11)]
    state.take(told(verdict("check", 10, parent=1), *below))
    assert (state.started(ALICE), [one.pid for one in state.processes]) == (2, [10])
    state.with_started = True
    assert [one.pid for one in state.processes] == [10, 11, 12]
    assert targets(state.send("order", "")) == [10, 11, 12]


def test_kill_is_offered_to_those_that_live_on_when_none_waits() -> None:
    state = checked(ALICE, BOB)
    order = state.send("order", "")
    assert order is not None
    state.take(told(verdict(order, 10, "ignored"), verdict(order, 20, "waiting")))
    assert (state.waiting, state.living, state.kill("kill")) == (1, (), None)
    state.take(told(verdict(order, 10, "ignored"), verdict(order, 20, "exited")))
    assert state.living == (ALICE,)
    kill = state.kill("kill")
    assert kill is not None
    assert (targets(kill), kill.number) == ([10], signal.SIGKILL)
    assert state.kill("once more") is None
    assert (len(state.living), state.waiting) == (0, 1)
    state.take(told(verdict(order, 10, "exited"), verdict(kill, 10, "exited")))
    assert state.note()[0] == "that is all"


def test_a_signal_that_ends_nothing_offers_nothing() -> None:
    state = checked(ALICE)
    state.number = signal.SIGCONT
    order = state.send("order", "")
    assert order is not None
    state.take(told(verdict(order, 10, "alive")))
    assert state.living == ()


def test_the_agent_ends() -> None:
    state = checked(ALICE, BOB)
    order = state.send("order", "")
    assert order is not None
    state.take(told(verdict(order, 10, "exited"), verdict(order, 20, "waiting")))
    assert (state.lose(), state.lose()) == (True, False)
    assert state.note()[0] == UNKNOWN
    assert state.says(ALICE)[0] == "exited it is"
    assert "not known" in state.says(BOB)[0]
    state.take(told(verdict(order, 20, "ignored")))
    assert (state.living, state.kill("kill"), state.send("more", "kill")) == ((), None, None)
    before = checked(ALICE)
    before.lose()
    assert before.send("order", "") is None
    assert "nothing was sent" in before.note()[0]


def test_it_says_what_has_ended_meanwhile_and_what_waits_in_the_kernel() -> None:
    state = checked(ALICE, BOB._replace(state="D"))
    state.take(told(pids=(20,)))
    assert "ended meanwhile" in state.says(ALICE)[0]
    assert "state D" in state.says(BOB._replace(state="D"))[0]
    assert targets(state.send("order", "")) == [10, 20]


def test_whatever_frames_tell_the_targets_are_those_of_the_key() -> None:
    dice = random.Random(4)
    for _ in range(1000):
        chosen = tuple(
            Meant(pid, float(dice.randrange(5)), "alice", "x")
            for pid in dice.sample(range(10, 30), dice.randrange(1, 6))
        )
        state = Signalling(chosen)
        state.check("check")
        state.take(told(*(verdict("check", *one.identity[:1], start_time=one.start_time)
                          for one in chosen)))  # fmt: skip
        for _ in range(dice.randrange(4)):
            pids = dice.sample(range(10, 30), 8)
            other = [verdict(dice.choice(("check", "old")), pid, start_time=9.0) for pid in pids]
            state.take(told(*other, pids=tuple(pids)))
        order = state.send("order", "")
        assert order is not None
        assert [(one.pid, one.start_time) for one in order.targets] == [
            one.identity for one in chosen
        ]


def test_under_way_until_it_is_over() -> None:
    under_way, order = UnderWay(), checked(ALICE, BOB).send("order", "")
    assert order is not None
    under_way.add(order)
    assert under_way.words() == "2 signals under way"
    assert under_way.take([verdict("order", 10, "waiting"), verdict("order", 20, "exited")])
    assert under_way.words() == "1 signal under way"
    under_way.take([verdict("order", 10, "ignored"), verdict("order", 20, "exited")])
    assert (under_way.words(), under_way.take([]), under_way.lose()) == ("", False, False)
    under_way.add(order)
    assert under_way.lose()
    assert under_way.words() == "agent ended: end of 2 signals unknown"
