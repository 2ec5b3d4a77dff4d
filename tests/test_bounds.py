"""What is remembered has a bound: processes that come and go leave nothing behind."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sized
from pathlib import Path
from subprocess import PIPE

import pytest

import gputop
from gputop.agent.gpu.lists import Utilization
from gputop.agent.idle import IdleTimes
from gputop.agent.process.containers import ContainerNames
from gputop.agent.process.enrichment import Enricher, EnrichmentRequest
from gputop.agent.process.processes import ProcessCache
from gputop.model.cuda.logical_names import LogicalNames
from gputop.model.machine.frame import Frame
from gputop.model.machine.origin import Container
from gputop.model.machine.process_id import ProcessId
from gputop.model.metrics.history import History
from gputop.model.processes import process_rows
from gputop.model.processes.ended import RecentlyEnded
from tests.builders import frame, process
from tests.conftest import MachineFactory, rest_long
from tests.terminal import Terminal

UNBOUNDED = {
    "gputop.tui.terminal.compatibility.is_supported": 1,
    "gputop.protocol.codec._decoder": 2,
    "gputop.agent.host.is_wsl": 1,
    "gputop.sources.ssh.carry._loader": 1,
    "gputop.sources.ssh.carry._archive": 2,  # packed by bz2, and by zlib
    "gputop.sources.ssh.client.allow_many_files": 1,
    "gputop.sources.ssh.login._new_folder": 1,
}
"""By how many keys there are."""


def kept(thing: object) -> int:
    """How many things its tables hold."""
    return sum(len(value) for value in vars(thing).values() if isinstance(value, Sized))


def caches() -> Iterator[tuple[str, int | None]]:
    """Every cache of a function in gputop, and its bound."""
    for found in pkgutil.walk_packages(gputop.__path__, "gputop."):
        if not found.name.endswith("__main__"):
            module = importlib.import_module(found.name)
            classes = [member for _, member in inspect.getmembers(module, inspect.isclass)]
            for holder in (module, *classes):
                for value in vars(holder).values():
                    kept = isinstance(value, functools._lru_cache_wrapper)
                    if kept and value.__module__.startswith("gputop."):
                        yield f"{value.__module__}.{value.__qualname__}", value.cache_info().maxsize


def test_every_cache_has_a_bound() -> None:
    bounds = dict(caches())
    assert len(bounds) > len(UNBOUNDED)
    assert {name for name, bound in bounds.items() if bound is None} == UNBOUNDED.keys()
    assert max(bound or 0 for bound in bounds.values()) <= 1024


def finished() -> Callable[[Frame], object]:
    made = RecentlyEnded()

    def handle(shown: Frame) -> object:
        rows = process_rows.rows(shown)
        made.handle(shown, rows, process_rows.row_keys(shown, rows))
        return made

    return handle


def history() -> Callable[[Frame], object]:
    made = History()

    def handle(shown: Frame) -> object:
        made.append(shown)
        return made._processes

    return handle


def names() -> Callable[[Frame], object]:
    made: LogicalNames | None = None

    def handle(shown: Frame) -> object:
        nonlocal made
        made = LogicalNames(shown, made)
        for row in shown.processes:
            made.name(row)
        return made

    return handle


@pytest.mark.parametrize("make", [finished, history, names])
def test_of_processes_that_came_and_went(make: Callable[[], Callable[[Frame], object]]) -> None:
    """Ten seconds each, the first of them without a start time, as where it is not told at once."""
    handle, sizes = make(), []
    for n in range(400):
        now = 2000.0 + 10 * n
        start = None if n % 3 else 1000.0
        handle(frame(processes=[process(n + 1, start_time=start, gpu_memory=5)], time=now))
        rows = [process(n + 1, start_time=1000.0, gpu_memory=5)]
        found = handle(frame(processes=rows, time=now + 5))
        sizes.append(len(found) if isinstance(found, dict) else kept(found))
    assert max(sizes[:100]) == max(sizes[-100:])


def test_idle_times() -> None:
    idle, sizes = IdleTimes(), []
    for n in range(400):
        samples = {n: Utilization(0.5, 1, None, None, None)}
        idle.of_process((0, ProcessId(n, 1)), samples, 0.5, float(n))
        idle.end_cycle()
        sizes.append(kept(idle))
    assert max(sizes[:100]) == max(sizes[-100:])


@pytest.mark.system
def test_facts_of_processes() -> None:
    facts, surveyor, sizes = ProcessCache(), Enricher(), []
    for _ in range(40):
        with subprocess.Popen(["sh", "-c", "echo; read x"], stdin=PIPE, stdout=PIPE) as program:
            assert program.stdout
            assert program.stdout.readline() == b"\n"  # by now it has libcuda
            known = facts.read([program.pid], timeout=5)
            keys = frozenset(ProcessId(pid, fact.start_ticks) for pid, fact in known.items())
            assert len(keys) == 1
            told = surveyor.read(EnrichmentRequest(keys, frozenset({0})), timeout=5)
            assert told.origins.keys() == keys
            sizes.append(kept(facts) + kept(surveyor))
            program.kill()
    assert max(sizes[:20]) == max(sizes[-20:])


def test_names_of_containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # with no runtime that could be asked
    names, sizes = ContainerNames(), []
    for n in range(20):
        names.prepare(Container(f"{n}-{k}", "podman") for k in range(200))
        names.wait(5)
        sizes.append(kept(names))
    assert max(sizes[:10]) == max(sizes[-10:])


COLLECTS = """
import gc, sys
from gputop.__main__ import main

main()
print("collects:", gc.isenabled(), file=sys.stderr)
"""
"""The start turns that off; without it a screen grows by megabytes a minute."""


@pytest.mark.system
@rest_long("words", [], ["--demo"])
def test_garbage_is_collected_while_there_is_a_screen(
    words: list[str], machine: MachineFactory
) -> None:
    argv = [sys.executable, "-c", COLLECTS, *words]
    with Terminal(argv, cols=100, rows=30, env=machine("h200x8").env) as terminal:
        terminal.wait_for(lambda: "train.py" in terminal.text and "quit" in terminal.text)
        terminal.send(b"q")
        terminal.wait_for("collects: True")


@pytest.mark.system
def test_garbage_is_collected_while_json_is_watched(machine: MachineFactory) -> None:
    argv = [sys.executable, "-c", COLLECTS, "--json", "--watch", "-i", "0.1"]
    program = machine("h200x8").popen(argv, stderr=subprocess.PIPE)
    assert program.stdout
    assert program.stderr
    assert program.stdout.readline()
    program.stdout.close()
    assert program.stderr.readline() == "collects: True\n"
