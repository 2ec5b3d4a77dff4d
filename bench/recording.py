"""`python -m bench.recording [SECONDS]`: what a recorder costs, and how soon a month is read.

`gputop record` runs for so long on 8 GPUs with 200 processes, real ones, on the simulated driver.
Of the samples that it wrote a day is made, and a month of such days; then that is read.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle, islice
from pathlib import Path

from msgspec.structs import replace

from bench.machines import TIMED, Shape, machine
from bench.tree import cpu_seconds
from gputop.model.machine.frame import Frame
from gputop.recording.datafile import INDEX
from gputop.recording.entries import SIZE, Entries
from gputop.recording.reader import Recording
from gputop.recording.writer import RecordingWriter
from tests.terminal import Terminal

_SHAPE = Shape(8, 200)
_EVERY = 10.0
_DAY = 86400
_DAYS = 30
_START = 1_800_000_000 // _DAY * _DAY
_SETTLES = 15.0
"""Seconds, with the first samples."""
_JUMPS = 40


def main() -> int:
    """Measure, and print what was measured; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.recording", description=__doc__)
    parser.add_argument("seconds", type=float, nargs="?", default=100.0)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        short, month = Path(folder, "short"), Path(folder, "month")
        share = record(short, seconds)
        print(f"recorder and agent, {_SHAPE} every {_EVERY:g} s: {share:.2%} of a core")
        recording = Recording(short)
        host = recording.hosts[0]
        write_day(month, host, list(recording.frames(host)))
        print(f"a day: {_mb(month):.1f} MB")
        copy_days(month)
        print(f"{_DAYS} days: {_mb(month):.0f} MB")
        read(month, host)
        replay(month)
    return 0


def record(path: Path, seconds: float) -> float:
    """Record for a while; the share of a core that it took."""
    with machine(_SHAPE, calls=TIMED) as here:
        words = [sys.executable, "-m", "gputop", "record", f"{path}/", f"--every={_EVERY:g}s"]
        with subprocess.Popen(words, env={**os.environ, **here.env}) as program:
            time.sleep(_SETTLES)
            before, begun = cpu_seconds(program.pid), time.monotonic()
            time.sleep(seconds)
            share = (cpu_seconds(program.pid) - before) / (time.monotonic() - begun)
            program.terminate()
    return share


def write_day(folder: Path, host: str, frames: list[Frame]) -> None:
    """Write a day of samples, which are these again and again."""
    clock = float(_START)
    writer = RecordingWriter(f"{folder}/", _EVERY, clock=lambda: clock)
    for frame in islice(cycle(frames[1:]), int(_DAY / _EVERY)):
        writer.append(host, replace(frame, time=clock))
        clock += _EVERY
    writer.close()


def copy_days(folder: Path) -> None:
    """Make the days after the first: its records at other times."""
    [first] = (path for path in folder.iterdir() if path.suffix == ".gputop")
    data, index = first.read_bytes(), first.with_name(first.name + INDEX).read_bytes()
    entries = Entries(index)
    for day in range(1, _DAYS):
        moved, at = bytearray(data), _START + day * _DAY
        packed = [
            entry._replace(time=entry.time + day * _DAY).pack()
            for entry in (entries[number] for number in range(len(entries)))
        ]
        for number, record in enumerate(packed):
            begin = entries[number].offset - SIZE
            moved[begin : begin + SIZE] = record
        path = folder / time.strftime("%Y-%m-%d.gputop", time.gmtime(at))
        path.write_bytes(moved)
        path.with_name(path.name + INDEX).write_bytes(b"".join(packed))


def read(folder: Path, host: str) -> None:
    """Open a recording, and jump in it."""
    chance = random.Random(1)
    starts = sorted(_timed(lambda: Recording(folder).span(host)) for _ in range(5))
    recording = Recording(folder)
    first, last = recording.span(host)
    jumps = sorted(
        _timed(lambda: recording.at(host, chance.uniform(first, last))) for _ in range(_JUMPS)
    )
    times = recording.times(host)
    steps = sorted(_timed(partial(recording.at, host, when)) for when in times[100:160])
    print(f"open, {len(times):,} samples: {starts[2] * 1000:.0f} ms")
    print(f"jump: {jumps[_JUMPS // 2] * 1000:.0f} ms, at most {jumps[-1] * 1000:.0f} ms")
    print(f"step: {steps[len(steps) // 2] * 1000:.1f} ms")


def replay(folder: Path) -> None:
    """Start a replay, up to its first row and to the whole screen."""
    starts = sorted(_start(folder) for _ in range(5))
    first, whole = starts[2]
    print(f"replay: first row after {first * 1000:.0f} ms, the screen after {whole * 1000:.0f} ms")


def _start(folder: Path) -> tuple[float, float]:
    begun = time.perf_counter()
    words = [sys.executable, "-m", "gputop", "replay", str(folder)]
    with Terminal(words, cols=200, rows=50) as terminal:
        terminal.wait_for("H200")
        first = time.perf_counter() - begun
        terminal.wait_for("REPLAY")
        return first, time.perf_counter() - begun


def _timed(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def _mb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.iterdir()) / 1e6


if __name__ == "__main__":
    sys.exit(main())
