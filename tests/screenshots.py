"""`python -m tests.screenshots`: make screenshots/ again, of the demo and of simulated machines."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec
from textual.pilot import Pilot

from gputop.errors import LoginError, SourceError
from gputop.model.machine.frame import Frame
from gputop.model.machine.signals import Verdict
from gputop.protocol.messages import Detail, Reply, Signal
from gputop.settings import Session, Theme
from gputop.sources.ask import frames_of
from gputop.sources.demo.jobs import demo_detail
from gputop.sources.demo.source import demo_frame
from gputop.sources.local import LocalSource
from gputop.tui.app import GputopApp
from gputop.tui.messages import Arrived
from tests.builders_tui import shown
from tests.driver import Machine
from tests.tui.fleets import watched

_DARK = Session(theme="dark", me="alice")
FOLDER = Path(__file__).parent.parent / "screenshots"
NOON = 1_750_000_000.0
"""Pictures of the demo are always of the same moment."""


def demo_frames(count: int = 40) -> list[Frame]:
    """So many seconds of the demo."""
    return [demo_frame(NOON + second, second, 1.0) for second in range(count)]


def live_frames(scenario: str, count: int = 4) -> list[Frame]:
    """Frames of a simulated machine with real processes."""
    with Machine(scenario) as machine:
        os.environ.update(machine.env)
        source = LocalSource(0.5)
        try:
            return list(islice(frames_of(source), count))
        finally:
            source.close()


async def picture(
    folder: Path,
    name: str,
    frames: Sequence[Frame],
    size: tuple[int, int],
    theme: Theme,
    keys: Sequence[str] = (),
    answer: Reply | None = None,
) -> None:
    """One SVG of the last frame, after some keys, and after the answer to what they ask for."""
    async with shown(size=size, settings=Session(theme=theme)) as screen:
        for frame in frames:
            screen.app.on_arrived(Arrived(screen.machine.feed, frame))
        await screen.press(*keys)
        if answer is not None:
            screen.app.on_arrived(Arrived(screen.machine.feed, answer))
            await screen.drawn()
        svg = await _export(screen.app, screen.pilot)
    (folder / f"{name}.svg").write_text(svg, encoding="utf-8")


async def _export(app: GputopApp, pilot: Pilot[None]) -> str:
    """What is on the screen, without a word on how long it took to draw."""
    app.silence = 0
    await pilot.pause()
    return app.export_screenshot(title="gputop")


async def screens(folder: Path) -> None:
    """The six main screens, small and medium, on a dark and a light terminal."""
    demo, value = demo_frames(), ["m", *"1", "comma", "0"]
    detail = demo_detail(Detail(next(p.id for p in demo[-1].processes if p.pid == 21195)))
    open_by: dict[str, list[str]] = {
        "main": ["down"], "gpu": ["shift+tab", "enter"], "process": ["j", "enter"],
        "mapping": ["M", *value], "graphs": ["G"], "help": ["question_mark"],
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    for name, keys in open_by.items():
        told = Reply(request="", detail=detail) if name == "process" else None
        for size in ((120, 40), (80, 24)):
            for theme in ("dark", "light"):
                whole = f"{name}-{size[0]}x{size[1]}-{theme}"
                await picture(folder, whole, demo, size, theme, keys, told)


async def signal_dialog(folder: Path, frames: Sequence[Frame]) -> None:
    """The dialog for a process of one's own and another's."""
    real = [msgspec.structs.replace(frame, demo=False) for frame in frames]
    settings = Session(theme="dark", me="carol")
    async with shown(size=(100, 30), settings=settings) as screen:
        for frame in real:
            screen.app.on_arrived(Arrived(screen.machine.feed, frame))
        await screen.press("j", "j", "space", *["j"] * 2, "space", "f9")
        [order] = [each for each in screen.source.requests if isinstance(each, Signal)]
        users = {process.pid: process.user for process in real[-1].processes}
        said = tuple(
            Verdict(request_id=order.id, process=target.process, signal=0,
                    outcome="alive", user=(user := users[target.process.pid]), parent=1,
                    words="" if user == "carol" else f"it is {user}'s",
                    caution=None if user == "carol" else "foreign")
            for target in order.targets
        )  # fmt: skip
        await screen.show(request=order.id, verdicts=said)
        await screen.press(*"kill")
        svg = await _export(screen.app, screen.pilot)
    (folder / "signal.svg").write_text(svg, encoding="utf-8")


async def many_hosts(folder: Path) -> None:
    """A row a host: eight of the demo's fleet, one that is down and one that wants a login."""
    names = [f"node{number:02}" for number in range(1, 9)]
    async with watched(*names, "node09", "login1", size=(130, 36), settings=_DARK) as fleet:
        for name in names:
            await fleet.tell(name, demo_frame(NOON + 40, 40.0, 1.0, name))
        await fleet.tell("login1", LoginError("permission denied (publickey,password)"))
        await fleet.tell("node09", SourceError("connection refused"))
        fleet.machine_of("node09").retry_in = None  # seconds would pass
        await fleet.press("down")
        await fleet.tick()
        svg = fleet.app.export_screenshot(title="gputop")
    (folder / "fleet.svg").write_text(svg, encoding="utf-8")


async def demo_pictures(folder: Path) -> None:
    """Those that are the same wherever and whenever they are made."""
    os.environ.update(COLORTERM="truecolor", TZ="UTC")
    time.tzset()
    demo, long = demo_frames(), demo_frames(300)
    value = [*"1", "comma", *"2", "comma", *"6"]
    trained = next(process for process in demo[-1].processes if process.pid == 21195)
    assert trained.start_time is not None
    detail = demo_detail(Detail(trained.id))
    told = Reply(request="", detail=detail)
    whole = ["M", "m", *value, *["tab"] * 7, *"cuda", "colon", "3"]
    draw = partial(picture, folder)
    await draw("main", long, (160, 40), "dark", ["down", "down", "down"])
    await draw("light", demo, (120, 40), "light", ["m", *value, "enter"])
    await draw("main-80x24", demo, (80, 24), "ansi-dark")
    await draw("process", demo, (100, 46), "dark", ["j", "enter"], told)
    await draw("gpu", long, (160, 50), "dark", ["shift+tab", "enter"])
    await draw("graphs", long, (160, 44), "dark", ["G"])
    await draw("mapping", demo, (160, 30), "dark", whole)
    await draw("mapping-80x24", demo, (80, 24), "dark", ["m", *value, "comma", "minus", "1"])
    await screens(folder / "screens")
    await signal_dialog(folder, demo)
    await many_hosts(folder)


async def main() -> None:
    """All pictures."""
    FOLDER.mkdir(exist_ok=True)
    await demo_pictures(FOLDER)
    draw = partial(picture, FOLDER)
    await draw("health", live_frames("sick", 10), (120, 40), "dark", ["H"])
    await draw("mig", live_frames("h100-mig", 10), (180, 30), "dark")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
