"""Recordings that are made without a recorder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from gputop.model.machine.frame import Frame
from gputop.recording.datafile import INDEX
from gputop.recording.reader import Recording
from gputop.recording.writer import RecordingWriter
from tests.protocol.streams import FRAME, GPU, IDLE, IDLER, TRAIN

EVERY = 10.0
START = 1795320000.0
"""2026-11-22 04:00 UTC."""
HOST = FRAME.host.name


class Clock:
    """A clock that stands until it is set."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def frame_at(when: float, processes: int = 2) -> Frame:
    """A frame that is like no other: processes come and go, and values move."""
    number = int(when) // int(EVERY)
    gpu = replace(GPU, utilization=number % 100 / 100, power=100.25 + number % 500)
    workers = [
        replace(TRAIN, pid=20000 + number // 4 + k, cpu=number % 7 / 10, rss=number << 12)
        for k in range(processes - 1)
    ]
    return replace(FRAME, time=when, interval=EVERY, gpus=(gpu, IDLE), processes=(*workers, IDLER))


def frames_from(start: float, count: int) -> list[Frame]:
    return [frame_at(start + EVERY * number) for number in range(count)]


def write(path: Path, frames: Iterable[Frame], host: str = HOST) -> None:
    """Append frames to a recording in one file."""
    writer = RecordingWriter(str(path), EVERY)
    for frame in frames:
        writer.append(host, frame)
    writer.close()


def read(path: Path, host: str = HOST) -> tuple[list[Frame], tuple[str, ...]]:
    """All frames that can be read, and what is said to be lost."""
    recording = Recording(path)
    frames = list(recording.frames(host)) if host in recording.hosts else []
    return frames, recording.losses


def index_of(path: Path) -> Path:
    return path.with_name(path.name + INDEX)
