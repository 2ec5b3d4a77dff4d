"""The GPUs of a container, of a Slurm job, of an MPS client."""

import msgspec
import pytest

from gputop.model.cuda.reach import DeviceSet, Machine, container_set, mps_set, node_set, slurm_set
from gputop.model.cuda.resolve import resolve
from tests.model.inventories import h100, indices
from tests.model.test_mig import TWO


def numbers(found: DeviceSet) -> list[int] | None:
    return indices(found.devices)


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("3,1", [1, 3]),
        ("all", [0, 1, 2, 3]),
        ("none", []),
        ("void", None),
        ("", None),
        (None, None),
        ("GPU-2", [2]),
        ("GPU-", None),
        ("7", None),
        ("nvidia.com/gpu=1", [1]),
        ("nvidia.com/gpu=all", [0, 1, 2, 3]),
        ("junk", None),
    ],
)
def test_container(text: str | None, inside: list[int] | None) -> None:
    found = container_set(h100(4), text)
    assert numbers(found) == inside
    assert found.reason


@pytest.mark.parametrize("text", ["0:1,1", "MIG-0-4-0,GPU-1"])
def test_a_container_may_have_one_mig_device_of_a_gpu(text: str) -> None:
    inside = container_set(TWO, text).devices
    assert inside is not None
    assert [part.label for device in inside for part in device.parts()] == [
        "GPU 0:4 MIG 1g.10gb",
        "GPU 1",
    ]
    assert container_set(TWO, "0:2").devices is None


def test_device_nodes_count_by_minor_and_not_by_index() -> None:
    minors = (3, 2, 1, 0)
    devices = [
        msgspec.structs.replace(d, minor=minor) for d, minor in zip(h100(4), minors, strict=True)
    ]
    inside = node_set(devices, {0, 1}).devices
    assert inside is not None
    assert indices(inside) == [2, 3]
    assert indices(resolve("1", inside, order="PCI_BUS_ID").visible) == [3]
    assert node_set(h100(4), {0}).devices is None


@pytest.mark.parametrize(
    ("job", "value", "inside"),
    [
        ("2,3", "0,1", [2, 3]),
        ("2,3", "2,3", [0, 1, 2, 3]),
        ("0,1", "0,1", [0, 1, 2, 3]),
        ("2", "GPU-2", [2]),
        ("2,3", "1", None),
        ("2,3", None, None),
        ("2,3", "0", None),
        (None, "0", None),
        ("2,9", "0,1", None),
    ],
)
def test_slurm(job: str | None, value: str | None, inside: list[int] | None) -> None:
    assert numbers(slurm_set(h100(4), job, value)) == inside


def test_an_mps_client_counts_the_daemons_list() -> None:
    inside = mps_set(Machine(tuple(h100(4))), "2,0", None).devices
    assert inside is not None
    order = [device.index for device in inside]
    assert indices(resolve("1,0", inside, cuda_order=order).visible) == [0, 2]
    double = resolve("0,2", inside, cuda_order=order)
    assert (indices(double.visible), double.reason) == ([2], "out_of_range")
