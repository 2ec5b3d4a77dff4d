"""`python -m bench.soak [MINUTES]`: gputop for long, on a machine where processes come and go.

A line every half minute: memory (PSS), threads and open files of screen and agent together. In two
minutes of every ten, ten processes a second start, and as many end. Exit status 1 if memory,
threads or files have grown between the end of the first sixth and the end by more than is named
here.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import deque
from contextlib import suppress
from itertools import count
from pathlib import Path

from bench.tree import cpu_seconds, memory_mib, tree
from tests.driver import Machine
from tests.terminal import Terminal

_LINE = 30.0
_CYCLE, _BUSY, _RATE = 600.0, 120.0, 10.0
_LIVING = 40
"""Of those that come, at one time."""
_MOST_GROWTH = 0.1, 0, 4
"""A share of the memory, threads, files: the history fills up in the first quarter of an hour."""


def main() -> int:
    """Run it; the exit status."""
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory() as folder, Machine("h200x8", Path(folder)) as here:
        argv = [sys.executable, "-m", "gputop"]
        with Terminal(argv, cols=200, rows=50, env=here.env) as terminal:
            terminal.wait_for("train.py")
            lines = list(_watch(here, terminal, minutes * 60))
    first, last = lines[len(lines) // 6], lines[-1]
    grown = [after - before for before, after in zip(first, last, strict=True)]
    allowed = [first[0] * _MOST_GROWTH[0], *_MOST_GROWTH[1:]]
    print(f"grown: {grown[0]:.1f} MiB, {grown[1]:.0f} threads, {grown[2]:.0f} files")
    return int(any(one > most for one, most in zip(grown, allowed, strict=True)))


def _watch(here: Machine, terminal: Terminal, seconds: float) -> list[tuple[float, int, int]]:
    begun, names, living = time.monotonic(), count(), deque[str]()
    root, lines, due = terminal.process.pid, [], 0.0
    while (now := time.monotonic() - begun) < seconds:
        if now >= due:
            lines.append(_measure(root))
            cpu = cpu_seconds(root)
            print(f"{now:6.0f} s  {lines[-1][0]:6.1f} MiB  {lines[-1][1]:3} threads  "
                  f"{lines[-1][2]:3} files  {cpu:7.1f} s CPU", flush=True)  # fmt: skip
            due += _LINE
        if now % _CYCLE < _BUSY:
            name = f"comer-{next(names)}"
            here.spawn(name, ["python", f"{name}.py"], gpu=next(names) % 8, used=1 << 28)
            living.append(name)
            while len(living) > _LIVING:
                here.kill(living.popleft())
        _take(terminal, 1 / _RATE)
    return lines


def _take(terminal: Terminal, seconds: float) -> None:
    """Read what it draws, and forget it: this terminal keeps everything otherwise."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        terminal.pump(left)
        terminal.raw.clear()
        terminal._fed = 0


def _measure(root: int) -> tuple[float, int, int]:
    """PSS in MiB, threads, open files."""
    threads = files = 0
    for pid in tree(root):
        with suppress(OSError):
            threads += len(os.listdir(f"/proc/{pid}/task"))
            files += len(os.listdir(f"/proc/{pid}/fd"))
    return memory_mib(root)[1], threads, files


if __name__ == "__main__":
    sys.exit(main())
