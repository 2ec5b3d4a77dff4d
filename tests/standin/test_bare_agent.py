"""The whole agent where nothing is installed: the same frames, and the same is done."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import psutil
import pytest

from gputop.sources.ssh.standin import psutil as standin
from tests.agent.driving import Agent
from tests.conftest import MachineFactory, needs_everybody, rest_long
from tests.patience import until
from tests.standin.pythons import bare, pythons

pytestmark = pytest.mark.system

_SPEC = importlib.util.find_spec("pynvml")
PYNVML = str(_SPEC and _SPEC.origin)
CHANGING = {"memory_used", "rss", "state", "threads"}


def lasting(value: Any) -> Any:
    """What does not change from one moment to the next; of measured values that there are any."""
    if isinstance(value, dict):
        return {key: lasting(inner) for key, inner in value.items() if key not in CHANGING}
    if isinstance(value, list):
        return list(map(lasting, value))
    return "measured" if isinstance(value, float) else value


@needs_everybody  # in a container processes of other tests may be on its GPUs
@rest_long("python", *pythons()[:2])
def test_it_shows_and_does_the_same(python: str, machine: MachineFactory) -> None:
    here = machine("h200x8")
    expected: list[Any] = []

    def is_the_same() -> bool:
        expected.append(lasting(installed.line()))  # what takes it a while to find out comes later
        return lasting(agent.line()) in expected[2:]

    with Agent(here, interval=0.2, prefix=bare(python, "agent", PYNVML)) as agent:
        with Agent(here, interval=0.2) as installed:
            assert agent.hello == installed.hello
            until(is_the_same, within=10)
        frame = agent.line()
        assert None not in (frame["host"]["cpu"], frame["host"]["memory_used"])
        process = frame["processes"][0]
        target = {"process": {name: process[name] for name in ("pid", "start_ticks")}}
        agent.ask("signal", id="s1", targets=[{**target, "forced": True}], number=15, grace=5.0)
        assert agent.done("s1")["verdicts"][0]["outcome"] == "exited"
        agent.ask("detail", id="d1", **target)
        assert agent.done("d1")["detail"]["gone"] is True
        agent.ask("checks", id="c1")
        assert agent.done("c1")["checks"]
        agent.close_stdin()
        assert agent.process.wait(60) == 0
        assert agent.process.stderr
        assert agent.process.stderr.read() == b""


def test_the_machine_is_as_psutil_tells_it() -> None:
    """Numbers that change from one call to the next are near."""
    assert standin.boot_time() == psutil.boot_time()
    assert standin.cpu_count() == psutil.cpu_count()
    assert os.getpid() in standin.pids()
    ours, theirs = standin.virtual_memory(), psutil.virtual_memory()
    assert ours.total == theirs.total
    assert ours.available == pytest.approx(theirs.available, rel=0.05)


def test_cpu_use_is_that_of_psutil() -> None:
    """Its times are: the use of a busy machine is 100 % whatever counts as idle."""
    all_, idle = standin._cpu_times()
    theirs = psutil.cpu_times()
    assert idle == pytest.approx(100 * (theirs.idle + theirs.iowait), rel=0.01)
    assert all_ == pytest.approx(100 * sum(theirs[:8]), rel=0.01)
    assert 0 <= standin.cpu_percent() <= 100
