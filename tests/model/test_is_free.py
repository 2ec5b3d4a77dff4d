"""What free means: the same for every reader."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.model.cuda.pick import PickRequest, choose
from gputop.model.fleet.host_summary import lamp
from gputop.model.health.free import WORDS, count_of_free, is_free, not_free, objections
from gputop.model.machine.environment import AgentSurroundings
from gputop.model.machine.frame import Frame, Process
from gputop.model.machine.gpu import Gpu, MigDevice, Reservation, SlurmJob
from gputop.model.machine.sections import Activity, Health, Pcie
from gputop.sources.ask import answers
from tests.builders import GIB, frame, gpu, process

JOB = SlurmJob(number="4711", user="carol")
BOB = Reservation(user="bob", since=1960.0)
CASES: list[tuple[Gpu, list[Process], str | None]] = [
    (gpu(), [], None),
    (gpu(memory_used=600 * 2**20), [], None),
    (gpu(), [process(1, on=1)], None),
    (gpu(memory_used=100), [process(1, type="G")], None),
    (gpu(utilization=0.1), [], None),
    (gpu(compute_mode="exclusive_process"), [], None),
    (gpu(persistence_mode=False), [], None),
    (gpu(error="GPU is lost"), [], "the driver says: GPU is lost"),
    (gpu(stale_for=3.0), [], "it does not answer"),
    (gpu(uuid=None), [], "its UUID is not known"),
    (Gpu(index=0), [], "it has not answered yet"),
    (gpu(state="asleep"), [], "it is asleep"),
    (gpu(mig_mode=True), [], "it is in MIG mode"),
    (gpu(compute_mode="prohibited"), [], "its compute mode is prohibited"),
    (gpu(reservation=BOB), [], "it is reserved by bob, 40s"),
    (gpu(reservation=BOB), [process(1, user="bob")], "processes of bob"),
    (gpu(slurm_job=JOB), [], "it is held by Slurm job 4711 of carol"),
    (gpu(slurm_job=JOB), [process(1, user="carol")], "processes of carol"),
    (gpu(slurm_job=SlurmJob()), [], "it is held by a Slurm job"),
    (gpu(listed="ours"), [], "from inside a container"),
    (gpu(listed="none"), [], "the driver does not say who is on it"),
    (gpu(listed="unknown"), [], "who is on it has not been seen yet"),
    (gpu(listed="unknown", numa_node=1), [], "who is on it has not been seen yet"),
    (gpu(), [process(1)], "processes of alice"),
    (gpu(), [process(1, gpu_memory=0)], "processes of alice"),
    (gpu(), [process(1, user=None)], "processes of 1 of unknown users"),
    (gpu(), [process(1, type="C+G")], "processes of alice"),
    (gpu(), [process(1, type="M+C")], "processes of alice"),
    (gpu(memory_used=GIB), [], "1.00G in use, by nobody who can be seen from here"),
    (gpu(memory_used=GIB, memory_unaccounted=0), [process(1, type="G")], "by graphics processes"),
    (gpu(memory_used=None), [], "how much of its memory is in use is not known"),
    (gpu(utilization=0.97), [], "97 % busy"),
    (gpu(utilization=0.104), [], "10.4 % busy, more than 10 %"),
    (gpu(utilization=None), [], "its utilization is not known"),
    (gpu(health=Health(recovery_action="gpu_reset")), [], "it needs attention"),
    (gpu(utilization=0.97, pcie=Pcie(width=8, width_max=16)), [], "8 of 16 lanes"),
]


@pytest.mark.parametrize(("here", "processes", "reason"), CASES)
def test_free_or_why_not(here: Gpu, processes: list[Process], reason: str | None) -> None:
    now = frame([here, gpu(1, memory_used=GIB)], processes)
    objection = not_free(now, here)
    assert is_free(now, here) is (reason is None) is (objection is None)
    assert [gpu for gpu in now.gpus if is_free(now, gpu)] == ([] if reason else [here])
    if reason is not None:
        assert objection is not None
        assert reason in objection.text


@pytest.mark.parametrize(("here", "processes", "reason"), CASES)
def test_a_job_is_given_what_is_free_and_nothing_else(
    here: Gpu, processes: list[Process], reason: str | None
) -> None:
    pick = choose([frame([here], processes)], PickRequest())
    assert pick.gpus == (None if reason else (here,))
    if reason is not None:
        assert reason in pick.reasons["0"]


def test_every_short_reason_is_explained() -> None:
    explained = {re.sub(r"[\d.]+G?", "#", word) for word, _ in WORDS}
    shorts = {
        re.sub(r"[\d.]+G?", "#", objection.short)
        for here, processes, _ in CASES
        for unread in (among_jobs, before_reservations_are_read)
        for objection in objections(unread(frame([here], processes)), here)
    }
    assert shorts == explained


def before_reservations_are_read(now: Frame) -> Frame:
    return replace(now, host=replace(now.host, reservations_unknown=True))


def test_a_gpu_that_may_be_reserved_is_not_free_and_a_command_waits() -> None:
    now = frame([gpu(0)])
    assert is_free(now, now.gpus[0])
    assert answers(now)
    unread = before_reservations_are_read(now)
    objection = not_free(unread, unread.gpus[0])
    assert objection is not None
    assert (objection.text, objection.is_sure) == ("whether it is reserved is not known", False)
    assert not answers(unread)


def among_jobs(now: Frame, own: str | None = None) -> Frame:
    """On a machine where what some jobs of Slurm hold cannot be read."""
    surroundings = AgentSurroundings(job=own)
    return replace(now, host=replace(now.host, jobs_unknown=True, surroundings=surroundings))


def test_where_jobs_cannot_be_read_only_ones_own_gpus_are_free() -> None:
    gpus = [gpu(0), gpu(1, slurm_job=JOB), gpu(2)]
    outside, inside = (among_jobs(frame(gpus), own) for own in (None, "Slurm 4711"))
    assert [is_free(outside, here) for here in gpus] == [False] * 3
    assert [is_free(inside, here) for here in gpus] == [False, True, False]
    assert count_of_free(outside) is None
    shared = PickRequest(shared=True, min_free=0)
    assert choose([outside], PickRequest()).gpus is None
    assert choose([outside], shared).gpus in ((gpus[0],), (gpus[2],))


def test_a_job_keeps_its_gpu_from_those_who_would_share_it() -> None:
    here = gpu(slurm_job=JOB, memory_free=100 * GIB)
    pick = choose([frame([here])], PickRequest(shared=True, min_free=GIB, max_utilization=1.0))
    assert (pick.gpus, pick.possible) == (None, True)


def test_a_reservation_is_never_looked_past() -> None:
    """Not by who would share the GPU with what runs on it, nor in a part of it; and it ends."""
    here = gpu(reservation=BOB, memory_free=100 * GIB)
    shared = PickRequest(shared=True, min_free=GIB, max_utilization=1.0)
    for processes in ([], [process(1, user="bob")]):
        pick = choose([frame([here], processes)], shared)
        assert (pick.gpus, pick.reasons) == (None, {"0": "it is reserved by bob, 40s"})
        assert pick.possible
    device = MigDevice(gi=2, ci=0, memory_used=0)
    assert not is_free(frame([here]), here, device)


def test_a_reserved_gpu_is_not_held_for_nothing() -> None:
    idle = gpu(reservation=BOB, idle_for=9000.0)
    assert lamp(frame([idle]), idle, 600) == "used"
    assert lamp(frame([idle], [process(1, user="bob")]), idle, 600) == "idle"


def test_what_cannot_be_found_out_is_not_known_to_be_in_use() -> None:
    doubts = [gpu(stale_for=3.0), gpu(state="asleep"), gpu(listed="none"),
              gpu(memory_used=None), gpu(utilization=None)]  # fmt: skip
    for here in doubts:
        objection = not_free(frame([here]), here)
        assert objection is not None
        assert objection.level == "warning"
        assert count_of_free(frame([here, gpu(1, memory_used=GIB)])) is None
        assert lamp(frame([here]), here, 600) == "unknown"
    for here in (gpu(stale_for=9.0), gpu(error="lost"), gpu(memory_used=GIB, utilization=None)):
        assert count_of_free(frame([here])) == 0
    late = gpu(stale_for=3.0)
    assert count_of_free(frame([late], [process(1)])) == 0, "it has been in use until now"
    taken = not_free(frame([gpu()], [process(1)]), gpu())
    assert taken is not None
    assert taken.level == "info"


def test_where_nobody_is_seen_nothing_is_counted() -> None:
    inside = gpu(listed="ours")
    assert count_of_free(frame([inside])) is None
    assert count_of_free(frame([gpu(listed="none"), gpu(1, memory_used=GIB)])) is None
    assert count_of_free(frame([inside, gpu(1)])) == 1
    assert count_of_free(frame([gpu(memory_used=GIB)])) == 0


MIG: list[tuple[dict[str, Any], dict[str, Any], list[Process], bool]] = [
    ({}, {}, [], True),
    ({}, {}, [process(1, gpu_instance=1, compute_instance=0)], True),
    ({}, {}, [process(1, gpu_instance=2, compute_instance=1)], True),
    ({}, {}, [process(1, gpu_instance=2, compute_instance=0)], False),
    ({}, {}, [process(1, gpu_instance=2)], False),
    ({}, {}, [process(1)], False),
    ({}, {"memory_used": GIB}, [], False),
    ({}, {"memory_used": None}, [], False),
    ({}, {"activity": Activity(graphics=0.5)}, [], False),
    ({"stale_for": 3.0}, {}, [], False),
    ({"listed": "none"}, {}, [], False),
    ({"health": Health(recovery_action="gpu_reset")}, {}, [], False),
]


@pytest.mark.parametrize(("of_gpu", "of_device", "processes", "free"), MIG)
def test_a_mig_device(
    of_gpu: dict[str, Any], of_device: dict[str, Any], processes: list[Process], free: bool
) -> None:
    device = MigDevice(**{"gi": 2, "ci": 0, "memory_used": 13 * 2**20, **of_device})
    here = gpu(mig_mode=True, mig=(device,), utilization=None, memory_used=30 * GIB, **of_gpu)
    assert is_free(frame([here], processes), here, device) is free
    assert not is_free(frame([here], processes), here)
