"""What the signal dialog knows: whom it is for, when it sends, what it says."""

from __future__ import annotations

import random
import signal
from typing import Any

import pytest

from gputop.model.machine.frame import Frame, ProcessKey
from gputop.model.machine.gpu import GpuPart, MigDevice
from gputop.model.machine.process_id import ProcessId
from gputop.model.machine.signals import MOST_TARGETS, Verdict, signal_name
from gputop.model.processes.target import SignalTarget, own_on, signal_targets
from gputop.protocol.messages import Reply, Signal
from gputop.tui.dialogs.signal_state import UNKNOWN, SignalDialogState
from gputop.tui.machine import PendingSignals
from tests.builders import GIB, frame, gpu, id_of, process

ALICE = SignalTarget(id_of(10), "alice", "python train.py", held=(("0", GIB),))
BOB = SignalTarget(id_of(20), "bob", "python eval.py", held=(("1", GIB),))


def verdict(order: Signal | str, pid: int, outcome: Any = "alive", **more: Any) -> Verdict:
    id_ = order if isinstance(order, str) else order.id
    usual = {"process": id_of(pid), "signal": 0, "words": f"{outcome} it is"}
    return Verdict(request_id=id_, outcome=outcome, **{**usual, **more})


def told(state: SignalDialogState, *verdicts: Verdict, pids: tuple[int, ...] = (10, 20)) -> None:
    """Let it have a frame with these processes, and replies with the verdicts."""
    there = frame((gpu(0), gpu(1)), [process(pid) for pid in pids])
    state.handle(Frame(host=there.host, time=2000.0, gpus=there.gpus, processes=there.processes))
    for order in dict.fromkeys(verdict.request_id for verdict in verdicts):
        of = tuple(verdict for verdict in verdicts if verdict.request_id == order)
        state.handle_reply(Reply(request=order, verdicts=of))


def checked(*processes: SignalTarget, **more: Any) -> SignalDialogState:
    state = SignalDialogState(processes)
    state.check("check")
    told(state, *(verdict("check", process.id.pid, **more) for process in processes))
    return state


def says(state: SignalDialogState, process: SignalTarget) -> list[str]:
    return [words for words, _ in state.status_of(process)]


def targets(order: Signal | None) -> list[int]:
    return [] if order is None else [target.process.pid for target in order.targets]


def test_meant_are_each_once_in_their_order_with_all_that_they_hold() -> None:
    here = frame(
        (gpu(0), gpu(1)),
        [process(20, 1, user="bob"), process(10, 0, gpu_memory=GIB), process(10, 1, gpu_memory=2)],
    )
    keys = [ProcessKey("boot", id_of(pid)) for pid in (10, 20, 10, 99)]
    found = signal_targets(here, keys)
    assert [process.id.pid for process in found] == [10, 20]
    assert found[0].holds() == "1.00G on GPU 0,1"
    assert found[0].age == 1000.0
    first, second = map(GpuPart, here.gpus)
    assert own_on(here, second, "bob") == [ProcessKey("boot", id_of(20))]
    assert own_on(here, second, None) == own_on(here, first, "bob") == []


def test_ones_own_on_a_mig_device() -> None:
    parts = [
        process(10 * gi + ci, gpu_instance=gi, compute_instance=ci)
        for gi in (1, 2)
        for ci in (0, 1)
    ]
    here = frame((gpu(0),), [*parts, process(30)])
    device = MigDevice(gi=2, ci=1)
    assert own_on(here, GpuPart(here.gpus[0], device), "alice") == [ProcessKey("boot", id_of(21))]
    assert len(own_on(here, GpuPart(here.gpus[0]), "alice")) == 5


def test_a_single_process_of_ones_own_wants_no_word_and_several_do() -> None:
    assert not checked(ALICE).wants_word
    assert targets(checked(ALICE).send("order", "")) == [10]
    several = checked(ALICE, BOB)
    assert (several.wants_word, several.send("order", "")) == (True, None)
    assert targets(several.send("order", "kill")) == [10, 20]


@pytest.mark.parametrize(
    ("digits", "number"),
    [("9", 9), ("15", 15), ("2", 2), ("99", 9), ("915", 15), ("0", 15), ("15159", 9), ("64", 64)],
)
def test_digits_choose_a_signal(digits: str, number: int) -> None:
    state = checked(ALICE)
    for digit in digits:
        state.type_digit(digit)
    order = state.send("order", "")
    assert order is not None
    assert order.number == number
    state.type_digit("1")
    assert state.name == signal_name(number)


def test_kill_is_offered_at_once_where_term_is_ignored() -> None:
    state = checked(ALICE, ignored=(1, 15))
    assert says(state, ALICE) == ["it ignores SIGTERM: 9 chooses SIGKILL"]
    state.type_digit("9")
    assert says(state, ALICE) == []
    assert state.note(aimed=True)[0] == "Enter sends SIGKILL: it leaves no time to save"


def test_term_that_was_ignored_and_kill_that_ended_it_are_both_said() -> None:
    state = checked(ALICE)
    term = state.send("term", "")
    assert term is not None
    ignored = verdict(term, 10, "ignored", signal=15, words="it ignores SIGTERM; SIGKILL ends it")
    told(state, ignored)
    assert "1 process is still running" in state.note()[0]
    kill = state.kill("kill")
    assert kill is not None
    assert says(state, ALICE) == ["SIGTERM: ignored", "its signal is being sent"]
    told(state, verdict(kill, 10, "exited", signal=9, ended=True, words="ended at once"), ignored)
    assert says(state, ALICE) == ["SIGTERM: ignored", "ended at once"]
    assert state.note()[0] == "Done"


def test_nobody_who_has_ended_may_take_a_while_to_end() -> None:
    state = checked(ALICE, BOB)
    order = state.send("order", "kill")
    assert order is not None
    has_ended = verdict(order, 10, "waiting", signal=15, ended=True)
    told(state, has_ended, verdict(order, 20, "waiting", signal=15))
    assert state.note(9.0)[0] == "SIGTERM was sent; 1 process may take 9 s to end"
    told(state, has_ended, verdict(order, 20, "exited", signal=15, ended=True))
    assert state.note(9.0)[0] == "waiting for GPU memory to come back"


@pytest.mark.parametrize(
    ("outcome", "ended", "words"),
    [
        ("exited", True, "Done"),
        ("gone", False, "nothing was sent"),
        ("not_permitted", False, "nothing was sent"),
        ("alive", False, "1 process has not ended"),
        ("ignored", True, "Done"),
        ("zombie", True, "Done"),
    ],
)
def test_the_note_says_no_more_than_the_processes(outcome: str, ended: bool, words: str) -> None:
    state = checked(ALICE)
    state.type_digit("9")
    order = state.send("order", "")
    assert order is not None
    told(state, verdict(order, 10, outcome, signal=9, ended=ended))
    assert state.note()[0] == words


def test_nothing_is_sent_before_the_agent_was_asked_and_never_twice() -> None:
    state = SignalDialogState((ALICE, BOB))
    assert state.send("early", "kill") is None
    check = state.check("check")
    assert check is not None
    assert (targets(check), check.number, check.descendants) == ([10, 20], 0, True)
    assert state.check("again") is None
    told(state, verdict("another", 10), verdict("another", 20))
    assert state.send("early", "kill") is None
    told(state, verdict("check", 10), verdict("check", 20))
    assert targets(state.send("order", "kill")) == [10, 20]
    assert state.send("twice", "kill") is None
    assert state.kill("twice") is None


@pytest.mark.parametrize("caution", ["foreign", "first", "ancestor"])
def test_cautions_want_the_word(caution: str) -> None:
    state = checked(ALICE, BOB, caution=caution)
    assert state.wants_word
    assert says(state, ALICE) == ["alive it is"]
    for word in ("", "y", "kil", "killl"):
        assert state.send("order", word) is None
    order = state.send("order", " KILL ")
    assert order is not None
    assert all(target.forced for target in order.targets)


def test_what_cannot_be_signalled_is_said_and_not_sent() -> None:
    state = checked(ALICE, outcome="other_namespace")
    assert (state.ready, state.send("order", "kill")) == (False, None)
    assert list(state.status_of(ALICE)) == [("other_namespace it is", "alarm")]
    many = SignalDialogState([ALICE._replace(id=id_of(pid)) for pid in range(MOST_TARGETS)])
    assert many.check("check") is None
    assert "choose fewer" in many.note()[0]
    assert SignalDialogState((ALICE,), "the demo").check("check") is None
    assert SignalDialogState(()).check("check") is None


def test_descendants_come_after_a_key_and_go_with_it() -> None:
    state = SignalDialogState((ALICE,))
    state.check("check")
    below = [verdict("check", 11, parent=10), verdict("check", 12, parent=11)]
    told(state, verdict("check", 10, parent=1), *below)
    assert (state.descendants(ALICE), [process.id.pid for process in state.processes]) == (2, [10])
    state.with_started = True
    assert [process.id.pid for process in state.processes] == [10, 11, 12]
    assert state.send("order", "") is None
    assert targets(state.send("order", "kill")) == [10, 11, 12]


def test_kill_is_offered_to_those_that_live_on_when_none_waits() -> None:
    state = checked(ALICE, BOB)
    order = state.send("order", "kill")
    assert order is not None
    told(state, verdict(order, 10, "ignored"), verdict(order, 20, "waiting"))
    assert (state.waiting, state.living, state.kill("kill")) == (1, (), None)
    told(state, verdict(order, 10, "ignored"), verdict(order, 20, "exited"))
    assert state.living == (ALICE,)
    kill = state.kill("kill")
    assert kill is not None
    assert (targets(kill), kill.number) == ([10], signal.SIGKILL)
    assert state.kill("once more") is None
    assert (len(state.living), state.waiting) == (0, 1)
    told(state, verdict(order, 10, "exited"), verdict(kill, 10, "exited"))
    assert state.note()[0] == "Done"


def test_a_signal_that_ends_nothing_offers_nothing() -> None:
    state = checked(ALICE)
    state.number = signal.SIGCONT
    order = state.send("order", "")
    assert order is not None
    told(state, verdict(order, 10, "alive"))
    assert state.living == ()


def test_the_agent_ends() -> None:
    state = checked(ALICE, BOB)
    order = state.send("order", "kill")
    assert order is not None
    told(state, verdict(order, 10, "exited"), verdict(order, 20, "waiting"))
    assert (state.lose(), state.lose()) == (True, False)
    assert state.note()[0] == UNKNOWN
    assert says(state, ALICE) == ["exited it is"]
    assert says(state, BOB) == ["its outcome is unknown"]
    told(state, verdict(order, 20, "ignored"))
    assert (state.living, state.kill("kill"), state.send("more", "kill")) == ((), None, None)
    before = checked(ALICE)
    before.lose()
    assert before.send("order", "") is None
    assert "nothing was sent" in before.note()[0]


def test_it_says_what_has_ended_meanwhile_and_what_waits_in_the_kernel() -> None:
    state = checked(ALICE, BOB._replace(state="D"))
    told(state, pids=(20,))
    assert "ended meanwhile" in says(state, ALICE)[0]
    assert "state D" in says(state, BOB._replace(state="D"))[0]
    assert targets(state.send("order", "kill")) == [10, 20]


def test_whatever_frames_tell_the_targets_are_those_of_the_key() -> None:
    dice = random.Random(4)
    for _ in range(1000):
        chosen = tuple(
            SignalTarget(ProcessId(pid, dice.randrange(5)), "alice", "x")
            for pid in dice.sample(range(10, 30), dice.randrange(1, 6))
        )
        state = SignalDialogState(chosen)
        state.check("check")
        told(state, *(verdict("check", process.id.pid, process=process.id)
                          for process in chosen))  # fmt: skip
        for _ in range(dice.randrange(4)):
            pids = dice.sample(range(10, 30), 8)
            other = [
                verdict(dice.choice(("check", "old")), pid, process=ProcessId(pid, 9))
                for pid in pids
            ]
            told(state, *other, pids=tuple(pids))
        order = state.send("order", "kill")
        assert order is not None
        assert [target.process for target in order.targets] == [each.id for each in chosen]


def test_under_way_until_it_is_over() -> None:
    under_way, order = PendingSignals(), checked(ALICE, BOB).send("order", "kill")
    assert order is not None
    under_way.add(order)
    assert under_way.words() == "2 signals under way"
    ended = verdict("order", 20, "exited")
    assert under_way.handle(Reply(request="another")) is None
    still = Reply(request="order", verdicts=(verdict("order", 10, "waiting"), ended))
    assert under_way.handle(still) == 1
    assert under_way.words() == "1 signal under way"
    over = Reply(request="order", verdicts=(verdict("order", 10, "ignored"), ended))
    assert under_way.handle(over) == 0
    assert (under_way.words(), under_way.handle(over), under_way.lose()) == ("", None, False)
    under_way.add(order)
    assert under_way.lose()
    assert under_way.words() == "agent ended: outcome of 2 signals unknown"
