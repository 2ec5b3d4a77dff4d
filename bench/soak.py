"""`python -m bench.soak [MINUTES [INTERVAL]]`: a long run while processes come and go.

Prints a line every half minute: the private memory (USS) of screen and agent, and the threads and
open files of both together. In two minutes of every ten, ten processes a second start, and as many
end. Exit status 1 if anything has grown from the end of the first sixth to the end of the run by
more than the limits below.

The simulated driver is part of the agent. It drops a scenario a second after it was replaced, so
that any growth is gputop's own.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

from bench.tree import cpu_seconds, tree
from tests.driver import Machine
from tests.terminal import Terminal

_LINE = 30.0
_CYCLE, _BUSY, _RATE = 600.0, 120.0, 10.0
_LIVING = 40
"""Started processes that run at one time, at most."""
_MEMORY_GROWTH = 0.1
"""Growth allowed, as a ratio: the history fills up in the first quarter of an hour."""
_FILES_GROWTH = 4


class _Figures(NamedTuple):
    """One line of figures; memory in MiB."""

    screen: float
    agent: float
    threads: float
    files: float


def main() -> int:
    """Run it, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description="gputop for long")
    parser.add_argument("minutes", nargs="?", type=float, default=60.0)
    parser.add_argument("interval", nargs="?", type=float, default=1.0, help="seconds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Machine("h200x8", Path(folder)) as here:
        argv = [sys.executable, "-m", "gputop", "--interval", str(options.interval)]
        env = {**here.env, "GPUTOP_TEST_DRIVER_KEPT": "1"}
        with Terminal(argv, cols=200, rows=50, env=env) as terminal:
            terminal.wait_for("train.py")
            lines = list(_watch(here, terminal, options.minutes * 60))
    first, last = lines[len(lines) // 6], lines[-1]
    grown = _Figures(*(after - before for before, after in zip(first, last, strict=True)))
    print(f"grown: {_words(grown)}")
    most = (first.screen * _MEMORY_GROWTH, first.agent * _MEMORY_GROWTH, 0, _FILES_GROWTH)
    return int(any(one > limit for one, limit in zip(grown, most, strict=True)))


def _watch(here: Machine, terminal: Terminal, seconds: float) -> Iterator[_Figures]:
    begun, names, living, due = time.monotonic(), count(), deque[str](), 0.0
    root = terminal.process.pid
    while (now := time.monotonic() - begun) < seconds:
        if now >= due:
            yield (figures := _measure(root))
            print(f"{now:6.0f} s  {_words(figures)}  {cpu_seconds(root):7.1f} s CPU", flush=True)
            due += _LINE
        if now % _CYCLE < _BUSY:
            name = f"comer-{next(names)}"
            here.spawn(name, ["python", f"{name}.py"], gpu=next(names) % 8, used=1 << 28)
            living.append(name)
            while len(living) > _LIVING:
                here.kill(living.popleft())
        _take(terminal, 1 / _RATE)


def _take(terminal: Terminal, seconds: float) -> None:
    """Read what gputop draws and drop it, for this terminal would keep everything."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        terminal.pump(left)
        terminal.raw.clear()
        terminal._fed = 0


def _measure(root: int) -> _Figures:
    agent = threads = files = 0.0
    for pid in tree(root):
        with suppress(OSError):
            threads += len(os.listdir(f"/proc/{pid}/task"))
            files += len(os.listdir(f"/proc/{pid}/fd"))
            agent += _private_mib(pid) if pid != root else 0.0
    return _Figures(_private_mib(root), agent, threads, files)


def _private_mib(pid: int) -> float:
    """Return the memory that only this process uses, without pages shared with others."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def _words(figures: _Figures) -> str:
    return (
        f"screen {figures.screen:5.1f} MiB  agent {figures.agent:5.1f} MiB  "
        f"{figures.threads:3.0f} threads  {figures.files:3.0f} files"
    )


if __name__ == "__main__":
    sys.exit(main())
