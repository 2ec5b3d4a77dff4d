"""Whatever frames do between the keys, a signal goes to those that were meant, and to no others."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence

import pytest
from textual import events

from gputop.model.frame import Process
from gputop.model.process_metrics import PROCESS
from gputop.model.protocol import Signal
from gputop.model.query import matching, rows
from gputop.model.signals import Verdict
from gputop.tui.messages import FrameArrived
from gputop.tui.screens.signal import SignalScreen
from tests.builders_tui import GIB, NOON, Screenful, frame_of, gpu_of, process_of, shown

Identity = tuple[int, float | None]

RUNS = int(os.environ.get("GPUTOP_TEST_RUNS", "20"))
"""Of each seed; a run is one use of the dialog, and takes a quarter of a second. With 250 there are
a thousand: GPUTOP_TEST_RUNS=250 pytest --timeout 900 tests/tui/test_signal_random.py"""
USERS = ("alice", "bob", "carol")
PIDS = range(101, 119)
"""So few that numbers are used again all the time."""
GPUS = tuple(gpu_of(index) for index in range(3))
_WANDERING = ("down", "up", "pagedown", "end", "j", "k")


class World:
    """Processes that come and go, and a screen that shows them."""

    def __init__(self, screen: Screenful, dice: random.Random) -> None:
        self.screen, self.dice = screen, dice
        self.time = NOON
        self.processes: dict[int, list[Process]] = {}
        self.verdicts: tuple[Verdict, ...] = ()
        for pid in PIDS[:10]:
            self.start(pid)

    def start(self, pid: int) -> None:
        """A process of that number, on one GPU or two."""
        dice, self.time = self.dice, self.time + 1.0
        user, memory = dice.choice(USERS), dice.randrange(1, 90) * GIB
        self.processes[pid] = [
            process_of(pid, gpu, start_time=self.time, user=user, gpu_memory=memory)
            for gpu in dice.sample(range(3), dice.choice((1, 1, 2)))
        ]

    def churn(self) -> None:
        """End, start and replace processes, sort and filter; then a frame shows it."""
        dice, table = self.dice, self.screen.table
        for pid in dice.sample(PIDS, dice.randrange(1, 4)):
            if pid in self.processes and dice.random() < 0.6:
                del self.processes[pid]
            else:
                self.start(pid)
        if dice.random() < 0.3:
            table.sort_by(dice.choice(list(PROCESS)))
        if dice.random() < 0.2:
            table.filter_by(dice.choice(("", "", "alice", "!bob", "gpu:1", "mem>40G")))
        self.show()

    def show(self) -> None:
        """A frame, at once."""
        app = self.screen.app
        self.time += 1.0
        parts = [one for own in self.processes.values() for one in own]
        self.dice.shuffle(parts)
        frame = frame_of(*GPUS, *parts, time=self.time, verdicts=self.verdicts)
        app.on_frame_arrived(FrameArrived(app._generation, frame))

    async def press(self, *keys: str) -> None:
        """Keys, and the world between them is another each time."""
        app = self.screen.app
        for key in keys:
            turn = app._turn
            app.post_message(events.Key(key, key if len(key) == 1 else None))
            while app._turn == turn or app._at_work:
                await asyncio.sleep(0.0005)
            self.churn()
        await self.screen.pilot.pause()

    @property
    def under_cursor(self) -> set[Identity]:
        """What a person reads on the line with the cursor; empty for one that has ended."""
        region = self.screen.table.region
        for segments in self.screen.segments[region.y + 2 : region.bottom]:
            line = "".join(segment.text for segment in segments)
            if any(segment.style and segment.style.reverse for segment in segments):
                if " ended" in line:
                    return set()
                if self.screen.table.view.shape == "users":
                    user = next(word for word in line.split() if word in USERS)
                    return {(pid, own[0].start_time) for pid, own in self.processes.items()
                            if own[0].user == user and self._fits(own)}  # fmt: skip
                pid = next(int(word) for word in line.split() if word.isdigit() and len(word) == 3)
                return {(pid, self.processes[pid][0].start_time)}
        return set()

    def _fits(self, own: Sequence[Process]) -> bool:
        frame = frame_of(*GPUS, *own, time=self.time)
        return bool(matching(rows(frame), self.screen.table.filter))

    @property
    def orders(self) -> list[Signal]:
        """All that was asked of the agent."""
        return [one for one in self.screen.source.requests if isinstance(one, Signal)]


async def choose(world: World) -> list[set[Identity]]:
    """Tag some processes or none, go to one or a group; what was tagged, and what is meant."""
    dice, screen = world.dice, world.screen
    await world.press(*dice.choices(_WANDERING, k=dice.randrange(1, 4)))
    tags: set[Identity] = set()
    if dice.random() < 0.4:
        for _ in range(dice.randrange(1, 4)):
            await asyncio.sleep(0)
            chosen = world.under_cursor
            tags = tags - chosen if chosen and chosen <= tags else tags | chosen
            await world.press("space")
    elif dice.random() < 0.2:
        while screen.table.view.shape != "users":
            await world.press("u")
        await world.press("down")
    return [tags, world.under_cursor]


def check_verdicts(world: World, check: Signal, started: int) -> tuple[Verdict, ...]:
    """What an agent says: some are others', and the first has started some."""

    def said(pid: int, start: float | None, parent: int) -> Verdict:
        foreign = world.dice.random() < 0.3
        return Verdict(order=check.order, pid=pid, start_time=start, signal=0, outcome="alive",
                       caution="foreign" if foreign else None, words="it is bob's", user="bob",
                       command="python work.py", parent=parent)  # fmt: skip

    roots = [said(one.pid, one.start_time, 1) for one in check.targets]
    children = [said(900 + k, world.time - k, roots[0].pid) for k in range(started)]
    return (*roots, *children)


async def once(world: World) -> str:
    """One use of the dialog; what came of it."""
    dice, screen = world.dice, world.screen
    tags, cursor = await choose(world)
    alive = {(pid, own[0].start_time) for pid, own in world.processes.items()}
    meant = tags & alive if screen.table._tags else cursor
    before = len(world.orders)
    await world.press(dice.choice(("f9", "K")))
    assert isinstance(screen.app.screen, SignalScreen)
    if not meant:
        await world.press("tab", "enter", "tab", "enter", "escape")
        assert len(world.orders) == before
        return "nobody"
    check = world.orders[-1]
    pinned = [(one.pid, one.start_time) for one in check.targets]
    assert (set(pinned), len(pinned), check.number) == (meant, len(meant), 0)

    world.verdicts = check_verdicts(world, check, dice.randrange(3))
    cautions = {(one.pid, one.start_time): one.caution is not None for one in world.verdicts}
    below = list(cautions)[len(pinned) :]
    world.churn()
    number, wanted = 15, list(pinned)
    for key in dice.choices(("down", "up", "j", "k", "pagedown", "d", "s"), k=dice.randrange(4)):
        await world.press(key)
        if key == "d":
            wanted = pinned + below if wanted == pinned and below else pinned
        elif key == "s":
            number = dice.choice((9, 1, 2))
            await world.press(str(number), "enter")
    if dice.random() < 0.2:
        await world.press(dice.choice(("enter", "escape", "q")))
        assert len(world.orders) == before + 1
        return "cancelled"
    cautious = any(cautions[one] for one in wanted)
    if cautious:
        await world.press("tab", *"kill", "enter", "enter")
    else:
        await world.press("tab", "enter")
    assert len(world.orders) == before + 2, screen.text
    sent = world.orders[-1]
    assert [(one.pid, one.start_time) for one in sent.targets] == wanted
    assert [one.forced for one in sent.targets] == [cautions[one] for one in wanted]
    assert sent.number == number
    await follow(world, sent)
    return "sent"


async def follow(world: World, sent: Signal) -> None:
    """Some live on, and get SIGKILL; nobody else does."""
    world.verdicts = tuple(
        Verdict(order=sent.order, pid=one.pid, start_time=one.start_time, signal=sent.number,
                outcome=world.dice.choice(("ignored", "exited", "gone")), words="so it is")
        for one in sent.targets
    )  # fmt: skip
    world.churn()
    stubborn = [(one.pid, one.start_time) for one in world.verdicts if one.outcome == "ignored"]
    before = len(world.orders)
    await world.press("tab", "enter")
    if stubborn and sent.number != 9:
        assert len(world.orders) == before + 1, world.screen.text
        assert [(one.pid, one.start_time) for one in world.orders[-1].targets] == stubborn
        assert world.orders[-1].number == 9
    else:
        assert len(world.orders) == before


async def clear(world: World) -> None:
    """Back to the table, with nothing chosen."""
    screen = world.screen
    world.verdicts = ()
    if isinstance(screen.app.screen, SignalScreen):
        await screen.app.screen.dismiss(None)
    screen.table.untag()
    screen.table.filter_by("")
    while screen.table.leave_view():
        pass
    screen.table.deselect()
    screen.app._sending._under_way._waiting.clear()
    screen.source.requests.clear()


@pytest.mark.parametrize("seed", range(4))
async def test_exactly_those_that_were_meant(seed: int) -> None:
    async with shown(frame_of(*GPUS), size=(80, 40)) as screen:
        world = World(screen, random.Random(seed))
        came: dict[str, int] = {}
        if seed:  # else those that have ended are in the way: most lines are theirs
            await world.press("z")
        for _ in range(RUNS):
            world.churn()
            how = await once(world)
            came[how] = came.get(how, 0) + 1
            await clear(world)
        assert came["sent"] > (RUNS / 8 if seed else 0), came
