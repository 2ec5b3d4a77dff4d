"""Replies go to what asked for them, and to nothing else."""

from __future__ import annotations

import gc
from weakref import ref

from gputop.model.machine.detail import ProcessDetail
from gputop.model.machine.signals import Verdict
from gputop.protocol.messages import Detail, Probe, Reply, Signal
from gputop.sources.feed import Feed
from gputop.tui.dialogs.signal import SignalScreen
from gputop.tui.machine import WatchedMachine
from gputop.tui.pages.process import ProcessScreen
from tests.builders import id_of
from tests.builders_tui import NOON, Screenful, Silence, frame_of, gpu_of, process_of, shown

BUSY = frame_of(gpu_of(0), process_of(1), process_of(2))


class Asker:
    """Keeps the replies that it is given."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []

    def take(self, reply: Reply) -> None:
        self.replies.append(reply)


def watched() -> WatchedMachine:
    """A machine whose source sends nothing."""
    return WatchedMachine(Feed(Silence()), lambda message: None)


def detail(pid: int, files: int) -> ProcessDetail:
    return ProcessDetail(id_of(pid, NOON - 60), files=files, devices=())


def exited(order: Signal) -> tuple[Verdict, ...]:
    """Its processes have ended at once."""
    return tuple(
        Verdict(request_id=order.id, process=target.process, signal=order.number,
                outcome="exited", words="ended at once")
        for target in order.targets
    )  # fmt: skip


def orders(screen: Screenful) -> list[Signal]:
    return [request for request in screen.source.requests if isinstance(request, Signal)]


def test_each_asker_gets_the_replies_to_its_own_requests() -> None:
    machine, one, other = watched(), Asker(), Asker()
    machine.request(Probe("0", None, "one"), one.take)
    machine.request(Probe("1", None, "both"), one.take, other.take)
    for id_ in ("one", "both", "both", "nobody's"):
        machine.handle(Reply(request=id_))
    assert [reply.request for reply in one.replies] == ["one", "both", "both"]
    assert [reply.request for reply in other.replies] == ["both", "both"]


def test_who_asks_again_is_the_one_who_is_answered() -> None:
    machine, before, now = watched(), Asker(), Asker()
    machine.request(Probe("0", None, "mapping"), before.take)
    machine.request(Probe("1", None, "mapping"), now.take)
    machine.handle(Reply(request="mapping"))
    assert (len(before.replies), len(now.replies)) == (0, 1)


def test_another_agent_answers_nothing_that_the_one_before_was_asked() -> None:
    machine, asker = watched(), Asker()
    machine.request(Probe("0", None, "one"), asker.take)
    machine.reconnect()
    machine.handle(Reply(request="one"))
    assert asker.replies == []


def test_an_asker_that_is_gone_is_not_kept() -> None:
    machine, asker = watched(), Asker()
    machine.request(Probe("0", None, "one"), asker.take)
    gone = ref(asker)
    del asker
    gc.collect()
    assert gone() is None
    machine.handle(Reply(request="one"))


async def test_verdicts_of_a_dialog_that_was_closed() -> None:
    """The heading and the table take them; the dialog of another signal says nothing of them."""
    async with shown(BUSY) as screen:
        await screen.press("down", "f9")
        [check] = orders(screen)
        await screen.show(request=check.id, verdicts=(alive(check),))
        await screen.press("enter")
        order = orders(screen)[-1]
        assert "1 signal under way" in screen.lines[0]
        await screen.press("escape", "down", "f9")
        assert isinstance(screen.app.screen, SignalScreen)
        await screen.show(request=order.id, verdicts=exited(order))
        assert "ended at once" not in screen.text
        assert "under way" not in screen.lines[0]


def alive(order: Signal) -> Verdict:
    [target] = order.targets
    return Verdict(request_id=order.id, process=target.process, signal=0, outcome="alive", words="")


async def test_details_of_a_page_that_was_closed() -> None:
    async with shown(BUSY) as screen:
        await screen.press("down", "enter")
        [first] = [r for r in screen.source.requests if isinstance(r, Detail)]
        await screen.press("escape", "down", "enter")
        assert isinstance(screen.app.screen, ProcessScreen)
        await screen.show(request=first.id, detail=detail(1, files=61))
        assert "61 open files" not in await screen.whole_page()
        await screen.show(detail=detail(2, files=62))
        assert "62 open files" in await screen.whole_page()
