"""Who is on a GPU and how much of it each uses: lists of all eras, samples, garbage."""

from __future__ import annotations

import struct
import sys
import time
from collections import Counter
from typing import Any

import msgspec
import pynvml
import pytest

from gputop.agent.gpu.lists import ProcessLists
from gputop.model.health.free import is_free
from gputop.model.machine.frame import Frame
from tests.agent.driving import Agent, Json
from tests.conftest import MachineFactory, needs_everybody, rest_long

pytestmark = pytest.mark.system

MIB = 2**20
NOBODY = 4194305
"""Beyond the greatest pid that Linux gives."""


def scenario(*compute: Json, **gpu: Any) -> Json:
    return {"gpu": {"uuid": "GPU-{i}", "compute": list(compute), **gpu}}


def rows(frame: Json, *fields: str) -> list[tuple[Any, ...]]:
    return [tuple(process[field] for field in fields) for process in frame["processes"]]


# Lists


@needs_everybody
@pytest.mark.parametrize("error", ["NOT_SUPPORTED", "NO_PERMISSION"])
def test_a_gpu_without_a_list_of_processes_is_not_free(error: str, machine: MachineFactory) -> None:
    """That nobody is listed says nothing then: as under WSL."""
    idle = {"utilization": {"gpu": 0, "memory": 0}}
    memory = {"total": 2**34, "used": MIB, "reserved": 0}
    here = machine({**scenario(memory=memory, **idle), "gpus": 2})
    here.fail("nvmlDeviceGetComputeRunningProcesses*", error, gpu=1)
    with Agent(here) as agent:
        for frame in (agent.line(), agent.refresh()):
            assert [gpu["listed"] for gpu in frame["gpus"]] == ["all", "none"]
            known = msgspec.convert(frame, Frame)
            assert [gpu.index for gpu in known.gpus if is_free(known, gpu)] == [0]
    done = here.run([sys.executable, "-m", "gputop", "free", "-n", "2", "--max-util", "100"])
    assert (done.returncode, done.stdout) == (1, "")
    assert "GPU 1" in done.stderr
    assert "the driver does not say who is on it" in done.stderr


@rest_long("era", 390, 450, 535, 580)
def test_lists_of_every_era(era: int, machine: MachineFactory) -> None:
    """Old drivers tell no instances and have no list of MPS clients."""
    listed: list[Json] = [
        {"pid": NOBODY, "used": 5 * MIB, "gi": 1, "ci": 0},
        {"pid": NOBODY + 1, "used": None},
    ]
    mps = [{"pid": NOBODY + 2, "used": MIB}]
    here = machine({**scenario(*listed, mps=mps), "era": era})
    with Agent(here) as agent:
        told = rows(agent.line(), "pid", "gpu_memory", "type", "gpu_instance", "compute_instance")
    new = era >= 535
    assert (
        told
        == [
            (NOBODY, 5 * MIB, "C", 1 if new else None, 0 if new else None),
            (NOBODY + 1, None, "C", None, None),
        ]
        + [(NOBODY + 2, MIB, "M", None, None)] * new
    )


@pytest.mark.parametrize("suffix", ["_v3", "_v2"])
def test_an_unsupported_list_leaves_the_others(suffix: str, machine: MachineFactory) -> None:
    here = machine(scenario({"pid": NOBODY}, graphics=[{"pid": NOBODY + 1}]), log=True)
    here.fail("nvmlDeviceGetComputeRunningProcesses*", "NOT_SUPPORTED")
    with Agent(here) as agent:
        assert rows(agent.line(), "pid", "type") == [(NOBODY + 1, "G")]
        here.forget_calls()
        assert rows(agent.refresh(), "pid", "type") == [(NOBODY + 1, "G")]
    assert "nvmlDeviceGetComputeRunningProcesses" + suffix not in dict(here.calls())


@pytest.mark.parametrize(
    ("lists", "kind"),
    [
        (("compute",), "C"),
        (("graphics",), "G"),
        (("mps",), "M"),
        (("compute", "graphics"), "C+G"),
        (("compute", "mps"), "M+C"),
        (("graphics", "mps"), "M+G"),
        (("compute", "graphics", "mps"), "M+C+G"),
    ],
)
def test_a_process_of_several_lists_is_one_row(
    lists: tuple[str, ...], kind: str, machine: MachineFactory
) -> None:
    """It holds its memory once: the largest figure counts, not the sum."""
    told = {name: [{"pid": NOBODY, "used": 7 * MIB - n}] for n, name in enumerate(lists)}
    with Agent(machine({"gpu": {"uuid": "GPU-0", **told}})) as agent:
        assert rows(agent.line(), "pid", "gpu_memory", "type") == [(NOBODY, 7 * MIB, kind)]


def test_unknown_memory_in_one_list_is_known_from_the_other(machine: MachineFactory) -> None:
    graphics = [{"pid": NOBODY, "used": MIB}]
    with Agent(machine(scenario({"pid": NOBODY, "used": None}, graphics=graphics))) as agent:
        assert rows(agent.line(), "gpu_memory", "type") == [(MIB, "C+G")]


def test_instances_of_a_mig_gpu_stay_apart(machine: MachineFactory) -> None:
    here = machine("mig-processes")
    train, notebook = here.pids["train"], here.pids["notebook"]
    with Agent(here) as agent:
        frame = agent.line()
    told = rows(frame, "pid", "gpu_instance", "compute_instance", "gpu_memory")
    gib = 2**30
    assert sorted(told) == sorted(
        [(train, 1, 0, 10 * gib), (train, 2, 0, 5 * gib), (notebook, 2, 0, 5 * gib)]
    )
    assert {process["gpu_uuid"] for process in frame["processes"]} == {here.gpu(0)["uuid"]}
    assert [gpu["mig_mode"] for gpu in frame["gpus"]] == [True, True]
    assert [gpu["utilization"] for gpu in frame["gpus"]] == [None, None]


@pytest.mark.parametrize("era", [390, 580])
def test_a_list_that_grows_is_read_whole(era: int, machine: MachineFactory) -> None:
    here = machine({**scenario(), "era": era})
    with Agent(here) as agent:
        assert agent.line()["processes"] == []
        for count in (1, 32, 33, 500, 2):
            seen = int(time.time() * 1e6)
            listed = [
                {"pid": NOBODY + n, "used": n + 1, "sm": 1, "sample_time": seen}
                for n in range(count)
            ]
            here.change(gpu=0, compute=listed)
            expected = [(NOBODY + n, n + 1, 0.01) for n in range(count)]
            assert rows(agent.refresh(), "pid", "gpu_memory", "sm_utilization") == expected


def test_a_process_on_two_gpus_is_two_rows(machine: MachineFactory) -> None:
    with Agent(machine({**scenario({"pid": NOBODY, "used": MIB}), "gpus": 2})) as agent:
        assert rows(agent.line(), "pid", "gpu_uuid") == [(NOBODY, "GPU-0"), (NOBODY, "GPU-1")]


def test_memory_that_cannot_be_is_unknown(machine: MachineFactory) -> None:
    listed = [
        {"pid": NOBODY, "used": 2**64 - 1},
        {"pid": NOBODY + 1, "used": 2**63},
        {"pid": NOBODY + 2, "used": 101 * MIB},
        {"pid": NOBODY + 3, "used": 100 * MIB},
        {"pid": NOBODY + 4, "used": 0},
    ]
    here = machine(scenario(*listed, memory={"total": 100 * MIB, "used": 0, "reserved": 0}))
    with Agent(here) as agent:
        told = [memory for (memory,) in rows(agent.line(), "gpu_memory")]
    assert told == [None, None, None, 100 * MIB, 0]


# Samples


def soon() -> int:
    """Microseconds, by a clock that is half a minute fast: new enough, however late it is read."""
    return int((time.time() + 30) * 1e6)


def test_no_sample_is_not_zero(machine: MachineFactory) -> None:
    listed = [{"pid": NOBODY, "sm": 0}, {"pid": NOBODY + 1}, {"pid": NOBODY + 2, "sm": 100}]
    with Agent(machine(scenario(*listed))) as agent:
        assert rows(agent.line(), "sm_utilization") == [(0.0,), (None,), (1.0,)]


def test_a_sample_counts_once(machine: MachineFactory) -> None:
    """A timestamp that does not move is the old sample again, whatever its figure is."""
    seen = soon()
    here = machine(scenario({"pid": NOBODY, "sm": 40, "sample_time": seen}))
    with Agent(here) as agent:
        assert rows(agent.line(), "sm_utilization") == [(0.4,)]
        assert rows(agent.refresh(), "sm_utilization") == [(None,)]
        here.change(gpu=0, compute=[{"pid": NOBODY, "sm": 60, "sample_time": seen + 1}])
        assert rows(agent.refresh(), "sm_utilization") == [(0.6,)]
        here.change(gpu=0, compute=[{"pid": NOBODY, "sm": 99, "sample_time": seen}])
        assert rows(agent.refresh(), "sm_utilization") == [(None,)]


def test_samples_after_the_clock_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are older than the last one, and new."""
    now = [1e9]

    def samples(handle: object, array: Any, count: Any, since: object) -> int:
        struct.pack_into("<I4xQIIII", array, 0, 7, int(now[0] * 1e6), 90, 0, 0, 0)
        count._obj.value = 1
        return 0

    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", lambda name: samples)
    monkeypatch.setattr(time, "time", lambda: now[0])
    lists, told = ProcessLists(), []
    for now[0] in (1e9, 1e9 + 1, 1e9 - 35, 1e9 - 34):
        told.append([sample.sm for sample in lists.utilization(None, True).values()])
    assert told == [[0.9]] * 4


def test_samples_are_seldom_asked_for_while_nothing_works(machine: MachineFactory) -> None:
    """They cost the driver most; what worked, or works, is looked at each time."""
    seen = soon()

    def process(sm: int, later: int) -> Json:
        return {"pid": NOBODY, "sm": sm, "sample_time": seen + later}

    here = machine(scenario(process(0, 0), utilization={"gpu": 0, "memory": 0}), log=True)

    def look() -> tuple[list[tuple[Any, ...]], int]:
        here.forget_calls()
        shown = rows(agent.refresh(), "sm_utilization")
        return shown, Counter(here.calls())["nvmlDeviceGetProcessUtilization", 0]

    with Agent(here) as agent:
        assert rows(agent.line(), "sm_utilization") == [(0.0,)]
        assert [look() for _ in range(3)] == [([(0.0,)], 0)] * 3
        here.change(gpu=0, utilization={"gpu": 30}, compute=[process(30, 1)])
        assert look() == ([(0.3,)], 1)
        here.change(gpu=0, utilization={"gpu": 0}, compute=[process(0, 2)])
        assert [look() for _ in range(3)] == [([(0.0,)], times) for times in (1, 0, 0)]


def test_garbage_among_the_samples(machine: MachineFactory) -> None:
    """Over 100 %, from long ago, from a time to come: not shown, and they hide no true sample."""
    now = soon()
    listed = [
        {"pid": NOBODY, "sm": 101, "sample_time": now},
        {"pid": NOBODY + 1, "sm": 2**32 - 1, "sample_time": now},
        {"pid": NOBODY + 2, "sm": 50, "sample_time": now - 3_600_000_000},
        {"pid": NOBODY + 3, "sm": 50, "sample_time": now + 3_600_000_000},
        {"pid": NOBODY + 4, "sm": 50, "sample_time": now},
    ]
    here = machine(scenario(*listed))
    with Agent(here) as agent:
        assert rows(agent.line(), "sm_utilization") == [*[(None,)] * 4, (0.5,)]
        listed[-1] = {**listed[-1], "sm": 60, "sample_time": now + 1}
        here.change(gpu=0, compute=listed)
        assert rows(agent.refresh(), "sm_utilization") == [*[(None,)] * 4, (0.6,)]


def test_samples_of_strangers_make_no_rows(machine: MachineFactory) -> None:
    """A process that left the list while its sample was taken."""
    here = machine(scenario({"pid": NOBODY, "sm": 5}, graphics=[{"pid": NOBODY + 1, "sm": 6}]))
    here.fail("nvmlDeviceGetGraphicsRunningProcesses*", "UNKNOWN")
    with Agent(here) as agent:
        assert rows(agent.line(), "pid", "sm_utilization") == [(NOBODY, 0.05)]
