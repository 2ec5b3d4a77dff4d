"""Whatever frames do between the keys, a signal goes to those that were meant, and to no others."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence

from textual import events

from gputop.model.machine.frame import Process
from gputop.model.machine.process_id import ProcessId
from gputop.model.machine.signals import Caution, SignalOutcome, Verdict
from gputop.model.metrics.process import PROCESS
from gputop.model.processes.process_rows import rows
from gputop.protocol.messages import Reply, Signal
from gputop.tui.dialogs.signal import SignalScreen
from gputop.tui.messages import Arrived
from gputop.tui.panes.editor import Editor
from tests.builders import id_of, matching
from tests.builders_tui import GIB, NOON, Screenful, frame_of, gpu_of, process_of, shown
from tests.conftest import rest_long

RUNS = int(os.environ.get("GPUTOP_TEST_RUNS", "5"))
"""Of each seed; a run is one use of the dialog, and takes half a second. With 125 there are
several hundred: GPUTOP_TEST_RUNS=125 pytest --timeout 900 tests/tui/test_signal_random.py"""
CAUTIONS: tuple[Caution, ...] = ("foreign", "container", "unreadable")
OUTCOMES: tuple[SignalOutcome, ...] = ("ignored", "exited", "gone", "unknown")
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
            table.listing.sort_by(dice.choice(list(PROCESS)))
        if dice.random() < 0.2:
            table.listing.filter_by(dice.choice(("", "", "alice", "!bob", "gpu:1", "mem>40G")))
        self.show()

    def show(self) -> None:
        """A frame, at once."""
        app = self.screen.app
        self.time += 1.0
        parts = [key for own in self.processes.values() for key in own]
        self.dice.shuffle(parts)
        feed = self.screen.machine.feed
        app.on_arrived(Arrived(feed, frame_of(*GPUS, *parts, time=self.time)))
        for order in {verdict.request_id for verdict in self.verdicts}:
            said = tuple(verdict for verdict in self.verdicts if verdict.request_id == order)
            app.on_arrived(Arrived(feed, Reply(request=order, verdicts=said)))

    async def press(self, *keys: str) -> None:
        """Keys, and the world between them is another each time."""
        app = self.screen.app
        for key in keys:
            await self.screen.read()
            sequence = app._sequence
            app.post_message(self.screen.hand.key(key))
            while app._sequence == sequence or app._at_work:
                await asyncio.sleep(0.0005)
            await self.screen.read()  # a key that acts is alone for a moment first
            while app._at_work:
                await asyncio.sleep(0.0005)
            self.churn()
        await self.screen.pilot.pause()

    async def type_blindly(self, *keys: str) -> None:
        """Keys at once, before anything that they make happen can be seen."""
        app = self.screen.app
        for key in keys:
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await self.screen.pilot.pause()
        while app._at_work:
            await asyncio.sleep(0.0005)
        self.churn()

    @property
    def under_cursor(self) -> set[ProcessId]:
        """What a person reads on the line with the cursor; empty for one that has ended."""
        region = self.screen.table.region
        for segments in self.screen.segments[region.y + 2 : region.bottom]:
            line = "".join(segment.text for segment in segments)
            if any(segment.style and segment.style.reverse for segment in segments):
                if " ended" in line:
                    return set()
                if self.screen.table.listing.view.shape == "users":
                    user = next(word for word in line[1:].split() if word in USERS)
                    return {own[0].id for own in self.processes.values()
                            if own[0].user == user and self._fits(own)}  # fmt: skip
                pid = next(int(word) for word in line.split() if word.isdigit() and len(word) == 3)
                return {self.processes[pid][0].id}
        return set()

    def _fits(self, own: Sequence[Process]) -> bool:
        frame = frame_of(*GPUS, *own, time=self.time)
        return bool(matching(rows(frame), self.screen.table.listing.filter))

    @property
    def orders(self) -> list[Signal]:
        """All that was asked of the agent."""
        return [request for request in self.screen.source.requests if isinstance(request, Signal)]


async def choose(world: World) -> list[set[ProcessId]]:
    """Tag some processes or none, go to one or a group; what was tagged, and what is meant."""
    dice, screen = world.dice, world.screen
    await world.press(*dice.choices(_WANDERING, k=dice.randrange(1, 4)))
    tags: set[ProcessId] = set()
    if dice.random() < 0.4:
        for _ in range(dice.randrange(1, 4)):
            await asyncio.sleep(0)
            chosen = world.under_cursor
            tags = tags - chosen if chosen and chosen <= tags else tags | chosen
            await world.press("space")
    elif dice.random() < 0.2:
        while screen.table.listing.view.shape != "users":
            await world.press("u")
        await world.press("down")
    return [tags, world.under_cursor]


def check_verdicts(world: World, check: Signal, started: int) -> tuple[Verdict, ...]:
    """What an agent says: some are others', and the first has started some."""

    def said(process: ProcessId, parent: int) -> Verdict:
        foreign = world.dice.random() < 0.3
        caution = world.dice.choice(CAUTIONS) if foreign else None
        return Verdict(request_id=check.id, process=process, signal=0, outcome="alive",
                       caution=caution, words="it is bob's", user="bob",
                       command="python work.py", parent=parent)  # fmt: skip

    roots = [said(target.process, 1) for target in check.targets]
    children = [said(id_of(900 + k, world.time - k), roots[0].process.pid) for k in range(started)]
    return (*roots, *children)


async def once(world: World) -> str:
    """One use of the dialog; what came of it."""
    dice, screen = world.dice, world.screen
    tags, cursor = await choose(world)
    alive = {own[0].id for own in world.processes.values()}
    meant = tags & alive if screen.table.listing._tags else cursor
    before = len(world.orders)
    blind = dice.choices(("tab", "enter", "s", "d", *"kil9"), k=dice.choice((0, 0, 8)))
    opening = "f9" if blind else dice.choice(("f9", "K"))  # K and letters at once are a text
    await world.type_blindly(opening, *blind)
    assert isinstance(screen.app.screen, SignalScreen)
    assert all(request.number == 0 for request in world.orders[before:])
    if not meant:
        await world.press("tab", "enter", "tab", "enter", "escape")
        assert len(world.orders) == before
        return "nobody"
    check = world.orders[-1]
    pinned = [target.process for target in check.targets]
    assert (set(pinned), len(pinned), check.number) == (meant, len(meant), 0)

    world.verdicts = check_verdicts(world, check, dice.randrange(3))
    cautions = {verdict.process: verdict.caution is not None for verdict in world.verdicts}
    below = list(cautions)[len(pinned) :]
    world.churn()
    number, wanted = 15, list(pinned)
    keys = ("down", "up", "j", "k", "pagedown", "d", "s", "9")
    for key in dice.choices(keys, k=dice.randrange(8)):
        await world.press(key)
        field = screen.app.screen.focused  # by now: the key itself may have come before the focus
        if key in "jk" and isinstance(field, Editor):
            await world.press(*["backspace"] * len(field.value))
        if key == "d":
            wanted = pinned + below if wanted == pinned and below else pinned
        elif key == "s":
            number = dice.choice((9, 1, 2))
            await world.press(str(number), "enter")
        elif key == "9":
            number = 9
    await screen.drawn()
    is_aimed = screen.app.screen.focused is screen.app.screen.query_one("#send")
    wants_word = len(wanted) > 1 or any(cautions[process] for process in wanted)
    assert not (is_aimed and wants_word)
    if dice.random() < 0.2:
        cancel = ["tab", "enter"] if is_aimed else ["enter"]
        cancel = ["shift+tab", "enter"] if wants_word else cancel
        await world.press(*dice.choice((cancel, ["escape"])))
        assert len(world.orders) == before + 1
        return "cancelled"
    if wants_word:
        await world.press(*"kill", "enter")
    else:
        await world.press(*(["enter"] if is_aimed else ["tab", "enter"]))
    assert len(world.orders) == before + 2, screen.text
    sent = world.orders[-1]
    assert [target.process for target in sent.targets] == wanted
    assert [target.forced for target in sent.targets] == [cautions[process] for process in wanted]
    assert sent.number == number
    await follow(world, sent)
    return "sent"


async def follow(world: World, sent: Signal) -> None:
    """Some live on, and get SIGKILL; nobody else does."""
    world.verdicts = tuple(
        Verdict(request_id=sent.id, process=target.process, signal=sent.number,
                outcome=world.dice.choice(OUTCOMES), words="so it is")
        for target in sent.targets
    )  # fmt: skip
    world.churn()
    stubborn = [verdict.process for verdict in world.verdicts if verdict.outcome == "ignored"]
    before = len(world.orders)
    await world.press("tab", "enter")
    if stubborn and sent.number != 9:
        assert len(world.orders) == before + 1, world.screen.text
        assert [target.process for target in world.orders[-1].targets] == stubborn
        assert world.orders[-1].number == 9
    else:
        assert len(world.orders) == before


async def clear(world: World) -> None:
    """Back to the table, with nothing chosen."""
    screen = world.screen
    world.verdicts = ()
    if isinstance(screen.app.screen, SignalScreen):
        await screen.app.screen.dismiss(None)
    screen.table.listing.untag()
    screen.table.listing.filter_by("")
    while screen.table.listing.leave_view():
        pass
    screen.table.deselect()
    screen.machine._signals._waiting.clear()
    screen.source.requests.clear()


@rest_long("seed", *range(3))
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
