"""`python -m tests.screenshots`: make screenshots/ again, of the demo and of simulated machines."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gputop.model.frame import Frame
from gputop.model.protocol import Detail, Request, Signal
from gputop.model.signals import Verdict
from gputop.settings import Session, Theme
from gputop.sources.demo import demo_frame
from gputop.sources.jobs import demo_detail
from gputop.sources.local import LocalSource
from gputop.tui.app import GputopApp
from gputop.tui.messages import FrameArrived
from tests.driver import Machine

FOLDER = Path(__file__).parent.parent / "screenshots"
NOON = 1_750_000_000.0
"""Pictures of the demo are always of the same moment."""


class Silent:
    """A source that says nothing: the app is given its frames by hand."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def frames(self) -> Iterator[Frame]:
        """None."""
        yield from ()

    def request(self, request: Request) -> None:
        """Keep it."""
        self.requests.append(request)

    def close(self) -> None:
        """Nothing to end."""


def demo_frames(count: int = 40) -> list[Frame]:
    """So many seconds of the demo."""
    return [demo_frame(NOON + second, second, 1.0) for second in range(count)]


def live_frames(scenario: str, count: int = 4) -> list[Frame]:
    """Frames of a simulated machine with real processes."""
    with Machine(scenario) as machine:
        os.environ.update(machine.env)
        source = LocalSource(0.5)
        try:
            frames = source.frames()
            return [next(frames) for _ in range(count)]
        finally:
            source.close()


async def picture(
    folder: Path,
    name: str,
    frames: Sequence[Frame],
    size: tuple[int, int],
    theme: Theme,
    keys: Sequence[str] = (),
    answer: Frame | None = None,
) -> None:
    """One SVG of the last frame, after some keys, and after the answer to what they ask for."""
    app = GputopApp(Silent(), Session(theme=theme))
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        for frame in frames:
            app.on_frame_arrived(FrameArrived(0, frame))
        await pilot.press(*keys)
        await pilot.pause()
        if answer is not None:
            app.on_frame_arrived(FrameArrived(0, answer))
            await pilot.pause()
        svg = app.export_screenshot(title="gputop")
    (folder / f"{name}.svg").write_text(svg, encoding="utf-8")


async def signal_dialog(folder: Path, frames: Sequence[Frame]) -> None:
    """The dialog for a process of one's own and another's; the demo itself signals nobody."""
    real = [msgspec.structs.replace(frame, demo=False) for frame in frames]
    source = Silent()
    app = GputopApp(source, Session(theme="dark", me="carol"))
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.pause()
        app.on_frame_arrived(FrameArrived(0, real[-1]))
        await pilot.press("j", "j", "space", *["j"] * 2, "space", "f9")
        await pilot.pause()
        [order] = [one for one in source.requests if isinstance(one, Signal)]
        users = {one.pid: one.user for one in real[-1].processes}
        said = tuple(
            Verdict(order=order.order, pid=one.pid, start_time=one.start_time, signal=0,
                    outcome="alive", user=users[one.pid], parent=1,
                    words="" if users[one.pid] == "carol" else f"it is {users[one.pid]}'s",
                    caution=None if users[one.pid] == "carol" else "foreign")
            for one in order.targets
        )  # fmt: skip
        app.on_frame_arrived(FrameArrived(0, msgspec.structs.replace(real[-1], verdicts=said)))
        await pilot.pause()
        await pilot.press("tab", *"kill")
        await pilot.pause()
        svg = app.export_screenshot(title="gputop")
    (folder / "signal.svg").write_text(svg, encoding="utf-8")


async def demo_pictures(folder: Path) -> None:
    """Those that are the same wherever and whenever they are made."""
    os.environ.update(COLORTERM="truecolor", TZ="UTC")
    time.tzset()
    demo, long = demo_frames(), demo_frames(300)
    value = [*"1", "comma", *"2", "comma", *"6"]
    trained = next(one for one in demo[-1].processes if one.pid == 21195)
    assert trained.start_time is not None
    told = replace(demo[-1], detail=demo_detail(Detail(trained.pid, trained.start_time)))
    whole = ["M", "m", *value, *["tab"] * 7, *"cuda", "colon", "3"]
    draw = partial(picture, folder)
    await draw("main", demo, (120, 40), "dark", ["down", "down", "down"])
    await draw("light", demo, (120, 40), "light", ["m", *value, "enter"])
    await draw("ssh-80x24", demo, (80, 24), "ansi-dark")
    await draw("process", demo, (100, 46), "dark", ["j", "j", "j", "j", "enter"], told)
    await draw("gpu", long, (160, 50), "dark", ["shift+tab", "down", "enter"])
    await draw("graphs", long, (160, 44), "dark", ["G", "plus"])
    await draw("mapping", demo, (160, 44), "dark", whole)
    await draw("mapping-80x24", demo, (80, 24), "dark", ["m", *value, "comma", "minus", "1"])
    await signal_dialog(folder, demo)


async def main() -> None:
    """All pictures."""
    FOLDER.mkdir(exist_ok=True)
    await demo_pictures(FOLDER)
    draw = partial(picture, FOLDER)
    await draw("health", live_frames("sick", 10), (120, 40), "dark", ["H"])
    await draw("mig", live_frames("h100-mig", 10), (180, 30), "dark")
    await draw("h200x8-20-processes", live_frames("h200x8"), (200, 50), "dark")
    await draw("h200x8-200-processes", live_frames("h200x8-200"), (80, 24), "dark")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
