"""The measurements of a screen, in seconds unless a name says otherwise; None: never happened."""

from __future__ import annotations

import math
import random
import re
import statistics
import time
from collections.abc import Iterator, Sequence

from bench.machines import Shape
from bench.programs import Screen
from bench.tree import cpu_seconds, memory_mib
from bench.tty import Recorder
from tests.driver.machine import Machine

Values = dict[str, float | None]

BURST = 300
_KEYS_PER_SECOND = 20
_QUIT_LIMIT = 5.0
_KEY_LIMIT = 5.0
_LOOKS = 40


class Session:
    """A program on a screen, from its start to its end; a context manager."""

    def __init__(
        self, program: Screen, shape: Shape, here: Machine, size: tuple[int, int], start: float
    ) -> None:
        self._program, self._shape, self._start = program, shape, start
        self._numbers = {pid: _number(name) for name, pid in here.pids.items()}
        order = sorted(self._numbers.values(), key=lambda n: program.order(n, shape))
        self._places = {number: place for place, number in enumerate(order)}
        self._last: int | None = None
        """Place of the cursor when it was last seen."""
        self.tty = Recorder(program.command, *size, here.env)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self.tty.close()

    def start(self) -> Values:
        """Measure the time to the first GPU, to all GPUs, and to all rows that will be shown."""
        tty, seen = self.tty, []
        tty.listen(self._start)
        for at in tty.replay():
            lines = tty.display
            rows = (re.finditer(self._program.gpu_row, line) for line in lines)
            gpus = {row[1] for found in rows for row in found}
            seen.append((at - tty.started, len(gpus), sum(map(self._is_process, lines))))
        most_gpus = max((gpus for _, gpus, _ in seen), default=0)
        most_rows = seen[-1][2] if seen else 0
        first = (at for at, gpus, _ in seen if gpus)
        every = (at for at, gpus, _ in seen if gpus == most_gpus and gpus)
        whole = (at for at, gpus, rows in seen if gpus == most_gpus and gpus and rows >= most_rows)
        return {
            "first_gpu": next(first, None),
            "all_gpus": next(every, None),
            "all_rows": next(whole, None),
            "gpus_shown": most_gpus,
            "processes_shown": most_rows,
        }

    def steady(self, seconds: float) -> Values:
        """Measure CPU, output and memory while no key is pressed."""
        tty, root = self.tty, self.tty.process.pid
        tty.listen(1.5)
        cpu, written, begun = cpu_seconds(root), len(tty.raw), time.monotonic()
        tty.listen(seconds)
        took = time.monotonic() - begun
        rss, pss = memory_mib(root)
        return {
            "cpu_per_min": (cpu_seconds(root) - cpu) / took * 60,
            "bytes_per_s": (len(tty.raw) - written) / took,
            "rss_mib": rss,
            "pss_mib": pss,
        }

    def keys(self, count: int) -> Values:
        """Measure the time from a cursor key to the screen that shows it, one key at a time."""
        took = [self._key(pause) for pause in self._pauses(count)] if self._home() else []
        if not took:
            return {"key_p50": None, "key_p95": None, "key_max": None}
        took.sort()
        p95 = took[math.ceil(0.95 * len(took)) - 1]
        values = {"key_p50": statistics.median(took), "key_p95": p95, "key_max": took[-1]}
        return {name: value if value < math.inf else None for name, value in values.items()}

    def _pauses(self, count: int) -> list[float]:
        """Return pauses of various lengths, so that keys come at any time between two readings."""
        dice = random.Random(count)
        return [dice.uniform(0.3, 0.4) for _ in range(min(count, len(self._numbers) - 1))]

    def _key(self, pause: float) -> float:
        """Press the key, and return the time to its effect; infinite if there is none."""
        before, pressed = self._last, time.monotonic()
        self.tty.send(self._program.down)
        self.tty.listen(pause)
        while not (steps := [at for at, place in self._steps() if place != before]):
            if time.monotonic() > pressed + _KEY_LIMIT:
                return math.inf
            self.tty.listen(0.5)
        return steps[0] - pressed

    def burst(self) -> Values:
        """Count the keys that are lost of many sent at once: twice half of them, down from the
        first process."""
        half, lost = BURST // 2, 0
        for _ in range(2):
            if len(self._numbers) <= half or not self._home():
                return {"keys_lost": None}
            self.tty.send(self._program.down * half)
            lost += half - self._stands()
        return {"keys_lost": lost}

    def _stands(self) -> int:
        """Return the place at which the cursor has rested for two seconds."""
        places = [0]
        while (len(places) <= _LOOKS and len({*places[-4:]}) > 1) or len(places) < 5:
            self.tty.listen(0.5)
            list(self._steps())
            places.append(self._last or 0)
        return places[-1]

    def scroll(self, seconds: float) -> Values:
        """Measure the CPU while a cursor key is held down, first down, then up, and so on."""
        self.tty.listen(1.0)
        cpu, begun, pressed = cpu_seconds(self.tty.process.pid), time.monotonic(), 0
        while (now := time.monotonic()) < begun + seconds:
            keys = self._program.down, self._program.up
            self.tty.send(keys[pressed // (2 * _KEYS_PER_SECOND) % 2])
            pressed += 1
            self.tty.listen(begun + pressed / _KEYS_PER_SECOND - now)
        took = time.monotonic() - begun
        used = cpu_seconds(self.tty.process.pid) - cpu
        return {"scroll_cpu_percent": used / took * 100}

    def quit(self) -> Values:
        """Measure the time from the key to the end of the program."""
        begun = time.monotonic()
        self.tty.send(b"q")
        try:
            self.tty.exit_code(_QUIT_LIMIT)
        except AssertionError:
            return {"quit": None}
        return {"quit": time.monotonic() - begun}

    def _home(self) -> bool:
        """Move the cursor to the first process, the only known place; return whether it worked."""
        self.tty.send(self._program.home)
        for _ in range(_LOOKS):
            self.tty.listen(0.5)
            list(self._steps())
            if self._last == 0:
                break
        self.tty.listen(1.0)
        return self._last == 0

    def _steps(self) -> Iterator[tuple[float, int]]:
        """Yield the time and the new place each time the cursor has moved."""
        for at in self.tty.replay():
            place = self._place()
            if place is not None and place != self._last:
                self._last = place
                yield at, place

    def _place(self) -> int | None:
        """Return the place of the marked row among all processes."""
        found = (self._process(line) for line in self.tty.marked())
        return next((self._places[number] for number in found if number is not None), None)

    def _process(self, line: str) -> int | None:
        words = re.findall(r"\b\d+\b", line)
        return next(
            (self._numbers[int(word)] for word in words if int(word) in self._numbers), None
        )

    def _is_process(self, line: str) -> bool:
        return self._process(line) is not None


def medians(several: Sequence[Values]) -> Values:
    """Return the median of each value; None counts as greater than all others."""
    found: Values = {}
    for name in several[0] if several else ():
        values = [one.get(name) for one in several]
        middle = statistics.median(math.inf if value is None else value for value in values)
        found[name] = middle if middle < math.inf else None
    return found


def _number(name: str) -> int:
    """Return 17 for worker-17."""
    return int(name.rpartition("-")[2])
