"""Machines in few words, and the app on a screen of any size, for tests of the screen.

async with shown(frame_of(gpu_of(0), gpu_of(1))) as screen:
    await screen.press("down")
    assert "free" in screen.line_with("H200")
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, cast

from rich.segment import Segment
from textual import events
from textual.pilot import Pilot

from gputop.errors import SourceError
from gputop.model.fleet.link import HostLink
from gputop.model.machine.frame import Frame, Host, Problem, Process
from gputop.model.machine.gpu import Gpu
from gputop.protocol.messages import Detail, Probe, Reply, Request, Signal, Stack
from gputop.settings import Session, Theme
from gputop.sources.feed import Feed
from gputop.sources.source import Source
from gputop.tui.app import GputopApp
from gputop.tui.dialogs.signal import SignalScreen
from gputop.tui.machine import WatchedMachine
from gputop.tui.messages import Arrived
from gputop.tui.panes.gpus import GpuPane
from gputop.tui.panes.mapping import MappingPane, MappingResultView
from gputop.tui.panes.processes import ProcessTable
from tests.builders import with_start, with_state
from tests.pilot import Hand

GIB = 1024**3
NOON = 1_750_000_000.0


def uuid_of(index: int) -> str:
    """Of the GPU at an index."""
    return f"GPU-{index:08x}-0000-0000-0000-000000000000"


def gpu_of(index: int, **values: Any) -> Gpu:
    """An H200 that does nothing, and nobody on it."""
    usual: dict[str, Any] = {
        "index": index,
        "uuid": uuid_of(index),
        "name": "NVIDIA H200",
        "pci_bus_id": f"00000000:{index + 1:02X}:00.0",
        "minor": index,
        "memory_total": 140 * GIB,
        "memory_used": GIB // 2,
        "memory_free": 139 * GIB,
        "utilization": 0.0,
        "listed": "all",
        "temperature": 40.0,
        "power": 75.0,
        "power_limit": 700.0,
        "sm_clock": 345_000_000,
        "pstate": 0,
        "mig_mode": False,
    }
    return Gpu(**{**usual, **with_state(values)})


def silent_gpu(index: int, **values: Any) -> Gpu:
    """A GPU of which nothing is known."""
    return Gpu(index=index, **with_state(values or {"state": "silent"}))


def process_of(pid: int, gpu: int = 0, **values: Any) -> Process:
    """alice's train.py with 10 GiB."""
    usual: dict[str, Any] = {
        "pid": pid,
        "start_time": NOON - 60,
        "gpu_uuid": uuid_of(gpu),
        "gpu_memory": 10 * GIB,
        "sm_utilization": 0.5,
        "user": "alice",
        "command": f"python train.py --seed {pid}",
        "cpu": 1.0,
        "rss": GIB,
        "state": "R",
    }
    return Process(**with_start({**usual, **values}))


def frame_of(*parts: Gpu | Process, **values: Any) -> Frame:
    """A machine of these GPUs (or two idle ones) and processes."""
    gpus = tuple(part for part in parts if isinstance(part, Gpu))
    usual: dict[str, Any] = {
        "host": Host(name="node", boot_id="boot"),
        "time": NOON,
        "driver_version": "580.95.05",
        "cuda_version": "13.0",
        "gpus": gpus or (gpu_of(0), gpu_of(1)),
        "processes": tuple(part for part in parts if isinstance(part, Process)),
    }
    return Frame(**{**usual, **values})


class Silence(Source):
    """A source that sends nothing and keeps what it is asked for."""

    host = "node"
    link: HostLink | None = None
    user: str | None = None

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.closed = False
        self.reconnects = 0

    def frames(self) -> Iterator[Frame]:
        """None."""
        return iter(())

    def request(self, request: Request) -> None:
        """Keep it."""
        self.requests.append(request)

    def reconnect(self) -> None:
        """Keep that, too."""
        self.reconnects += 1

    def close(self) -> None:
        """Keep that, too."""
        self.closed = True


_ASKS = {"verdicts": Signal, "probed": Probe, "detail": Detail, "stack": Stack}
"""What asks for each field of a reply."""


def takes_keys(dialog: SignalScreen) -> bool:
    """Whether there was time to read a dialog, and no key waits to act."""
    guard = dialog._guard
    return guard.is_open and not (guard._waiting or guard._released)


class Screenful:
    """The app, what it shows, and what can be done to it."""

    def __init__(self, app: GputopApp, source: Silence, pilot: Pilot[None]) -> None:
        self.app, self.source, self.pilot = app, source, pilot
        assert app.shown.view is not None
        self.main = app.shown.view.main
        self.table = self.main.query_one(ProcessTable)
        self.gpus = self.main.query_one(GpuPane)
        self.pane = self.main.query_one(MappingPane)
        self.mapping_state = self.main.mapping
        self.result = self.main.query_one(MappingResultView)
        self.hand = Hand(app)

    @property
    def machine(self) -> WatchedMachine:
        """The one that is shown."""
        assert self.app.shown.view is not None
        return self.app.shown.view.machine

    async def show(self, *frames: Frame, **reply: Any) -> None:
        """Let frames arrive, and then a reply with these fields; without `request`, each field is
        a reply to what asked for it last."""
        feed = self.machine.feed
        for frame in frames:
            self.app.post_message(Arrived(feed, frame))
            await self.drawn()
        replies = [reply] if "request" in reply else [
            {"request": self.last_id(_ASKS[field]), field: value} for field, value in reply.items()
        ]  # fmt: skip
        for each in filter(None, replies):
            self.app.post_message(Arrived(feed, Reply(**each)))
            await self.drawn()

    def last_id(self, kind: type) -> str:
        """The id of the last request of a kind."""
        asked: list[Any] = [each for each in self.source.requests if isinstance(each, kind)]
        return str(asked[-1].id)

    async def show_problem(self, kind: Any, **values: Any) -> None:
        """Let a frame without GPUs arrive."""
        problem = Problem(code=kind, text=f"trouble {kind}", advice="do this", **values)
        await self.show(Frame(host=Host(name="node"), time=NOON, problem=problem))

    async def end(self, reason: str) -> None:
        """Let the source break."""
        self.app.post_message(Arrived(self.machine.feed, SourceError(reason)))
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        """Type keys by their names, all at once; into a dialog of signals one by one, as somebody
        does who reads it."""
        if isinstance(self.app.screen, SignalScreen) and len(keys) > 1:
            for key in keys:
                await self.press(key)
            return
        for key in keys:
            self.app.post_message(self.hand.key(key))
        await self.drawn()
        while self.app._at_work and not self.app._exit:
            await self.drawn()

    async def click(self, x: int, y: int, times: int = 1) -> None:
        """Press and release the left button, all at once."""
        for kind in (events.MouseDown, events.MouseUp) * times:
            self.mouse(kind, x, y)
        await self.press()

    async def wheel(self, x: int, y: int, notches: int) -> None:
        """Turn the wheel; down is positive."""
        kind = events.MouseScrollDown if notches > 0 else events.MouseScrollUp
        for _ in range(abs(notches)):
            self.mouse(kind, x, y)
        await self.press()

    def mouse(self, kind: type[events.MouseEvent], x: int, y: int) -> None:
        """Report the mouse at a cell of the screen."""
        no_modifiers = (False, False, False)
        self.app.post_message(kind(None, x, y, 0, 0, 1, *no_modifiers, screen_x=x, screen_y=y))

    async def drawn(self) -> None:
        """Let everything take effect, a layout that is due take place, and what that sets off."""
        await self.pilot.pause()
        await self.read()
        if self.app.silence and not self.app._exit:
            self._answer()
            await self.drawn()

    def _answer(self) -> None:
        """As the agent would, where a busy machine takes so long that its silence is shown."""
        reply = Reply(request="")
        self.app.on_arrived(Arrived(self.machine.feed, reply))

    async def read(self) -> None:
        """Let a dialog be on the screen for as long as it wants to be, before it takes keys."""
        while (
            isinstance(self.app.screen, SignalScreen)
            and not takes_keys(self.app.screen)
            and not self.app._exit
        ):
            self.hand.wait()
            await self.pilot.pause()

    async def type(self, text: str) -> None:
        """Type a text."""
        names = {",": "comma", "-": "minus", ":": "colon", ".": "full_stop", " ": "space"}
        await self.press(*(names.get(character, character) for character in text))

    async def open_mapping(self) -> None:
        """Let the mapping be more than a line, without its editor."""
        await self.press("m", "enter")

    async def resize(self, width: int, height: int) -> None:
        """Another size of the terminal."""
        await self.pilot.resize_terminal(width, height)
        await self.drawn()

    @property
    def segments(self) -> list[list[Segment]]:
        """Each line as it would be sent."""
        return [list(strip) for strip in self.app.screen._compositor.render_strips()]

    @property
    def lines(self) -> list[str]:
        """The text of the screen."""
        return ["".join(segment.text for segment in line) for line in self.segments]

    @property
    def text(self) -> str:
        """The screen in one text, without trailing blanks."""
        return "\n".join(line.rstrip() for line in self.lines)

    async def whole_page(self) -> str:
        """All of a page, as on a terminal that is high enough for it."""
        size = self.app.size
        await self.resize(size.width, 700)
        text = "\n".join(line.rstrip() for line in self.lines[:-1]).rstrip("\n")
        await self.resize(size.width, size.height)
        return text

    def line_with(self, text: str) -> str:
        """The first line that has a text."""
        for line in self.lines:
            if text in line:
                return line.rstrip()
        raise AssertionError(f"no {text!r} on the screen:\n{self.text}")

    def gpu_line(self, index: int) -> str:
        """The line of a GPU, by its place in the pane, without the sign of the cursor."""
        top = self.gpus.region.y + self.gpus.head_lines
        return f" {self.lines[top + index][1:]}".rstrip()

    def gpu_cell(self, index: int, label: str) -> str:
        """What a GPU has under a label that stands at the left of its column, up to the next."""
        head = self.lines[self.gpus.region.y]
        begins = [match.start() for match in re.finditer(r"\S+( \S+)*", head)] + [None]
        begin = head.index(f" {label}") + 1
        return self.gpu_line(index)[begin : begins[begins.index(begin) + 1]].strip()

    @property
    def process_lines(self) -> list[str]:
        """The lines of the process table, without its heads and without empty ones."""
        region = self.table.region
        found = self.lines[region.y + self.table.head_lines : region.bottom]
        return [line.rstrip() for line in found if line.strip()]

    @property
    def pids(self) -> list[int]:
        """Those of the process lines, in their order."""
        at = [line.split() for line in self.process_lines]
        return [
            int(next(word for word in words if word.isdigit() and len(word) > 2)) for words in at
        ]

    @property
    def selected(self) -> int | None:
        """The pid under the cursor."""
        row = self.table.selected
        return None if row is None else row.process.pid

    @property
    def mapping_lines(self) -> list[str]:
        """The lines of the mapping's answer."""
        region = self.result.region
        return [line.strip() for line in self.lines[region.y : region.bottom] if line.strip()]


@asynccontextmanager
async def shown(
    frame: Frame | None = None,
    size: tuple[int, int] = (120, 40),
    theme: str = "ansi-dark",
    interval: float = 1.0,
    settings: Session | None = None,
    source: Silence | None = None,
) -> AsyncIterator[Screenful]:
    """The app on a screen of a size, with a frame."""
    source = source or Silence()
    settings = settings or Session(theme=cast(Theme, theme), interval=interval)
    app = GputopApp([Feed(source)], settings)
    app.animation_level = "none"  # as `driver.run` has it
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        screen = Screenful(app, source, pilot)
        if frame is not None:
            await screen.show(frame)
        yield screen
