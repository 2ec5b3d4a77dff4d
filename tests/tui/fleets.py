"""The screen of many hosts, each a source that sends what the test gives it.

async with watched("node1", "node2") as fleet:
    await fleet.tell("node1", frame_of())
    await fleet.press("down", "enter")
"""

from __future__ import annotations

import queue
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from msgspec.structs import replace
from textual.pilot import Pilot

from gputop.errors import LoginError, SourceError
from gputop.model.fleet.link import HostLink
from gputop.model.machine.frame import Frame
from gputop.protocol.messages import Reply
from gputop.settings import Session
from gputop.sources.feed import Feed
from gputop.tui.app import GputopApp
from gputop.tui.fleet import TICK
from gputop.tui.machine import WatchedMachine
from tests.builders_tui import Screenful, Silence
from tests.pilot import Hand

UP = HostLink("connected", "installed", age=0.4, round_trip=0.012)


class RemoteSource(Silence):
    """A source with a link, whose frames come from a queue."""

    link = HostLink("connecting")

    def __init__(self, host: str) -> None:
        super().__init__()
        self.host = host
        self.queue: queue.Queue[Frame | Reply | SourceError | None] = queue.Queue()

    def frames(self) -> Iterator[Frame | Reply]:  # type: ignore[override]
        """Until an error, or None."""
        while (told := self.queue.get()) is not None:
            try:
                if isinstance(told, SourceError):
                    raise told
                yield told
            finally:
                self.queue.task_done()
        self.queue.task_done()

    def reconnect(self) -> None:
        """End the frames of before."""
        super().reconnect()
        self.link = HostLink("connecting")

    def close(self) -> None:
        """End."""
        super().close()
        self.queue.put(None)


class Fleetful(Screenful):
    """The app with many hosts, and what can be done to it."""

    def __init__(self, app: GputopApp, sources: list[RemoteSource], pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot
        self.sources = {source.host: source for source in sources}
        self.hand = Hand(app)

    def machine_of(self, host: str) -> WatchedMachine:
        """One of the machines."""
        return next(machine for machine in self.app.shown.machines if machine.host == host)

    async def tell(self, host: str, told: Frame | SourceError, link: HostLink = UP) -> None:
        """Let a host send a frame, or break; its link is as it is then."""
        source = self.sources[host]
        if isinstance(told, LoginError):
            link = HostLink("login", words=str(told))
        elif isinstance(told, SourceError):
            link = HostLink("ended", words=str(told))
        source.link = link
        source.queue.put(told)
        source.queue.join()
        while isinstance(told, SourceError) and not self.machine_of(host).ended:
            await self.pilot.pause()
        await self.tick()

    async def tick(self) -> None:
        """Let a look be taken at what has come as often as in a second."""
        for _ in range(round(1 / TICK)):
            self.app._tick()
        await self.drawn()

    async def second(self) -> None:
        """Let a second pass."""
        self.app._second()
        await self.tick()


def frame_on(host: str, frame: Frame) -> Frame:
    """A frame of a machine that is its own: boot, GPUs and name."""
    own = {gpu.uuid: f"{gpu.uuid}-{host}" for gpu in frame.gpus}
    return replace(
        frame,
        host=replace(
            frame.host, name=f"{host}.lab", requested_name=host, boot_id=f"boot of {host}"
        ),
        gpus=tuple(replace(gpu, uuid=own[gpu.uuid]) for gpu in frame.gpus),
        processes=tuple(replace(p, gpu_uuid=own.get(p.gpu_uuid)) for p in frame.processes),
    )


@asynccontextmanager
async def watched(
    *hosts: str, size: tuple[int, int] = (120, 40), settings: Session | None = None
) -> AsyncIterator[Fleetful]:
    """The app on a screen of a size, with these hosts, of which nothing is known yet."""
    sources = [RemoteSource(host) for host in hosts]
    app = GputopApp([Feed(source) for source in sources], settings or Session(me="alice"))
    app.animation_level = "none"
    async with app.run_test(size=size) as pilot:
        for timer in app._timers:
            timer.stop()  # the tests have time pass
        fleet = Fleetful(app, sources, pilot)
        await fleet.tick()
        try:
            yield fleet
        finally:
            app.shown.close()
