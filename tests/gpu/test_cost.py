"""What gputop asks of the driver, how long the driver takes for it, and what that costs: refreshes
a second, CPU beside nvitop, and the GPU itself."""

from __future__ import annotations

import fnmatch
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from contextlib import closing
from typing import Any

import pynvml
import pytest

from bench.machines import TIMED
from bench.tree import cpu_seconds
from bench.tty import Recorder
from tests.driver.machine import REPOSITORY
from tests.gpu.conftest import GPUTOP, Frame, query
from tests.gpu.report import Report, Row

pytestmark = [pytest.mark.gpu, pytest.mark.system, pytest.mark.timeout(120)]

_TICKS, _SECONDS = 6, 6.0
_WAITS = "nvmlEventSetWait_v2"
"""Waits for an error to report, in a thread of its own."""
_FIELDS = ("uuid", "power.draw", "clocks.sm", "pstate", "persistence_mode")


_times: dict[str, list[float]] = defaultdict(list)
"""Seconds of each call of NVML, by its function; appending is safe in any thread."""
_find = pynvml._nvmlGetFunctionPointer


class TimedCall:
    """A function of NVML that notes how long each call takes."""

    times: list[float]
    function: Any

    def __init__(self, name: str) -> None:
        self.__dict__.update(times=_times[name], function=_find(name))

    def __call__(self, *arguments: Any) -> Any:
        begun = time.perf_counter()
        result = self.function(*arguments)
        self.times.append(time.perf_counter() - begun)
        return result

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.function, name, value)  # restype and the like


def collect() -> None:
    """Let the agent's collector run in this process, and print its calls of NVML as JSON: ticks a
    second apart, then as many as fast as they come."""
    pynvml._nvmlGetFunctionPointer = TimedCall
    from gputop.agent.collector import Collector
    from gputop.agent.process.reader import READER

    READER.start()
    collector = Collector()
    collector.collect(1.0, 5.0)  # opens the driver, and asks what never changes
    first = sum(map(len, _times.values()))
    for times in _times.copy().values():
        times.clear()
    for _ in range(_TICKS):
        time.sleep(1.0)
        collector.collect(1.0, 2.0)
    paced = {
        name: {"calls": len(times), "ms": statistics.median(times) * 1e3, "most": max(times) * 1e3}
        for name, times in _times.copy().items()
        if times and name != _WAITS
    }
    begun, cpu, fresh = time.monotonic(), time.process_time(), 0
    for _ in range(_TICKS):
        frame = collector.collect(1.0, 2.0)
        fresh += all(gpu.state == "answers" for gpu in frame.gpus)
    refreshes = fresh / (time.monotonic() - begun)
    cpu_ms = (time.process_time() - cpu) / _TICKS * 1e3
    print(json.dumps({"first": first, "paced": paced, "refreshes": refreshes, "cpu_ms": cpu_ms}))
    sys.stdout.flush()
    os._exit(0)  # as the agent does: a thread waits in the driver


def assumed_ms(function: str) -> float:
    """Return how long bench/machines.py takes a call for."""
    for entry in TIMED:
        names = entry["function"]
        patterns = [names] if isinstance(names, str) else names
        if any(fnmatch.fnmatch(function, pattern) for pattern in patterns):
            return float(entry["ms"])
    return 0.0


def test_calls_and_refreshes(frame: Frame, report: Report) -> None:
    words = [sys.executable, "-c", "from tests.gpu.test_cost import collect; collect()"]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    gpus, paced = len(frame["gpus"]), told["paced"]
    rows: list[Row] = [
        {"function": name, "calls a tick and GPU": call["calls"] / _TICKS / gpus,
         "median ms": call["ms"], "most ms": call["most"], "bench assumes ms": assumed_ms(name)}
        for name, call in sorted(paced.items(), key=lambda item: -item[1]["calls"] * item[1]["ms"])
    ]  # fmt: skip
    driver_ms = sum(call["calls"] * call["ms"] for call in paced.values()) / _TICKS / gpus
    report.note("cost", {
        "calls of the first look": told["first"],
        "calls a tick": sum(call["calls"] for call in paced.values()) / _TICKS,
        "ms in the driver for a tick and GPU": driver_ms,
        "refreshes a second": told["refreshes"],
        "ms of CPU for a refresh": told["cpu_ms"],
    })  # fmt: skip
    report.table("cost", "Calls of the driver, a tick a second", rows)
    slow = f"{told['refreshes']:.2f} refreshes a second: the screen is to have one"
    report.differ("cost", [slow] if told["refreshes"] < 1 else [])


def measured(command: list[str] | None) -> tuple[float | None, list[dict[str, str]]]:
    """Return the CPU seconds a minute of a program on a screen, and what nvidia-smi says of the
    GPUs meanwhile; without a program they are left alone."""
    rows: list[dict[str, str]] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.5):
            rows.extend(query("gpu", *_FIELDS))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        if command is None:
            over.wait(_SECONDS)
            return None, rows
        with closing(Recorder(command, 200, 50, dict(os.environ))) as screen:
            screen.listen(3.0)
            before = cpu_seconds(screen.process.pid)
            screen.listen(_SECONDS)
            used = cpu_seconds(screen.process.pid) - before
            assert screen.process.poll() is None, bytes(screen.raw[-500:]).decode(errors="replace")
            return used / _SECONDS * 60, rows
    finally:
        over.set()
        looking.join()


def test_cpu_and_what_a_tick_costs_the_gpu(frame: Frame, report: Report) -> None:
    programs: dict[str, list[str] | None] = {"nobody": None, "gputop": [*GPUTOP, "--interval", "1"]}
    if importlib.util.find_spec("nvitop"):
        programs["nvitop"] = [sys.executable, "-m", "nvitop", "--interval", "1"]
    rows: list[Row] = []
    modes: dict[str, set[str]] = {}
    for name, command in programs.items():
        cpu, seen = measured(command)
        watts = [float(row["power.draw"]) for row in seen if row["power.draw"][:1].isdigit()]
        clocks = [int(row["clocks.sm"]) for row in seen if row["clocks.sm"].isdigit()]
        modes[name] = {f"{row['uuid']} {row['persistence_mode']}" for row in seen}
        rows.append({
            "watches": name, "CPU s a minute": cpu,
            "W of a GPU": statistics.mean(watts) if watts else None,
            "SM MHz": statistics.mean(clocks) if clocks else None,
            "P-states": " ".join(sorted({row["pstate"] for row in seen})),
        })  # fmt: skip
    report.table("cost", "A screen at one refresh a second", rows)
    report.note("cost", {"nvitop": "is not installed" if "nvitop" not in programs else "installed"})
    changed = [f"persistence mode was {modes['nobody']}, and is {modes['gputop']} under gputop"]
    report.differ("cost", changed if modes["gputop"] != modes["nobody"] else [])
