"""Published cases of what CUDA_VISIBLE_DEVICES means: driver runs, NVIDIA's guide, bug reports."""

import json
from pathlib import Path
from typing import Any

import pytest

from gputop.model.cuda.enumeration import CudaDevice
from gputop.model.cuda.inventory import read_inventory
from gputop.model.cuda.mapping import Mapping
from gputop.model.cuda.reach import container_set, slurm_set
from gputop.model.cuda.resolve import resolve
from tests.model.inventories import h100, indices

Vector = dict[str, Any]
VECTORS_FILE = Path(__file__).parents[1] / "data" / "visibility" / "vectors.json"
LAYERS = ("driver", "container", "slurm")
# What a case says of the driver, and versions to ask about; None: not known.
DRIVERS: dict[str, tuple[str | None, ...]] = {
    "any": (None, "390.157", "565.57.01", "570.86.10", "610.43.02"),
    "<390": ("384.183",),
    ">=410": ("410.48", "580.65.06"),
    "<570": ("470.42.01", "565.57.01"),
    ">=570": ("570.86.10", "610.43.02"),
}


def vectors(*layers: str) -> list[Vector]:
    """The cases of some layers."""
    found = json.loads(VECTORS_FILE.read_text(encoding="utf-8"))["vectors"]
    return [vector for vector in found if vector["layer"] in layers]


ANSWERED = vectors(*LAYERS)
SETTLED = [v for v in ANSWERED if v["confidence"] in ("high", "medium")]
DISPUTED = [v for v in ANSWERED if v["confidence"] == "low"]
# These give the order that CUDA was seen to use. Without it, nothing but a prediction is left.
OBSERVED = [v for v in ANSWERED if "cuda_order" in v]


def named(vectors: list[Vector]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", vectors, ids=[v["id"] for v in vectors])


def inventory(vector: Vector) -> tuple[CudaDevice, ...]:
    return read_inventory(json.dumps({"gpus": vector["gpus"]}), vector["id"]).devices


def device_set(vector: Vector) -> tuple[CudaDevice, ...]:
    devices = inventory(vector)
    if vector["layer"] == "container":
        found = container_set(devices, vector["nvidia_visible_devices"])
    elif vector["layer"] == "slurm":
        found = slurm_set(devices, vector["slurm_job_gpus"], vector["value"])
    else:
        return devices
    assert found.devices is not None
    return found.devices


def answer(vector: Vector, driver: str | None = None) -> Mapping:
    return resolve(
        vector["value"],
        device_set(vector),
        order=vector["order"],
        cuda_order=vector.get("cuda_order"),
        driver_version=driver,
    )


def answers(vector: Vector) -> list[Mapping]:
    return [answer(vector, driver) for driver in DRIVERS[vector["driver"]]]


def names(devices: tuple[CudaDevice, ...] | None) -> list[int | str | None] | None:
    """NVML indices, and UUIDs of MIG devices, as the cases have them."""
    if devices is None:
        return None
    return [device.mig_uuid if device.instance else device.index for device in devices]


def test_every_published_case_is_in_one_of_the_selections() -> None:
    sizes = [len(selection) for selection in (SETTLED, DISPUTED, OBSERVED)]
    assert (len(vectors(*LAYERS)), sizes) == (103, [97, 6, 8])


@named(SETTLED)
def test_settled_case(vector: Vector) -> None:
    for mapping in answers(vector):
        assert names(mapping.visible) == vector["expect"]
        assert mapping.count == len(vector["expect"])
        stop = mapping.stopped_at
        assert (None if stop is None else stop.position) == vector["stops_at"]
        # The cases about the order give no reason; that of an unset value is that it is unset.
        reason = vector["reason"] or ("unset" if vector["value"] is None else None)
        assert mapping.reason == reason
        assert mapping.documented
        by_bus_id = vector["order"] == "PCI_BUS_ID" or "cuda_order" in vector
        assert mapping.certainty in (("exact",) if by_bus_id else ("exact", "expected"))


@named(DISPUTED)
def test_disputed_case_is_marked(vector: Vector) -> None:
    for mapping in answers(vector):
        assert not mapping.documented
        # Where sources disagree a case also lists "alternatives"; its "expect" is the reading from
        # left to right, which is ours.
        assert names(mapping.visible) == vector["expect"]
        assert mapping.reason == vector["reason"]


@named(OBSERVED)
def test_mixed_models_without_an_observed_order_are_unknown(vector: Vector) -> None:
    mapping = resolve(vector["value"], inventory(vector), order=vector["order"])
    assert (mapping.certainty, mapping.visible) == ("unknown", None)
    everything = {gpu["index"] for gpu in vector["gpus"]}
    complete = set(vector["expect"]) == everything
    known = set(indices(mapping.visible_set) or ())
    assert known == (everything if complete else set())
    assert mapping.count == len(vector["expect"])


@named(OBSERVED)
def test_an_observed_order_is_exact(vector: Vector) -> None:
    assert answer(vector).certainty == "exact"


@pytest.mark.parametrize(
    ("value", "visible", "reason"),
    [
        ("one,two,3", [], "not_a_number"),
        ("3,2,two,one", [3, 2], "not_a_number"),
        ("1gpu2,2ampere", [1, 2], None),
        ("0-2", [0], None),
        ("1.0", [1], None),
        ("2 ", [2], None),
        ("[0,1]", [], "not_a_number"),
        ("0,,1", [0], "empty_entry"),
        (",0", [], "empty_entry"),
        ("²", [], "not_a_number"),
        ("99999999999999999999", [], "out_of_range"),
        ("-99999999999999999999", [], "negative"),
        ("0,1,2,3,-1,0", [0, 1, 2, 3], "negative"),
        ("0,junk,0", [0], "not_a_number"),
        ("GPU-0942,GPU-0", [], "duplicate"),
        ("GPU-194,GPU-09421", [1, 0], None),
        ("GPU-4", [], "unknown_uuid"),
        ("00", [0], None),
        ("1,01", [], "duplicate"),
        ("0x1", [0], None),
        ("08", [], "out_of_range"),
        ("4294967297", [1], None),
        ("-4294967295", [1], None),
        ("9223372036854775810", [2], None),
        ("\t1", [1], None),
        ("0,-0", [], "duplicate"),
        ("0,9,0", [0], "out_of_range"),
        ("GPU-0942,GPU-f,GPU-0942", [0], "unknown_uuid"),
        ("GPU-", [], "unknown_uuid"),
        ("GPU-1942190A", [1], None),
        ("GPU-1,GPU-1942190A", [], "duplicate"),
        ("GPU--1942-190a", [1], None),
        ("GPU-1942190aaa314ff14aa9c388d80f85f1, or so", [1], "kind_mismatch"),
        ("gpu-1942190a", [], "not_a_number"),
        (" GPU-1", [], "not_a_number"),
        ("GPU-1 ", [], "unknown_uuid"),
        ("GPU-1, GPU-2", [1], "kind_mismatch"),
        ("2,GPU-1", [2], "kind_mismatch"),
        ("GPU-1,2", [1], "kind_mismatch"),
        ("1942190a-aa31-4ff1-4aa9-c388d80f85f1", [], "out_of_range"),
        ("3942190a", [], "out_of_range"),
    ],
)
def test_documented_forms(value: str, visible: list[int], reason: str | None) -> None:
    mapping = resolve(value, h100(4), order="PCI_BUS_ID")
    assert (indices(mapping.visible), mapping.reason) == (visible, reason)
    assert mapping.documented


@pytest.mark.parametrize("card", ["h100", "h200"])
def test_what_a_driver_answered(card: str) -> None:
    text = VECTORS_FILE.with_name(f"{card}-580.159.04.jsonl").read_text(encoding="utf-8")
    asked = [json.loads(line) for line in text.splitlines()]
    assert len(asked) > 160
    for answer in asked:
        gpu = CudaDevice(0, answer["uuid"], "00000000:00:06.0", card)
        mapping = resolve(
            answer["value"], [gpu], order=answer["order"], driver_version="580.159.04"
        )
        assert (mapping.count, mapping.documented) == (answer["devices"], True), answer
        # CUDA_ERROR_INVALID_DEVICE in place of CUDA_ERROR_NO_DEVICE
        refused = mapping.reason in ("duplicate", "order")
        assert (answer["cuInit"] == 101) == refused, answer


def test_what_no_driver_was_asked_is_marked() -> None:
    mapping = resolve("GPU-1,MIG-2", h100(4), order="PCI_BUS_ID")
    assert (indices(mapping.visible), mapping.documented) == ([1, 2], False)
