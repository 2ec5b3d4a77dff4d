"""Recordings that are made up, and the app that shows them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from gputop.model.machine.frame import Frame
from gputop.recording.reader import Recording
from gputop.recording.writer import RecordingWriter
from gputop.settings import Session
from gputop.sources.feed import Feed
from gputop.sources.recording import RecordingSource
from gputop.tui.replay import ReplayApp
from tests.builders_tui import NOON, Screenful, Silence, frame_of, gpu_of, process_of

EVERY = 10.0
HOUR = 360
"""Samples."""


def sample(number: int) -> Frame:
    """Of the load of GPU 0 in percent, which is the number of the minute; process 7 is there in
    the second half of an hour."""
    minute = number // 6
    return frame_of(
        gpu_of(0, utilization=minute / 100),
        gpu_of(1),
        process_of(5),
        *([process_of(7, gpu=1)] if minute >= 30 else []),
        time=NOON + number * EVERY,
    )


def record(path: Path, numbers: Iterable[int] = range(HOUR), host: str = "node") -> Path:
    """A recording of these samples."""
    writer = RecordingWriter(str(path), EVERY)
    for number in numbers:
        writer.append(host, sample(number))
    writer.close()
    return path


@asynccontextmanager
async def replayed(
    path: Path,
    at: float = NOON + 1e6,
    size: tuple[int, int] = (120, 40),
    note: str = "",
    keys: Mapping[str, str] | None = None,
) -> AsyncIterator[Screenful]:
    """The app on a screen of a size, with a recording of one host from a time on."""
    recording = Recording(path)
    source = RecordingSource(recording, recording.hosts[0], at)
    app = ReplayApp([Feed(source)], Session(keys=dict(keys or {})), at, note)
    app.animation_level = "none"
    async with app.run_test(size=size) as pilot:
        screen = Screenful(app, Silence(), pilot)
        assert app._ticks is not None
        app._ticks.stop()  # the tests have time pass
        app._ticks = None
        while app.replay.shown is None:
            await asyncio.sleep(0)
        await settled(screen)
        try:
            yield screen
        finally:
            app.shown.close()


async def settled(screen: Screenful) -> None:
    """Let the graphs have what led up to what is shown."""
    assert isinstance(screen.app, ReplayApp)
    while screen.app.replay.is_busy:
        screen.app._on_tick()
    await screen.drawn()
