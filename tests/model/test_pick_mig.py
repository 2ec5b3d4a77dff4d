"""Which MIG devices a new job gets."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gputop.errors import UsageError
from gputop.model.cuda.pick import GpuPick, PickRequest, choose, value_of
from gputop.model.health.free import free_words
from gputop.model.machine.frame import Frame
from gputop.model.machine.gpu import Gpu, MigDevice, Reservation
from gputop.model.machine.sections import Activity
from tests.builders import GIB, frame, gpu, process


def part(gi: int, ci: int = 0, gigabytes: int = 20, **fields: Any) -> MigDevice:
    profile, total = f"{gigabytes // 10}g.{gigabytes}gb", gigabytes * GIB
    usual = {"uuid": f"MIG-{gi}-{ci}", "profile": profile, "memory_total": total, "memory_used": 0}
    return MigDevice(gi=gi, ci=ci, **{**usual, **fields})


def divided(index: int, *parts: MigDevice, **fields: Any) -> Gpu:
    bus = f"00000000:{index + 1:02X}:00.0"
    return gpu(index, mig_mode=True, mig=parts, utilization=None, pci_bus_id=bus, **fields)


def machine(*gpus: Gpu, processes: tuple[Any, ...] = (), driver: str = "580.95.05") -> Frame:
    return replace(frame(gpus, processes), driver_version=driver)


def picked(of: Frame, **wanted: Any) -> list[str]:
    return choose([of], PickRequest(**wanted)).numbers


SIZES = machine(divided(0, part(1, gigabytes=10), part(2), part(3, gigabytes=40)))


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        ({}, ["0:3"]),
        ({"min_free": 15 * GIB}, ["0:3"]),
        ({"exclude": ("0:3",)}, ["0:2"]),
        ({"exclude": ("MIG-3-0", "0:2")}, ["0:1"]),
        ({"exclude": ("mig-3", "MIG-2")}, ["0:1"]),
        ({"exclude": ("0",)}, []),
        ({"min_free": 41 * GIB}, []),
        ({"count": 2}, ["0:2", "0:3"]),
        ({"count": 2, "same_model": True}, []),
        ({"count": 4}, []),
        ({"value": "MIG-1-0"}, ["0:1"]),
        ({"value": ""}, []),
    ],
)
def test_those_with_most_memory_are_taken(wanted: dict[str, Any], numbers: list[str]) -> None:
    assert picked(SIZES, **wanted) == numbers


@pytest.mark.parametrize(
    ("device", "why"),
    [
        ({"memory_used": 9 * GIB}, "9.00G in use"),
        ({"memory_used": None}, "is not known"),
        ({"uuid": None}, "its UUID is not known"),
        ({"activity": Activity(graphics=0.5)}, "50 % busy"),
        ({"reservation": Reservation(user="bob", since=0.0)}, "reserved by bob"),
    ],
)
def test_why_one_is_not_taken(device: dict[str, Any], why: str) -> None:
    pick = choose([machine(divided(0, part(1, **device)))], PickRequest())
    assert (pick.parts, pick.of_slices, pick.suitable) == (None, True, 0)
    assert why in pick.reasons["0:1"]


def test_somebody_on_one_is_on_no_other() -> None:
    train = process(7, gpu_instance=1, compute_instance=0)
    here = machine(divided(0, part(1), part(2)), processes=(train,))
    assert picked(here) == ["0:2"]
    assert free_words(here) == ["1 of 2 slices free"]
    pick = choose([here], PickRequest(count=2))
    assert pick.reasons["0:1"] == "processes of alice"
    assert "0:2" not in pick.reasons
    assert (pick.suitable, pick.free, pick.possible) == (1, 1, True)


def test_a_process_gets_one_of_a_gpu_instance() -> None:
    shared = machine(divided(0, part(1), part(1, 1)))
    assert picked(shared) == ["0:1"]
    pick = choose([shared], PickRequest(count=2))
    assert (pick.gpus, pick.possible) == (None, False)


def test_drivers_before_r570_give_one() -> None:
    two = machine(divided(0, part(1), part(2)), driver="550.54.15")
    assert picked(two) == ["0:1"]
    assert not choose([two], PickRequest(count=2)).possible


def test_a_gpu_that_may_become_free_is_waited_for() -> None:
    busy = gpu(1, utilization=0.9, pci_bus_id="00000000:09:00.0")
    mixed = machine(divided(0, part(1)), busy)
    pick = choose([mixed], PickRequest())
    assert (pick.parts, pick.of_slices, pick.possible) == (None, False, True)
    assert picked(mixed, exclude=("1",)) == ["0:1"]
    assert free_words(mixed) == ["0 free", "1 of 1 slices free"]


@pytest.mark.parametrize("by_uuid", [False, True])
def test_they_are_named_by_their_uuids(by_uuid: bool) -> None:
    pick = choose([SIZES], PickRequest(count=2))
    value = value_of(SIZES, pick.parts or (), None, by_uuid)
    assert (value.text, value.note) == ("MIG-2-0,MIG-3-0", None)
    assert pick.uuids == ["MIG-2-0", "MIG-3-0"]


def test_a_value_that_means_something_else_is_not_given() -> None:
    twins = machine(divided(0, part(1, uuid="MIG-x"), part(2, uuid="MIG-x")))
    pick: GpuPick = choose([twins], PickRequest(exclude=("0:1",)))
    assert pick.numbers == ["0:2"]
    assert value_of(twins, pick.parts or (), None).text is None


def test_a_word_that_names_nothing() -> None:
    with pytest.raises(UsageError, match="names no GPU here"):
        choose([SIZES], PickRequest(exclude=("0:9",)))
